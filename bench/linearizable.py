"""How many linearizable reads does one follower answer over HTTP?  Goal: 2,000/s.

Sketch: three control processes on loopback, 64 connections ask one follower for
GET /catalog?consistency=linearizable. A read that arrives while a ReadOffset is under way waits for
the next one, and the leader answers all that it has noted with one round of fetches; so the quorum
costs a few messages per round, whatever the number of reads. What is left per read is HTTP and two
steps of the core in the follower's one thread: `follower_us` says how much of its core each takes,
and 1,000,000 / follower_us is the bound.

Beside it, a worker of the same node answers local statements (SHOW STREAMS) over one connection:
alone, while the follower's control serves local reads of the catalog, and while it serves
linearizable ones. Those share the cores with everything else here, so the third is to be compared
with the second: waiting for the quorum must cost a local read nothing.

    python bench/linearizable.py [--rounds 5] [--seconds 4]

The load is a Python process of its own, which proves that it knows the secret, as a node does.
It writes bench/results/linearizable.json. Not here: failover (`make quorum-kills`).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import httpx2
import msgspec
import uvloop

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for what the tests start clusters with

from tests import report  # noqa: E402
from tests.e2e.control_cluster import SECRET, ControlCluster, running, until  # noqa: E402
from tests.e2e.test_control import STREAM  # noqa: E402

from standpipe.adapters.http.internal import HttpClient  # noqa: E402
from standpipe.adapters.sealed.handshake import PeerIdentity  # noqa: E402
from standpipe.local.cluster.ports import any_port  # noqa: E402
from standpipe.node import configuration  # noqa: E402

GOAL_PER_S = 2_000
CONNECTIONS = 64
RESULT = ROOT / "bench" / "results" / "linearizable.json"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Reads:
    """One run of the load against the follower's control. us: of a core, for each read."""

    per_s: float
    p50_ms: float
    p99_ms: float
    refused: int
    follower_us: float
    leader_us: float


@dataclass(frozen=True)
class Local:
    """Local statements at the worker over one connection."""

    count: int
    p50_ms: float
    p99_ms: float


