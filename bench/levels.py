"""What does each read level cost a lookup, against `eventual`?  Goal: 0.97 x bounded, 0.9 x others.

Sketch: one worker on one core with a filled table, the load on the other core (wrk), as in
`bench/pull.py`. The same lookups at each level: bounds that the replica keeps, a session's token
that it covers, a snapshot of one key and of four keys. Each round has all levels in turn, so that a
ratio compares neighbours in time; rounds are short and many, as in `bench/pull.py`. Then WAITERS
clients ask with a token that no replica covers yet, and `eventual` lookups are measured beside
them. They may wait for longer than it takes, so that no time is over meanwhile: who asks again is
no waiter, but another read.

    python bench/levels.py [--rounds 15] [--keys 200000] [--seconds 1]

Needs wrk, as bench/pull.py does. Not here: `linearizable`, which waits for Kafka and for a tailer
(tests/e2e/test_linearizable_reads.py prints its latency; the quorum's part of it is in
bench/linearizable.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.load import http, wrk  # noqa: E402
from bench.load.cases import select_many  # noqa: E402
from bench.load.machine import LOAD_CORE, LOAD_QUIET_MAX, capture, port_of  # noqa: E402
from bench.load.tables import (  # noqa: E402
    PARTITIONS,
    TABLE,
    make_node,
    row_of,
    running,
    worker,
)
from bench.load.wrk import CONNECTIONS, Run  # noqa: E402
from tests import report  # noqa: E402

from standpipe import session_token  # noqa: E402
from standpipe.adapters.clock import Clock  # noqa: E402
from standpipe.adapters.store.status_page import StatusWriter, page_path  # noqa: E402
from standpipe.config.keys import ROUTING_TIMEOUT  # noqa: E402
from standpipe.data.replica.page_pace import ALL_MS  # noqa: E402
from standpipe.model import LeaseEpoch  # noqa: E402
from standpipe.node.configuration import NodeConfig, Setting  # noqa: E402
from standpipe.node.worker.request.wait_limits import WAITERS_MAX  # noqa: E402
from standpipe.session_token import SeenBatch, SessionToken, TableKey  # noqa: E402

#: reads that wait at a worker: as many as may
WAITERS = WAITERS_MAX
ALL_WAIT_S_MAX = 120.0
#: then their arrival is over, and what they leave is cleared away
SETTLED_S = 2.0
#: of a connection, at once
STREAMS = 100
#: of the node: they wait for longer than they are measured
SETTINGS: dict[str, Setting] = {ROUTING_TIMEOUT.name: 600_000}
#: between two pages of a tailer
PAGES_S = ALL_MS / 1000
RESULT = report.RESULTS / "levels.json"
BODIES = 20_000
PEER = "eventual"
GOALS = {
    "bounded_records": 0.97,
    "bounded_ms": 0.97,
    "session": 0.9,
    "snapshot": 0.9,
    "snapshot_4": 0.9,
}


def token(batch: int) -> str:
    """That the session has seen this batch. The replica has batch 1 of lease epoch 0."""
    return SessionToken({TableKey("bench", "T1"): SeenBatch(1, batch, 0)}).text()


#: case -> properties of each of its requests, and keys of a lookup
CASES: dict[str, tuple[dict[str, str], int]] = {
    PEER: ({}, 1),
    "bounded_records": ({"ksql.query.pull.max.allowed.offset.lag": "1000"}, 1),
    "bounded_ms": ({"standpipe.query.pull.max.allowed.replica.lag.ms": "3600000"}, 1),
    "session": ({session_token.TOKEN_PROPERTY: token(1)}, 1),
    "snapshot": ({session_token.LEVEL_PROPERTY: session_token.SNAPSHOT}, 1),
    "eventual_4": ({}, 4),
    "snapshot_4": ({session_token.LEVEL_PROPERTY: session_token.SNAPSHOT}, 4),
}
#: case -> what it is compared with
PEERS = {case: "eventual_4" if case.endswith("_4") else PEER for case in GOALS}


def body(numbers: list[int], properties: dict[str, str]) -> bytes:
    return http.query_body(select_many(numbers), properties)


def bodies(keys: int, properties: dict[str, str], count: int) -> list[bytes]:
    """Request bodies, random keys; the same keys for each case of as many keys."""
    draw = random.Random(count)
    return [body([draw.randrange(keys) for _ in range(count)], properties) for _ in range(BODIES)]


def check(port: int, case: str, keys: int) -> None:
    """The answers under load would be right, and at the level that is measured."""
    properties, count = CASES[case]
    for seed in range(20):
        numbers = random.Random(seed).sample(range(keys), count)
        answer = http.ask(port, http.post(body(numbers, properties)))
        assert answer.status == 200, (case, answer.body)
        rows = [row["row"]["columns"] for row in json.loads(answer.body)[1:] if "row" in row]
        assert sorted(rows) == sorted(map(row_of, numbers)), rows[:3]


# ------------------------------------------------------------------------------------ waiters


async def wait_at(port: int) -> None:
    """WAITERS requests, each of which is asked again should its wait end, over HTTP/2: a connection
    for each would need more file descriptors than a process has here."""
    request = body([1], {session_token.TOKEN_PROPERTY: token(2)})

    async def client(http2: httpx2.AsyncClient) -> None:
        while True:
            await http2.post("/query", content=request, headers={"content-type": http.KSQL})

    async with AsyncExitStack() as stack:
        asking: list[asyncio.Task[None]] = []
        for _ in range(WAITERS // STREAMS):
            options = httpx2.AsyncClient(
                http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", timeout=None
            )
            http2 = await stack.enter_async_context(options)
            asking += [asyncio.create_task(client(http2)) for _ in range(STREAMS)]
            await asyncio.sleep(0.1)
        await asyncio.gather(*asking)


@contextmanager
def waiters(port: int) -> Iterator[None]:
    """While they wait. The worker counts them, and it must count as many, and none in the end: what
    10,000 cost that leave at once would be the next run's."""
    command = ["taskset", "-c", LOAD_CORE, sys.executable, __file__, "--wait-at", str(port)]
    process = subprocess.Popen(command)
    try:
        until_s = time.monotonic() + ALL_WAIT_S_MAX
        while waiting_reads(port) <= 0.9 * WAITERS:  # some are about to ask again
            assert process.poll() is None, "the waiters have ended"
            assert time.monotonic() < until_s, f"{waiting_reads(port)} wait"
            time.sleep(0.2)
        time.sleep(SETTLED_S)
        yield
    finally:
        process.terminate()
        process.wait(10)
    until_s = time.monotonic() + ALL_WAIT_S_MAX
    while waiting_reads(port):
        assert time.monotonic() < until_s, "reads wait whose client is gone"
        time.sleep(0.2)
    time.sleep(SETTLED_S)


