"""The comparison at the end finds what differs."""

import pytest

from standpipe.local.demo import check, flights
from standpipe.local.demo.check import CheckResult, Expected

DAY = 1_357_000_000_000 // flights.DAY_MS * flights.DAY_MS
ROW = ("UA", DAY, DAY + flights.DAY_MS, 3, 1.5)


@pytest.mark.parametrize(
    ("rows", "wrong", "why"),
    [
        ([list(ROW)], 0, "as expected"),
        ([], 1, "missing"),
        ([[*ROW[:3], 4, 1.5]], 1, "another count"),
        ([list(ROW), ["UA", DAY + 1, DAY + 2, 1, 1.0]], 1, "a window too many"),
        ([[*ROW, 0]], 1, "a column too many"),
    ],
)
def test_compare(rows: list[list[object]], wrong: int, why: str) -> None:
    result = CheckResult()
    check._compare("node-1", Expected("q", (ROW,)), rows, result)
    assert len(result.wrong) == wrong, why
    assert result.rows == 1
