"""Control processes as their parent would start them, on loopback. No Kafka, no Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests.e2e.forked import NodeProcess, fork
from tests.e2e.netns import Hosts
from tests.sealed_http import sealed_client

from standpipe.adapters.files.private import write_secret
from standpipe.adapters.files.published import read_snapshot
from standpipe.config.keys import FETCH_TIMEOUT
from standpipe.control.metadata.commands import LogPage
from standpipe.errors import LogUnavailable
from standpipe.local.cluster.ports import any_port
from standpipe.model import NodeId, Snapshot
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig, Setting

SECRET = "swordfish"
_CONTROL = "standpipe.node.controller.main"
WAIT_S_MAX = 120.0  # generous: a busy machine is no failure
#: For tests in which no leader may lose the leadership to a busy machine: it may stand still, or
#: wait for its disk, for more than two seconds. One that is cut off is replaced within
#: ELECTED_S_MAX.
PATIENT_QUORUM: dict[str, int] = {FETCH_TIMEOUT.name: int(FETCH_TIMEOUT.high or 0)}
ELECTED_S_MAX = 8  # a fetch time-out with its jitter, and an election
NAMES = ("node-1", "node-2", "node-3")
NOBODY_LEADS = LogUnavailable.code
#: of a statement that may be logged: it may be sent again under its request id
UNTOLD = "no leader of the metadata quorum said what became of it"


def until(what: str, condition: Callable[[], Any]) -> Any:
    """The condition's first true value; fails with `what` after WAIT_S_MAX."""
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {WAIT_S_MAX:g} s for {what}")


def until_led(ask: Callable[[], httpx2.Response]) -> httpx2.Response:
    """The answer. Asked again, with the same request id, while nobody leads or says what became of
    it: a machine may be slower than elections are."""

    def answer() -> httpx2.Response | None:
        found = ask()
        if found.status_code != 503:
            return found
        is_over = found.json()["error_code"] != NOBODY_LEADS and UNTOLD not in found.text
        return found if is_over else None

    found: httpx2.Response = until("a leader that takes it", answer)
    return found


@dataclass
class ControlCluster:
    """Control processes by node name."""

    directory: Path
    bootstrap_servers: str = ""
    names: Sequence[str] = NAMES
    voters: Sequence[str] = ()  # default: all
    #: keys of config/keys.py, of each node
    settings: dict[str, Setting] = field(default_factory=dict[str, Setting])
    hosts: Hosts | None = None  # default: all on loopback
    #: environment of a node's process; default: ours
    environment: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    #: what to put before a node's command
    before: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    configs: dict[str, NodeConfig] = field(default_factory=dict[str, NodeConfig])
    processes: dict[str, NodeProcess] = field(default_factory=dict[str, NodeProcess])

    def __post_init__(self) -> None:
        secret = self.directory / "secret"
        write_secret(secret, SECRET)
        internal = {name: self._place(name) for name in self.names}
        for name in self.names:
            config = NodeConfig(
                node_id=NodeId(name),
                data_dir=str(self.directory / name),
                bootstrap_servers=self.bootstrap_servers,
                public="127.0.0.1:1",
                internal=internal[name],
                peer="127.0.0.1:2",
                voters=tuple(NodeId(name) for name in self.voters or self.names),
                nodes={NodeId(n): address for n, address in internal.items() if n != name},
                secret_file=str(secret),
                config=self.settings,
            )
            configuration.save(self.directory / name / "node.json", config)
            self.configs[name] = config
        self.client = sealed_client(SECRET)

    def start(self, *names: str) -> None:
        for name in names:
            arguments = ["--node-file", str(self.directory / name / "node.json")]
            log = self.directory / f"{name}.err"
            if self.hosts or name in self.environment or name in self.before:
                self.processes[name] = self._start_cold(name, arguments, log)
            else:
                self.processes[name] = fork(_CONTROL, arguments, log)

    def _start_cold(self, name: str, arguments: list[str], log: Path) -> NodeProcess:
        inside = self.hosts.inside(name) if self.hosts else []
        with log.open("ab") as err:
            command = [
                *inside,
                *self.before.get(name, []),
                sys.executable,
                "-m",
                _CONTROL,
                *arguments,
            ]
            return subprocess.Popen(command, stderr=err, env=self.environment.get(name))

    def _place(self, name: str) -> str:
        return f"{self.hosts.address(name)}:8089" if self.hosts else f"127.0.0.1:{any_port()}"

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.client.close()

    def describe(self, name: str) -> dict[str, Any] | None:
        """None: it does not answer, or is still opening its replica."""
        try:
            answer = self.client.get(self._url(name, "/describe"))
        except httpx2.TransportError:
            return None
        return answer.json() if answer.status_code == 200 else None

    def post(self, name: str, path: str, body: object) -> httpx2.Response:
        return self.client.post(self._url(name, path), content=msgspec.json.encode(body))

    def execute(self, name: str, sql: str, request_id: str) -> httpx2.Response:
        return until_led(lambda: self.execute_once(name, sql, request_id))

    def execute_once(self, name: str, sql: str, request_id: str) -> httpx2.Response:
        body = {"ksql": sql, "streamsProperties": {}, "request_id": request_id}
        return self.post(name, "/execute", body)

    def page(self, name: str, start: int, wait_ms: int = 0) -> LogPage:
        params = {"from": start, "wait_ms": wait_ms}
        answer = self.client.get(self._url(name, "/log"), params=params)
        return msgspec.msgpack.decode(answer.content, type=LogPage)

    def snapshot(self, name: str) -> Snapshot:
        found = read_snapshot(self.configs[name].paths.snapshot)
        assert found is not None
        return found

    def until_members(self, count: int, *names: str) -> None:
        for name in names:
            until(
                f"{count} members at {name}",
                lambda name=name: len((self.describe(name) or {"nodes": []})["nodes"]) == count,
            )

    def quorum(self, name: str) -> dict[str, Any] | None:
        """What the leader says of the quorum, asked through a node; None: it knows no leader."""
        try:
            answer = self.client.get(self._url(name, "/quorum"))
        except httpx2.TransportError:
            return None
        return answer.json() if answer.status_code == 200 else None

    def voters_at(self, name: str) -> list[str]:
        lines = (self.quorum(name) or {"replicas": []})["replicas"]
        return sorted(line["node_id"] for line in lines if line["votes"])

    def until_voters(self, *names: str, at: Sequence[str] = ()) -> None:
        """Wait until exactly these vote, as told by each node of `at` (default: themselves)."""
        for asked in at or names:
            until(
                f"voters {names} at {asked}",
                lambda asked=asked: self.voters_at(asked) == sorted(names),
            )

    def leader(self, *names: str) -> str:
        """The leader that one of these nodes names, once one does."""

        def named() -> str | None:
            found = [(self.quorum(name) or {}).get("leader") for name in names or self.names]
            return next((one for one in found if one in (names or self.names)), None)

        return str(until("a leader", named))

    def errors(self, name: str) -> str:
        return (self.directory / f"{name}.err").read_text()

    def _url(self, name: str, path: str) -> str:
        return f"http://{self.configs[name].internal}{path}"


def running(
    directory: Path,
    names: Sequence[str] = NAMES,
    hosts: Hosts | None = None,
    settings: Mapping[str, Setting] | None = None,
) -> Iterator[ControlCluster]:
    """`settings`: keys of each node."""
    cluster = ControlCluster(directory, names=names, hosts=hosts, settings={**(settings or {})})
    try:
        cluster.start(*names)
        cluster.until_voters(*names)
        cluster.until_members(len(names), *names)
        yield cluster
    finally:
        cluster.close()
