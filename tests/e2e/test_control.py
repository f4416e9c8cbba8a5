"""The metadata log with real processes on loopback, under SIGKILL. No Kafka, no Spark.

Three control processes (one holds the log) as their parent would start them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from standpipe.adapters.http_client import SECRET_HEADER
from standpipe.adapters.snapshot_file import read
from standpipe.local.ports import any_port
from standpipe.model import BatchId, LeaseEpoch, LogPage, NodeId, QueryStatus, Snapshot
from standpipe.node import node_config
from standpipe.node.node_config import NodeConfig

SECRET = "swordfish"
WAIT_S_MAX = 120.0  # generous: a busy machine is no failure
NAMES = ("node-1", "node-2", "node-3")
STREAM = (
    "CREATE STREAM {} (ID STRING KEY, V INTEGER) "
    "WITH (KAFKA_TOPIC='{}', PARTITIONS=2, VALUE_FORMAT='JSON');"
)
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID EMIT CHANGES;"


def until(what: str, condition: Callable[[], Any]) -> Any:
    """The condition's first true value; fails with `what` after WAIT_S_MAX."""
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {WAIT_S_MAX:g} s for {what}")


@dataclass
class ControlCluster:
    """Control processes by node name."""

    directory: Path
    bootstrap_servers: str = ""
    configs: dict[str, NodeConfig] = field(default_factory=dict[str, NodeConfig])
    processes: dict[str, subprocess.Popen[bytes]] = field(
        default_factory=dict[str, subprocess.Popen[bytes]]
    )

    def __post_init__(self) -> None:
        secret = self.directory / "secret"
        secret.write_text(SECRET)
        internal = {name: f"127.0.0.1:{any_port()}" for name in NAMES}
        for name in NAMES:
            config = NodeConfig(
                node_id=NodeId(name),
                data_dir=str(self.directory / name),
                bootstrap_servers=self.bootstrap_servers,
                public="127.0.0.1:1",
                internal=internal[name],
                peer="127.0.0.1:2",
                holder=NodeId(NAMES[0]),
                nodes={NodeId(n): address for n, address in internal.items() if n != name},
                secret_file=str(secret),
            )
            node_config.save(self.directory / name / "node.json", config)
            self.configs[name] = config
        self.client = httpx2.Client(headers={SECRET_HEADER: SECRET}, timeout=30)

    def start(self, *names: str) -> None:
        for name in names:
            with (self.directory / f"{name}.err").open("ab") as err:
                command = [sys.executable, "-m", "standpipe.node.control_loop", "--node-file"]
                self.processes[name] = subprocess.Popen(
                    [*command, str(self.directory / name / "node.json")], stderr=err
                )

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.client.close()

    def describe(self, name: str) -> dict[str, Any] | None:
        try:
            return self.client.get(self._url(name, "/describe")).json()
        except httpx2.TransportError:
            return None

    def post(self, name: str, path: str, body: object) -> httpx2.Response:
        return self.client.post(self._url(name, path), content=msgspec.json.encode(body))

    def execute(self, name: str, sql: str, request_id: str) -> httpx2.Response:
        body = {"ksql": sql, "streamsProperties": {}, "request_id": request_id}
        return self.post(name, "/execute", body)

    def page(self, name: str, start: int, wait_ms: int = 0) -> LogPage:
        params = {"from": start, "wait_ms": wait_ms}
        answer = self.client.get(self._url(name, "/log"), params=params)
        return msgspec.msgpack.decode(answer.content, type=LogPage)

    def snapshot(self, name: str) -> Snapshot:
        found = read(self.configs[name].paths.snapshot)
        assert found is not None
        return found

    def until_members(self, count: int, *names: str) -> None:
        for name in names:
            until(
                f"{count} members at {name}",
                lambda name=name: len((self.describe(name) or {"nodes": []})["nodes"]) == count,
            )

    def errors(self, name: str) -> str:
        return (self.directory / f"{name}.err").read_text()

    def _url(self, name: str, path: str) -> str:
        return f"http://{self.configs[name].internal}{path}"


