"""JSON_SR that Spark reads: the same cells as in a node, and the same records are bad. Static
frames, no Kafka and no registry: nothing is asked of one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.e2e.test_avro_on_spark import BAD, cell, shown
from tests.e2e.test_avro_sinks_on_spark import CHANCE, any_type, value_of
from tests.e2e.test_parse_on_spark import RECORDS
from tests.samples import sample_stream

from standpipe.data.encoding.framed_values import framed
from standpipe.data.encoding.row_values import UnreadableValue
from standpipe.data.encoding.source_values import to_key_values, to_values
from standpipe.model import Column, Source, Window
from standpipe.pipeline.io import type_mapping
from standpipe.pipeline.io.source import parse, visible_columns
from standpipe.sql.spark.to_spark import spark_input
from standpipe.sql.types.types import STRING, SqlType, parse_type

pytestmark = pytest.mark.e2e

BYTES_MAX: Final = 2**20
#: a MAP within a MAP within … has more values with each depth than Spark and a node compare in time
DEPTH_MAX: Final = 3
UNKNOWN_ID: Final = 2**31 - 2
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def source_of(*columns: Column, **changes: Any) -> Source:
    given = {"key_format": "JSON_SR", "value_format": "JSON_SR", **changes}
    return sample_stream(columns=columns, **given)


def values(**types: str) -> Source:
    """A stream whose values have these columns."""
    return source_of(*(Column(name=name, type=of) for name, of in types.items()))


def read(
    spark: SparkSession, source: Source, records: Sequence[tuple[bytes | None, bytes | None]]
) -> list[Any]:
    """What Spark makes of records: cells in the order of the columns, BAD, or None for a null."""
    rows = [
        (None if key is None else bytearray(key), None if value is None else bytearray(value), 0, n)
        for n, (key, value) in enumerate(records)
    ]
    frame = spark.createDataFrame(rows, RECORDS.rpartition(",")[0]).selectExpr(
        "*", "timestamp_millis(1000) AS timestamp"
    )
    given = spark_input(source, "V")
    parsed = parse(frame, given, bytes_max=BYTES_MAX).select(
        "__bad", "__null_value", *visible_columns(given)
    )
    wire = [
        type_mapping.to_wire(f.col(f"`{each.name}`"), parse_type(each.type)).alias(each.name)
        for each in source.columns
    ]
    found = parsed.select("__bad", "__null_value", *wire, "ROWOFFSET").sort("ROWOFFSET").collect()
    return [
        BAD if row[0] is not None else None if row[1] else [cell(each) for each in list(row)[2:-1]]
        for row in found
    ]


def read_by_a_node(source: Source, value: bytes) -> Any:
    columns = source.value_columns
    try:
        return to_values(source, columns)(value)
    except UnreadableValue:
        return BAD


def as_json(value: Any, of: SqlType, chance: random.Random) -> Any:
    """A value as some producer writes it: a MAP in either form, names in another case."""
    if value is None:
        return None
    match of.base:
        case "ARRAY":
            return [as_json(each, of.arguments[0], chance) for each in value]
        case "MAP":
            made = {key: as_json(each, of.arguments[1], chance) for key, each in value.items()}
            if chance.random() < 0.5:
                return made
            return [{"key": key, "value": each} for key, each in made.items()]
        case "STRUCT":
            named = zip(of.field_names, of.arguments, strict=True)
            return {
                chance.choice((name, name.lower())): as_json(value[name], part, chance)
                for name, part in named
            }
        case "DOUBLE":
            return value + 0.0  # -0.0 loses its sign where a text is rewritten (`loose_json.py`)
        case _:
            return value


def other_json(chance: random.Random) -> Any:
    """What a column of STRING has as its own text, but for blanks."""
    kept = {"b": Decimal("1.0"), "a": [2, {"é": None}], "wide": 10**44}
    return chance.choice((kept, [kept], 5, Decimal("1.5"), Decimal("-0.0"), False))


def broken(value: bytes, chance: random.Random) -> bytes:
    match chance.randrange(4):
        case 0:
            return value[: chance.randrange(len(value))]
        case 1:
            return value[5:]
        case 2:
            return b"\x01" + value[1:]
        case _:
            at = chance.randrange(5, len(value))
            return value[:at] + b"\xc3" + value[at + 1 :]


def depth_of(of: SqlType) -> int:
    return 1 + max(map(depth_of, of.arguments), default=-1)


def a_type(chance: random.Random) -> SqlType:
    while depth_of(of := any_type(chance.randrange(60))) > DEPTH_MAX:
        pass
    return of


@pytest.mark.parametrize("seed", range(8))
def test_the_same_cells_as_in_a_node(spark: SparkSession, seed: int) -> None:
    """Whatever the schema that a record names; a sixth of the records is broken."""
    chance = random.Random(seed)
    CHANCE.seed(seed)  # of types and values: the same, whichever tests ran before
    types = [a_type(chance) for _ in range(3 if seed % 4 else 1)]
    columns = [Column(name=f"Col{n}" if n else "C", type=str(of)) for n, of in enumerate(types)]
    source = source_of(*columns, wrap_single_value=bool(seed % 8))
    records: list[bytes] = []
    for turn in range(120):
        parts = [as_json(value_of(of), of, chance) for of in types]
        parts = [other_json(chance) if of == STRING and chance.random() < 0.3 else each
                 for of, each in zip(types, parts, strict=True)]  # fmt: skip
        whole = dict(zip([column.name for column in columns], parts, strict=True))
        data = framed(
            chance.choice((1, UNKNOWN_ID, -7)),
            _encode(whole if source.wrap_single_value else parts[0]),
        )
        records.append(broken(data, chance) if turn % 6 == 0 else data)
    wanted = [read_by_a_node(source, record) for record in records]
    found = read(spark, source, [(None, record) for record in records])
    for record, one, other in zip(records, found, wanted, strict=True):
        assert shown(one) == shown(other), (record, columns)
    assert 4 < sum(each == BAD for each in wanted) < 40


@pytest.mark.parametrize(
    ("of", "values_"),
    [
        ("INT", [b'{"V":1}', b'{"v":"7"}', b'{"v":2.7}', b'{"vv":1}', b'{"V":"x"}', b"5", b"null",
                 b"", b" "]),
        ("STRING", [b'{"V":{"a":[1, 2]}}', b'{"V":"\xff"}', b'\x00{"V":"a"}']),
        ("MAP<STRING, INT>", [
            b'{"V":{"a":1,"b":null}}',
            b'{"V":[{"key":"a","value":1},{"key":"b"}]}',
            b'{"v":[{"value":"5","key":"a","more":[]}]}',
            b'{"V":[{"key":1,"value":1},{"key":true,"value":null}]}',
            b'{"V":[{"key":18446744073709551617,"value":1}]}',
            b'{"V":[{"key":"a","value":1},{"key":"a","value":2}]}',
            b'{"V":[]}',
            b'{"V":null}',
            b'{"V":[{"key":1.5,"value":1}]}',
            b'{"V":[{"key":null,"value":1}]}',
            b'{"V":[{"key":{},"value":1}]}',
            b'{"V":[{"value":1}]}',
            b'{"V":[null]}',
            b'{"V":["a"]}',
            b'{"V":[{"key":"a","value":"x"}]}',
            b'{"V":"a"}',
        ]),
        ("MAP<STRING, STRING>", [
            b'{"V":[{"key":"a","value":"x","key":"b"}],"Other":1}',
            b'{"V":[{"key":"a"}],"X":{"a":1,"a":2}}',
            b'{"V":{"a":"x","a":"y"},"other":"1"}',
        ]),
        ("MAP<STRING, MAP<STRING, INT>>", [
            b'{"V":[{"key":"a","value":[{"key":"b","value":1}]}]}',
            b'{"V":{"a":[{"key":"b","value":1}],"c":null}}',
        ]),
        ("ARRAY<MAP<STRING, INT>>", [
            b'{"V":[[{"key":"a","value":1}],{"b":2},null]}', b'{"V":{"a":1}}',
        ]),
        ("STRUCT<M MAP<STRING, STRING>, N INT>", [
            b'{"V":{"m":[{"key":"a","value":"x"}],"n":"2"}}', b'{"V":[]}',
        ]),
        ("ARRAY<STRUCT<`key` STRING, `value` INT>>", [b'{"V":[{"key":"a","value":1}]}']),
    ],
)  # fmt: skip
def test_values_as_in_a_node(spark: SparkSession, of: str, values_: list[bytes]) -> None:
    source = values(V=of, Other="INT")
    records = [framed(7, each) for each in values_]
    found = read(spark, source, [(None, each) for each in records])
    for record, one in zip(records, found, strict=True):
        assert one == read_by_a_node(source, record), record


@pytest.mark.parametrize(
    "text",
    [
        '{"b":1.0,"a":2}',
        "1.0",
        "1.50",
        "1e3",
        "-0.0",
        "1" * 45,
        "1e400",
        "true",
        '"a"',
        '"1.0"',
        "null",
    ],
)
def test_other_json_in_a_text_does_not_depend_on_other_columns(
    spark: SparkSession, text: str
) -> None:
    """A record that is parsed again, as its MAP is an array, a number a text, or a name in another
    case, has the texts of one that is not."""
    source = values(M="MAP<STRING, INT>", N="BIGINT", S="STRING", small="STRING", LEFT="STRING")
    plain, *others = (
        framed(7, f'{{"M":{m},"{n}":{number},"S":{text},"small":{text},"left":{text}}}'.encode())
        for m, n, number in (
            ('{"k":1}', "N", "7"),
            ('[{"key":"k","value":1}]', "N", "7"),
            ('{"k":"1"}', "n", '"7"'),
            ('{"k":1}', "N", '7,"Left":5'),
        )
    )
    expected, *found = read(spark, source, [(None, each) for each in (plain, *others)])
    assert found == [expected] * 3


FRAMES: Final[Sequence[tuple[bytes | None, Any, str]]] = (
    (b"\0\0\0\0\7" + b'{"V":1}', [1], "a frame"),
    (b"\0\xff\xff\xff\xff" + b'{"V":1}', [1], "no schema has the id: none is asked for"),
    (b'{"V":1}', BAD, "JSON without a frame"),
    (b"\1\0\0\0\7" + b'{"V":1}', BAD, "another magic byte"),
    (b"\0\0\0\0", BAD, "a byte too short"),
    (b"\0\0\0\0\7", BAD, "nothing behind it"),
    (b"\0\0\0\0\7\0\0\0\0\7" + b'{"V":1}', BAD, "two frames"),
    (b"", BAD, "nothing at all"),
    (None, None, "no event"),
)


def test_frames(spark: SparkSession) -> None:
    source = values(V="INT")
    found = read(spark, source, [(None, value) for value, _, _ in FRAMES])
    for one, (value, expected, why) in zip(found, FRAMES, strict=True):
        assert one == expected, why
        assert value is None or read_by_a_node(source, value) == expected, why


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ({"K": "BIGINT"}, [framed(9, b"5"), framed(9, b'"5"'), b"5"]),
        ({"K": "STRING"}, [framed(9, b'"\xc3\xbc"'), framed(9, b"null"), framed(9, b'"a')]),
        ({"K": "INT", "L": "STRING"}, [framed(9, b'{"K":1,"l":"b"}'), framed(9, b'["a"]')]),
    ],
)
def test_keys_as_in_a_node(spark: SparkSession, columns: dict[str, str], keys: list[bytes]) -> None:
    declared = [Column(name=name, type=of, is_key=True) for name, of in columns.items()]
    source = source_of(*declared, Column(name="V", type="INT"))
    found = read(spark, source, [(key, framed(9, b'{"V":1}')) for key in keys])
    for key, one in zip(keys, found, strict=True):
        try:
            assert one == [*to_key_values(source)(key), 1], key
        except UnreadableValue:
            assert one == BAD, key


def test_a_windowed_key(spark: SparkSession) -> None:
    """The window stands behind the key's JSON."""
    source = replace(
        source_of(Column(name="K", type="INT", is_key=True), Column(name="V", type="INT")),
        window=Window(kind="TUMBLING", size_ms=1, advance_ms=1, grace_ms=0, retention_ms=1),
    )
    key = framed(9, b"5") + (7).to_bytes(8, "big")
    assert read(spark, source, [(key, framed(9, b'{"V":1}'))]) == [[5, 1]]
