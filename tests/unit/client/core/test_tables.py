"""A table's description, its key, and where the key is: compared with what the nodes compute."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.examples import examples
from tests.samples import sample_stream, sample_table

from standpipe.client.core.literals import UnfitParameter, literal
from standpipe.client.core.tables import (
    SourceShape,
    TableMap,
    holders_of_route,
    members_of_status,
    plain_value,
)
from standpipe.config.registry import Config
from standpipe.data.encoding.store_keys import encode_key, partition_of
from standpipe.errors import ServerError, StatementError
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    Column,
    LogIndex,
    NodeId,
    Snapshot,
    Source,
    Window,
)
from standpipe.node.worker.statements.describe import source_description
from standpipe.node.worker.statements.show import AnswerTime, Scene
from standpipe.sql.declarations.published import kept_form
from standpipe.sql.lookup.plan_cache import PlanCache
from standpipe.sql.plans import Value
from standpipe.sql.types.types import parse_type
from standpipe.sql.types.values import coerce

WINDOW = Window(kind="TUMBLING", size_ms=1000, advance_ms=1000, grace_ms=0, retention_ms=9000)


def shape_of(
    *key_types: str, key_format: str = "JSON", window: Window | None = None
) -> SourceShape:
    """The shape of a table with these keys, as a node's own DESCRIBE tells it."""
    keys = [Column(name=f"K{n}", type=of, is_key=True) for n, of in enumerate(key_types)]
    values = [Column(name="n", type="DECIMAL(9, 2)"), Column(name="M", type="MAP<STRING, DATE>")]
    source = Source(
        name="T",
        kind="TABLE",
        columns=(*keys, *values),
        topic="T",
        partitions=4,
        key_format=key_format,
        value_format="JSON",
        statement="",
        window=window,
        is_materialized=True,
    )
    return described(source)


def described(source: Source) -> SourceShape:
    """The shape of a source, as a node's own DESCRIBE tells it."""
    snapshot = Snapshot(
        stamp=1,
        node_id=NodeId("n1"),
        service_id="s",
        cluster_id="c",
        log_index=LogIndex(1),
        leader=NodeId(""),
        nodes=(),
        sources=(source,),
        queries=(),
        assignment=Assignment(epoch=AssignmentEpoch(1), placements=()),
    )
    scene = Scene(snapshot=snapshot, settings=Config({}), instant=AnswerTime(boot_ms=0, unix_ms=0))
    found = source_description(scene, source, "", extended=False)["sourceDescription"]
    assert isinstance(found, dict)
    return SourceShape.read(found)


def test_what_describe_says() -> None:
    shape = shape_of("STRING", "STRUCT<`A` INTEGER>")
    assert [(each.name, each.type) for each in shape.key_columns] == [
        ("K0", "STRING"),
        ("K1", "STRUCT<`A` INTEGER>"),
    ]
    types = {name: str(of) for name, of in shape.columns.items()}
    assert (types["n"], types["M"]) == ("DECIMAL(9, 2)", "MAP<STRING, DATE>")
    with pytest.raises(ServerError, match="cannot be read"):
        SourceShape.read({})


@pytest.mark.parametrize(
    ("window", "row_key", "why"),
    [
        (None, ("K0",), "the key alone"),
        ("TUMBLING", ("K0", "WINDOWSTART"), "a key has a row in each window"),
        ("HOPPING", ("K0", "WINDOWSTART"), "windows that overlap begin apart"),
        ("SESSION", ("K0", "WINDOWSTART", "WINDOWEND"), "a session ends anywhere"),
    ],
)
def test_the_columns_that_tell_rows_apart(window: Any, row_key: tuple[str, ...], why: str) -> None:
    made = None if window is None else structs.replace(WINDOW, kind=window)
    assert shape_of("STRING", window=made).row_key == row_key, why


def test_rows_of_a_stream_share_keys() -> None:
    shape = described(sample_stream())
    assert [column.name for column in shape.key_columns] == ["K"]
    assert shape.row_key == ()


