"""Nodes with real control processes and real workers, without Kafka, tailer and Spark.

Control decides, beats and publishes for real; rows and status pages are written by the test, as a
tailer would leave them, so that a test says how far each replica is. `bench/failover.py` uses it
too.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from tests.e2e import test_serve
from tests.e2e.forked import NodeProcess, fork
from tests.e2e.test_serve import Reply, ask, json_bytes, status
from tests.sealed_http import sealed_client

from standpipe.adapters.files.private import write_secret
from standpipe.adapters.files.published import read_snapshot
from standpipe.data.encoding.store_keys import encode_key, partition_of
from standpipe.errors import LogUnavailable, OutcomeUnknown
from standpipe.local.cluster.ports import any_port
from standpipe.model import NodeId, ReplicaStatus, Source
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig

SECRET = "a secret of the cluster"
PARTITIONS = 4
WAIT_S_MAX = 120.0  # generous: a busy machine is no failure
STREAM = (
    "CREATE STREAM EVENTS (ID STRING KEY, V INTEGER) "
    f"WITH (KAFKA_TOPIC='events', PARTITIONS={PARTITIONS}, VALUE_FORMAT='JSON');"
)
TABLE = "CREATE TABLE USERS {}AS SELECT ID, COUNT(*) AS N FROM EVENTS GROUP BY ID EMIT CHANGES;"


def until(what: str, condition: Callable[[], Any]) -> Any:
    """The condition's first true value; fails with `what` after WAIT_S_MAX."""
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {WAIT_S_MAX:g} s for {what}")


