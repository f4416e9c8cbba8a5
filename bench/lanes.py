"""How much slower are lookups by key while 50 scans run at the same node?  Budget: p99 ≤ 3 x.

Sketch: a worker and a heavy worker on one core, ROWS rows in four partitions, load on the other
core. Lookups come at a fixed rate over CONNECTIONS connections, and a late answer does not delay
the next lookup's start, so that a stall is counted by all lookups that it meets. Each round
measures them alone ("idle") and beside SCANNERS clients that scan without a pause, for each kind of
scan: "filter" decodes all rows and returns none, "whole" returns all of them. So both neighbours in
time have the same machine, and the ratio is loaded / idle of one round.

The worker passes scans on to the heavy worker, and sends their answers to the clients.

    python bench/lanes.py [--rounds 5] [--rows 100000] [--seconds 4] [--rate 200]

Not here: throughput (`bench/pull.py`); statements that are costly themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.load import http  # noqa: E402
from bench.load.cases import POINT, select  # noqa: E402
from bench.load.machine import LOAD_CORE, capture, port_of  # noqa: E402
from bench.load.tables import make_node, worker  # noqa: E402
from tests import report  # noqa: E402

CONNECTIONS = 8
SCANNERS = 50
LIMIT = 3.0
SCANS = {
    "filter": "SELECT * FROM FLIGHTS_BY_PLANE WHERE DISTANCE < 0;",
    "whole": "SELECT * FROM FLIGHTS_BY_PLANE;",
}
RESULT = report.RESULTS / "lanes.json"


@dataclass(frozen=True)
class Lookups:
    """Lookups of one phase. ms from when a lookup was due until its answer was there."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    count: int
    failed: int
    scans: int


def request_of(text: str) -> bytes:
    """A whole request; its connection is kept."""
    return http.post(http.query_body(text))


async def answered(reader: asyncio.StreamReader) -> bool:
    """Read one response; whether its status was 200."""
    return (await http.read_answer(reader)).status == 200


async def look_up(port: int, rows: int, rate: float, seconds: float) -> Lookups:
    """Lookups at a fixed rate."""
    loop = asyncio.get_running_loop()
    waits_ms: list[float] = []
    failed = 0

    async def client(number: int, start_s: float) -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        draw = random.Random(number)
        due_s = start_s + number / rate
        while due_s < start_s + seconds:
            await asyncio.sleep(due_s - loop.time())
            writer.write(request_of(select(draw.randrange(rows))))
            failed += not await answered(reader)
            waits_ms.append(1000 * (loop.time() - due_s))
            due_s += CONNECTIONS / rate
        writer.close()

    start_s = loop.time() + 0.2
    await asyncio.gather(*(client(number, start_s) for number in range(CONNECTIONS)))
    p50, p99 = (report.quantile(waits_ms, share) for share in (0.5, 0.99))
    return Lookups(p50, p99, max(waits_ms), len(waits_ms), failed, 0)


async def scan(port: int, text: str) -> None:
    """SCANNERS clients, until the process is ended; a line for each answer."""

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        while True:
            writer.write(request_of(text))
            print("ok" if await answered(reader) else "failed", flush=True)

    await asyncio.gather(*(client() for _ in range(SCANNERS)))


def measured(port: int, given: argparse.Namespace, text: str | None) -> Lookups:
    """One phase: alone if there is no `text` to scan with."""
    mine = [sys.executable, __file__, "--port", str(port)]
    load = ["taskset", "-c", LOAD_CORE, *mine]
    options = ["--rows", given.rows, "--rate", given.rate, "--seconds", given.seconds]
    scanning = None
    if text is not None:
        scanning = subprocess.Popen([*load, "--scan", text], stdout=subprocess.PIPE)
        assert scanning.stdout is not None
        scanning.stdout.readline()  # they are all under way
    try:
        output = capture([*load, *map(str, options)])
    finally:
        if scanning is not None:
            scanning.terminate()
    found = json.loads(output)
    if scanning is not None:
        lines, _ = scanning.communicate()
        found["scans"] = lines.count(b"ok")
        assert b"failed" not in lines, "a scan was refused"
    return Lookups(**found)


def measure(folder: Path, given: argparse.Namespace) -> list[dict[str, Lookups]]:
    config = make_node(folder, given.rows)
    rounds: list[dict[str, Lookups]] = []
    with worker(folder, config, with_heavy=True):
        port = port_of(config.public)
        POINT.check(port, given.rows)
        measured(port, given, None)  # warm
        for number in range(given.rounds):
            done = {"idle": measured(port, given, None)}
            done |= {kind: measured(port, given, text) for kind, text in SCANS.items()}
            rounds.append(done)
            for kind, found in done.items():
                print(
                    f"round {number + 1} {kind:6}: p50 {found.p50_ms:7.2f} p99 {found.p99_ms:7.2f} "
                    f"max {found.max_ms:7.2f} ms, {found.failed} failed, {found.scans} scans",
                    flush=True,
                )
    return rounds


def ratios(rounds: list[dict[str, Lookups]]) -> dict[str, dict[str, float]]:
    """kind of scan -> loaded / idle, medians over the rounds."""
    return {
        kind: {
            name: round(
                statistics.median(
                    getattr(each[kind], name) / getattr(each["idle"], name) for each in rounds
                ),
                2,
            )
            for name in ("p50_ms", "p99_ms")
        }
        for kind in SCANS
    }


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=4)
    options.add_argument("--rate", type=float, default=200)
    options.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options.add_argument("--scan", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.scan:
        asyncio.run(scan(given.port, given.scan))
    if given.port:
        print(
            json.dumps(
                asdict(asyncio.run(look_up(given.port, given.rows, given.rate, given.seconds)))
            )
        )
        return 0
    about = report.circumstances()
    with tempfile.TemporaryDirectory(prefix="standpipe-bench-") as name:
        rounds = measure(Path(name), given)
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **about,
        "load_after": [round(load, 2) for load in os.getloadavg()],
        "settings": {
            **{name: getattr(given, name) for name in ("rounds", "rows", "seconds", "rate")},
            "connections": CONNECTIONS,
            "scanners": SCANNERS,
        },
        "limit": LIMIT,
        "ratio_to_idle": ratios(rounds),
        "failed": sum(found.failed for each in rounds for found in each.values()),
        "runs": [{kind: asdict(found) for kind, found in each.items()} for each in rounds],
    }
    report.write_summary(RESULT, result)
    print(result["ratio_to_idle"], f"{result['failed']} failed")
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