@pytest.mark.parametrize(
    ("of", "value", "plain"),
    [
        ("STRING", "näme", "näme"),
        ("INTEGER", -5, -5),
        ("BIGINT", 2**40, 2**40),
        ("DOUBLE", 1, 1.0),
        ("DOUBLE", 1.5, 1.5),
        ("BOOLEAN", True, True),
        ("BYTES", b"\x00", b"\x00"),
        ("DECIMAL(5, 2)", Decimal("1.5"), Decimal("1.50")),
        ("DECIMAL(5, 2)", 3, Decimal("3.00")),
        ("DATE", date(1970, 1, 3), 2),
        ("DATE", "1970-1-3", 2),
        ("TIME", time(0, 0, 1), 1000),
        ("TIMESTAMP", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1000),
        ("TIMESTAMP", datetime(1970, 1, 1, 0, 0, 1), 1000),  # noqa: DTZ001 counts as UTC
        ("ARRAY<STRING>", ["a"], ["a"]),
    ],
)
def test_the_partition_is_the_nodes(of: str, value: object, plain: Value) -> None:
    raw = encode_key((plain,), (Column(name="K0", type=of, is_key=True),), "JSON")
    assert raw is not None
    assert shape_of(of).partition((value,), 4) == partition_of(raw, 4)


@pytest.mark.parametrize("key", ["", "a", "näme", "x" * 50])
def test_a_text_as_kafka_has_it(key: str) -> None:
    raw = encode_key((key,), (Column(name="K0", type="STRING", is_key=True),), "KAFKA")
    assert raw is not None
    assert shape_of("STRING", key_format="KAFKA").partition((key,), 4) == partition_of(raw, 4)


@pytest.mark.parametrize(
    ("of", "value"), [("BIGINT", "x"), ("DATE", "2020-13-01"), ("DECIMAL(3, 1)", Decimal("1.55"))]
)
def test_a_key_that_does_not_fit_goes_to_any_node(of: str, value: object) -> None:
    assert shape_of(of).partition((value,), 4) is None


def test_a_key_in_sql() -> None:
    shape = shape_of("STRING", "BIGINT")
    assert shape.key_of({"k1": 5, "K0": "o'x"}) == (("o'x", 5), "K0 = 'o''x' AND K1 = 5")
    for wrong in ({"K0": "x"}, {"K0": "x", "K1": 1, "n": 2}, {"K0": "x", "K1": 1, "Z": 2}, {}):
        with pytest.raises(UnfitParameter, match="K0, K1"):
            shape.key_of(wrong)


#: values of each type, however a user spells them
SPELLED: dict[str, st.SearchStrategy[Any]] = {
    "STRING": st.text(st.characters(exclude_categories=["Cs"])) | st.dates() | st.binary(),
    "INTEGER": st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9).map(np.int64),
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9).map(Decimal),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**63), 2**63 - 1)
    | st.decimals(-100, 100, allow_nan=False, places=3)
    | st.floats(0, 1, width=32).map(np.float32),
    "DECIMAL(5, 2)": st.integers(-999, 999)
    | st.decimals(-999, 999, places=2, allow_nan=False)
    | st.decimals(-999, 999, places=1, allow_nan=False),
    "BOOLEAN": st.booleans() | st.booleans().map(np.bool_),
    "BYTES": st.binary()
    | st.binary().map(bytearray)
    | st.binary().map(lambda raw: b64encode(raw).decode().rstrip("=")),
    "DATE": st.dates()
    | st.dates(date(1700, 1, 1), date(2200, 1, 1)).map(pd.Timestamp)
    | st.dates().map(lambda day: datetime(day.year, day.month, day.day))  # noqa: DTZ001 counts as UTC
    | st.dates().map(lambda day: f"{day.year:04d}-{day.month}-{day.day}"),
    "TIME": st.times()
    | st.times().map(lambda each: f"{each.hour}:{each.minute}")
    | st.times().map(lambda each: f"{each:%H:%M:%S}.{each.microsecond // 100_000}"),
    "TIMESTAMP": st.datetimes()
    | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.timezones())  # noqa: DTZ001 a limit has no zone
    | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(pd.Timestamp)  # noqa: DTZ001 as UTC
    | st.dates()
    | st.dates().map(lambda day: f"{day.isoformat()}T00:00:00Z"),
}


