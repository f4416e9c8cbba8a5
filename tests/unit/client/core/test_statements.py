"""The statements of lookups and inserts, as the nodes plan them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import msgspec
import pytest
from tests.samples import sample_table
from tests.unit.client.core.test_tables import described

from standpipe.client.core.literals import UnfitParameter
from standpipe.client.core.statements import (
    INSERT_CHARACTERS_MAX,
    INSERTS_MAX,
    KEYS_MAX,
    batches,
    identity,
    insert_text,
    lookups,
    wanted_keys,
)
from standpipe.client.core.tables import SourceShape, TableMap
from standpipe.model import Column, Source
from standpipe.sql.analyzer import analyze
from standpipe.sql.context import Context
from standpipe.sql.lookup.plan_cache import PlanCache
from standpipe.sql.plans import InsertValuesPlan
from standpipe.sql.syntax import parser

TYPES = {
    "ID": "STRING",
    "B": "BOOLEAN",
    "I": "INTEGER",
    "F": "DOUBLE",
    "M": "DECIMAL(6, 2)",
    "RAW": "BYTES",
    "D": "DATE",
    "T": "TIME",
    "TS": "TIMESTAMP",
    "A": "ARRAY<STRING>",
    "KV": "MAP<STRING, INTEGER>",
    "S": "STRUCT<`X` DECIMAL(4, 2), `Y` STRING>",
    "low": "BIGINT",
    "TABLE": "BIGINT",
}
GIVEN = {
    "id": "o'Hara; --",
    "b": False,
    "i": -5,
    "f": -1.5,
    "m": Decimal("-12.3"),
    "raw": b"\x00\xff",
    "d": date(1970, 1, 2),
    "t": time(0, 0, 1),
    "ts": datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
    "a": ["x", "it's"],
    "kv": {"k'": -1},
    "s": {"x": Decimal("1.5"), "y": "z"},
    "low": 1,
    "table": 2,
}
PLANNED = {
    "ID": "o'Hara; --",
    "B": False,
    "I": -5,
    "F": -1.5,
    "M": Decimal("-12.30"),
    "RAW": b"\x00\xff",
    "D": 1,
    "T": 1000,
    "TS": 2000,
    "A": ["x", "it's"],
    "KV": {"k'": -1},
    "S": {"X": Decimal("1.50"), "Y": "z"},
    "low": 1,
    "TABLE": 2,
}


def stream() -> Source:
    columns = [Column(name=name, type=of, is_key=name == "ID") for name, of in TYPES.items()]
    return msgspec.structs.replace(
        sample_table(), name="S", kind="STREAM", columns=tuple(columns), is_materialized=False
    )


def test_an_insert_is_planned_with_the_values_that_were_given() -> None:
    source = stream()
    (statement,) = parser.parse(insert_text(described(source), GIVEN))
    plan = analyze(statement, {"S": source}, Context())
    assert isinstance(plan, InsertValuesPlan)
    names = [column.name for column in source.columns]
    assert dict(zip(names, plan.values, strict=True)) == PLANNED


def test_an_insert_into_no_column() -> None:
    with pytest.raises(UnfitParameter, match="no column NOPE"):
        insert_text(described(stream()), {"NOPE": 1})


def table(*key_types: str) -> tuple[Source, TableMap]:
    keys = [Column(name=f"K{n}", type=of, is_key=True) for n, of in enumerate(key_types)]
    source = msgspec.structs.replace(
        sample_table(),
        columns=(*keys, Column(name="N", type="BIGINT")),
        key_format="JSON",
        is_materialized=True,
    )
    return source, TableMap(described(source), (("a:1",), ("b:1",)), 0.0)


def test_lookups_ask_for_each_key_at_its_holder() -> None:
    source, found = table("STRING")
    keys = [f"k{number}" for number in range(150)]
    asked: list[str] = []
    for text, holders in lookups(found, wanted_keys(found.shape, keys)):
        plan = PlanCache({source.name: source}).plan(text, {})
        assert 0 < len(plan.keys) <= KEYS_MAX
        assert {found.holders_of(key) for key in plan.keys} == {holders}
        asked += [str(key[0]) for key in plan.keys]
    assert sorted(asked) == sorted(keys), "each once"


def test_nodes_keep_the_plans_of_lookups() -> None:
    """Statements of the same size have one shape, also the largest."""
    source, found = table("STRING")
    plans = PlanCache({source.name: source})
    for first, second in ((0, 1000), (KEYS_MAX, 2000)):
        for start in (first, second):
            keys = [f"key{number}" for number in range(start, start + 400)]
            texts = [text for text, _ in lookups(found, wanted_keys(found.shape, keys))]
            missed = [text for text in texts if plans.cached(text, {}) is None]
            for text in missed:
                plans.plan(text, {})
    assert missed == []
    assert len(plans) <= KEYS_MAX.bit_length()


def test_keys_of_several_columns_are_asked_for_one_by_one() -> None:
    source, found = table("STRING", "BIGINT")
    wanted = wanted_keys(found.shape, [("a", 1), {"k1": 2, "k0": "b"}])
    texts = [text for text, _ in lookups(found, wanted)]
    plans = [PlanCache({source.name: source}).plan(text, {}) for text in texts]
    assert sorted(plan.keys for plan in plans) == [(("a", 1),), (("b", 2),)]
    for wrong in ("a", ("a",), ("a", 1, 2), {"k0": "a"}):
        with pytest.raises(UnfitParameter):
            wanted_keys(found.shape, [wrong])


@pytest.mark.parametrize(
    ("of", "one", "other"),
    [
        ("DOUBLE", 5, 5.0),
        ("DECIMAL(5, 2)", Decimal("1.5"), Decimal("1.50")),
        ("DECIMAL(5, 2)", 0, Decimal("-0.00")),
        ("TIMESTAMP", datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
        ("BYTES", bytearray(b"x"), b"x"),
        ("ARRAY<STRING>", ("a",), ["a"]),
    ],
)
def test_equal_keys_have_one_identity(of: str, one: object, other: object) -> None:
    _, found = table(of)
    assert identity((one,), found.shape) == identity((other,), found.shape)


def test_batches_are_small() -> None:
    texts = ["x" * 1000] * 250
    found = list(batches(texts))
    assert [text for batch in found for text in batch] == texts
    assert max(map(len, found)) <= INSERTS_MAX
    assert max(sum(map(len, batch)) for batch in found) <= INSERT_CHARACTERS_MAX
    assert list(batches(["y" * 10**6])) == [["y" * 10**6]], "the node says that it is too long"
    assert list(batches([])) == []


def test_a_shape_is_what_a_node_describes() -> None:
    assert isinstance(described(stream()), SourceShape)
