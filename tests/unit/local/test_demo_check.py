"""The comparison at the end finds what differs; the recompute agrees with a plain fold."""

import pytest

from standpipe.local import demo_check, demo_flights
from standpipe.local.demo_check import CheckResult, Expected
from standpipe.local.demo_questions import folds

DAY = 1_357_000_000_000 // demo_flights.DAY_MS * demo_flights.DAY_MS
ROW = ("UA", DAY, DAY + demo_flights.DAY_MS, 3, 1.5)


def test_recompute_agrees_with_a_plain_fold() -> None:
    flights = demo_flights.load(5_000).flights
    wanted = {
        row[0]: row
        for expected in demo_check.recompute(5_000)
        if "FROM AIRCRAFT" in expected.sql
        for row in expected.rows
    }
    tails = {flight.tailnum for flight in flights} - {None}
    assert wanted.keys() == tails
    for tailnum in tails:
        own = [flight for flight in flights if flight.tailnum == tailnum]
        mean, dest = folds(own)[-1]
        assert wanted[tailnum] == (tailnum, len(own), pytest.approx(mean), dest)


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
    demo_check._compare("node-1", Expected("q", (ROW,)), rows, result)
    assert len(result.wrong) == wrong, why
    assert result.rows == 1
