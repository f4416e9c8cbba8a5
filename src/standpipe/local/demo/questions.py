"""What the demo's reader looks up, and how it recognises a wrong answer.

An answer given while events stream in is checked without a second system:
- the key existed when the reads began, so an empty answer is wrong;
- the count is between what was in the tables then and what will be there at the end;
- AIRCRAFT keeps one key's events in one partition, so its count names a prefix of the aircraft's
  flights: mean delay and last destination must be the fold of exactly that prefix;
- a replica must never show a smaller count than it showed before.

Pure. Not here: asking (reader.py), the comparison at the end (check.py).
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from standpipe.local.demo.flights import DAY_MS, WEEK_MS, Flight
from standpipe.model import Record

K = TypeVar("K")

#: share of the reads that go to each table, in the order of `questions_for`
TABLE_WEIGHTS = (70, 20, 10)


class DemoLookup(Record, frozen=True, kw_only=True):
    """One key lookup. `count_index`: the index of FLIGHTS in the row."""

    table: str
    sql: str
    count_index: int
    count_min: int
    count_max: int
    #: AIRCRAFT: (mean delay, last destination) after `count_min`, `count_min` + 1, … flights
    folds: tuple[tuple[float, str], ...] = ()


class ReaderPlan(Record, frozen=True, kw_only=True):
    """The input of the reader process. `nodes`: public addresses."""

    nodes: tuple[str, ...]
    reads_per_second: float
    seed: int
    questions: tuple[DemoLookup, ...]


class ReadSample(Record, frozen=True, kw_only=True, array_like=True):
    """One read. Instants are Unix seconds; latency counts from `due`, its scheduled send time."""

    due: float
    done: float
    outcome: str  # ok, failed, wrong
    question: int
    is_retried: bool = False
    served_by: str = ""
    note: str = ""


class Probe(Record, frozen=True, kw_only=True, array_like=True):
    """An acknowledged event: the reader measures when its aircraft shows this many flights."""

    tailnum: str
    count: int
    acked: float


class ProbeSample(Record, frozen=True, kw_only=True, array_like=True):
    """When a probe's event became readable. `seen` 0: not before the reader ended."""

    acked: float
    seen: float


class ReaderReport(Record, frozen=True, kw_only=True):
    """A line of the reader's output: what happened since the previous line."""

    reads: tuple[ReadSample, ...] = ()
    probes: tuple[ProbeSample, ...] = ()


def aircraft_sql(tailnum: str) -> str:
    """The lookup of one aircraft."""
    return f"SELECT * FROM AIRCRAFT WHERE TAILNUM = '{tailnum}';"  # noqa: S608 our own keys


def questions_for(flights: Sequence[Flight], loaded: int) -> list[list[DemoLookup]]:
    """Questions per table, for keys that exist among the first `loaded` flights."""
    return [
        _about_aircraft(flights, loaded),
        _about_carrier_days(flights, loaded),
        _about_origin_weeks(flights, loaded),
    ]


def _about_aircraft(flights: Sequence[Flight], loaded: int) -> list[DemoLookup]:
    by_tail: dict[str, list[Flight]] = defaultdict(list)
    before: Counter[str] = Counter()
    for index, flight in enumerate(flights):
        if flight.tailnum is not None:
            by_tail[flight.tailnum].append(flight)
            before[flight.tailnum] += index < loaded
    return [
        DemoLookup(
            table="AIRCRAFT",
            sql=aircraft_sql(tailnum),
            count_index=1,
            count_min=before[tailnum],
            count_max=len(own),
            folds=tuple(folds(own)[before[tailnum] - 1 :]),
        )
        for tailnum, own in by_tail.items()
        if before[tailnum]
    ]


def folds(flights: Iterable[Flight]) -> list[tuple[float, str]]:
    """(mean arrival delay, last destination) after each flight. AVG of no values is 0 (ksqlDB)."""
    total, known = 0.0, 0
    found: list[tuple[float, str]] = []
    for flight in flights:
        if flight.arr_delay is not None:
            total, known = total + flight.arr_delay, known + 1
        found.append((total / known if known else 0.0, flight.dest))
    return found


def _about_carrier_days(flights: Sequence[Flight], loaded: int) -> list[DemoLookup]:
    keys = [(f.carrier, f.time_ms // DAY_MS * DAY_MS) for f in flights]
    return [
        DemoLookup(
            table="CARRIER_DAY",
            sql=f"SELECT * FROM CARRIER_DAY WHERE CARRIER = '{key[0]}' "  # noqa: S608
            f"AND WINDOWSTART = {key[1]};",
            count_index=3,
            count_min=low,
            count_max=high,
        )
        for key, low, high in _counts(keys, loaded)
    ]


def _about_origin_weeks(flights: Sequence[Flight], loaded: int) -> list[DemoLookup]:
    keys = [(f.origin, f.carrier, f.time_ms // WEEK_MS * WEEK_MS) for f in flights]
    return [
        DemoLookup(
            table="ORIGIN_CARRIER_WEEK",
            sql=f"SELECT * FROM ORIGIN_CARRIER_WEEK WHERE ORIGIN = '{key[0]}' "  # noqa: S608
            f"AND CARRIER = '{key[1]}' AND WINDOWSTART = {key[2]};",
            count_index=4,
            count_min=low,
            count_max=high,
        )
        for key, low, high in _counts(keys, loaded)
    ]


def _counts(keys: Sequence[K], loaded: int) -> list[tuple[K, int, int]]:
    """Keys among the first `loaded`, each with its count there and its total count."""
    low, high = Counter(keys[:loaded]), Counter(keys)
    return [(key, count, high[key]) for key, count in low.items()]


class Picker:
    """Draws question numbers: table by weight, key at random. `tables`: questions per table."""

    def __init__(self, tables: Sequence[str], seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 a load, not a secret
        groups: dict[str, list[int]] = {}
        for number, table in enumerate(tables):
            groups.setdefault(table, []).append(number)
        self._groups = list(groups.values())
        self._weights = TABLE_WEIGHTS[: len(self._groups)]

    def next(self) -> int:
        """Number of the next question."""
        return self._random.choice(self._random.choices(self._groups, self._weights)[0])


class AnswerChecker:
    """Finds wrong answers; it remembers the counts that each replica has shown."""

    def __init__(self, questions: Sequence[DemoLookup]) -> None:
        self._questions = questions
        #: (replica, question) -> largest count shown
        self._shown: dict[tuple[str, int], int] = {}

    def fault(self, number: int, rows: Sequence[Sequence[Any]], served_by: str) -> str:
        """What is wrong, in one sentence; "" if the answer is correct."""
        question = self._questions[number]
        if len(rows) != 1:
            return f"{len(rows)} rows for {question.sql}"
        row = rows[0]
        count = row[question.count_index]
        if not isinstance(count, int) or not question.count_min <= count <= question.count_max:
            low, high = question.count_min, question.count_max
            return f"count {count} is not in {low}..{high} for {question.sql}"
        if question.folds:
            mean, destination = question.folds[count - question.count_min]
            if not same_number(row[2], mean) or row[3] != destination:
                return f"{row} is not the fold of its first {count} flights ({mean}, {destination})"
        before = self._shown.get((served_by, number), 0)
        if served_by and count < before:
            return f"{served_by} went back from {before} to {count} for {question.sql}"
        self._shown[served_by, number] = count
        return ""


def same_number(left: object, right: object) -> bool:
    """Equal, or floats that differ at most by the rounding of a sum in another order."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return left == right
