"""A whole cluster, real in every part, one node per host: Kafka and Spark on the hub.

    network = Network()
    with HostCluster(folder, network, Plan(nodes=3)) as cluster:
        cluster.fill({"k1": 4})               # four events of key k1: row ["k1", 4, 4]
        cluster.nodes[0].signal(SIGKILL)

One table, LEVELS: per key the count of its events (N) and the newest one's number (V). The n-th
event of a key carries n, so every row that any batch could leave has N = V: a row that mixes
batches, loses or repeats an event shows itself without any oracle.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx2
from confluent_kafka import Producer
from tests.hosts.network import HUB, Host, Network
from tests.hosts.wall_clock import WallClock, build

from standpipe.adapters.files.private import write_secret
from standpipe.adapters.files.published import read_snapshot
from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.data.commit.progress import serialise
from standpipe.data.commit.seal import ProgressSeal
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    encode_key,
    partition_of,
    rowtime_header,
)
from standpipe.errors import StandpipeError, StatementError
from standpipe.local.client.rest_client import NodesClient
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.node_files import StandaloneNode, write_standalone
from standpipe.local.cluster.process_group import ManagedProcess
from standpipe.model import (
    NO_BATCH,
    BatchId,
    Commit,
    Health,
    LeaseEpoch,
    Progress,
    Snapshot,
    Source,
)
from standpipe.node.configuration import NodeConfig, load

WAIT_S_MAX = 600.0  # generous: a busy machine is no failure
PUBLIC, BROKER = 8088, 9092
PARTITIONS = 6
PROGRESS = "default__progress"
SECRET = "a secret of test hosts"
STREAM = (
    "CREATE STREAM IF NOT EXISTS EVENTS (ID STRING KEY, V BIGINT) "
    f"WITH (KAFKA_TOPIC='events', PARTITIONS={PARTITIONS}, VALUE_FORMAT='JSON');"
)
TABLE = (
    "CREATE TABLE IF NOT EXISTS LEVELS AS SELECT ID, COUNT(*) AS N, LATEST_BY_OFFSET(V) AS V "
    "FROM EVENTS GROUP BY ID EMIT CHANGES;"
)


def until(what: str, condition: Callable[[], Any], wait_s: float = WAIT_S_MAX) -> Any:
    """The condition's first true value; fails with `what` after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {wait_s:g} s for {what}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a cluster is to be. `config.keys`: keys for every node and the pipeline."""

    nodes: int = 3
    workers: int = 1
    #: without it, `commit` writes a batch as a pipeline would
    spark: bool = True
    #: tag `rack` of the nodes, in turn; empty: no tags
    racks: Sequence[str] = ()
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    #: each node has a wall clock of its own (`tests.hosts.wall_clock`)
    clocks: bool = False