def processor_s(process: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


async def _load(address: str, target: str, seconds: int) -> tuple[list[float], int]:
    """ms of each answer, and how many were refused. Each task keeps a connection of its own."""
    client = HttpClient(PeerIdentity(SECRET), timeout_ms=30_000)
    took_ms, refused, until_s = list[float](), 0, time.monotonic() + seconds

    async def ask() -> None:
        nonlocal refused
        while time.monotonic() < until_s:
            began = time.perf_counter()
            reply = await client.get(address, target)
            took_ms.append((time.perf_counter() - began) * 1000)
            refused += not reply.ok

    await asyncio.gather(*(ask() for _ in range(CONNECTIONS)))
    await client.close()
    return took_ms, refused


def _run_load(address: str, target: str, seconds: int) -> tuple[list[float], int]:
    return uvloop.run(_load(address, target, seconds))


def run_load(cluster: ControlCluster, follower: str, consistency: str, seconds: int) -> Reads:
    watched = [cluster.processes[name].pid for name in (follower, cluster.leader())]
    address, target = cluster.configs[follower].internal, f"/catalog?consistency={consistency}"
    before = [processor_s(process) for process in watched]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        took_ms, refused = pool.submit(_run_load, address, target, seconds).result()
    spent = [processor_s(p) - then for p, then in zip(watched, before, strict=True)]
    follower_us, leader_us = (round(one / len(took_ms) * 1e6, 1) for one in spent)
    p50, p99 = (round(report.quantile(took_ms, share), 3) for share in (0.5, 0.99))
    return Reads(
        per_s=len(took_ms) / seconds,
        p50_ms=p50,
        p99_ms=p99,
        refused=refused,
        follower_us=follower_us,
        leader_us=leader_us,
    )


# ------------------------------------------------------------------------------- local reads


@contextmanager
def worker(cluster: ControlCluster, name: str) -> Iterator[str]:
    """A worker beside that node's control; where it listens."""
    config = msgspec.structs.replace(
        cluster.configs[name],
        public=f"127.0.0.1:{any_port()}",
        peer=f"127.0.0.1:{any_port()}",
    )
    file = cluster.directory / name / "worker.json"
    configuration.save(file, config)
    command = [
        sys.executable,
        "-m",
        "standpipe.node.worker.main",
        f"--node-file={file}",
        "--worker=0",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        with httpx2.Client(timeout=30) as client:
            until("the worker", lambda: _names(client, config.public))
        yield config.public
    finally:
        process.terminate()
        process.wait(10)


def _names(client: httpx2.Client, address: str, consistency: str = "local") -> list[str]:
    body = {
        "ksql": "SHOW STREAMS;",
        "streamsProperties": {"standpipe.consistency": consistency},
    }
    try:
        answer = client.post(f"http://{address}/ksql", json=body)
    except httpx2.TransportError:
        return []
    entities = answer.json() if answer.status_code == 200 else []
    return [stream["name"] for entity in entities for stream in entity.get("streams", [])]


class LocalReads:
    """Local statements, one after the other, until it is left."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._took_ms: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx2.Client(timeout=30) as client:
            while not self._is_over.is_set():
                began = time.perf_counter()
                assert _names(client, self._address) == ["S"], "a wrong answer"
                self._took_ms.append((time.perf_counter() - began) * 1000)
                self._is_over.wait(0.005)

    def figures(self) -> Local:
        took = self._took_ms
        p50, p99 = (round(report.quantile(took, share), 3) for share in (0.5, 0.99))
        return Local(len(took), p50, p99)


# ------------------------------------------------------------------------------------- rounds


def one_round(cluster: ControlCluster, at: str, follower: str, seconds: int) -> dict[str, Any]:
    linearizable = run_load(cluster, follower, "linearizable", seconds)
    found: dict[str, Any] = {"linearizable": asdict(linearizable)}
    with LocalReads(at) as reads:
        time.sleep(seconds)
    found["worker_alone"] = asdict(reads.figures())
    for consistency in ("local", "linearizable"):
        with LocalReads(at) as reads:
            run_load(cluster, follower, consistency, seconds)
        found[f"worker_beside_{consistency}"] = asdict(reads.figures())
    return found


def median_of(rounds: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    return {
        case: {
            name: round(statistics.median(one[case][name] for one in rounds), 3)
            for name in rounds[0][case]
        }
        for case in rounds[0]
    }


def make_stream(cluster: ControlCluster) -> None:
    sql = STREAM.format("S", "s")
    until("S", lambda: cluster.execute("node-1", sql, "r1").status_code == 200)


def measure(rounds: int, seconds: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="linearizable-") as directory:
        for cluster in running(Path(directory)):
            make_stream(cluster)
            follower = next(name for name in cluster.names if name != cluster.leader())
            with worker(cluster, follower) as at:
                run_load(cluster, follower, "linearizable", 1)  # warm-up, not counted
                for _ in range(rounds):
                    found.append(one_round(cluster, at, follower, seconds))
                    reads = found[-1]["linearizable"]
                    print(f"  {reads['per_s']:8.0f} reads/s, {reads['follower_us']} us", flush=True)
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=int, default=4)
    options.add_argument("--result", type=Path, default=RESULT)
    given = options.parse_args()
    head = {"question": (__doc__ or "").splitlines()[0], **report.circumstances()}
    rounds = measure(given.rounds, given.seconds)
    medians = median_of(rounds)
    reads = medians["linearizable"]
    share = reads["per_s"] * reads["follower_us"] / 1e6  # of one core, that the follower had
    bound = "the follower's one thread" if share > 0.85 else "cores that others had"
    report.write_summary(
        given.result,
        {
            **head,
            "connections": CONNECTIONS,
            "seconds": given.seconds,
            "goal_per_s": GOAL_PER_S,
            "follower_bound_per_s": round(1e6 / reads["follower_us"]),
            "follower_core_share": round(share, 2),
            "bounded_by": bound,
            "medians": medians,
            "rounds": rounds,
        },
    )
    is_met = reads["per_s"] >= GOAL_PER_S
    print(f"{reads['per_s']:.0f} reads/s, goal {GOAL_PER_S}: {'met' if is_met else 'MISSED'}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