@dataclass
class WholeNode(test_serve.Node):
    """A node's control and its workers."""

    control: NodeProcess | None = None

    @property
    def node_id(self) -> NodeId:
        return self.config.node_id

    def start_control(self) -> None:
        node_file = str(Path(self.config.data_dir) / "node.json")
        log = self.config.paths.logs / "control.log"
        self.control = fork("standpipe.node.controller.main", ["--node-file", node_file], log)

    @property
    def processes(self) -> list[NodeProcess]:
        return [*self.workers, *([self.control] if self.control else [])]

    def signal(self, number: int) -> None:
        """Of all processes of the node, as if the machine did it."""
        for process in self.processes:
            os.kill(process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.workers.clear()
        self.control = None

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@dataclass
class LivenessCluster:
    """`keys`: of all nodes. USERS is there with PARTITIONS partitions; all replicas RUNNING."""

    folder: Path
    count: int = 3
    table_with: str = ""
    workers: int = 1
    bootstrap_servers: str = ""  # empty: no Kafka
    keys: dict[str, object] = field(default_factory=dict[str, object])
    nodes: list[WholeNode] = field(default_factory=list[WholeNode])
    users: Source | None = None

    def start(
        self,
        rows: dict[str, list[object]],
        prepare: Callable[[Source], object] = lambda table: None,
    ) -> None:
        """`prepare`: is called with the table before any replica of it can be reported."""
        try:
            self._start(rows, prepare)
        except BaseException as error:
            error.add_note(self._told())
            self.stop()
            raise

    def _told(self) -> str:
        """How the processes are, and the last that each control said."""
        lines: list[str] = []
        for node in self.nodes:
            ends = [process.poll() for process in node.processes]
            log = node.config.paths.logs / "control.log"
            said = log.read_text().splitlines()[-10:] if log.exists() else []
            lines += [f"{node.node_id} at {node.config.internal}, exit codes {ends}:", *said]
        return "\n".join(lines)

    def _start(self, rows: dict[str, list[object]], prepare: Callable[[Source], object]) -> None:
        self._make()
        for node in self.nodes:
            node.start_control()
        until("all members", lambda: len(self._nodes_known()) == self.count)
        for text in (STREAM, TABLE.format(self.table_with)):
            self._execute(text)
        until("placements everywhere", lambda: all(map(self._is_placed, self.nodes)))
        users: Source = next(s for s in self.snapshot(0).sources if s.name == "USERS")
        self.users = users
        prepare(users)
        for number in range(PARTITIONS):
            mine = {key: row for key, row in rows.items() if self.partition(key) == number}
            for node in self.holders(number):
                node.write_rows(users, number, mine)
                node.write_status(users, number, status())
        for node in self.nodes:
            for worker in range(self.workers):
                node.start(worker)
        for node in self.nodes:
            node.wait_ready()
        for node in self.nodes:
            until("all peers alive", lambda n=node: set(self.alive(n).values()) == {True})

    def _make(self) -> None:
        write_secret(self.folder / "secret", SECRET)
        names = [NodeId(f"node-{number}") for number in range(self.count)]
        internal = {name: f"127.0.0.1:{any_port()}" for name in names}
        for name in names:
            config = NodeConfig(
                node_id=name,
                data_dir=str(self.folder / name),
                bootstrap_servers=self.bootstrap_servers,
                public=f"127.0.0.1:{any_port()}",
                internal=internal[name],
                peer=f"127.0.0.1:{any_port()}",
                voters=(names[0],),
                nodes={other: address for other, address in internal.items() if other != name},
                secret_file=str(self.folder / "secret"),
                config=self.keys,  # pyright: ignore[reportArgumentType]
            )
            config.paths.make()
            configuration.save(self.folder / name / "node.json", config)
            self.nodes.append(WholeNode(config))

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    # ------------------------------------------------------------------- what is where

    def snapshot(self, number: int) -> Any:
        return read_snapshot(self.nodes[number].config.paths.snapshot)

    def partition(self, key: str) -> int:
        assert self.users is not None
        raw = encode_key((key,), self.users.key_columns, "KAFKA")
        assert raw is not None
        return partition_of(raw, PARTITIONS)

    def holders(self, number: int) -> list[WholeNode]:
        """Nodes that hold a partition, the active first."""
        by_id = {node.node_id: node for node in self.nodes}
        (placement,) = [p for p in self.snapshot(0).assignment.placements if p.partition == number]
        return [by_id[node_id] for node_id in placement.replicas]

    def outsider(self, number: int) -> WholeNode:
        held = self.holders(number)
        return next(node for node in self.nodes if node not in held)

    def write(self, node: WholeNode, number: int, page: ReplicaStatus) -> None:
        assert self.users is not None
        node.write_status(self.users, number, page)

    # -------------------------------------------------------------------- what it says

    def ask(self, node: WholeNode, key: str, **properties: object) -> Reply:
        body = {"ksql": f"SELECT * FROM USERS WHERE ID = '{key}';", "streamsProperties": properties}
        return ask(node.port(), "/query", json_bytes(body))

    def cluster(self, node: WholeNode) -> dict[str, Any]:
        """`/clusterStatus` by node id."""
        body = self.get(node, "/clusterStatus")
        return {one["standpipe"]["nodeId"]: one for one in body["clusterStatus"].values()}

    def alive(self, node: WholeNode) -> dict[str, bool]:
        return {name: one["hostAlive"] for name, one in self.cluster(node).items()}

    def get(self, node: WholeNode, path: str) -> Any:
        return httpx2.get(f"http://{node.config.public}{path}", timeout=WAIT_S_MAX).json()

    def post(self, node: WholeNode, path: str, body: object, sender: str = "") -> httpx2.Response:
        """To the internal listener, from `sender`, which may lie; empty: an operator."""
        with sealed_client(SECRET, sender) as http:
            return http.post(f"http://{node.config.internal}{path}", content=json.dumps(body))

    def _execute(self, text: str) -> None:
        body = {"ksql": text, "streamsProperties": {}, "request_id": text[:20]}
        until(f"a leader that takes {text}", lambda: self._is_taken(body))

    def _is_taken(self, body: object) -> bool:
        """503: nobody leads, on a machine that is slower than elections are. It has a request id,
        so it may be sent again though it may be logged."""
        reply = self.post(self.nodes[0], "/execute", body)
        if reply.status_code == 200:
            return True
        passes = (LogUnavailable.code, OutcomeUnknown.code)
        assert reply.json()["error_code"] in passes, reply.text
        return False

    def _nodes_known(self) -> list[object]:
        try:
            with sealed_client(SECRET) as http:
                reply = http.get(f"http://{self.nodes[0].config.internal}/describe")
        except httpx2.TransportError:
            return []
        return reply.json()["nodes"] if reply.status_code == 200 else []

    def _is_placed(self, node: WholeNode) -> bool:
        found = read_snapshot(node.config.paths.snapshot)
        return found is not None and len(found.assignment.placements) == PARTITIONS
