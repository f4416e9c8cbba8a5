"""How the demo's reader knows that an answer is wrong."""

from collections import Counter

import pytest

from standpipe.local.demo.flights import DAY_MS, Flight
from standpipe.local.demo.questions import (
    AnswerChecker,
    DemoLookup,
    Picker,
    folds,
    questions_for,
    same_number,
)


def flight(tailnum: str | None, dest: str, delay: float | None, time_ms: int = 0) -> Flight:
    return Flight(
        tailnum=tailnum,
        carrier="UA",
        origin="EWR",
        dest=dest,
        dep_delay=delay,
        arr_delay=delay,
        distance=100,
        time_ms=time_ms,
    )


FLIGHTS = [
    flight("N1", "IAH", 10.0),
    flight(None, "MIA", None),
    flight("N1", "ORD", None, DAY_MS),
    flight("N1", "LAX", 5.0, DAY_MS),
    flight("N2", "BOS", 1.0, DAY_MS),
]


def test_fold_counts_cancelled_flights_but_not_their_delay() -> None:
    assert folds(f for f in FLIGHTS if f.tailnum == "N1") == [
        (10.0, "IAH"),
        (10.0, "ORD"),
        (7.5, "LAX"),
    ]
    assert folds([flight("N", "X", None)]) == [(0.0, "X")], "AVG of nothing is 0 in ksqlDB"


def test_questions_are_about_keys_that_were_loaded() -> None:
    aircraft, days, weeks = questions_for(FLIGHTS, loaded=3)
    assert [(q.count_min, q.count_max, q.folds) for q in aircraft] == [
        (2, 3, ((10.0, "ORD"), (7.5, "LAX")))
    ]
    assert [(q.count_min, q.count_max) for q in days] == [(2, 2), (1, 3)]
    assert [(q.count_min, q.count_max) for q in weeks] == [(3, 5)]
    assert f"WINDOWSTART = {DAY_MS}" in days[1].sql


AIRCRAFT = DemoLookup(
    table="AIRCRAFT",
    sql="q",
    count_index=1,
    count_min=2,
    count_max=3,
    folds=((10.0, "ORD"), (7.5, "LAX")),
)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([["N1", 2, 10.0, "ORD"]], ""),
        ([["N1", 3, 7.5, "LAX"]], ""),
        ([], "0 rows for q"),
        ([["N1", 1, 10.0, "IAH"]], "count 1 is not in 2..3 for q"),
        ([["N1", 4, 7.5, "LAX"]], "count 4 is not in 2..3 for q"),
        ([["N1", None, 7.5, "LAX"]], "count None is not in 2..3 for q"),
        ([["N1", 3, 7.5, "ORD"]], "['N1', 3, 7.5, 'ORD'] is not the fold of its first 3 flights"),
        ([["N1", 3, 10.0, "LAX"]], "['N1', 3, 10.0, 'LAX'] is not the fold of its first 3"),
    ],
)
def test_fault(rows: list[list[object]], fault: str) -> None:
    found = AnswerChecker([AIRCRAFT]).fault(0, rows, "node-1")
    assert found.startswith(fault) if fault else found == ""


def test_a_replica_must_not_go_back_but_another_may_trail() -> None:
    checker = AnswerChecker([AIRCRAFT])
    newer, older = [["N1", 3, 7.5, "LAX"]], [["N1", 2, 10.0, "ORD"]]
    assert checker.fault(0, newer, "node-1") == ""
    assert checker.fault(0, older, "node-2") == "", "a standby may be behind"
    assert checker.fault(0, older, "node-1") == "node-1 went back from 3 to 2 for q"


def test_picker_is_repeatable_and_follows_the_weights() -> None:
    tables = ["A"] * 10 + ["B"] * 10 + ["C"] * 10
    one, two = Picker(tables, 7), Picker(tables, 7)
    drawn = [one.next() for _ in range(1000)]
    assert drawn == [two.next() for _ in range(1000)]
    share = Counter(tables[number] for number in drawn)
    assert share["A"] > share["B"] > share["C"] > 50


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1, 2, False),
        (True, 1, False),
        (None, None, True),
        (None, 0, False),
        ("a", "a", True),
    ],
)
def test_same_number(left: object, right: object, same: bool) -> None:
    assert same_number(left, right) is same
