"""Starts, watches and stops Kafka, N nodes and a pipeline on one machine.

Start: directory lock → Kafka → node.json and a process group per node → pipeline → readiness.
Watch: a thread checks every 0.2 s; it restarts Kafka, a pipeline or a node that ended unexpectedly
(with back-off), and leaves alone a node that `kill_node` took down until `restart_node`. It starts
and stops the drivers of isolated queries (`isolated_drivers.py`).
Stop: SIGTERM to all at once, SIGKILL to whatever is left after 5 s, Kafka last; ≤ 10 s in total.
Every child also dies with this process (PDEATHSIG), however it ends.

Not here: the demo's events and queries (local/demo/), where files are (directory.py).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Self

from standpipe.adapters.http.peer_client import PathFailed
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.adapters.kafka.connection import KafkaConnection, connect_by
from standpipe.config import registry
from standpipe.errors import BrokerUnreachable, ConfigError, KafkaUnavailable, SetupError
from standpipe.local.cluster import ports
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.broker_watch import BrokerWatch
from standpipe.local.cluster.directory import ClusterDirectory, ClusterFile, NodeEntry
from standpipe.local.cluster.isolated_drivers import IsolatedDrivers
from standpipe.local.cluster.node_files import NodePlan, SharedSettings, write_node_file
from standpipe.local.cluster.process_group import ManagedProcess, restart_delay_s
from standpipe.local.cluster.steps import Steps
from standpipe.model import NodeId
from standpipe.node.configuration import NodePaths
from standpipe.pipeline.io.checkpoint_path import check_place

STOP_GRACE_S = 5.0
READY_S_MAX = 60.0
WATCH_EVERY_S = 0.2


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The options of `up`, `demo` and the tests."""

    directory: Path
    nodes: int = 3
    node_port: int = ports.NODE_PORT
    broker_port: int = ports.BROKER_PORT
    #: an existing Kafka; None: start the embedded one
    bootstrap_servers: str | None = None
    workers: int = 0
    master: str = "local[*]"
    #: where checkpoints are, as `standpipe pipeline` takes it; empty: in `directory`
    checkpoints: str = ""
    #: configuration keys for every node and the pipeline
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    #: number of drivers; they share the queries and take over from each other
    pipelines: int = 1


