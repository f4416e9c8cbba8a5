"""SELECT … EMIT CHANGES: what asks the clock, or is random, has a value in each row."""

from __future__ import annotations

from itertools import count

import pytest

from standpipe.errors import NotComputable
from standpipe.model import Source
from standpipe.sql.lookup.push import push
from standpipe.sql.plans import PushPlan
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.parser import parse

ROW = ["N1", "UA", 1.5, 100, 0, 0, 7, 0, 0]


def pushed(text: str, sources: dict[str, Source]) -> PushPlan:
    """A push query whose calls count up, whatever they are named."""
    (query,) = parse(text)
    assert isinstance(query, ast.Query)
    drawn = count(1)
    return push(query, sources, lambda _: next(drawn))


def test_each_row_has_values_of_its_own(sources: dict[str, Source]) -> None:
    text = "SELECT UUID() AS U, UNIX_TIMESTAMP() - SEATS AS MS FROM DEPARTURES EMIT CHANGES;"
    plan = pushed(text, sources)
    rows = [[cell(ROW) for cell in plan.cells] for _ in range(2)]
    assert rows == [[1, 2 - 100], [3, 4 - 100]]
    assert plan.schema == "`U` STRING, `MS` BIGINT"


def test_a_where_asks_for_each_row(sources: dict[str, Source]) -> None:
    text = "SELECT TAIL FROM DEPARTURES WHERE UNIX_TIMESTAMP() > 1 EMIT CHANGES;"
    where = pushed(text, sources).where
    assert where is not None
    assert [where(ROW) for _ in range(2)] == [False, True]


def test_a_query_that_is_only_explained_has_none(sources: dict[str, Source]) -> None:
    (query,) = parse("SELECT RANDOM() AS R FROM DEPARTURES EMIT CHANGES;")
    assert isinstance(query, ast.Query)
    (cell,) = push(query, sources).cells
    with pytest.raises(NotComputable, match=r"RANDOM\(\) has no value here"):
        cell(ROW)
