"""What a lag report is worth. Sources: KIP-441; Kafka's ClientStateTest."""

from __future__ import annotations

import pytest

from standpipe.control.assignment.readiness import (
    LAG_RECORDS_MAX,
    BadReport,
    Lag,
    catch_up_key,
    is_caught_up,
    lag_records,
)


@pytest.mark.parametrize(
    ("lag", "limit", "expected", "why"),
    [
        (100, 100, True, "the limit is inclusive"),
        (101, 100, False, "one more"),
        (BadReport.SERVING, 0, True, "the running active has nothing to catch up with"),
        (BadReport.UNKNOWN, None, False, "unknown is never caught up, whatever the limit"),
        (BadReport.NOTHING, 100, False, "nothing on disk"),
        (BadReport.NOTHING, None, True, "without a limit any copy will do"),
    ],
)
def test_is_caught_up(lag: Lag, limit: int | None, expected: bool, why: str) -> None:
    assert is_caught_up(lag, limit) is expected, why


def test_order_of_copies() -> None:
    lags: list[Lag] = [BadReport.NOTHING, LAG_RECORDS_MAX, BadReport.UNKNOWN, 5, BadReport.SERVING]
    assert sorted(lags, key=catch_up_key)[:3] == [BadReport.SERVING, 5, LAG_RECORDS_MAX]


@pytest.mark.parametrize(
    ("position", "ends", "lag", "why"),
    [
        (400, [500], 100, "end - position"),
        (BadReport.NOTHING, [500], 500, "never held: everything"),
        (501, [500], 500, "beyond the end: another topic, starts from nothing"),
        (500, [500], 0, "the pair of it: exactly at the end"),
        (0, [LAG_RECORDS_MAX, 5], LAG_RECORDS_MAX, "sums stop at 64 bits"),
        (BadReport.UNKNOWN, [500], BadReport.UNKNOWN, "unknown stays unknown"),
    ],
)
def test_lag_records(position: Lag, ends: list[int], lag: Lag, why: str) -> None:
    assert lag_records(position, ends) == lag, why
