"""How many rows a second does a full scan return, and a range scan?  Goals: 400,000; 300,000.

Sketch: tables of 10 k, 100 k and 1 M rows over 4 partitions. The node's worker and its heavy worker
stand on one core; one client on the other reads the answers' bytes and counts the lines (POST
/query, a row a line). The range is the middle half of the keys. A page is 100 rows from behind a
random key, in the order of the keys. PostgreSQL has the same rows: a scan is its COPY TO STDOUT, a
page its SELECT with ORDER BY and LIMIT, of a psql that was started before. Each round has all of
them by turns, every other round backwards, so that a ratio compares neighbours in time. Every row
of one answer of each kind is compared with what was written, before and after.

    python bench/scans.py [--rounds 5] [--rows 10000 100000 1000000]

Needs postgresql. Not here: lookups beside scans (bench/lanes.py).
"""

from __future__ import annotations

import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.load import http  # noqa: E402
from bench.load.cases import WrongAnswer, query_rows  # noqa: E402
from bench.load.machine import LOAD_CORE, LOAD_QUIET_MAX, port_of  # noqa: E402
from bench.load.options import parser_of  # noqa: E402
from bench.load.tables import key_of, make_node, row_of, worker  # noqa: E402
from bench.peers.postgres import Postgres, postgres, programs  # noqa: E402
from tests import report  # noqa: E402

ROWS: Final = (10_000, 100_000, 1_000_000)
PAGE_ROWS: Final = 100
#: pages of one measure
PAGES: Final = 50
#: a small table is scanned so often that this many rows are read
ROWS_READ_MIN: Final = 200_000
#: rows a second, of the largest table
GOALS: Final = {"full": 400_000, "range": 300_000}
#: line that psql prints behind a page
_END: Final = "standpipe-bench-end"
RESULT = report.RESULTS / "scans.json"