@dataclass
class HostNode:
    """One node on its host: the parent and its children, one process group."""

    host: Host
    config: NodeConfig
    child: ManagedProcess
    clock: WallClock | None = None

    @property
    def node_id(self) -> str:
        return self.config.node_id

    @property
    def public(self) -> str:
        return self.config.public

    def start(self) -> None:
        self.child.start()

    def signal(self, number: signal.Signals) -> None:
        """Of all its processes, as if the machine did it. Heavy workers are in no group of it."""
        for pid in self.pids("heavy"):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        self.child.signal_group(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.child.wait(10)

    def pids(self, name: str) -> list[int]:
        """Process ids of its children by what `run/` says: control, tailer, worker-0, …"""
        files = sorted(self.config.paths.run.glob(f"{name}*.pid"))
        return [int(file.read_text()) for file in files]

    def signal_only(self, name: str, number: signal.Signals) -> None:
        """One kind of its children; the parent starts again what dies of it."""
        for pid in self.pids(name):
            os.kill(pid, number)

    @property
    def snapshot(self) -> Snapshot | None:
        return read_snapshot(self.config.paths.snapshot)

    def answers(self) -> bool:
        return self.get("/info") is not None

    def get(self, path: str) -> Any:
        """JSON of a GET; None: no answer."""
        try:
            response = httpx2.get(f"http://{self.public}{path}", timeout=2, trust_env=False)
        except httpx2.TransportError:
            return None
        return response.json() if response.status_code == 200 else None

    def peers_alive(self) -> dict[str, bool]:
        """node id -> whether this node's workers would route to it without a doubt."""
        page = self.get("/clusterStatus")
        if page is None:
            return {}
        return {
            one["standpipe"]["nodeId"]: one["hostAlive"]
            and one["standpipe"]["alive"] == Health.ALIVE.name
            for one in page["clusterStatus"].values()
        }


def runs(node: HostNode) -> bool:
    """It answers, and each of its replicas is RUNNING."""
    page = node.get("/clusterStatus") or {"clusterStatus": {}}
    own = page["clusterStatus"].get(node.public)
    replicas = list(own["standpipe"]["replicas"].values()) if own else []
    return bool(replicas) and all(one and one["state"] == "RUNNING" for one in replicas)


class HostCluster:
    """`with` starts and stops all of it."""

    def __init__(self, folder: Path, network: Network, plan: Plan) -> None:
        self.folder = folder
        self.network = network
        self.plan = plan
        self.broker = Broker(folder / "kafka", BROKER, host=HUB, start_s_max=WAIT_S_MAX)
        self.nodes: list[HostNode] = []
        self.pipeline: ManagedProcess | None = None
        self.table: Source | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --------------------------------------------------------------------------- start

    def _start(self) -> None:
        write_secret(self.folder / "secret", SECRET)
        if self.plan.clocks:
            self.clock_library = build(self.folder)
        self.broker.start()
        hosts = self.network.at_least(self.plan.nodes)
        self.nodes = [self._node(host, hosts) for host in hosts]
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            until(f"{node.node_id} to answer", node.answers)
        if self.plan.spark:
            self.start_pipeline()
        self.client = NodesClient([node.public for node in self.nodes])
        until("all members", lambda: all(len(n.peers_alive()) == len(hosts) for n in self.nodes))
        for text in (STREAM, TABLE):
            until(f"a leader to take {text}", lambda text=text: self._executed(text))
        until("placements everywhere", lambda: all(map(self._is_placed, self.nodes)))
        self.all_alive()

    def _node(self, host: Host, hosts: list[Host]) -> HostNode:
        name = host.name.replace("host", "node")
        file = write_standalone(
            StandaloneNode(
                node_id=name,
                data_directory=self.folder / name,
                bootstrap_servers=self.broker.bootstrap_servers or f"{HUB}:{BROKER}",
                listen=f"{host.address}:{PUBLIC}",
                advertise=f"{host.address}:{PUBLIC}",
                others={
                    other.name.replace("host", "node"): f"{other.address}:{PUBLIC + 1}"
                    for other in hosts
                    if other != host
                },
                secret_file=self.folder / "secret",
                workers=self.plan.workers,
                tags=self._tags(hosts.index(host)),
                config=self.plan.config,
            )
        )
        command = [sys.executable, "-m", "standpipe.node", "--node-file", str(file)]
        clock = None
        if self.plan.clocks:
            clock = WallClock(self.folder / f"{name}.clock", self.clock_library)
            command = clock.command(command)
        child = ManagedProcess(name, host.command(command), self.folder / f"{name}.log")
        return HostNode(host, load(file), child, clock)

    def _executed(self, text: str) -> bool:
        """False: the quorum is still electing, or starved. Statements say IF NOT EXISTS."""
        try:
            self.client.execute(text)
        except StandpipeError as error:
            if isinstance(error, StatementError) and "no leader" not in error.message:
                raise
            return False
        return True

    def _tags(self, number: int) -> dict[str, str]:
        racks = self.plan.racks
        return {"rack": racks[number % len(racks)]} if racks else {}

    def start_pipeline(self) -> None:
        os.environ["SPARK_LOCAL_IP"] = HUB
        command = [sys.executable, "-m", "standpipe.pipeline.run.driver"]
        command += ["--nodes", ",".join(node.config.internal for node in self.nodes)]
        command += ["--bootstrap-servers", self.broker.bootstrap_servers]
        command += ["--checkpoints", str(self.folder / "checkpoints")]
        command += ["--secret-file", str(self.folder / "secret")]
        command += ["--master", "local[2]"]
        for name, value in self.plan.config.items():
            command += ["--config", f"{name}={value}"]
        self.pipeline = ManagedProcess("pipeline", command, self.folder / "pipeline.log")
        self.pipeline.start()

    def kill_pipeline(self) -> None:
        if self.pipeline is not None:
            self.pipeline.signal_group(signal.SIGKILL)
            self.pipeline.wait(10)

    def stop(self) -> None:
        for child in [
            *(node.child for node in self.nodes),
            *([self.pipeline] * bool(self.pipeline)),
        ]:
            assert child is not None
            child.signal_group(signal.SIGCONT)
            child.signal_group(signal.SIGKILL)
            child.wait(5)
        self.broker.stop()

    def _is_placed(self, node: HostNode) -> bool:
        found = node.snapshot
        if found is None or len(found.assignment.placements) < PARTITIONS:
            return False
        self.table = next(source for source in found.sources if source.name == "LEVELS")
        return True

    # --------------------------------------------------------------------------- rows

    def fill(self, events: Mapping[str, int], numbers: dict[str, int] | None = None) -> None:
        """So many more events of each key, acknowledged by Kafka; `numbers`: the newest of each."""
        numbers = {} if numbers is None else numbers
        producer = self.producer()
        for key, count in events.items():
            for _ in range(count):
                numbers[key] = numbers.get(key, 0) + 1
                produce(producer, key, numbers[key])
        assert producer.flush(60) == 0

    def commit(self, rows: Mapping[str, int]) -> None:
        """One batch of the table, by the commit protocol: what Spark would have left of `fill`."""
        assert self.table is not None
        until("the table's topic", lambda: "LEVELS" in self._topics())
        commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(0), attempt=1)
        headers = [
            (HEADER_COMMIT, commit_header(commit)),
            (HEADER_ROWTIME, rowtime_header(int(time.time() * 1000))),
        ]
        producer, ends = self.producer(), dict.fromkeys(range(PARTITIONS), 0)

        def acknowledged(error: Any, message: Any) -> None:
            assert error is None, error
            ends[message.partition()] = max(ends[message.partition()], message.offset() + 1)

        for key, number in rows.items():
            value = b'{"N":%d,"V":%d}' % (number, number)
            place = {"partition": self.partition(key), "headers": headers}
            producer.produce("LEVELS", value, key.encode(), on_delivery=acknowledged, **place)
        assert producer.flush(60) == 0
        query_id, seal = self.table.query_id or "", ProgressSeal(SECRET, PROGRESS)
        fence = Commit(lease_epoch=LeaseEpoch(1), batch=NO_BATCH, attempt=1)
        for progress in (
            Progress(query_id=query_id, commit=fence),
            Progress(query_id=query_id, commit=commit, sinks=ends, clean_through=ends),
        ):
            key, value = serialise(progress)
            producer.produce(PROGRESS, value, key, headers=seal.headers(key, value))
            assert producer.flush(60) == 0

    def _topics(self) -> set[str]:
        return set(KafkaAdmin(self.broker.bootstrap_servers).partition_counts())

    def producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,  # else a retry changes the order
                "linger.ms": 5,
            }
        )

    def until_everywhere(self, rows: Mapping[str, int]) -> None:
        """Until every replica has applied all of it: each node says so of its own."""
        keys = list(rows)
        until("the table to be full", lambda: all(self._row(k) == rows[k] for k in keys))
        until("all replicas to have caught up", lambda: all(map(self.is_caught_up, self.nodes)))

    def _row(self, key: str) -> int | None:
        try:
            rows = self.client.pull(f"SELECT * FROM LEVELS WHERE ID = '{key}';").rows
        except StandpipeError:  # not ready yet
            return None
        return int(rows[0][1]) if rows else None

    def is_caught_up(self, node: HostNode) -> bool:
        """All of its replicas RUNNING, none behind."""
        page = node.get("/clusterStatus") or {"clusterStatus": {}}
        own = page["clusterStatus"].get(node.public)
        replicas = list(own["standpipe"]["replicas"].values()) if own else []
        return bool(replicas) and all(
            one and one["state"] == "RUNNING" and one["offsetLag"] == 0 for one in replicas
        )

    # --------------------------------------------------------------------- what is where

    def partition(self, key: str) -> int:
        assert self.table is not None
        raw = encode_key((key,), self.table.key_columns, "KAFKA")
        assert raw is not None
        return partition_of(raw, PARTITIONS)

    def placements(self) -> dict[int, list[HostNode]]:
        """partition -> nodes that hold it, the active first."""
        by_id = {node.node_id: node for node in self.nodes}
        found = next(snapshot for node in self.nodes if (snapshot := node.snapshot))
        return {
            placement.partition: [by_id[name] for name in placement.replicas]
            for placement in found.assignment.placements
        }

    def all_alive(self) -> None:
        """Until every node counts every other as alive; a flapping peer returns twice a minute."""
        for node in self.nodes:
            until(
                f"{node.node_id} to see all alive",
                lambda n=node: (seen := n.peers_alive()) and all(seen.values()),
            )


def produce(producer: Producer, key: str, number: int) -> None:
    """One event; waits where the queue is full."""
    while True:
        try:
            producer.produce("events", b'{"V":%d}' % number, key.encode())
            return
        except BufferError:
            producer.poll(0.1)
