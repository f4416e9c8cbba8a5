"""How many lookups by key does one worker answer, against Redis GET?  Budget: 0.25 x Redis.

Sketch: POST /query with SQL text, another literal each time, 1 M keys, 16 connections, no
pipelining; server on one core, load on the other (wrk; redis-benchmark for Redis). Every round
runs both, so that a ratio compares neighbours in time; a round costs about 2 x SECONDS.
The floor of a round trip is the loopback, about 7 us.

    python bench/pull.py [--rounds 5] [--keys 1000000] [--seconds 5]

Needs wrk and redis-server (Debian packages of these names). Not here: forwards, failover, latency
under an open loop.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import report  # noqa: E402

from standpipe.adapters.clock import Clock  # noqa: E402
from standpipe.adapters.files import published  # noqa: E402
from standpipe.adapters.files.private import write_secret  # noqa: E402
from standpipe.adapters.store.status_page import StatusWriter, page_path  # noqa: E402
from standpipe.adapters.store.writer import StoreWriter  # noqa: E402
from standpipe.data.encoding.store_keys import encode_key, partition_of, store_key  # noqa: E402
from standpipe.data.encoding.stored_rows import pack_row  # noqa: E402
from standpipe.data.replica.positions import StoreIdentity, StoreMeta  # noqa: E402
from standpipe.model import (  # noqa: E402
    Assignment,
    AssignmentEpoch,
    BatchId,
    Column,
    LeaseEpoch,
    LogIndex,
    NodeId,
    NodeInfo,
    Offset,
    Placement,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
    Source,
)
from standpipe.node import configuration  # noqa: E402
from standpipe.node.configuration import NodeConfig  # noqa: E402
from standpipe.node.worker.heavy_workers import socket_name  # noqa: E402

SERVER_CORE, LOAD_CORE = "0", "1"
CONNECTIONS = 16
#: the bench itself keeps two cores busy; more before it or beside it is somebody else
LOAD_QUIET_MAX = 2.5
BODIES = 50_000
PARTITIONS = 4
POSITION = Offset(10)
RESULT = report.RESULTS / "pull.json"

TABLE = Source(
    name="FLIGHTS_BY_PLANE",
    kind="TABLE",
    columns=(
        Column(name="TAILNUM", type="STRING", is_key=True),
        Column(name="FLIGHTS", type="BIGINT"),
        Column(name="DISTANCE", type="BIGINT"),
        Column(name="DEST", type="STRING"),
    ),
    topic="FLIGHTS_BY_PLANE",
    partitions=PARTITIONS,
    key_format="KAFKA",
    value_format="JSON",
    statement="",
    query_id="CTAS_FLIGHTS_BY_PLANE_1",
    table_id="T1",
    is_materialized=True,
)

#: wrk runs this: bodies are built ahead, each request takes the next of a shuffled list.
LUA = """
local requests = {}
local at = 0
function init(args)
  for line in io.lines("%s") do
    requests[#requests + 1] = wrk.format("POST", "/query", {["Content-Type"]=
      "application/vnd.ksql.v1+json"}, line)
  end
end
function request()
  at = at + 1
  if at > #requests then at = 1 end
  return requests[at]
end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True)
class Run:
    """One server in one round."""

    requests_per_second: float
    errors: int
    p50_us: float
    p99_us: float
    server_us_per_request: float  # processor time

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 2) for name, value in vars(self).items()}


# ------------------------------------------------------------------------------------ servers


def key_of(number: int) -> str:
    return f"N{number:07d}"


def make_node(folder: Path, keys: int) -> NodeConfig:
    """A node's folder with a filled table, as control and tailer would leave it."""
    secret = folder / "secret"
    write_secret(secret, "bench")
    address = {name: f"127.0.0.1:{free_port()}" for name in ("public", "internal", "peer")}
    config = NodeConfig(
        node_id=NodeId("node-1"),
        data_dir=str(folder / "node"),
        bootstrap_servers="",
        secret_file=str(secret),
        **address,
    )
    config.paths.make()
    configuration.save(folder / "node.json", config)
    fill(config, keys)
    for partition in range(PARTITIONS):
        StatusWriter(page_path(config.paths.run, ReplicaId("T1", 1, partition))).write(running())
    published.write(config.paths.snapshot, snapshot(config))
    return config


def fill(config: NodeConfig, keys: int) -> None:
    rows: list[list[tuple[bytes, bytes]]] = [[] for _ in range(PARTITIONS)]
    for number in range(keys):
        key = key_of(number)
        value = b'[%d,%d,"abcdefghij"]' % (number % 1000, 12_345_678 + number)
        raw = encode_key((key,), TABLE.key_columns, TABLE.key_format)
        assert raw is not None
        rows[partition_of(raw, PARTITIONS)].append(
            (store_key((key,), ("STRING",)), pack_row(value, 1_356_998_400_000))
        )
    for partition, puts in enumerate(rows):
        identity = StoreIdentity(table_id="T1", generation=1, partition=partition)
        writer = StoreWriter(config.paths.state / "T1-1" / str(partition), identity)
        writer.apply(puts, [], StoreMeta(identity=identity, position=POSITION, batch=BatchId(1)))
        writer.close()


