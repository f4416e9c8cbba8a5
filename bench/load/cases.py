"""What is asked of Standpipe, with the answers that are right.

A case draws row numbers, makes a request of them, and judges its answer. Answers are judged before
and after the load; meanwhile by their status and their size (`judge`), because a
refusal is a fast answer as well.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.load import http, wrk
from bench.load.tables import DAY_HOURS, HOUR_MS, ROWTIME_MS, hourly_keys, key_of, row_of

#: keys in the requests of a case, together; and its requests, which are asked again and again
DRAWN_MAX: Final = 250_000
REQUESTS_MAX: Final = 50_000
#: answers that are judged before and after
_SAMPLE: Final = 50
#: the mean size of the answers under load may differ from the sample's: of what is drawn, and of
#: numbers in the head that grow as time goes by
_SIZE_TOLERATED: Final = 0.03
ARROW: Final = "application/vnd.apache.arrow.stream"

Rows = list[list[Any]]


class WrongAnswer(RuntimeError):
    """An answer that is not the one that was to be measured."""


@dataclass(frozen=True)
class Case:
    """One kind of request. `body`, `rows`: of the numbers drawn; `of`: the answer's rows."""

    name: str
    body: Callable[[Sequence[int]], bytes]
    rows: Callable[[Sequence[int]], Rows]
    of: Callable[[bytes], Rows]
    count: int = 1
    path: str = "/query"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    #: how many of the keys are drawn from
    among: Callable[[int], int] = lambda keys: keys

    @property
    def rows_each(self) -> int:
        """Rows of one answer."""
        return len(self.rows(range(self.count)))

    def draws(self, keys: int, seed: int, count: int | None = None) -> list[list[int]]:
        """Numbers of each request; all of a request differ."""
        draw, among = random.Random(seed), range(self.among(keys))
        times = count or min(REQUESTS_MAX, DRAWN_MAX // self.count)
        return [draw.sample(among, self.count) for _ in range(times)]

    def request(self, numbers: Sequence[int]) -> bytes:
        """A whole request."""
        return http.post(self.body(numbers), self.path, self.headers)

    def write_script(self, path: Path, keys: int) -> Path:
        """wrk's script."""
        bodies = (self.body(numbers) for numbers in self.draws(keys, seed=1))
        return wrk.write_script(path, bodies, self.path, self.headers)

    def check(self, port: int, keys: int, *, tls: bool = False) -> float:
        """Compare a sample of answers with what was written; their mean size in bytes. Raises
        WrongAnswer."""
        sizes: list[int] = []
        for numbers in self.draws(keys, seed=7, count=_SAMPLE):
            answer = http.ask(port, self.request(numbers), tls=tls)
            sizes.append(answer.size)
            if answer.status != 200:
                raise WrongAnswer(f"{self.name}: {answer.status} {answer.body[:500]!r}")
            rows, wanted = self.of(answer.body), self.rows(numbers)
            if sorted(rows) != sorted(wanted):
                raise WrongAnswer(f"{self.name}: {rows[:3]} instead of {wanted[:3]}")
        return sum(sizes) / len(sizes)


def judge(name: str, run: wrk.Run, size: float) -> wrk.Run:
    """The run, if its answers had on average as many bytes as the sample. Raises WrongAnswer."""
    if abs(run.answer_bytes - size) > _SIZE_TOLERATED * size:
        raise WrongAnswer(
            f"{name}: answers of {run.answer_bytes:.0f} bytes under load, {size:.0f} before it"
        )
    return run


# --------------------------------------------------------------------------------- statements


def select(number: int) -> str:
    """A point lookup."""
    return f"SELECT * FROM FLIGHTS_BY_PLANE WHERE TAILNUM = '{key_of(number)}';"


def select_many(numbers: Sequence[int]) -> str:
    """A lookup of several keys."""
    if len(numbers) == 1:
        return select(numbers[0])
    listed = ", ".join(f"'{key_of(number)}'" for number in numbers)
    return f"SELECT * FROM FLIGHTS_BY_PLANE WHERE TAILNUM IN ({listed});"


def select_columns(number: int) -> str:
    """Two columns, two predicates that hold, of other literals each time."""
    return (
        f"SELECT DEST, FLIGHTS FROM FLIGHTS_BY_PLANE WHERE TAILNUM = '{key_of(number)}'"
        f" AND FLIGHTS <= {number % 1000 + 5} AND DISTANCE > {number};"
    )


def _day_start(number: int) -> int:
    return number % 2 * DAY_HOURS


def select_day(number: int) -> str:
    """All windows of a day of a key."""
    first_ms = ROWTIME_MS + _day_start(number) * HOUR_MS
    return (
        f"SELECT * FROM HOURS_BY_PLANE WHERE TAILNUM = '{key_of(number)}'"
        f" AND WINDOWSTART >= {first_ms} AND WINDOWSTART < {first_ms + DAY_HOURS * HOUR_MS};"
    )


def _day_rows(number: int) -> Rows:
    first = _day_start(number)
    starts = ((hour, ROWTIME_MS + hour * HOUR_MS) for hour in range(first, first + DAY_HOURS))
    return [
        [key_of(number), start_ms, start_ms + HOUR_MS, hour, 12_345_678 + number]
        for hour, start_ms in starts
    ]


def _missing(number: int) -> str:
    return select(number).replace("'N", "'X")


# ------------------------------------------------------------------------------------ answers


def query_rows(body: bytes) -> Rows:
    """Rows of an answer of POST /query; what is neither head nor row is a KeyError."""
    return [part["row"]["columns"] for part in json.loads(body)[1:]]


def _batch_rows(body: bytes) -> Rows:
    return json.loads(body)["rows"]


def _arrow_rows(body: bytes) -> Rows:
    import pyarrow as pa

    with pa.ipc.open_stream(io.BytesIO(body)) as stream:
        return [list(row.values()) for row in stream.read_all().to_pylist()]


def _batch_body(numbers: Sequence[int]) -> bytes:
    keys = [key_of(number) for number in numbers]
    return json.dumps({"table": "FLIGHTS_BY_PLANE", "keys": keys}).encode()


def _rows_of(numbers: Sequence[int]) -> Rows:
    return [row_of(number) for number in numbers]


def _two_columns(numbers: Sequence[int]) -> Rows:
    return [["abcdefghij", number % 1000] for number in numbers]


def one(text: Callable[[int], str]) -> Callable[[Sequence[int]], bytes]:
    return lambda numbers: http.query_body(text(numbers[0]))


def many(count: int) -> Case:
    """IN of so many keys."""
    return Case(
        f"in_{count}",
        lambda numbers: http.query_body(select_many(numbers)),
        _rows_of,
        query_rows,
        count,
    )


POINT: Final = Case("point", one(select), _rows_of, query_rows)
#: of one node
CASES: Final = (
    POINT,
    Case("projection", one(select_columns), _two_columns, query_rows),
    Case(
        "windowed",
        one(select_day),
        lambda numbers: _day_rows(numbers[0]),
        query_rows,
        among=hourly_keys,
    ),
    Case("missing", one(_missing), lambda _: [], query_rows),
    many(10),
    many(100),
    Case("batch_json", _batch_body, _rows_of, _batch_rows, 1000, "/query-batch"),
    Case(
        "batch_arrow",
        _batch_body,
        _rows_of,
        _arrow_rows,
        1000,
        "/query-batch",
        {"Accept": ARROW},
    ),
)
