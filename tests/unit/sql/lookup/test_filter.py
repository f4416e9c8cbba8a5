"""Conditions beside the key, planned once for a shape: they mean what the Evaluator says."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.errors import StatementError
from standpipe.model import Column, Source
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.lookup import plan_cache
from standpipe.sql.lookup.plan_cache import PlanCache
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax import parser

TYPES = {
    "NAME": "STRING",
    "COUNT": "INTEGER",
    "SCORE": "BIGINT",
    "RATE": "DOUBLE",
    "PRICE": "DECIMAL(10, 2)",
    "LONG": "DECIMAL(38, 2)",
    "OK": "BOOLEAN",
    "DAY": "DATE",
}
TABLE = Source(
    name="T",
    kind="TABLE",
    columns=(
        Column(name="ID", type="STRING", is_key=True),
        *(Column(name=name, type=of) for name, of in TYPES.items()),
    ),
    topic="T",
    partitions=4,
    key_format="KAFKA",
    value_format="JSON",
    statement="",
    query_id="CTAS_T_1",
    table_id="T1",
    is_materialized=True,
)
SOURCES = {"T": TABLE}


def direct(text: str) -> PullPlan:
    (statement,) = parser.parse(text)
    plan = analyze(statement, SOURCES, Context())
    assert isinstance(plan, PullPlan)
    return plan


def select(where: str) -> str:
    return f"SELECT NAME, SCORE FROM T WHERE ID = 'k' AND {where};"


def kept(first: str, second: str) -> PullPlan | None:
    """The plan of the second text, if that of the first serves it."""
    cache = PlanCache(SOURCES)
    cache.plan(first, {})
    return cache.cached(second, {})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("SCORE > 5", "SCORE > 6"),
        ("5 < SCORE", "6 < SCORE"),
        ("NAME <> 'x'", "NAME <> 'it''s'"),
        ("SCORE > 5 AND NAME <> 'x'", "SCORE > 7 AND NAME <> 'y'"),
        ("(SCORE > 5 OR NOT NAME = 'x')", "(SCORE > 7 OR NOT NAME = 'y')"),
        ("SCORE BETWEEN 1 AND 5", "SCORE BETWEEN 3 AND 9"),
        ("NAME NOT IN ('a', 'b')", "NAME NOT IN ('c', 'd')"),
        ("COUNT IN (1, 3000000000)", "COUNT IN (2, 3000000001)"),
        ("RATE > 0.5", "RATE > 1.25"),
        ("RATE > 1", "RATE > 2"),
        ("RATE > 1E1", "RATE > 2E1"),
        ("PRICE > 0.50", "PRICE > 123456.789"),
        ("PRICE >= 5", "PRICE >= 6"),
        ("SCORE > -5", "SCORE > -6"),
        ("OK AND SCORE > 1", "OK AND SCORE > 2"),
        ("OK = TRUE AND SCORE > 1", None),
        ("NAME IS NOT NULL AND ROWTIME > 1", "NAME IS NOT NULL AND ROWTIME > 2"),
        ("COUNT < SCORE AND ID <> 'a'", "COUNT < SCORE AND ID <> 'b'"),
        ("SCORE > 5 LIMIT 1", "SCORE > 6 LIMIT 0"),
    ],
)
def test_what_is_planned_once(first: str, second: str | None) -> None:
    if second is None:
        assert kept(select(first), select(first)) is None
        return
    found = kept(select(first), select(second))
    assert found is not None
    wanted = direct(select(second))
    assert (found.keys, found.limit, found.schema) == (wanted.keys, wanted.limit, wanted.schema)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("SCORE > 5.5", "the type that holds both depends on the digits"),
        ("LONG > 5", "and may have too many"),
        ("DAY = '2020-01-01'", "a text that is no date is refused"),
        ("SCORE + 1 > 5", "arithmetic with literals has types of its own"),
        ("NAME LIKE 'a%'", "patterns"),
        ("LEN(NAME) > 5", "no column"),
        ("NAME = SUBSTRING('abc', 2)", "no literal"),
        ("(ID = 'k' OR SCORE > 5)", "another key"),
        ("(ID IN ('k', 'l') OR SCORE > 5)", "several"),
        ("SCORE IS DISTINCT FROM 5", ""),
    ],
)
def test_what_is_planned_each_time(where: str, why: str) -> None:
    assert kept(select(where), select(where)) is None, why


def test_a_number_that_may_not_fit_is_planned_each_time() -> None:
    long = "0." + "1" * 30
    for first, second in (("PRICE > 0.5", f"PRICE > {long}"), (f"PRICE > {long}", "PRICE > 0.5")):
        assert kept(select(first), select(second)) is None
    assert kept(select("RATE > 0.5"), select("RATE > " + "9" * 50 + ".5")) is None


def test_columns_that_have_no_key_are_scanned_each_time() -> None:
    text = "SELECT * FROM T WHERE SCORE > 5;"
    assert kept(text, text) is None


TEXTS = st.sampled_from(["", "a", "b", "it's", "é", '"'])
NUMBERS = st.sampled_from(
    [0, 1, -1, 5, 6, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**31), -(2**63)]
)
DECIMALS = st.sampled_from(["0.0", "0.50", "5.00", "5.0", "123456.789", "99999999.99", "5."])
DOUBLES = st.sampled_from(["1E0", "5e0", "1e-3", "9e307", "9007199254740993E0"])
ROWS = st.tuples(
    st.just("k"),
    st.none() | TEXTS,
    st.none() | st.integers(-3, 7) | st.just(2**31 - 1),
    st.none() | st.integers(-3, 7) | NUMBERS,
    st.none() | st.sampled_from([0.5, 5.0, 1e-3, float("nan"), float("inf"), 2.0**53, -0.0]),
    st.none() | st.sampled_from([Decimal("0.50"), Decimal("5.00"), Decimal("99999999.99")]),
    st.none() | st.just(Decimal("1.00")),
    st.none() | st.booleans(),
    st.none() | st.integers(0, 3),
    st.integers(0, 7),
)
SIGNS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])


@st.composite
def conditions(draw: Any, depth: int = 2) -> str:
    kind = draw(st.integers(0, 9 if depth else 6))
    texts = TEXTS.map(lambda text: "'" + text.replace("'", "''") + "'")
    column, literals = draw(
        st.sampled_from(
            [
                ("NAME", texts),
                ("COUNT", NUMBERS.map(str)),
                ("SCORE", NUMBERS.map(str)),
                ("ROWTIME", NUMBERS.map(str)),
                ("RATE", NUMBERS.map(str) | DECIMALS | DOUBLES),
                ("PRICE", NUMBERS.map(str) | DECIMALS),
                ("SCORE", DECIMALS),
                ("NAME", NUMBERS.map(str)),
                ("DAY", st.just("'1970-01-02'") | texts),
            ]
        )
    )
    one, two = draw(literals), draw(literals)
    no = draw(st.sampled_from(["", "NOT "]))
    if kind <= 3:
        return f"{column} {draw(SIGNS)} {one}"
    if kind == 4:
        return f"{one} {draw(SIGNS)} {column}"
    if kind == 5:
        return f"{column} {no}BETWEEN {one} AND {two}"
    if kind == 6:
        more = draw(st.sampled_from(["OK", "NAME IS NULL", "NOT OK", "OK = TRUE", "COUNT = SCORE"]))
        return draw(st.sampled_from([f"{column} {no}IN ({one}, {two})", more]))
    if kind == 7:
        return f"NOT ({draw(conditions(depth - 1))})"
    word = "AND" if kind == 8 else "OR"
    return f"({draw(conditions(depth - 1))} {word} {draw(conditions(depth - 1))})"


def outcome(text: str, plan: Any) -> object:
    try:
        return plan(text)
    except StatementError as error:
        return (error.message, error.line, error.column, error.statement)


@settings(max_examples=examples(60), deadline=None)
@given(conditions(), st.data())
@example("RATE = 9007199254740993", None)
@example("NOT (NAME <> 'a')", None)
def test_a_kept_shape_means_what_the_evaluator_says(where: str, data: Any) -> None:
    """Whatever other literals of their classes stand in it."""
    text = select(where)
    cache = PlanCache(SOURCES)
    try:
        cache.plan(text, {})
    except StatementError:
        return
    if len(cache) == 0:
        return
    for other in [text] if data is None else [text, others_in(text, data)]:
        found = outcome(other, lambda each: cache.plan(each, {}))
        wanted = outcome(other, direct)
        if not isinstance(found, PullPlan) or not isinstance(wanted, PullPlan):
            assert found == wanted
            continue
        assert found.keys == wanted.keys
        for _, *columns in ROWS_TRIED if data is None else [*ROWS_TRIED, data.draw(ROWS)]:
            row = (*found.keys[0], *columns)
            assert found.where is not None
            assert wanted.where is not None
            assert found.where(row) is wanted.where(row), (other, row)


def others_in(text: str, data: Any) -> str:
    """The text with other literals in their places, of the same classes."""
    pieces = plan_cache._split(text)
    by_class = {
        "s": TEXTS.map(lambda one: "'" + one.replace("'", "''") + "'"),
        "i": st.integers(0, 7).map(str),
        "b": st.sampled_from([str(2**31), str(2**53 + 1)]),
        "d": DECIMALS,
        "f": DOUBLES,
    }
    for index in range(1, len(pieces), 2):
        made = by_class.get(plan_cache._class_of(pieces[index]))
        if made is not None:
            pieces[index] = data.draw(made)
    return "".join(pieces)


_DECIMAL = Decimal("5.00")
ROWS_TRIED: list[tuple[Any, ...]] = [
    ("k", "a", 1, 5, 5.0, _DECIMAL, _DECIMAL, True, 1, 5),
    ("k", None, None, None, None, None, None, None, None, 0),
    ("k", "b", 6, 2**53 + 1, float("nan"), Decimal("0.50"), _DECIMAL, False, 0, 6),
]