def running(directory: Path) -> Iterator[ControlCluster]:
    cluster = ControlCluster(directory)
    try:
        cluster.start(*NAMES)
        cluster.until_members(3, *NAMES)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlCluster]:
    """A cluster for tests that kill."""
    yield from running(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlCluster]:
    """A cluster for tests that leave all its processes running."""
    yield from running(tmp_path_factory.mktemp("control"))


def test_a_statement_at_a_follower_is_everywhere(shared: ControlCluster) -> None:
    answer = shared.execute("node-2", STREAM.format("S", "s"), "r1")
    assert answer.status_code == 200
    index = answer.json()["log_index"]
    assert shared.snapshot("node-2").log_index >= index, "answered when node 2 shows it"
    assert shared.snapshot("node-1").log_index >= index
    until("node 3", lambda: shared.snapshot("node-3").log_index >= index)
    made = shared.execute("node-3", TABLE, "r2").json()
    assert made["entities"][0]["commandStatus"]["status"] == "SUCCESS"
    placements = shared.snapshot("node-3").assignment.placements
    assert [len(placement.replicas) for placement in placements] == [2, 2], "one standby each"
    assert shared.page("node-1", 1).entries == shared.page("node-3", 1).entries


def test_the_same_request_through_two_nodes_is_applied_once(shared: ControlCluster) -> None:
    once = STREAM.format("ONCE", "once")
    first = shared.execute("node-2", once, "same")
    again = shared.execute("node-3", once, "same")
    assert first.json() == again.json()
    assert shared.execute("node-3", once, "other").status_code == 400


def test_the_holder_is_killed_and_comes_back(control: ControlCluster) -> None:
    control.execute("node-1", STREAM.format("S", "s"), "r1")
    until("node 2", lambda: len(control.snapshot("node-2").sources) == 1)
    before = control.snapshot("node-2")
    control.kill("node-1")
    refused = control.execute("node-2", TABLE, "r2")
    assert (refused.status_code, refused.json()["error_code"]) == (503, 50307)
    assert refused.headers["retry-after"] == "1"
    assert control.page("node-2", 1).last_index == before.log_index, "served from its own copy"
    until("a fresh snapshot", lambda: control.snapshot("node-2").stamp > before.stamp)
    control.start("node-1")
    until("the holder", lambda: control.describe("node-1"))
    assert control.execute("node-2", TABLE, "r2").status_code == 200
    assert [s.name for s in control.snapshot("node-2").sources] == ["S", "T"]
    assert control.describe("node-1")["cluster_id"] == before.cluster_id  # type: ignore[index]


def test_a_follower_restarts_while_the_holder_is_away(control: ControlCluster) -> None:
    control.execute("node-3", STREAM.format("S", "s"), "r1")
    before = control.snapshot("node-3")
    control.kill("node-1")
    control.kill("node-3")
    control.configs["node-3"].paths.snapshot.unlink()
    control.start("node-3")
    until("its snapshot", control.configs["node-3"].paths.snapshot.exists)
    after = control.snapshot("node-3")
    assert (after.log_index, after.sources) == (before.log_index, before.sources)
    assert after.stamp > before.stamp
    control.start("node-1")
    until("the holder", lambda: control.describe("node-1"))
    assert control.execute("node-3", TABLE, "r2").status_code == 200


def test_a_wiped_follower_shows_nothing_before_it_has_all(control: ControlCluster) -> None:
    control.execute("node-1", STREAM.format("S", "s"), "r1")
    control.kill("node-1")
    control.kill("node-3")
    data = control.configs["node-3"].paths
    for path in (data.log / "commands.log", data.meta, data.snapshot):
        path.unlink()
    control.start("node-3")
    until("node 3", lambda: control.describe("node-3"))
    time.sleep(0.5)
    assert not data.snapshot.exists(), "half a catalog would deny tables that exist"
    control.start("node-1")
    until("its snapshot", data.snapshot.exists)
    assert [source.name for source in control.snapshot("node-3").sources] == ["S"]