class Client:
    """One kept connection, whose answers are read as bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 120)
        self._buffer = bytearray(1 << 20)

    def lines(self, text: str) -> int:
        """Line ends in the body of an answer in chunks, or of one that says its length. Raises
        WrongAnswer."""
        self._socket.sendall(http.post(http.query_body(text)))
        head, data = b"", b""
        while not head:
            data += self._more()
            at = data.find(b"\r\n\r\n")
            if at >= 0:
                head, data = data[:at].lower(), data[at + 4 :]
        if not head.startswith(b"http/1.1 200"):
            raise WrongAnswer(f"{head!r} {data[:300]!r}")
        length = head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
        # the lines of a body end with LF alone, those between chunks with CRLF
        count, read, tail = 0, 0, b""
        while True:
            count += data.count(b"\n") - data.count(b"\r\n")
            count -= tail.endswith(b"\r") and data.startswith(b"\n")
            read += len(data)
            tail = (tail + data[-5:])[-5:]
            if (read >= int(length)) if length else tail == b"0\r\n\r\n":
                return count
            data = bytes(self._more())

    def _more(self) -> memoryview:
        size = self._socket.recv_into(self._buffer)
        if not size:
            raise WrongAnswer("the connection was closed")
        return memoryview(self._buffer)[:size]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@dataclass
class Psql:
    """A psql that is asked again and again: its start is no part of a scan."""

    process: subprocess.Popen[bytes]

    @classmethod
    def of(cls, server: Postgres) -> Psql:
        """Connected to the server."""
        command = ["taskset", "-c", LOAD_CORE, *server.psql(), "-f", "-"]
        pipe = subprocess.PIPE
        environment = server.environment()
        return cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment))

    def lines(self, sql: str) -> int:
        """Lines that it prints."""
        asks, says = self.process.stdin, self.process.stdout
        assert asks is not None
        assert says is not None
        asks.write(f"{sql}\n\\echo {_END}\n".encode())
        asks.flush()
        count, end, tail = 0, f"{_END}\n".encode(), b""
        while True:
            data = os.read(says.fileno(), 1 << 20)
            if not data:
                raise WrongAnswer("psql has ended")
            count += data.count(b"\n")
            tail = (tail + data)[-len(end) :]
            if tail == end:
                return count - 1

    def close(self) -> None:
        """End it."""
        self.process.communicate()


# ---------------------------------------------------------------------------------- questions


def scan_text(rows: int, *, is_range: bool) -> str:
    """All rows, or those of the middle half of the keys."""
    low, high = range_of(rows)
    where = f" WHERE TAILNUM >= '{key_of(low)}' AND TAILNUM < '{key_of(high)}'" if is_range else ""
    return f"SELECT * FROM FLIGHTS_BY_PLANE{where};"


def range_of(rows: int) -> tuple[int, int]:
    """Numbers of the first key of the range, and of the first one behind it."""
    return rows // 4, rows // 4 + rows // 2


def page_text(after: int) -> str:
    """PAGE_ROWS rows from behind a key, in the order of the keys."""
    return (
        f"SELECT * FROM FLIGHTS_BY_PLANE ORDER BY TAILNUM AFTER '{key_of(after)}'"
        f" LIMIT {PAGE_ROWS};"
    )


def copy_text(server: Postgres, rows: int, *, is_range: bool) -> str:
    """The same of PostgreSQL."""
    low, high = (server.key_of(number) for number in range_of(rows))
    where = f" WHERE tailnum >= '{low}' AND tailnum < '{high}'" if is_range else ""
    return f"COPY (SELECT * FROM flights_by_plane{where}) TO STDOUT;"


def copy_page_text(server: Postgres, after: int) -> str:
    """The same of PostgreSQL."""
    return (
        f"SELECT * FROM flights_by_plane WHERE tailnum > '{server.key_of(after)}'"
        f" ORDER BY tailnum LIMIT {PAGE_ROWS};"
    )


def check(port: int, rows: int) -> None:
    """Compare all rows of an answer of each kind. Raises WrongAnswer."""
    low, high = range_of(rows)
    middle = rows // 2
    for text, wanted in (
        (scan_text(rows, is_range=False), range(rows)),
        (scan_text(rows, is_range=True), range(low, high)),
        (page_text(middle), range(middle + 1, middle + 1 + PAGE_ROWS)),
    ):
        answer = http.ask(port, http.post(http.query_body(text)))
        if sorted(query_rows(answer.body)) != [row_of(number) for number in wanted]:
            raise WrongAnswer(f"not the rows of {text}")


# ---------------------------------------------------------------------------------- measuring


@dataclass
class Asked:
    """One kind of question to one server: `ask(n)` for the n-th time, of `lines` each."""

    name: str
    ask: Callable[[int], int]
    lines: int
    times: int
    rows_per_s: list[float] = field(default_factory=list[float])
    ms: list[float] = field(default_factory=list[float])

    def measure(self) -> None:
        """Ask so many times. Raises WrongAnswer."""
        began = time.perf_counter()
        for number in range(self.times):
            if (lines := self.ask(number)) != self.lines:
                raise WrongAnswer(f"{self.name}: {lines} lines, not {self.lines}")
        took = time.perf_counter() - began
        self.rows_per_s.append(self.times * self.lines / took)
        self.ms.append(1000 * took / self.times)


@contextmanager
def standing(folder: Path, rows: int) -> Iterator[list[Asked]]:
    """Both servers with so many rows."""
    folder.mkdir()
    config = make_node(folder, rows)
    draw = random.Random(rows)
    after = [draw.randrange(rows - PAGE_ROWS - 1) for _ in range(PAGES)]
    times, half = max(1, ROWS_READ_MIN // rows), rows // 2
    with ExitStack() as stack:
        stack.enter_context(worker(folder, config, with_heavy=True))
        port = port_of(config.public)
        check(port, rows)
        ours = Client(port)
        stack.callback(ours.close)
        server = stack.enter_context(postgres(folder / "postgres", rows))
        psql = Psql.of(server)
        stack.callback(psql.close)
        full, part = (scan_text(rows, is_range=each) for each in (False, True))
        their_full, their_part = (copy_text(server, rows, is_range=each) for each in (False, True))
        yield [
            # the head is a line more, and behind the last one is no line's end
            Asked("full", lambda _: ours.lines(full), rows, times),
            Asked("full_postgres", lambda _: psql.lines(their_full), rows, times),
            Asked("range", lambda _: ours.lines(part), half, 2 * times),
            Asked("range_postgres", lambda _: psql.lines(their_part), half, 2 * times),
            Asked("page", lambda n: ours.lines(page_text(after[n])), PAGE_ROWS, PAGES),
            Asked(
                "page_postgres",
                lambda n: psql.lines(copy_page_text(server, after[n])),
                PAGE_ROWS,
                PAGES,
            ),
        ]
        check(port, rows)


def measure(folder: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Figures of tables with so many rows, of each round."""
    with standing(folder / str(rows), rows) as asked:
        for each in asked:
            each.measure()  # warm
            each.rows_per_s.clear()
            each.ms.clear()
        for number in range(rounds):
            for each in asked if number % 2 == 0 else asked[::-1]:
                each.measure()
            shown = ", ".join(f"{each.name} {each.rows_per_s[-1]:,.0f}" for each in asked)
            print(f"{rows:,} rows, round {number + 1}: {shown} rows/s", flush=True)
    return {
        each.name: {
            "rows_per_s": [round(rate) for rate in each.rows_per_s],
            "ms": [round(ms, 2) for ms in each.ms],
        }
        for each in asked
    }


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[*ROWS])
    parser.add_argument("--result", type=Path, default=RESULT)
    given = parser.parse_args()
    if programs() is None:
        print("missing: apt-get install postgresql", file=sys.stderr)
        return 1
    about = report.circumstances()
    os.sched_setaffinity(0, {int(LOAD_CORE)})  # the client's; servers choose their own
    with tempfile.TemporaryDirectory(prefix="standpipe-bench-") as name:
        found = {str(rows): measure(Path(name), rows, given.rounds) for rows in given.rows}
    largest = found[str(max(given.rows))]
    loads = (about["machine"]["load_now"][0], os.getloadavg()[0])
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **about,
        "load_after": [round(load, 2) for load in os.getloadavg()],
        "disturbed": max(loads) > LOAD_QUIET_MAX,
        "settings": {"rounds": given.rounds, "page_rows": PAGE_ROWS},
        "goals_rows_per_s": GOALS,
        "rows_per_s_median": {
            name: round(statistics.median(figures["rows_per_s"]))
            for name, figures in largest.items()
        },
        "tables": found,
    }
    report.write_summary(given.result, result)
    print(result["rows_per_s_median"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
