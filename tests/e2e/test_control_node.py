"""A whole node under its parent: children come back, end in time and never outlive it. No Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.e2e.control_cluster import SECRET, until

from standpipe.local.cluster.ports import any_port
from standpipe.model import NodeId
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig

CHILDREN = ("control", "tailer", "worker-0")


@dataclass
class Node:
    """One node and the process that runs it."""

    config: NodeConfig
    node_file: Path
    parent: subprocess.Popen[bytes]

    def pid(self, child: str) -> int:
        """0: it is being written (children note their own pids too, not in one step)."""
        return int((self.config.paths.run / f"{child}.pid").read_text() or 0)

    def pids(self) -> list[int]:
        return [self.pid(child) for child in CHILDREN]

    def answers(self) -> bool:
        try:
            return httpx2.get(f"http://{self.config.public}/info").status_code == 200
        except httpx2.TransportError:
            return False


def start(node_file: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "standpipe.node", "--node-file", str(node_file)])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    (tmp_path / "secret").write_text(SECRET)
    config = NodeConfig(
        node_id=NodeId("node-1"),
        data_dir=str(tmp_path / "data"),
        bootstrap_servers="",
        public=f"127.0.0.1:{any_port()}",
        internal=f"127.0.0.1:{any_port()}",
        peer=f"127.0.0.1:{any_port()}",
        secret_file=str(tmp_path / "secret"),
        workers=1,
    )
    node_file = tmp_path / "data" / "node.json"
    configuration.save(node_file, config)
    running = Node(config, node_file, start(node_file))
    try:
        until("the worker", running.answers)
        yield running
    finally:
        running.parent.kill()
        running.parent.wait()


def lives(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_each_child_comes_back(node: Node) -> None:
    for child in CHILDREN:
        before = node.pid(child)
        os.kill(before, signal.SIGKILL)
        if child != "worker-0":
            assert node.answers(), "reads need neither control nor tailer"
        until(f"{child} again", lambda c=child, b=before: node.pid(c) not in (0, b))
    until("the worker", node.answers)
    assert node.parent.poll() is None
    line = (node.config.paths.logs / "control.log").read_text().splitlines()[0]
    assert msgspec.json.decode(line)["event"] == "control serves"


def test_one_node_per_directory_which_ends_whole(node: Node) -> None:
    second = start(node.node_file)
    assert second.wait(60) != 0
    assert node.answers()
    pids = node.pids()
    node.parent.terminate()
    assert node.parent.wait(60) == 0
    assert not [pid for pid in pids if lives(pid)]


def test_nothing_outlives_the_parent(node: Node) -> None:
    pids = node.pids()
    node.parent.kill()
    node.parent.wait()
    until("the end of all", lambda: not [pid for pid in pids if lives(pid)])
    node.parent = start(node.node_file)
    until("the worker", node.answers)


def test_the_node_is_one_process_group(node: Node) -> None:
    groups = {os.getpgid(pid) for pid in node.pids()}
    assert groups == {node.parent.pid}
    os.killpg(node.parent.pid, signal.SIGKILL)
    until("the end of all", lambda: not [pid for pid in node.pids() if lives(pid)])


def ksql(node: Node, text: str, consistency: str) -> httpx2.Response:
    body = {"ksql": text, "streamsProperties": {"standpipe.consistency": consistency}}
    return httpx2.post(f"http://{node.config.public}/ksql", json=body, timeout=30)


def test_statements_say_which_consistency_they_want(node: Node) -> None:
    for consistency in ("local", "linearizable"):
        answer = ksql(node, "SHOW STREAMS;", consistency)
        assert (answer.status_code, answer.json()[0]["@type"]) == (200, "streams"), answer.text
    assert ksql(
        node, "SET 'standpipe.consistency'='linearizable'; SHOW TABLES;", "local"
    ).is_success
    refused = ksql(node, "SHOW STREAMS;", "eventual")
    assert refused.status_code == 400
    assert "local or linearizable, not 'eventual'" in refused.json()["message"]
    os.kill(node.pid("control"), signal.SIGSTOP)
    try:
        waiting = ksql(node, "SHOW STREAMS;", "linearizable")
        assert (waiting.status_code, waiting.json()["error_code"]) == (503, 50307)
        assert ksql(node, "SHOW STREAMS;", "local").is_success, "what this node knows"
    finally:
        os.kill(node.pid("control"), signal.SIGCONT)
