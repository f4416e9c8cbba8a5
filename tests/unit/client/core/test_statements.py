"""The statements of lookups and inserts, as the nodes plan them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from tests.samples import sample_table
from tests.unit.client.core.test_tables import described

from standpipe.client.core.literals import UnfitParameter
from standpipe.client.core.rows import Columns, LazyFreshness, RowSet
from standpipe.client.core.statements import (
    INSERT_CHARACTERS_MAX,
    INSERTS_MAX,
    KEYS_MAX,
    batches,
    identity,
    insert_text,
    is_repeatable,
    lookups,
    one_lookup,
    rows_of_keys,
    wanted_keys,
)
from standpipe.client.core.tables import SourceShape, TableMap
from standpipe.data.encoding import native
from standpipe.data.encoding.answer_values import reader_of
from standpipe.data.encoding.cells import cell_json
from standpipe.model import Column, Source
from standpipe.sql.analyzer import analyze
from standpipe.sql.context import Context
from standpipe.sql.lookup.plan_cache import PlanCache
from standpipe.sql.plans import InsertValuesPlan
from standpipe.sql.syntax import parser
from standpipe.sql.types.types import parse_type

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


def table(*key_types: str, key_format: str = "JSON") -> tuple[Source, TableMap]:
    keys = [Column(name=f"K{n}", type=of, is_key=True) for n, of in enumerate(key_types)]
    source = msgspec.structs.replace(
        sample_table(),
        columns=(*keys, Column(name="N", type="BIGINT")),
        key_format=key_format,
        is_materialized=True,
    )
    return source, TableMap(described(source), (("a:1",), ("b:1",)), 0.0)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("of", "key_format"),
    [("STRING", "KAFKA"), ("BIGINT", "KAFKA"), ("INTEGER", "KAFKA"), ("STRING", "JSON")],
)
def test_lookups_ask_for_each_key_at_its_holder(
    of: str, key_format: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    source, found = table(of, key_format=key_format)
    keys = [f"k{number}" if of == "STRING" else number * 7 - 300 for number in range(1500)]
    asked: list[object] = []
    for text, holders in lookups(found, wanted_keys(found.shape, [*keys, *keys[:100]])):
        plan = PlanCache({source.name: source}).plan(text, {})
        assert 0 < len(plan.keys) <= KEYS_MAX
        assert {found.holders_of(key) for key in plan.keys} == {holders}
        asked += [key[0] for key in plan.keys]
    assert sorted(map(str, asked)) == sorted(map(str, keys)), "each once"


@pytest.mark.parametrize("types", [("STRING",), ("BIGINT",), ("STRING", "BIGINT")])
@pytest.mark.parametrize("count", [1, 2, 300])
def test_one_lookup_asks_for_all_keys(types: tuple[str, ...], count: int) -> None:
    source, found = table(*types)
    given = [tuple(f"it's {n}" if of == "STRING" else n - 5 for of in types) for n in range(count)]
    ((text, holders),) = one_lookup(found, wanted_keys(found.shape, [*given, given[0]]))
    assert holders == (), "any node"
    plan = PlanCache({source.name: source}).plan(text, {})
    assert not plan.is_scan
    assert sorted(plan.keys) == sorted(given), "each once"


@pytest.mark.parametrize(
    ("keys", "sizes", "why"),
    [
        ([], [], "nothing to ask for"),
        (["a"], [1], "an equality"),
        ([f"{n}" for n in range(KEYS_MAX)], [KEYS_MAX], "as many as one statement has"),
        ([f"{n}" for n in range(KEYS_MAX + 1)], [KEYS_MAX, 1], "and one more"),
        (["x" * 19_000, "y" * 19_000, "z" * 19_000], [2, 1], "too long for one"),
        (["x" * 50_000], [1], "the node says that it is too long"),
        (["x" * 50_000, "y" * 50_000], [1, 1], "both are"),
    ],
)
def test_how_many_keys_a_statement_has(keys: list[str], sizes: list[int], why: str) -> None:
    _, found = table("STRING")
    found.holders = ()
    texts = [text for text, _ in lookups(found, wanted_keys(found.shape, keys))]
    assert [text.count("'") // 2 for text in texts] == sizes, why


def test_nodes_keep_the_plans_of_lookups() -> None:
    """Of any number of keys, once a list and a single key have been planned."""
    source, found = table("STRING")
    plans = PlanCache({source.name: source})
    for keys in (["a"], ["a", "b", "c", "d"]):
        for text, _ in lookups(found, wanted_keys(found.shape, keys)):
            plans.plan(text, {})
    assert len(plans) == 2
    for count in (1, 2, 3, 100, 700):
        keys = [f"it's {number}" for number in range(count)]
        texts = [text for text, _ in lookups(found, wanted_keys(found.shape, keys))]
        assert all(plans.cached(text, {}) is not None for text in texts)


def answer(columns: Columns, *tuples: tuple[object, ...]) -> RowSet:
    return RowSet(columns, list(tuples), LazyFreshness({"standpipe-served-by": "a"}))


def test_rows_come_in_the_order_of_the_keys() -> None:
    """Also of keys that are named twice, and of those without a row."""
    _, found = table("STRING")
    wanted = wanted_keys(found.shape, ["c", "a", "x", "c"])
    columns = Columns(("N", "K0"), ("BIGINT", "STRING"))
    answers = [answer(columns, (1, "a")), answer(columns, (3, "c"))]
    rows = rows_of_keys(found.shape, wanted, answers)
    assert [None if row is None else row["N"] for row in rows] == [3, 1, None, 3]
    assert rows[1] is not None
    assert rows[1].freshness is answers[0].freshness


def test_rows_of_keys_that_are_equal_in_several_ways() -> None:
    _, found = table("DOUBLE", "STRING")
    wanted = wanted_keys(found.shape, [(5, "a"), {"k1": "a", "k0": 5.0}, (5.5, "a")])
    columns = Columns(("K0", "K1", "N"), ("DOUBLE", "STRING", "BIGINT"))
    rows = rows_of_keys(found.shape, wanted, [answer(columns, (5.0, "a", 1))])
    assert [None if row is None else row["N"] for row in rows] == [1, 1, None]


SPELLED: list[tuple[str, list[object]]] = [
    ("DATE", [date(2024, 1, 1), pd.Timestamp("2024-01-01"), "2024-1-1", "2024-01-01T00:00Z"]),
    ("TIME", [time(10, 0, 0, 500_000), "10:00:00.5", "10:0:0.500"]),
    ("TIME", [time(10), "10:00", "10:00:00.000"]),
    (
        "TIMESTAMP",
        ["2024-01-01T00:00:00Z", "2024-01-01", date(2024, 1, 1), pd.Timestamp(2024, 1, 1)],
    ),
    ("TIMESTAMP", [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), "1969-12-31 23:59:59.999"]),
    ("BYTES", ["YWI", "YWI=", b"ab", memoryview(b"ab")]),
    ("DOUBLE", [Decimal("0.50"), 0.5, np.float32(0.5)]),
    ("DECIMAL(6, 2)", [5, Decimal("5.0"), np.int64(5)]),
    ("BIGINT", [np.int64(5), Decimal(5)]),
    ("STRING", [b"ab", "YWI="]),
]


def answered(source: Source, keys: Iterable[tuple[object, ...]]) -> RowSet:
    """The rows of keys as a node shows them, and a client reads them."""
    types = tuple(column.type for column in source.columns)
    parsed = [parse_type(of) for of in types]
    lines = [
        b"[%b]"
        % b",".join(cell_json(value, of) for value, of in zip((*key, n), parsed, strict=True))
        for n, key in enumerate(keys)
    ]
    columns = Columns(tuple(column.name for column in source.columns), types)
    return answer(columns, *reader_of(types).rows(lines))


@pytest.mark.parametrize("asks", [lookups, one_lookup])
@pytest.mark.parametrize(("of", "spelled"), SPELLED)
def test_a_key_is_found_however_it_is_spelled(of: str, spelled: list[object], asks: Any) -> None:
    """Alone, beside its other spellings, and as a part of a key."""
    for types, keys in [((of,), [(each,)]) for each in spelled] + [
        ((of,), list(zip(spelled, strict=True))),
        (("STRING", of), [("it's", each) for each in spelled]),
    ]:
        source, found = table(*types)
        wanted = wanted_keys(found.shape, keys)
        plans = [PlanCache({"T": source}).plan(text, {}) for text, _ in asks(found, wanted)]
        meant = {key: None for plan in plans for key in plan.keys}
        assert len(meant) == 1
        rows = rows_of_keys(found.shape, wanted, [answered(source, meant)])
        assert [row and row["N"] for row in rows] == [0] * len(keys)


def test_keys_that_no_answer_tells_apart() -> None:
    """An answer shows a TIME in seconds, so a row might be of either key."""
    source, found = table("TIME", "STRING")
    keys = [(time(10, 0, 0, 1000), "a"), ("10:00:00.002", "a")]
    wanted = wanted_keys(found.shape, keys)
    with pytest.raises(UnfitParameter, match="milliseconds of a TIME"):
        rows_of_keys(found.shape, wanted, [answered(source, [(36_000_002, "a")])])
    wanted = wanted_keys(found.shape, [keys[0], ("10:00:00.002", "b")])
    rows = rows_of_keys(found.shape, wanted, [answered(source, [(36_000_002, "b")])])
    assert [row and row["N"] for row in rows] == [None, 0]


@pytest.mark.parametrize(
    ("of", "key", "shown"), [("STRING", "a", "b"), ("DATE", "2024-1-1", date(2024, 1, 2))]
)
def test_a_row_that_nobody_asked_for_is_an_error(of: str, key: object, shown: object) -> None:
    """Else a key that the client reads in another way than nodes had no row."""
    _, found = table(of)
    columns = Columns(("K0", "N"), (of, "BIGINT"))
    with pytest.raises(
        UnfitParameter, match=f"T: the answer has a row of the key .*{re.escape(repr(shown))}"
    ):
        rows_of_keys(found.shape, wanted_keys(found.shape, [key]), [answer(columns, (shown, 1))])


def test_a_key_that_is_no_value_of_its_column_goes_its_own_way() -> None:
    """What is equal in Python need not be in SQL, and what no node can read is refused here."""
    _, found = table("BIGINT")
    wanted = wanted_keys(found.shape, [1, True, 1.0])
    asked = " ".join(text for text, _ in lookups(found, wanted))
    assert ["1.0E0" in asked, "TRUE" in asked, "= 1;" in asked or "IN (1," in asked] == [True] * 3
    _, texts = table("STRING")
    with pytest.raises(UnfitParameter, match="UTF-8"):
        list(lookups(texts, wanted_keys(texts.shape, ["a", "\ud800"])))


def test_keys_of_several_columns_are_asked_for_one_by_one() -> None:
    source, found = table("STRING", "BIGINT")
    wanted = wanted_keys(found.shape, [("a", 1), {"k1": 2, "k0": "b"}])
    texts = [text for text, _ in lookups(found, wanted)]
    plans = [PlanCache({source.name: source}).plan(text, {}) for text in texts]
    assert sorted(plan.keys for plan in plans) == [(("a", 1),), (("b", 2),)]
    for wrong in ("a", ("a",), ("a", 1, 2), {"k0": "a"}):
        with pytest.raises(UnfitParameter):
            wanted_keys(found.shape, [wrong])


@pytest.mark.parametrize("keys", ["ada", b"ada", {"k0": "ada"}], ids=repr)
def test_one_key_is_no_list_of_keys(keys: Any) -> None:
    """Else a text would be a key for each of its letters, and a dict its names."""
    _, found = table("STRING")
    with pytest.raises(UnfitParameter, match="this is one key: give a list"):
        wanted_keys(found.shape, keys)


@pytest.mark.parametrize(
    ("of", "one", "other"),
    [
        ("DOUBLE", 5, 5.0),
        ("DECIMAL(5, 2)", Decimal("1.5"), Decimal("1.50")),
        ("DECIMAL(5, 2)", 0, Decimal("-0.00")),
        ("TIMESTAMP", datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
        ("BYTES", bytearray(b"x"), b"x"),
        ("ARRAY<STRING>", ("a",), ["a"]),
        ("ARRAY<DOUBLE>", [1, None], [1.0, None]),
        ("STRUCT<`A` TIME, `b` STRING>", {"B": "x", "a": "10:00"}, {"A": time(10), "b": "x"}),
    ],
)
def test_equal_keys_have_one_identity(of: str, one: object, other: object) -> None:
    _, found = table(of)
    assert identity((one,), found.shape) == identity((other,), found.shape)
    assert {identity((one,), found.shape): 1}, "it can be looked up"


def test_what_nodes_refuse_has_an_identity_of_its_own() -> None:
    _, found = table("BIGINT")
    assert len({identity((value,), found.shape) for value in ("5", 5, 5.0, True, "5")}) == 5


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


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        ("SHOW TABLES;", True, "it only shows"),
        ("show tables; list topics; describe t", True, "several do"),
        ("-- x\nDESCRIBE `a;b`; /* y */ EXPLAIN Q;", True, "comments and quoted names"),
        ("SET 'a'='b'; DEFINE x='y';", True, "a node forgets them with the request"),
        ("INSERT INTO S VALUES ('SHOW');", False, "it writes"),
        ("SHOW TABLES; DROP TABLE T;", False, "one of them changes something"),
        ("-- SHOW TABLES;\nDROP TABLE T;", False, "a comment is no statement"),
        ("SHOWN;", False, "another word"),
        ("", False, "nothing"),
    ],
)
def test_which_statements_may_be_sent_twice(text: str, expected: bool, why: str) -> None:
    assert is_repeatable(text) is expected, why