def test_a_torn_log_loses_nothing_that_was_acknowledged(control: ControlCluster) -> None:
    index = control.execute("node-1", STREAM.format("S", "s"), "r1").json()["log_index"]
    control.kill("node-1")
    log = control.configs["node-1"].paths.log / "commands.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[16:40])
    control.start("node-1")
    until("the holder", lambda: control.describe("node-1"))
    assert control.describe("node-1")["last_index"] == index  # type: ignore[index]
    assert '"torn_bytes_cut": 24' in control.errors("node-1")
    assert control.execute("node-2", TABLE, "r2").status_code == 200


def test_a_flipped_bit_is_refused_by_name(control: ControlCluster) -> None:
    control.execute("node-1", STREAM.format("S", "s"), "r1")
    control.kill("node-1")
    log = control.configs["node-1"].paths.log / "commands.log"
    data = bytearray(log.read_bytes())
    data[50] ^= 1
    log.write_bytes(data)
    control.start("node-1")
    assert control.processes["node-1"].wait(WAIT_S_MAX) == 1
    assert f"E-DATA-001 {log} is damaged at byte 16" in control.errors("node-1")
    assert control.describe("node-2") is not None


def test_a_pipeline_gets_a_new_epoch_from_any_node(shared: ControlCluster) -> None:
    epochs = [
        shared.post(name, "/pipeline/start", {"pipeline_id": "p"}).json()["lease_epoch"]
        for name in NAMES
    ]
    assert epochs == [1, 2, 3]
    page = shared.page("node-2", 1, wait_ms=0)
    assert len(page.entries) == page.last_index


def queries_of(cluster: ControlCluster, name: str) -> list[str]:
    return [query.query_id for query in cluster.snapshot(name).queries]


def test_what_a_pipeline_says_is_in_the_snapshot(shared: ControlCluster) -> None:
    shared.execute("node-1", STREAM.format("SAID", "said"), "said-1")
    table = TABLE.replace("TABLE T", "TABLE SAYS").replace("FROM S", "FROM SAID")
    made = shared.execute("node-1", table, "said-2").json()
    query_id = made["entities"][0]["commandStatus"]["queryId"]
    status = QueryStatus(
        query_id=query_id, state="RUNNING", lease_epoch=LeaseEpoch(1), batch=BatchId(3)
    )
    until("the table", lambda: query_id in queries_of(shared, "node-2"))
    answer = shared.client.post(
        shared._url("node-2", "/query-status"), content=msgspec.msgpack.encode([status])
    )
    assert answer.json() == {"ok": True}
    assert shared.snapshot("node-2").query_statuses == (status,)


def test_sigterm_ends_each_process_in_time(control: ControlCluster) -> None:
    started = time.monotonic()
    for process in control.processes.values():
        process.terminate()
    assert [process.wait(5) for process in control.processes.values()] == [0, 0, 0]
    assert time.monotonic() - started < 5


def test_internal_routes_want_the_secret(shared: ControlCluster) -> None:
    for headers in ({}, {SECRET_HEADER: "wrong"}):
        url = shared._url("node-1", "/describe")
        assert httpx2.get(url, headers=headers).status_code == 401


def test_children_die_with_whoever_started_them(tmp_path: Path) -> None:
    cluster = ControlCluster(tmp_path)
    node_file = str(tmp_path / "node-1" / "node.json")
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'standpipe.node.control_loop', "
        f"'--node-file', {node_file!r}])\n"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        until("control", lambda: cluster.describe("node-1"))
        starter.kill()
    until("its end", lambda: not _lives(pid))
    cluster.close()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
