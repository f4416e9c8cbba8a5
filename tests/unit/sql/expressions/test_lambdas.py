"""TRANSFORM, FILTER and REDUCE over a row: what they give, and how much work they may do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.samples import sample_table

from standpipe.errors import NotComputable, StatementError
from standpipe.model import Column
from standpipe.sql.expressions import evaluator as evaluators
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.lookup.columns import PullNames
from standpipe.sql.syntax import parser
from standpipe.sql.syntax.ast import Query, SelectItem

COLUMNS = (
    Column(name="KEY0", type="STRING", is_key=True),
    Column(name="N", type="BIGINT"),
    Column(name="A", type="ARRAY<INTEGER>"),
    Column(name="L", type="ARRAY<STRING>"),
    Column(name="M", type="MAP<STRING, INTEGER>"),
    Column(name="LL", type="ARRAY<ARRAY<INTEGER>>"),
    Column(name="U", type="ARRAY<INTEGER>"),  # NULL in the row
    Column(name="Z", type="ARRAY<INTEGER>"),  # with a NULL
)
SOURCE = sample_table(name="X", columns=COLUMNS, topic="x")
ROW = [
    "k",
    10,
    [3, 1, 2],
    ["p", "qq"],
    {"a": 1, "b": 2},
    [[1, 2], [], None],
    None,
    [1, None],
    12_000,
]


def value(text: str, row: list[Any] = ROW) -> Any:
    (query,) = parser.parse(f"SELECT {text} FROM x;")
    assert isinstance(query, Query)
    item = query.items[0]
    assert isinstance(item, SelectItem)
    evaluator = Evaluator(PullNames.of(SOURCE, None), "SELECT")
    evaluator.type(item.expression)
    return evaluator.compile(item.expression)(row)


@pytest.mark.parametrize(
    ("text", "result", "why"),
    [
        ("TRANSFORM(a, x => x + 1)", [4, 2, 3], ""),
        ("TRANSFORM(a, x => x + n)", [13, 11, 12], "a column within a lambda"),
        ("TRANSFORM(a, x => x.n)", [10, 10, 10], "of a source that is named as the parameter"),
        ("TRANSFORM(l, x => UCASE(x))", ["P", "QQ"], ""),
        ("TRANSFORM(u, x => x + 1)", None, "no collection"),
        ("TRANSFORM(z, x => x + 1)", None, "arithmetic meets a NULL: the call fails (ksqlDB)"),
        ("TRANSFORM(z, x => x / 0)", None, "... or makes one"),
        ("TRANSFORM(z, x => LN(x + 1))", None, "... within a function, too"),
        ("TRANSFORM(z, x => x)", [1, None], "a NULL alone does no harm"),
        ("TRANSFORM(z, x => CASE WHEN x IS NULL THEN 0 ELSE x + 1 END)", [2, 0], "CASE skips it"),
        ("TRANSFORM(z, x => x = 1)", [True, False], "a comparison with NULL is false"),
        ("TRANSFORM(l, x => x + '!')", ["p!", "qq!"], "text is no arithmetic"),
        ("TRANSFORM(m, (k, v) => UCASE(k), (k, v) => v + 1)", {"A": 2, "B": 3}, "a map"),
        ("TRANSFORM(m, (b, c) => b, (d, e) => d)", {"a": "a", "b": "b"}, "names of its own"),
        ("TRANSFORM(m, (k, v) => 'same', (k, v) => v)", None, "two entries with one key fail"),
        ("TRANSFORM(m, (k, v) => CAST(NULL AS STRING), (k, v) => v)", None, "no key"),
        ("TRANSFORM(m, (k, v) => k, (k, v) => NULLIF(v, 1))", None, "no value (toMap of Java)"),
        ("FILTER(MAP('a' := 1, 'b' := NULL), (k, v) => TRUE)", None, "keeps an entry without one"),
        ("FILTER(MAP('a' := 1, 'b' := NULL), (k, v) => k = 'a')", {"a": 1}, "... it is left out"),
        ("FILTER(a, x => x > 1)", [3, 2], ""),
        ("FILTER(z, x => x > 0)", [1], "NULL is not kept"),
        ("FILTER(z, x => x + 1 > 0)", None, "arithmetic meets a NULL"),
        ("FILTER(l, x => x LIKE 'q%')", ["qq"], ""),
        ("FILTER(m, (k, v) => v = 2)", {"b": 2}, ""),
        ("FILTER(u, x => TRUE)", None, "no collection"),
        ("REDUCE(a, 0, (s, x) => s + x)", 6, ""),
        ("REDUCE(a, n, (s, x) => s + x)", 16, "a state that is wider than the elements"),
        ("REDUCE(a, 0, (s, x) => s + n)", 30, "a lambda that is wider than the state"),
        ("REDUCE(u, 7, (s, x) => s + x)", 7, "no collection: the state as it began"),
        ("REDUCE(z, 0, (s, x) => s + x)", None, "NULL in, NULL out"),
        ("REDUCE(a, CAST(NULL AS INT), (s, x) => 1)", None, "no state to begin with"),
        ("REDUCE(m, '', (s, k, v) => s + k)", "ab", ""),
        ("REDUCE(l, 0, (s, x) => s + LEN(x))", 3, ""),
        ("TRANSFORM(FILTER(a, x => x > 1), x => x * 2)", [6, 4], "one in another's argument"),
        ("TRANSFORM(ll, y => TRANSFORM(y, x => x + n))", [[11, 12], [], None], "nested"),
        ("TRANSFORM(ll, x => REDUCE(x, 0, (s, y) => s + y))", [3, 0, 0], "one that is reduced"),
        ("TRANSFORM(a, x => x)", [3, 1, 2], "names may be used again"),
        ("TRANSFORM(a, x => ARRAY_LENGTH(FILTER(a, y => y < x)))", [2, 0, 1], "an outer one"),
        ("TRANSFORM(l, x => REGEXP_REPLACE(x, 'q', '<q>'))", ["p", "<q><q>"], "counts its work"),
    ],
)
def test_values(text: str, result: object, why: str) -> None:
    assert value(text) == result, why


@pytest.mark.parametrize(
    ("text", "message", "why"),
    [
        ("UCASE(x => x)", "Function UCASE takes no lambda.", ""),
        ("TRANSFORM(a)", "Function 'transform' does not accept parameters", "no lambda"),
        ("TRANSFORM(a, x => y)", "column 'Y' cannot be resolved", ""),
        ("TRANSFORM(a, x => x.x)", "cannot be resolved", "a parameter has no source"),
        (
            "TRANSFORM(a, n => n)",
            "Lambda function argument can't be a column name: N",
            "it would hide the column",
        ),
        (
            "TRANSFORM(ll, x => REDUCE(x, 0, (s, x) => s + x))",
            "Reusing lambda arguments in nested lambda is not allowed",
            "it would hide the outer one",
        ),
        (
            "TRANSFORM(m, (k, v) => ARRAY[k], (k, v) => v)",
            "Keys of ARRAY<STRING> in a MAP outside of a pipeline",
            "Python has no such keys",
        ),
    ],
)
def test_refusals(text: str, message: str, why: str) -> None:
    with pytest.raises(StatementError) as refused:
        value(text)
    assert message in refused.value.message, why


LONG = 1_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("TRANSFORM(a, x => x + 1)", "the lambda itself, for each element"),
        ("TRANSFORM(a, x => l)", "a value that is repeated makes a long answer"),
        ("TRANSFORM(a, x => LEN(REPLACE(key0, 'x', 'y')))", "a function, for each element"),
        ("TRANSFORM(a, x => LEN(REGEXP_REPLACE(key0, 'x+', 'y')))", "one that counts its own work"),
        ("REDUCE(a, '', (s, x) => s + key0)", "a state that grows"),
        ("FILTER(a, x => key0 LIKE '%x%y%')", "LIKE"),
        ("TRANSFORM(a, y => TRANSFORM(a, x => x))", "lambdas within one another"),
        ("TRANSFORM(a, y => FILTER(TRANSFORM(a, x => x), w => w > y))", "of three kinds"),
    ],
)
def test_work_is_limited(monkeypatch: pytest.MonkeyPatch, text: str, why: str) -> None:
    row = ["x" * LONG, 10, list(range(LONG)), ["x" * LONG], {}, [], None, [], 0]
    short = [row[0], 10, [1], *row[3:]]
    value(text, short)  # once is allowed
    monkeypatch.setattr(evaluators, "WORK_MAX", 100_000)
    value(text, short)
    with pytest.raises(NotComputable, match=r"than are allowed|too many steps"):
        value(text, row)
    assert why


def test_the_work_of_one_row_is_not_that_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluators, "WORK_MAX", 2 * evaluators.WORK_MIN)
    (query,) = parser.parse("SELECT TRANSFORM(a, x => x + 1) FROM x;")
    assert isinstance(query, Query)
    item = query.items[0]
    assert isinstance(item, SelectItem)
    compute = Evaluator(PullNames.of(SOURCE, None), "SELECT").compile(item.expression)
    assert [compute(ROW) for _ in range(100)] == [[4, 2, 3]] * 100
