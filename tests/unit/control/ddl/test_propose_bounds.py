"""Bounds in ms in a table's WITH: at which feature level they are logged, and how they change."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.control.ddl.test_propose import MADE, asked

from standpipe.control.ddl.propose import judge
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import SetFeatureLevel, SwitchTable
from standpipe.control.metadata.feature_levels import TIME_BOUNDS
from standpipe.errors import StatementError
from standpipe.model import LogIndex

BOUNDED = (
    "CREATE TABLE T WITH (ACCEPTABLE_SOURCE_LAG_MS=3000) AS SELECT ID, COUNT(*) AS N FROM S"
    " GROUP BY ID;"
)
OTHER = BOUNDED.replace("CREATE", "CREATE OR REPLACE").replace(
    "SOURCE_LAG_MS=3000", "REPLICA_LAG_MS=0"
)
NONE = "CREATE OR REPLACE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;"


def at(level: int) -> Catalog:
    """With the stream S."""
    return then(apply(EMPTY, LogIndex(1), SetFeatureLevel(level=level)), MADE)


def then(catalog: Catalog, sql: str) -> Catalog:
    command = judge(asked(sql), catalog, {})
    assert not isinstance(command, StatementReply)
    command = msgspec.structs.replace(command, request_id="")
    return apply(catalog, LogIndex(catalog.index + 1), command)


@pytest.mark.parametrize("sql", [BOUNDED, OTHER])
def test_they_wait_until_every_node_keeps_them(sql: str) -> None:
    catalog = at(TIME_BOUNDS - 1)
    if sql is OTHER:
        catalog = then(catalog, NONE)
    with pytest.raises(StatementError, match=f"need feature level {TIME_BOUNDS}, .* is at 10"):
        judge(asked(sql), catalog, {})


def test_create_or_replace_changes_them_when_reads_move() -> None:
    catalog = then(at(TIME_BOUNDS), BOUNDED)
    first = (None, 3000)
    assert catalog.sources["T"].time_bounds == first
    for number, (sql, bounds) in enumerate(((OTHER, (0, None)), (NONE, None))):
        before = catalog.sources["T"].time_bounds
        catalog = then(catalog, sql)
        assert catalog.sources["T"].time_bounds == before, "of the generation that answers"
        switch = SwitchTable(name="T", generation=number + 2)
        catalog = apply(catalog, LogIndex(catalog.index + 1), switch)
        assert (catalog.sources["T"].time_bounds or None) == bounds
