"""Which bounds are in force, and which rows they refuse (docs/sources.md)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.samples import sample_stream

from standpipe.control.routing.bounds import (
    LAG_UNBOUNDED,
    NOTHING_ASKED,
    AskedBounds,
    Bounds,
    bounds_in_force,
    of_table,
)


@pytest.mark.parametrize(
    ("request_", "table", "node", "limit", "bound", "why"),
    [
        (None, None, 50, LAG_UNBOUNDED, 50, "the node's"),
        (None, 20, 50, LAG_UNBOUNDED, 20, "the table's goes before the node's"),
        (None, 90, 50, LAG_UNBOUNDED, 90, "also where it allows more"),
        (5, 20, 50, LAG_UNBOUNDED, 5, "the request's goes before both"),
        (0, 20, 50, LAG_UNBOUNDED, 0, "0 is a bound"),
        (70, 20, 50, 60, 60, "the limit caps the request"),
        (None, 90, 50, 60, 60, "and the table"),
        (None, None, LAG_UNBOUNDED, 60, 60, "and the node"),
    ],
)
def test_lag_in_records(
    request_: int | None, table: int | None, node: int, limit: int, bound: int, why: str
) -> None:
    asked, own = AskedBounds(lag_records_max=request_), Bounds(lag_records_max=node)
    found = bounds_in_force(asked, own, table=AskedBounds(table), limit=limit)
    assert found == Bounds(lag_records_max=bound), why


@pytest.mark.parametrize(
    ("asked", "table", "bounds", "why"),
    [
        ((None, None), (None, None), (7, 9), "the node's"),
        ((None, None), (3, None), (3, 9), "one of the table's goes before the node's"),
        ((None, None), (None, 90), (7, 90), "also where it allows more"),
        ((5, None), (3, 4), (5, 4), "one of the request's before both"),
        ((None, 0), (3, 4), (3, 0), "0 is a bound"),
        ((LAG_UNBOUNDED, None), (3, 4), (LAG_UNBOUNDED, 4), "who asks for none has none"),
    ],
)
def test_lags_in_time_are_those_of_the_request_else_of_the_table_else_of_the_node(
    asked: tuple[int | None, int | None],
    table: tuple[int | None, int | None],
    bounds: tuple[int, int],
    why: str,
) -> None:
    own = Bounds(replica_lag_ms_max=7, source_lag_ms_max=9)
    found = bounds_in_force(AskedBounds(None, *asked), own, table=AskedBounds(None, *table))
    assert (found.replica_lag_ms_max, found.source_lag_ms_max) == bounds, why
    assert found.is_time_bounded, why


def test_bounds_of_a_table() -> None:
    plain = sample_stream()
    assert of_table(plain) == NOTHING_ASKED
    records = replace(plain, offset_lag_max=0)
    assert of_table(records) == AskedBounds(0)
    times = replace(plain, time_bounds=(0, None))
    assert of_table(times) == AskedBounds(None, 0, None)


def test_lags_in_time_are_those_of_the_request_else_of_the_node() -> None:
    own = Bounds(replica_lag_ms_max=7, source_lag_ms_max=9, standby_reads=False)
    assert bounds_in_force(NOTHING_ASKED, own) == own
    found = bounds_in_force(AskedBounds(replica_lag_ms_max=0), own)
    assert found == Bounds(replica_lag_ms_max=0, source_lag_ms_max=9, standby_reads=False)
    found = bounds_in_force(AskedBounds(source_lag_ms_max=LAG_UNBOUNDED), own)
    assert (found.replica_lag_ms_max, found.source_lag_ms_max) == (7, LAG_UNBOUNDED)


@pytest.mark.parametrize(
    ("bounds", "replica_ms", "source_ms", "named", "why"),
    [
        (Bounds(), None, None, "", "anything"),
        (Bounds(lag_records_max=0), None, None, "", "a lag in records is judged elsewhere"),
        (Bounds(replica_lag_ms_max=10), 10, None, "", "as much as is allowed"),
        (Bounds(replica_lag_ms_max=10), 11, 0, "replica lag 11 ms", ""),
        (Bounds(replica_lag_ms_max=10), None, 0, "replica lag is not known", "never 0"),
        (Bounds(source_lag_ms_max=10), None, 10, "", "the other one is not asked for"),
        (Bounds(source_lag_ms_max=10), 0, 11, "source lag 11 ms", ""),
        (Bounds(source_lag_ms_max=0), 0, None, "source lag is not known", ""),
    ],
)
def test_rows_that_are_late(
    bounds: Bounds, replica_ms: int | None, source_ms: int | None, named: str, why: str
) -> None:
    found = bounds.late(replica_ms, source_ms)
    assert (named in found) if named else found == "", why


def test_what_is_bounded() -> None:
    assert not Bounds(standby_reads=False).is_bounded
    assert Bounds(lag_records_max=3).is_lag_bounded
    assert not Bounds(lag_records_max=3).is_time_bounded
    assert Bounds(source_lag_ms_max=3).is_time_bounded
    assert Bounds(replica_lag_ms_max=3).is_bounded
    assert not Bounds(replica_lag_ms_max=3).is_lag_bounded
