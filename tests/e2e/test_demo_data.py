"""The whole data set, without a cluster: too slow for the unit tests."""

from __future__ import annotations

import pytest

from standpipe.local.demo import check, flights
from standpipe.local.demo.questions import folds


def test_all_flights_are_events_and_the_recompute_agrees_with_a_plain_fold() -> None:
    loaded = flights.load()
    assert len(loaded.events) == 336_776
    assert sum(event.key is None for event in loaded.events) == 2_512
    by_tail: dict[str, list[flights.Flight]] = {}
    for flight in loaded.flights:
        if flight.tailnum is not None:
            by_tail.setdefault(flight.tailnum, []).append(flight)
    wanted = {
        row[0]: row
        for expected in check.recompute(None)
        if "FROM AIRCRAFT" in expected.sql
        for row in expected.rows
    }
    assert wanted.keys() == by_tail.keys()
    for tailnum, own in by_tail.items():
        mean, dest = folds(own)[-1]
        assert wanted[tailnum] == (tailnum, len(own), pytest.approx(mean), dest)
