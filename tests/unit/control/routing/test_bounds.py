"""Which bound on the lag is in force. Source: docs/sources.md, "max.allowed.offset.lag"."""

from __future__ import annotations

import pytest

from standpipe.control.routing.bounds import LAG_UNBOUNDED, lag_bound


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
def test_lag_bound(
    request_: int | None, table: int | None, node: int, limit: int, bound: int, why: str
) -> None:
    assert lag_bound(request=request_, table=table, node=node, limit=limit) == bound, why
