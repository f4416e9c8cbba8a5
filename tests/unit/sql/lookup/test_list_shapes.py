"""Lists of keys of all lengths have one plan, which is what the parser makes of each."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.sql.lookup.test_plan_cache import comparable, direct, outcome

from standpipe.errors import StatementError
from standpipe.model import Column, Source
from standpipe.sql.lookup.list_shapes import ListText, class_of_number
from standpipe.sql.lookup.plan_cache import PlanCache
from standpipe.sql.lookup.template import KEYS_MAX


@pytest.fixture(scope="module")
def tables(sources: dict[str, Source]) -> dict[str, Source]:
    """Those of all tests, and one whose key is written as a text, but is none."""
    by_tail = sources["BY_TAIL"]
    columns = (Column(name="FLOWN", type="DATE", is_key=True), *by_tail.columns[1:])
    return {**sources, "BY_DATE": replace(by_tail, name="BY_DATE", columns=columns)}


TAIL = "SELECT * FROM by_tail WHERE tail IN ({0});"


def read(text: str) -> tuple[list[object], list[str]] | None:
    """The items of a list, and what stands in the text at their offsets."""
    found = ListText.read(text)
    if found is None:
        return None
    return found.values(), [text[at] for at in found.offsets()]


@pytest.mark.parametrize(
    ("text", "values", "why"),
    [
        ("K IN ('a', 'b')", ["a", "b"], ""),
        ("K IN ('a','b','c')", ["a", "b", "c"], "without blanks"),
        ("K IN ('a' ,\n 'b' ,\n 'c')", ["a", "b", "c"], "with many"),
        ("K IN ('a', 'b','c')", None, "with different ones"),
        ("K IN ('it''s', '', 'a''')", ["it's", "", "a'"], "quotes inside"),
        ("K IN ('''a', 'b''''c')", ["'a", "b''c"], "at the beginning, and two"),
        ("K IN ('a, b', '(c)')", ["a, b", "(c)"], "commas and brackets"),
        ("K IN ('a', 'b", None, "not closed"),
        ("K IN ('a')", None, "one"),
        ("K IN ('a' 'b')", None, "no comma"),
        ("K IN ('a', , 'b')", None, "two commas"),
        ("K IN ('a', 7)", None, "two classes: the comma is not all that is between texts"),
        ("K IN ('a', NULL, 'b')", None, ""),
        ("K = 'x' AND L IN ('a', 'b')", None, "another literal"),
        ("K IN (1, 2, 3)", [1, 2, 3], ""),
        ("K IN (1,2)", [1, 2], ""),
        ("K IN (007, 2147483648)", [7, 2147483648], "INTEGER and BIGINT"),
        ("K IN (1, -2)", None, "a sign"),
        ("K IN (1, 2.0)", None, "a point"),
        ("K IN (1, 2", None, "not closed"),
        ("K IN (1, )", None, "no number"),
        ("K IN (1, ²)", None, "a digit, and no number"),
        ("K IN (1, 9223372036854775808)", None, "beyond BIGINT"),
        ("K IN (1)", None, "one"),
        ("SELECT A, B FROM T WHERE K = 7", None, "no list"),
    ],
)
def test_what_is_read_as_a_list(text: str, values: list[object] | None, why: str) -> None:
    found = read(text)
    assert (None if found is None else found[0]) == values, why
    if found is not None:
        mark = "'" if "'" in text else "0123456789"
        assert all(each in mark for each in found[1]), "where the parser finds the literals"


def test_what_is_too_long_is_left_to_the_parser() -> None:
    for item in ("'a'", "1"):
        assert read(f"K IN ({', '.join([item] * KEYS_MAX)})") is not None
        assert read(f"K IN ({', '.join([item] * (KEYS_MAX + 1))})") is None
    assert read(f"K IN ('a', '{'b' * 65_000}')") is not None
    assert read(f"K IN ('a', '{'b' * 65_536}')") is None


@pytest.mark.parametrize(
    ("digits", "class_", "why"),
    [
        ("0", "i", ""),
        ("2147483647", "i", "the largest INTEGER"),
        ("2147483648", "b", ""),
        ("0000000000000000000000001", "i", "zeros do not count"),
        ("9223372036854775807", "b", "the largest BIGINT"),
        ("9223372036854775808", "x", ""),
        ("9" * 5000, "x", "more digits than are converted"),
    ],
)
def test_the_class_of_a_number(digits: str, class_: str, why: str) -> None:
    assert class_of_number(digits) == class_, why


@pytest.mark.parametrize(
    ("text", "is_kept", "why"),
    [
        (TAIL, True, ""),
        ("select N, TAIL from by_tail where tail in ({0})", True, "columns"),
        ("SELECT * FROM by_tail WHERE ({0}) IN tail;", False, "no statement"),
        ('SELECT * FROM "BY_TAIL" WHERE tail IN ({0});', False, "quoted names are not kept"),
        ("SELECT * FROM by_tail /* , */ WHERE tail IN ({0});", False, "nor are comments"),
        ("SELECT * FROM by_tail WHERE tail IN ({0}); -- x", False, ""),
        ("SELECT * FROM by_tail WHERE tail IN ({0}) LIMIT 5;", False, "another literal"),
        ("SELECT * FROM by_tail WHERE tail NOT IN ({0});", False, "a scan"),
        ("SELECT * FROM by_tail WHERE tail IN ({0}) AND n > n;", False, "a filter"),
        ("SELECT CONCAT({0}) FROM by_tail WHERE tail = tail;", False, "no keys"),
        ("SELECT * FROM by_tail WHERE tail IN (CONCAT({0}));", False, "an expression"),
        ("SELECT n AS a1 FROM by_tail WHERE tail IN ({0});", True, "a digit in a name"),
    ],
)
def test_which_lists_have_one_plan(
    sources: dict[str, Source], text: str, is_kept: bool, why: str
) -> None:
    """The second text of the same surroundings needs no parser."""
    cache = PlanCache(sources)
    outcome(lambda: cache.plan(text.format("'a', 'b'"), {}))
    longer = text.format("'c', 'd', 'd', 'e'")
    found = cache.cached(longer, {})
    assert (found is not None) is is_kept, why
    if found is not None:
        assert found == direct(longer, sources)


def test_a_list_of_another_class_is_another_shape(sources: dict[str, Source]) -> None:
    cache = PlanCache(sources)
    by_seats = "SELECT * FROM by_seats WHERE seats IN ({0});"
    cache.plan(by_seats.format("1, 2"), {})
    assert cache.cached(by_seats.format("3, 4, 5"), {}) is not None
    assert cache.cached(by_seats.format("3, 3000000000"), {}) is None
    assert cache.cached(by_seats.format("'3', '4'"), {}) is None
    assert cache.cached(by_seats.format("3.0, 4.0"), {}) is None


def test_a_wrong_key_is_the_parsers_to_judge(tables: dict[str, Source]) -> None:
    """A text that is no date, in a list whose shape is known from dates."""
    cache = PlanCache(tables)
    text = "SELECT * FROM by_date WHERE flown IN ({0});"
    cache.plan(text.format("'2026-01-01', '2026-01-02'"), {})
    good = text.format("'2026-01-03', '2026-01-04', '2026-01-03'")
    found = cache.cached(good, {})
    assert found is not None
    assert comparable(found) == comparable(direct(good, tables))
    wrong = text.format("'2026-01-03', 'tomorrow'")
    assert cache.cached(wrong, {}) is None
    with pytest.raises(StatementError, match="can not be converted"):
        cache.plan(wrong, {})


def test_as_many_keys_as_one_query_may_name(sources: dict[str, Source]) -> None:
    cache = PlanCache(sources)
    for count in (2, KEYS_MAX, KEYS_MAX + 1):
        text = TAIL.format(", ".join(f"'{n}'" for n in range(count)))
        assert outcome(lambda text=text: cache.plan(text, {})) == outcome(
            lambda text=text: direct(text, sources)
        )


ITEMS = {
    "texts": st.text(alphabet="ab',() -/*\"`\0é", max_size=4).map(
        lambda text: "'" + text.replace("'", "''") + "'"
    ),
    "numbers": st.sampled_from(
        ["0", "7", "08", "2147483647", "2147483648", "9223372036854775807", "12345678901"]
    ),
    "any": st.sampled_from(["'a'", "''", "7", "-7", "1.5", "1E3", "NULL", "'2026-01-01'"]),
}
SURROUNDINGS = st.sampled_from(
    [
        TAIL,
        "SELECT * FROM by_seats WHERE seats IN ({0})",
        "SELECT * FROM by_fare WHERE fare IN ({0});",
        "SELECT * FROM by_date WHERE flown IN ({0});",
        "SELECT n FROM by_tail WHERE tail IN ({0}) LIMIT 3;",
        "SELECT * FROM by_day WHERE carrier IN ({0}) AND WINDOWSTART > 5;",
        "SELECT * FROM by_two WHERE carrier IN ({0}) AND seats = 1;",
    ]
)
LISTS = st.sampled_from(sorted(ITEMS)).flatmap(
    lambda kind: st.lists(ITEMS[kind], min_size=1, max_size=6)
)


@settings(max_examples=examples(60), deadline=None)
@given(SURROUNDINGS, st.lists(LISTS, min_size=2, max_size=4), st.sampled_from([", ", ",", " ,  "]))
def test_a_list_is_planned_as_the_parser_does(
    tables: dict[str, Source], text: str, lists: list[list[str]], comma: str
) -> None:
    cache = PlanCache(tables)
    for items in lists:
        whole = text.format(comma.join(items))
        found = cache.cached(whole, {})
        expected = outcome(lambda whole=whole: comparable(direct(whole, tables)))
        assert found is None or comparable(found) == expected
        assert outcome(lambda whole=whole: comparable(cache.plan(whole, {}))) == expected


def test_lists_of_all_lengths_are_one_entry(sources: dict[str, Source]) -> None:
    cache = PlanCache(sources)
    plans = [
        cache.plan(TAIL.format(", ".join(f"'{n}'" for n in range(count))), {})
        for count in range(2, 100)
    ]
    assert len(cache) == 1
    assert all(len(more.keys) == len(fewer.keys) + 1 for fewer, more in pairwise(plans))