def running() -> ReplicaStatus:
    return ReplicaStatus(
        state=ReplicaState.RUNNING,
        position=POSITION,
        committed_end=POSITION,
        log_end=POSITION,
        batch=BatchId(1),
        lease_epoch=LeaseEpoch(1),
        confirmed_boot_ms=Clock().boot_ms(),
        source_instant_ms=int(time.time() * 1000),
        foreign_records=0,
        rows=1,
        watermark_ms=0,
    )


def snapshot(config: NodeConfig) -> Snapshot:
    node = NodeInfo(
        node_id=config.node_id,
        public=config.public,
        internal=config.internal,
        peer=config.peer,
        incarnation="bench",
    )
    placements = tuple(
        Placement(table_id="T1", generation=1, partition=partition, replicas=(config.node_id,))
        for partition in range(PARTITIONS)
    )
    return Snapshot(
        stamp=1,
        node_id=config.node_id,
        service_id="default_",
        cluster_id="bench",
        log_index=LogIndex(1),
        leader=config.node_id,
        nodes=(node,),
        sources=(TABLE,),
        queries=(),
        assignment=Assignment(epoch=AssignmentEpoch(1), placements=placements),
    )


@contextmanager
def worker(
    folder: Path, config: NodeConfig, *, with_heavy: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of lookups. `with_heavy`: beside a heavy one, on the same core."""
    process = started_worker(folder, "--worker=0")
    try:
        wait_for_port(port_of(config.public))
        if with_heavy:
            with heavy_worker(folder, config):
                yield process
        else:
            yield process
    finally:
        process.terminate()
        process.wait(5)


def started_worker(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    node_file = f"--node-file={folder / 'node.json'}"
    command = ["taskset", "-c", SERVER_CORE, sys.executable, "-m", "standpipe.node.worker.main"]
    return subprocess.Popen([*command, node_file, *arguments])


@contextmanager
def heavy_worker(folder: Path, config: NodeConfig) -> Iterator[None]:
    number = config.heavy_numbers()[0]
    process = started_worker(folder, f"--worker={number}", "--heavy")
    try:
        while not (config.paths.run / socket_name(number)).exists():
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(5)


@contextmanager
def redis(folder: Path, keys: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    options = ["--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    process = subprocess.Popen(
        ["taskset", "-c", SERVER_CORE, "redis-server", *options], stdout=subprocess.DEVNULL
    )
    try:
        wait_for_port(port)
        load_redis(port, keys)
        yield process, port
    finally:
        process.terminate()
        process.wait(5)


def load_redis(port: int, keys: int) -> None:
    """The same keys as redis-benchmark's `key:000000000123`; checked, because a Redis that holds
    nothing answers faster."""
    text = b"".join(
        b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%b\r\n" % (number, len(value), value)
        for number in range(keys)
        for value in (b'[%d,%d,"abcdefghij"]' % (number % 1000, 12_345_678 + number),)
    )
    pipe = ["redis-cli", "-p", str(port), "--pipe"]
    subprocess.run(pipe, input=text, check=True, stdout=subprocess.DEVNULL)
    size = subprocess.run(
        ["redis-cli", "-p", str(port), "dbsize"], check=True, capture_output=True, text=True
    )
    assert int(size.stdout) == keys, size.stdout


# --------------------------------------------------------------------------------------- load


def select(number: int) -> str:
    return f"SELECT * FROM FLIGHTS_BY_PLANE WHERE TAILNUM = '{key_of(number)}';"


def write_bodies(path: Path, keys: int, seed: int) -> None:
    """Request bodies, one a line, random keys."""
    draw = random.Random(seed)
    with path.open("w") as lines:
        for _ in range(BODIES):
            text = (
                f"SELECT * FROM FLIGHTS_BY_PLANE WHERE TAILNUM = '{key_of(draw.randrange(keys))}';"
            )
            lines.write(json.dumps({"ksql": text, "streamsProperties": {}}) + "\n")


def run_worker(process: int, port: int, script: Path, seconds: int) -> Run:
    command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s"]
    before = processor_seconds(process)
    output = capture([*command, "-s", str(script), f"http://127.0.0.1:{port}"])
    spent = processor_seconds(process) - before
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", output)
    assert found is not None, output
    requests, duration_us, errors, p50, p99 = map(int, found.groups())
    return Run(requests / duration_us * 1e6, errors, p50, p99, spent / requests * 1e6)


def run_redis(process: int, port: int, keys: int, seconds: int) -> Run:
    requests = 70_000 * seconds
    before = processor_seconds(process)
    command = ["taskset", "-c", LOAD_CORE, "redis-benchmark", "-p", str(port), "-t", "get", "--csv"]
    numbers = {"-c": CONNECTIONS, "-r": keys, "-n": requests}
    output = capture([*command, *(str(word) for pair in numbers.items() for word in pair)])
    spent = processor_seconds(process) - before
    fields = [field.strip('"') for field in output.strip().splitlines()[-1].split(",")]
    rate, p50_ms, p99_ms = float(fields[1]), float(fields[4]), float(fields[6])
    return Run(rate, 0, p50_ms * 1000, p99_ms * 1000, spent / requests * 1e6)


def capture(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_answers(port: int, keys: int) -> None:
    """The answers under load would be right: a sample is compared with what was written."""
    for number in random.Random(7).sample(range(keys), 200):
        body = json.dumps({"ksql": select(number)}).encode()
        request = Request(f"http://127.0.0.1:{port}/query", body)
        request.add_header("content-type", "application/json")
        with urlopen(request, timeout=5) as answer:
            row = json.loads(answer.read())[1]["row"]["columns"]
        assert row == [key_of(number), number % 1000, 12_345_678 + number, "abcdefghij"], row


# ------------------------------------------------------------------------------------ machine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kib(process: int) -> dict[str, int]:
    """PSS of a process: whole, and without the mapped stores."""
    whole, stores, is_store = 0, 0, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-", line):
            is_store = line.endswith("data.mdb")
        elif line.startswith("Pss:"):
            size = int(line.split()[1])
            whole += size
            stores += size if is_store else 0
    return {"pss": whole, "pss_without_stores": whole - stores}


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--seconds", type=int, default=5)
    given = options.parse_args()
    missing = [name for name in ("wrk", "redis-server", "taskset") if not shutil.which(name)]
    if missing:
        print(f"missing: {', '.join(missing)} (apt-get install wrk redis-server)", file=sys.stderr)
        return 1
    about = report.circumstances()
    with tempfile.TemporaryDirectory(prefix="standpipe-bench-") as name:
        rounds, memory = measure(Path(name), given.rounds, given.keys, given.seconds)
    write(given, about, rounds, memory)
    return 0


def measure(
    folder: Path, rounds: int, keys: int, seconds: int
) -> tuple[list[dict[str, Run]], dict[str, int]]:
    config = make_node(folder, keys)
    bodies, script = folder / "bodies", folder / "load.lua"
    write_bodies(bodies, keys, seed=1)
    script.write_text(LUA % bodies)
    done: list[dict[str, Run]] = []
    with worker(folder, config) as ours, redis(folder, keys) as (theirs, redis_port):
        port = port_of(config.public)
        check_answers(port, keys)
        run_worker(ours.pid, port, script, 2)  # warm: pages of the store, caches of the worker
        cases: list[tuple[str, Callable[[], Run]]] = [
            ("standpipe", lambda: run_worker(ours.pid, port, script, seconds)),
            ("redis", lambda: run_redis(theirs.pid, redis_port, keys, seconds)),
        ]
        for number in range(rounds):
            order = cases if number % 2 == 0 else cases[::-1]
            done.append({name: run() for name, run in order})
            show(number, done[-1])
        check_answers(port, keys)
        memory = memory_kib(ours.pid)
    return done, memory


def ratio(pair: dict[str, Run]) -> float:
    return pair["standpipe"].requests_per_second / pair["redis"].requests_per_second


def show(number: int, pair: dict[str, Run]) -> None:
    ours, theirs = pair["standpipe"], pair["redis"]
    print(
        f"round {number + 1}: standpipe {ours.requests_per_second:8.0f}/s p50 {ours.p50_us:.0f} us "
        f"p99 {ours.p99_us:.0f} us, {ours.server_us_per_request:.1f} us/request, "
        f"{ours.errors} errors; redis {theirs.requests_per_second:8.0f}/s; ratio {ratio(pair):.2f}",
        flush=True,
    )


def write(
    given: argparse.Namespace,
    about: dict[str, Any],
    rounds: list[dict[str, Run]],
    memory: dict[str, int],
) -> None:
    medians = {
        name: statistics.median(pair[name].requests_per_second for pair in rounds)
        for name in ("standpipe", "redis")
    }
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **about,
        "load_after": [round(load, 2) for load in os.getloadavg()],
        # a run beside other work measures that work: only its ratios mean anything
        "disturbed": max(about["machine"]["load_now"][0], os.getloadavg()[0]) > LOAD_QUIET_MAX,
        "settings": {**vars(given), "connections": CONNECTIONS, "bodies": BODIES},
        "ratio_median": round(statistics.median(map(ratio, rounds)), 3),
        "ratios": [round(ratio(pair), 3) for pair in rounds],
        "requests_per_second_median": {name: round(rate) for name, rate in medians.items()},
        "errors": sum(pair["standpipe"].errors for pair in rounds),
        "worker_memory_kib": memory,
        "runs": [{name: run.as_json() for name, run in pair.items()} for pair in rounds],
    }
    report.write_summary(RESULT, result)
    print(f"ratio to Redis GET: {result['ratio_median']} (median of {len(rounds)}), {memory}")


if __name__ == "__main__":
    sys.exit(main())