@contextmanager
def beats(config: NodeConfig) -> Iterator[None]:
    """Status pages as a tailer writes them, which has heard of Kafka that nothing newer is there:
    else the lag counts as unknown after a minute. The replica itself was confirmed before."""
    pages = [
        StatusWriter(page_path(config.paths.run, TABLE.replica_id(partition)))
        for partition in range(PARTITIONS)
    ]
    is_over, status, clock = (
        threading.Event(),
        replace(running(), lease_epoch=LeaseEpoch(0)),
        Clock(),
    )

    def beat() -> None:
        while not is_over.wait(PAGES_S):
            now_ms = clock.boot_ms()
            for page in pages:
                page.write(replace(status, known_boot_ms=now_ms, beat_boot_ms=now_ms))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def waiting_reads(port: int) -> int:
    """How many session reads wait at the worker, by its metrics."""
    url = f"http://127.0.0.1:{port}/metrics"
    for line in capture(["curl", "-s", url]).splitlines():
        if line.startswith("standpipe_waiting_reads{") and "session" in line:
            return int(float(line.rpartition(" ")[2]))
    return 0


# ------------------------------------------------------------------------------------- rounds


def measure(folder: Path, given: argparse.Namespace) -> list[dict[str, Run]]:
    """Of each round the runs by case."""
    config = make_node(folder, given.keys, SETTINGS)
    port = port_of(config.public)
    scripts = {case: folder / f"{case}.lua" for case in CASES}
    for case, (properties, count) in CASES.items():
        wrk.write_script(scripts[case], bodies(given.keys, properties, count))
    done: list[dict[str, Run]] = []
    with beats(config), worker(folder, config) as ours:
        for case, script in scripts.items():
            check(port, case, given.keys)
            wrk.run(ours.pid, port, script, 1)  # warm

        def run(case: str) -> Run:
            return wrk.run(ours.pid, port, scripts[case], given.seconds)

        for number in range(given.rounds):
            order = list(CASES) if number % 2 == 0 else list(CASES)[::-1]
            runs = {case: run(case) for case in order}
            with waiters(port):
                runs["beside_waiters"] = run(PEER)
            done.append(runs)
            show(number, runs)
        for case in CASES:
            check(port, case, given.keys)
    return done