class LocalCluster:
    """A cluster on this machine. `start()` and `stop()` once; usable as a context manager."""

    def __init__(self, options: ClusterOptions, steps: Steps) -> None:
        self.options = options
        self.steps = steps
        self.directory = ClusterDirectory(options.directory)
        self.broker: Broker | None = None
        self._broker_watch: BrokerWatch | None = None
        self.bootstrap_servers = options.bootstrap_servers or ""
        self.plans: tuple[NodePlan, ...] = ()
        #: node id -> its process group
        self.nodes: dict[NodeId, ManagedProcess] = {}
        self.pipelines: list[ManagedProcess] = []
        self.isolated = IsolatedDrivers((), self._make_pipeline)
        #: run/cluster.json is older than what runs
        self._unpublished = False
        #: of the last look; "": it succeeded
        self._failure = ""
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -------------------------------------------------------------------------- start

    def start(self) -> None:
        """Start everything and wait until every node answers. Stops everything if that fails."""
        check_place(self.options.checkpoints)
        self.directory.take()
        try:
            self._start_kafka()
            self._start_nodes()
            for number in range(1, self.options.pipelines + 1):
                name = "pipeline" if number == 1 else f"pipeline-{number}"
                self.pipelines.append(self._make_pipeline(name))
                self.pipelines[-1].start()
            self._publish()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._watcher.start()

    def _start_kafka(self) -> None:
        servers = self.options.bootstrap_servers or ""
        kafka = connect_by(registry.load(self.options.config), servers, os.environ)
        if servers:
            with self.steps.step("Kafka") as outcome:
                _check_kafka(kafka)
                outcome.append(servers)
            return
        if kafka.security_protocol != "PLAINTEXT":
            raise ConfigError(
                f"kafka.security.protocol is {kafka.security_protocol}, and the embedded Kafka has "
                "no security",
                next_step="name your own Kafka with --bootstrap-servers, or remove the setting",
            )
        port = ports.broker_port(self.options.broker_port, self.steps.warn)
        with self.steps.step("Kafka") as outcome:
            self.broker = Broker(self.directory.kafka, port, say=self.steps.say)
            self.broker.start()
            self._broker_watch = BrokerWatch(self.broker, self.steps.warn)
            self.bootstrap_servers = self.broker.bootstrap_servers
            outcome.append(self.bootstrap_servers)

    def _start_nodes(self) -> None:
        taken = ports.node_ports(self.options.node_port, self.options.nodes, self.steps.warn)
        ids = [NodeId(f"node-{index + 1}") for index in range(self.options.nodes)]
        self.plans = tuple(
            NodePlan(node_id=node_id, ports=ports_, data_directory=self.directory.node(node_id))
            for node_id, ports_ in zip(ids, taken, strict=True)
        )
        for plan in self.plans:
            node_file = write_node_file(plan, self.plans, self._shared_settings())
            command = [sys.executable, "-m", "standpipe.node", "--node-file", str(node_file)]
            child = ManagedProcess(
                plan.node_id, command, self.directory.logs / f"{plan.node_id}.log"
            )
            child.start()
            self.nodes[plan.node_id] = child
        snapshots = [NodePaths(plan.data_directory).snapshot for plan in self.plans]
        self.isolated = IsolatedDrivers(snapshots, self._make_pipeline)

    def _make_pipeline(self, name: str, isolate: str = "") -> ManagedProcess:
        command = [sys.executable, "-m", "standpipe.pipeline.run.driver"]
        command += ["--nodes", ",".join(plan.internal for plan in self.plans)]
        command += ["--bootstrap-servers", self.bootstrap_servers]
        own = str(self.directory.checkpoints)
        command += ["--checkpoints", self.options.checkpoints or own, "--notes", own]
        command += ["--secret-file", str(self.directory.secret_file)]
        command += ["--master", self.options.master]
        for key, value in self.options.config.items():
            command += ["--config", f"{key}={value}"]
        if isolate:
            command += ["--isolate", isolate]
        return ManagedProcess(name, command, self.directory.logs / f"{name}.log")

    def wait_until_ready(self, timeout_s: float = READY_S_MAX) -> None:
        """Wait until every node that is wanted answers GET /info. Raises SetupError."""
        with self.steps.step(f"{len(self.nodes)} nodes") as outcome:
            deadline = time.monotonic() + timeout_s
            with SyncClient(timeout_s=1.0) as client:
                for plan in self.plans:
                    if self.nodes[plan.node_id].wanted:
                        self._wait_for_node(client, plan, deadline)
            outcome.append(", ".join(plan.public for plan in self.plans))

    def _wait_for_node(self, client: SyncClient, plan: NodePlan, deadline: float) -> None:
        child = self.nodes[plan.node_id]
        while time.monotonic() < deadline:
            if child.process is not None and child.process.poll() is not None:
                raise SetupError(
                    f"{plan.node_id} ended at its start:\n{child.tail_of_log()}",
                    next_step=f"read {child.log}",
                )
            try:
                if client.get(plan.public, "/info").status == 200:
                    return
            except PathFailed:
                pass
            time.sleep(0.05)
        raise SetupError(
            f"{plan.node_id} does not answer at {plan.public}:\n{child.tail_of_log()}",
            next_step=f"read {child.log} and {plan.data_directory / 'logs'}",
        )

    # ----------------------------------------------------------------- kill and restart

    def kill_node(self, node_id: NodeId) -> None:
        """Send SIGKILL to the node's process group. The node stays down until `restart_node`."""
        with self._lock:
            child = self.nodes[node_id]
            child.wanted = False
            child.signal_group(signal.SIGKILL)
            child.wait(STOP_GRACE_S)
            self._publish()

    def restart_node(self, node_id: NodeId) -> None:
        """Restart a node that is down, on its old data and addresses."""
        with self._lock:
            child = self.nodes[node_id]
            child.wanted = True
            child.start()
            self._publish()

    @property
    def pipeline(self) -> ManagedProcess | None:
        """The first pipeline."""
        return self.pipelines[0] if self.pipelines else None

    def kill_pipeline(self, pipeline: ManagedProcess | None = None) -> None:
        """Send SIGKILL to a driver (default: the first) and its JVM. The watcher restarts it."""
        if killed := pipeline or self.pipeline:
            killed.signal_group(signal.SIGKILL)

    # -------------------------------------------------------------------------- watch

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_EVERY_S):
            with self._lock:
                if not self._stopping.is_set():
                    self._look_after(time.monotonic())

    def _look_after(self, now: float) -> None:
        """Restart what ended unexpectedly. A file that cannot be written is tried again."""
        try:
            self._unpublished |= self._broker_watch is not None and self._broker_watch.look(now)
            for news in self.isolated.tend():
                self.steps.warn(news)
                self._unpublished = True
            for child in self._children():
                if child.wanted and child.pid is None:
                    self._unpublished |= self._revive(child, now)
            if self._unpublished:
                self._publish()
            self._failure = ""
        except OSError as error:  # a full disk, say
            if str(error) != self._failure:
                self.steps.warn(f"{error}: trying again until it succeeds")
            self._failure = str(error)

    def _revive(self, child: ManagedProcess, now: float) -> bool:
        """Restart it at once the first time, then after 1, 2, 4 … 10 s. True: it was started."""
        if child.retry_at == 0.0:
            status = child.process.poll() if child.process else None
            last = child.tail_of_log(1).strip()
            self.steps.warn(
                f"{child.name} ended (status {status}): restarting it"
                + (f"\n  {last}\n  more in {child.log}" if last else "")
            )
            child.signal_group(signal.SIGKILL)  # the rest of its group
            child.retry_at = now + restart_delay_s(child.restarts)
        if now < child.retry_at:
            return False
        child.start()
        child.retry_at = 0.0
        child.restarts += 1  # once it runs: what reads the count may signal it
        return True

    # --------------------------------------------------------------------------- stop

    def stop(self) -> None:
        """Stop everything, in ≤ 10 s. Safe to call twice, and during a start."""
        self._stopping.set()
        with self._lock:
            children = self._children()
            for child in children:
                child.wanted = False
                if child.process is not None and child.process.poll() is None:
                    child.process.terminate()
            deadline = time.monotonic() + STOP_GRACE_S
            for child in children:
                child.wait(max(0.05, deadline - time.monotonic()))
                child.signal_group(signal.SIGKILL)
                child.wait(1.0)
            if self._broker_watch is not None:
                self._broker_watch.stop()
            elif self.broker is not None:
                self.broker.stop()
            self.broker = self._broker_watch = None
            self.directory.release()

    # ------------------------------------------------------------------------- helpers

    def _children(self) -> list[ManagedProcess]:
        return [*self.pipelines, *self.isolated.drivers.values(), *self.nodes.values()]

    def _shared_settings(self) -> SharedSettings:
        return SharedSettings(
            bootstrap_servers=self.bootstrap_servers,
            secret_file=self.directory.secret_file,
            workers=self.options.workers,
            config=self.options.config,
        )

    def _publish(self) -> None:
        """Write what runs where to run/cluster.json."""
        self._unpublished = True
        self.directory.write(self.describe())
        self._unpublished = False

    def describe(self) -> ClusterFile:
        """What currently runs where."""
        drivers = [*self.pipelines, *self.isolated.drivers.values()]
        return ClusterFile(
            directory=str(self.directory.root),
            bootstrap_servers=self.bootstrap_servers,
            service_id=str(self.options.config.get("ksql.service.id", "default_")),
            secret_file=str(self.directory.secret_file),
            supervisor_pid=os.getpid(),
            nodes=tuple(
                NodeEntry(
                    node_id=plan.node_id,
                    public=plan.public,
                    internal=plan.internal,
                    peer=plan.peer,
                    data_directory=str(plan.data_directory),
                    pid=self.nodes[plan.node_id].pid if plan.node_id in self.nodes else None,
                )
                for plan in self.plans
            ),
            broker_pid=self.broker.pid if self.broker is not None else None,
            pipeline_pids=tuple(child.pid for child in drivers if child.pid),
            started_at_ms=int(time.time() * 1000),
        )


def _check_kafka(kafka: KafkaConnection) -> None:
    """Raises BrokerUnreachable if no broker answers."""
    try:
        KafkaAdmin(kafka).partition_counts()
    except KafkaUnavailable as error:
        raise BrokerUnreachable(
            f"no Kafka broker answers at {kafka.bootstrap_servers}: {error.message}",
            next_step="check host and port; a broker behind NAT or in a container must advertise "
            "an address that this machine can reach (advertised.listeners)",
        ) from error


def until_interrupted(say: Callable[[str], None]) -> None:
    """Wait for Ctrl-C or SIGTERM."""
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    try:
        while not ended.wait(0.5):
            pass
    except KeyboardInterrupt:
        pass
    say("stopping …")