@given(st.data(), st.sampled_from(sorted(SPELLED)))
@settings(max_examples=examples(200, thorough=2000), deadline=None)
def test_a_value_is_what_nodes_look_up(data: st.DataObject, of: str) -> None:
    """As `sql/types/values.py` has it, by way of the parser and the planner."""
    value = data.draw(SPELLED[of] | st.one_of(*SPELLED.values()))
    key = Column(name="K0", type=of, is_key=True)
    source = sample_table(columns=(key, Column(name="N", type="BIGINT")), is_materialized=True)
    text = f"SELECT * FROM T WHERE K0 = {literal(value)};"
    try:
        ((meant,),) = PlanCache({"T": source}).plan(text, {}).keys
    except StatementError:
        return  # the node says so
    assert plain_value(value, parse_type(of)) == meant


@pytest.mark.parametrize(
    ("of", "value", "given_as", "text_of"),
    [
        ("ARRAY<DATE>", ["2024-1-1", None], ["2024-1-1", None], "ARRAY<STRING>"),
        ("ARRAY<DOUBLE>", (1, Decimal("1.5")), [1, Decimal("1.5")], "ARRAY<DECIMAL(2, 1)>"),
        (
            "STRUCT<`A` TIME, `b` BYTES, `C` BIGINT>",
            {"a": "10:00", "B": "YWI", "other": 1},
            {"A": "10:00", "b": "YWI"},
            "STRUCT<`A` STRING, `b` STRING>",
        ),
    ],
)
def test_a_value_in_a_value_is_what_nodes_make_of_it(
    of: str, value: object, given_as: object, text_of: str
) -> None:
    wanted = coerce(given_as, parse_type(text_of), parse_type(of))
    assert plain_value(value, parse_type(of)) == wanted


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("STRING", 5),
        ("BIGINT", "5"),
        ("BIGINT", 5.0),
        ("BIGINT", True),
        ("INTEGER", np.int64(2**31)),
        ("DECIMAL(5, 2)", 1.5),
        ("DECIMAL(5, 2)", "1.5"),
        ("DATE", datetime(2024, 1, 1, 12, tzinfo=UTC)),
        ("TIME", "24:00"),
        ("BYTES", "Y=I"),
        ("ARRAY<STRING>", "a"),
        ("STRUCT<`A` STRING>", ["a"]),
        ("BIGINT", None),
        ("BIGINT", [1]),
    ],
)
def test_a_value_that_nodes_refuse_is_none(of: str, value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 each conversion has its own words
        plain_value(value, parse_type(of))


def test_an_instant_is_cut_to_the_millisecond() -> None:
    """Not to the one that is nearer to 1970, nor by a float that is a little less."""
    timestamp = parse_type("TIMESTAMP")
    for micros in (-1, -999, -1000, -1001, 1_700_000_000_123_000, 253_402_000_000_001_999):
        value = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        assert plain_value(value, timestamp) == micros // 1000


def test_the_key_of_a_window() -> None:
    shape = shape_of("STRING", window=WINDOW)
    assert [each.name for each in shape.key_columns] == ["K0"]
    start = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert shape.key_of({"K0": "a", "windowstart": start}) == (
        ("a",),
        "K0 = 'a' AND WINDOWSTART = 1000",
    )


def test_holders() -> None:
    route = {
        "partitions": [
            {"partition": 1, "activeHost": None, "standbyHosts": ["c:1"]},
            {"partition": 0, "activeHost": "a:1", "standbyHosts": ["b:1", None]},
        ]
    }
    holders = holders_of_route(route)
    assert holders == (("a:1", "b:1"), ("c:1",))
    table = TableMap(shape_of("STRING"), holders, 0.0)
    assert {table.holders_of((f"k{n}",)) for n in range(20)} == set(holders)
    assert TableMap(shape_of("STRING"), (), 0.0).holders_of(("k",)) == ()
    with pytest.raises(ServerError):
        holders_of_route({"partitions": [{}]})


def test_members() -> None:
    page = {"clusterStatus": {"a:1": {"standpipe": {"nodeId": "n1"}}}}
    assert members_of_status(page) == {"n1": "a:1"}
    with pytest.raises(ServerError):
        members_of_status({"clusterStatus": {"a:1": {}}})


def test_the_key_of_a_table_in_avro_is_where_its_own_topic_has_it() -> None:
    """DESCRIBE shows the format of the public topic, whose keys are in other partitions."""
    source = kept_form(
        sample_table(query_id="CTAS_T_1", key_format="AVRO", value_format="AVRO", partitions=4)
    )
    shape = described(source)
    assert shape.key_format == source.key_format == "KAFKA"
    assert shape.partition(("x",), 4) == partition_of(b"x", 4)