def ratio(runs: dict[str, Run], case: str, peer: str) -> float:
    return runs[case].requests_per_second / runs[peer].requests_per_second


def p99_ratio(runs: dict[str, Run], case: str, peer: str) -> float:
    return runs[case].p99_us / runs[peer].p99_us


def show(number: int, runs: dict[str, Run]) -> None:
    for case, run in runs.items():
        against = ratio(runs, case, PEERS.get(case, PEER))
        print(
            f"round {number + 1}: {case:15} {run.requests_per_second:8.0f}/s p99 {run.p99_us:5.0f}"
            f" us, {run.server_us_per_request:5.1f} us each, {run.errors} errors; {against:.3f} x",
            flush=True,
        )


def medians(rounds: list[dict[str, Run]]) -> dict[str, dict[str, float]]:
    """case -> throughput and p99 as shares of its peer's."""
    peers = {**PEERS, "beside_waiters": PEER}
    return {
        case: {
            "throughput": round(statistics.median(ratio(each, case, peer) for each in rounds), 3),
            "p99": round(statistics.median(p99_ratio(each, case, peer) for each in rounds), 3),
        }
        for case, peer in peers.items()
    }


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--keys", type=int, default=200_000)
    options.add_argument("--seconds", type=int, default=1)
    options.add_argument("--wait-at", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.wait_at:
        asyncio.run(wait_at(given.wait_at))
        return 0
    missing = [name for name in ("wrk", "taskset", "curl") if not shutil.which(name)]
    if missing:
        print(f"missing: {', '.join(missing)} (apt-get install wrk curl)", file=sys.stderr)
        return 1
    about = report.circumstances()
    with tempfile.TemporaryDirectory(prefix="standpipe-bench-") as name:
        rounds = measure(Path(name), given)
    settings = {name: getattr(given, name) for name in ("rounds", "keys", "seconds")}
    result: dict[str, Any] = {
        "question": (__doc__ or "").splitlines()[0],
        **about,
        "load_after": [round(load, 2) for load in os.getloadavg()],
        "disturbed": max(about["machine"]["load_now"][0], os.getloadavg()[0]) > LOAD_QUIET_MAX,
        "settings": {**settings, "connections": CONNECTIONS, "waiters": WAITERS},
        "goals": {**GOALS, "beside_waiters": 0.9},
        "ratio_median": medians(rounds),
        "errors": sum(run.errors for runs in rounds for run in runs.values()),
        "runs": [{case: run.as_json() for case, run in runs.items()} for runs in rounds],
    }
    report.write_summary(RESULT, result)
    for case, found in result["ratio_median"].items():
        print(f"{case:15} {found['throughput']:.3f} x, p99 {found['p99']:.2f} x of eventual")
    return 0


if __name__ == "__main__":
    sys.exit(main())
