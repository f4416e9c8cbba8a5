"""The plan cache gives what parser and analyser give, for every text, and reads most texts once."""

from __future__ import annotations

import gc
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.lookup import plan as pull_plan
from standpipe.sql.lookup.plan_cache import LITERALS_MAX, PlanCache
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax import parser


def direct(text: str, sources: dict[str, Source]) -> PullPlan:
    (statement,) = parser.parse(text)
    plan = analyze(statement, sources, Context())
    assert isinstance(plan, PullPlan)
    return plan


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the parser has read since the test began."""
    texts: list[str] = []
    parse = parser.parse

    def noted(text: str) -> object:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr(parser, "parse", noted)
    return texts


@pytest.mark.parametrize(
    ("first", "second", "kept", "why"),
    [
        ("tail = 'a'", "tail = 'it''s'", True, "another literal"),
        ("tail = 'a'", "tail = '\"--/*`'", True, "what is inside a literal does not count"),
        ("tail = 'a'", "tail  = 'a'", False, "blanks are part of the shape"),
        ("\"TAIL\" = 'a'", "\"TAIL\" = 'b'", False, "quoted names are not kept"),
        ("tail = 'a' -- x", "tail = 'b' -- x", False, "nor are comments"),
        ("tail = 'a' /* 'x' */", "tail = 'b' /* 'x' */", False, "which may hold a quote"),
        ("tail IN ('a', 'b')", "tail IN ('c', 'd')", True, ""),
        ("tail IN ('a', 'b')", "tail IN ('a', 'b', 'c')", True, "of any length"),
        ("tail IN ('a', 'b')", "tail IN ('a')", False, "but one"),
        ("tail IN ('a', 'b') LIMIT 2", "tail IN ('a') LIMIT 2", False, "with another literal"),
        ("tail = 'a' LIMIT 5", "tail = 'a' LIMIT 6", True, "LIMIT is a literal too"),
        ("tail = CAST('a' AS STRING)", "tail = CAST('b' AS STRING)", False, "no bare literal"),
    ],
)
def test_what_is_kept(
    sources: dict[str, Source], reads: list[str], first: str, second: str, kept: bool, why: str
) -> None:
    cache = PlanCache(sources)
    texts = [f"SELECT * FROM by_tail WHERE {where};" for where in (first, second)]
    plans = [cache.plan(text, {}) for text in texts]
    assert len(reads) == (1 if kept else 2), why
    assert plans == [direct(text, sources) for text in texts], why


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("1", "-1", "the sign is part of the shape"),
        ("1", "3000000000", "INTEGER and BIGINT are different shapes"),
        ("1", "1.0", "so is DECIMAL"),
        ("1", "1E0", "and DOUBLE"),
        ("1", "'1'", "and STRING"),
        ("-5", "-2147483648", "an INTEGER, though its digits alone are none"),
        ("-2147483648", "-2147483649", "and the next is a BIGINT"),
    ],
)
def test_the_class_of_a_literal_counts(
    sources: dict[str, Source], first: str, second: str, why: str
) -> None:
    cache = PlanCache(sources)
    for number in (first, second):
        text = f"SELECT * FROM by_seats WHERE seats = {number};"
        assert outcome(lambda text=text: cache.plan(text, {})) == outcome(
            lambda text=text: direct(text, sources)
        ), why


def outcome(call: object) -> object:
    try:
        return call()  # type: ignore[operator]
    except StatementError as error:
        return (error.message, error.line, error.column, error.statement)


STRINGS = st.text(alphabet="ab'\"-/*`\\ \n;é0", max_size=6).map(
    lambda text: "'" + text.replace("'", "''") + "'"
)
NUMBERS = st.sampled_from(
    ["0", "7", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "1.5",
     "10.", ".5", "1E3", "1e-2", "123456789", "1234567890"]
)  # fmt: skip
LITERALS = STRINGS | NUMBERS | NUMBERS.map("-{}".format)
SHAPES = st.sampled_from(
    [
        "SELECT * FROM by_tail WHERE tail = {0};",
        "SELECT n, tail FROM by_tail WHERE tail IN ({0}, {1}) AND tail = {2}",
        "SELECT * FROM by_seats WHERE seats={0} LIMIT {1};",
        "SELECT * FROM by_fare WHERE fare = {0} AND fare IN ({0},{1},{2});",
        "SELECT * FROM by_two WHERE seats = {0} AND {1} = carrier;",
        "SELECT * FROM by_day WHERE carrier={0} AND WINDOWSTART>={1} AND WINDOWEND<{2};",
        "SELECT * FROM by_day WHERE carrier={0} AND WINDOWSTART BETWEEN {1} AND {2};",
        "SELECT * /* {0} */ FROM by_tail WHERE tail = {1};",
        "SELECT n AS a{0} FROM by_tail WHERE tail = {1};",
        "SELECT {0} FROM by_tail WHERE tail = {1};",
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(SHAPES, st.lists(st.tuples(LITERALS, LITERALS, LITERALS), min_size=2, max_size=4))
def test_the_cache_agrees_with_the_parser(
    sources: dict[str, Source], shape: str, literals: list[tuple[str, str, str]]
) -> None:
    cache = PlanCache(sources)
    for each in literals:
        text = shape.format(*each)
        assert outcome(lambda text=text: comparable(cache.plan(text, {}))) == outcome(
            lambda text=text: comparable(direct(text, sources))
        )


def comparable(plan: PullPlan) -> tuple[PullPlan, bool, bool]:
    """Functions are never equal; what they compute is tested in test_evaluate."""
    plain = msgspec.structs.replace(plan, where=None, cells=None)
    return plain, plan.where is None, plan.cells is None


USUAL_NUMBERS = ["0", "7", "123456789", "2147483647", "2147483648", "9223372036854775807"]


@settings(max_examples=examples(60), deadline=None)
@given(
    SHAPES | st.just("SELECT * FROM by_seats WHERE seats = -{0};"),
    st.lists(STRINGS | NUMBERS, min_size=3, max_size=3),
    st.sampled_from(USUAL_NUMBERS),
    st.sampled_from(["", "a", "x1 --", "/*"]),
)
def test_any_key_in_the_place_of_the_only_literal(
    sources: dict[str, Source], shape: str, literals: list[str], number: str, other: str
) -> None:
    """Wherever the cache says so, another text or number that its column holds is the only key."""
    cache, text = PlanCache(sources), shape.format(*literals)
    try:
        plan = cache.plan(text, {})
    except StatementError:
        return
    at = cache.any_key_at(text, {})
    if at is None:
        return
    is_text = text[at.start - 1] == "'"
    key = other if is_text else int(number) * (-1 if text[at.start - 1] == "-" else 1)
    if not is_text and (plan.source.key_columns[0].type, int(number) >= 2**31) == ("INTEGER", True):
        return
    again = text[: at.start] + (other if is_text else number) + text[at.stop :]
    assert direct(again, sources) == msgspec.structs.replace(plan, keys=((key,),))


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("SELECT * FROM by_tail WHERE tail = 'it''s';", "it''s"),
        ("SELECT * FROM by_tail WHERE 'x' = tail;", "x"),
        ("SELECT * FROM by_seats WHERE seats = 42;", "42"),
        ("SELECT * FROM by_seats WHERE seats = -42;", "42"),
        ("SELECT * FROM by_seats WHERE seats = 0;", "0"),
        ("SELECT * FROM by_seats WHERE seats = 42.0;", None),
        ("SELECT * FROM by_seats WHERE seats = '42';", None),
        ("SELECT * FROM by_fare WHERE fare = 42;", None),
        ("SELECT * FROM by_fare WHERE fare = 4.2;", None),
        ("SELECT * FROM by_two WHERE seats = 4 AND carrier = 'x';", None),
        ("SELECT * FROM by_tail WHERE tail IN ('x', 'y');", None),
        ("SELECT * FROM by_tail WHERE tail = 'x' LIMIT 1;", None),
        ("SELECT * FROM by_tail LIMIT 1;", None),
        ("SELECT * FROM by_tail;", None),
    ],
)
def test_where_any_key_may_stand(
    sources: dict[str, Source], text: str, literal: str | None
) -> None:
    cache = PlanCache(sources)
    assert cache.any_key_at(text, {}) is None, "it was not planned yet"
    try:
        cache.plan(text, {})
    except StatementError:
        assert literal is None
    at = cache.any_key_at(text, {})
    assert (None if at is None else text[at]) == literal
    assert cache.any_key_at(text, dict.fromkeys(pull_plan.PROPERTIES, "false")) is None


def test_the_least_recently_used_shape_goes_first(
    sources: dict[str, Source], reads: list[str]
) -> None:
    cache = PlanCache(sources, shapes_max=2)
    shapes = ["SELECT * FROM by_tail WHERE tail='x'" + " " * count for count in range(3)]
    for index in (0, 1, 0, 2, 0, 1):
        cache.plan(shapes[index], {})
    assert reads == [shapes[0], shapes[1], shapes[2], shapes[1]]
    assert len(cache) == 2


def long_select(count: int, expression: str = "tail", where: str = "tail = 'x'") -> str:
    columns = ", ".join(f"{expression} AS A{number}" for number in range(count))
    return f"SELECT {columns} FROM by_tail WHERE {where};"


def test_shapes_take_so_many_bytes(sources: dict[str, Source]) -> None:
    """A thousand shapes of a page each took half of what a worker may have, or more."""
    cache = PlanCache(sources, bytes_max=2_000_000)
    short, *long = [long_select(1), *(long_select(150) + " " * number for number in range(9))]
    for text in (short, *long):
        cache.plan(text, {})
    assert 1 < len(cache) < 5
    assert cache.cached(short, {}) is None, "the least recently used go first"
    assert cache.cached(long[-1], {}) is not None
    cache.plan(short, {})
    before = len(cache)
    for _ in range(3):
        cache.plan(long_select(900), {})
    assert len(cache) == before, "what takes more than all may is not kept, and drops nothing"
    assert cache.cached(short, {}) is not None


def test_a_shape_that_is_planned_again_is_counted_once(sources: dict[str, Source]) -> None:
    """Two requests of a new shape may be planned at once."""
    cache = PlanCache(sources, bytes_max=300_000)
    compiled = cache.compiled(long_select(20), {})
    for _ in range(3):
        cache.keep(compiled)
    cache.plan(long_select(19), {})
    assert len(cache) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (long_select(200), "columns"),
        (long_select(200, "n + n"), "sums"),
        (long_select(200, "ucase(tail)"), "calls"),
        (long_select(200, "case when tail = tail then tail end"), "cases"),
        (long_select(1, where="tail = 'x'" + " AND n<>7" * 60), "conditions"),
        (long_select(1, where="tail = 'x'" + " AND n<n" * 200), "columns that are compared"),
        (long_select(1, where="tail = 'x'" + " AND (n=worst OR n<worst)" * 9), "ORs"),
        (long_select(1, where="tail = 'x' AND tail <> '" + "long" * 5000 + "'"), "a literal"),
    ],
)
def test_what_a_plan_takes_is_not_counted_as_less(
    sources: dict[str, Source], text: str, why: str
) -> None:
    cache, count = PlanCache(sources), 4
    cache.compiled(text, {})  # what is kept of all texts is there
    gc.collect()
    tracemalloc.start()
    try:
        kept = [cache.compiled(text + " " * number, {}) for number in range(count)]
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept[0].template is not None, why
    assert taken / count < kept[0].bytes_, why


def test_a_list_without_end_is_kept_if_nothing_else_is_a_literal(
    sources: dict[str, Source],
) -> None:
    cache = PlanCache(sources)
    values = ", ".join(f"'{number}'" for number in range(LITERALS_MAX + 1))
    text = f"SELECT * FROM by_tail WHERE tail IN ({values})"
    assert len(cache.plan(f"{text} LIMIT 80;", {}).keys) == 65
    assert len(cache) == 0
    assert len(cache.plan(f"{text};", {}).keys) == 65
    assert len(cache) == 1


def test_properties_that_change_plans_are_asked_each_time(sources: dict[str, Source]) -> None:
    cache = PlanCache(sources)
    text = "SELECT * FROM by_tail WHERE tail = 'a' LIMIT 1;"
    cache.plan(text, {"ksql.streams.auto.offset.reset": "earliest"})
    assert len(cache) == 1
    with pytest.raises(StatementError, match="LIMIT clause in pull queries is currently disabled"):
        cache.plan(text, {pull_plan.ENABLE_LIMIT: "false"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found 0 instead"),
        ("SHOW TABLES;", "Only a SELECT"),
        ("SHOW TABLES; SHOW TABLES;", "found 2 instead"),
    ],
)
def test_one_select_only(sources: dict[str, Source], text: str, message: str) -> None:
    with pytest.raises(StatementError, match=message):
        PlanCache(sources).plan(text, {})


def test_a_plan_that_is_not_kept_is_freed_at_once(sources: dict[str, Source]) -> None:
    """A compiled clause was a ring of thousands of objects, left to the collection of garbage."""
    cache = PlanCache(sources)
    text = "SELECT CONCAT(tail, 'x') AS X FROM flights WHERE tail LIKE '%a%' OR LEN(tail) > 3;"
    text = text.replace("flights", next(n for n, s in sources.items() if s.is_materialized))
    gc.collect()
    gc.disable()
    try:
        compiled = cache.compiled(text, {})
        del compiled
        assert gc.collect() == 0
    finally:
        gc.enable()
