"""Workers that hang: the node notices, replaces them and refuses what held them. No Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.e2e.control_cluster import SECRET, until
from tests.e2e.test_control_node import Node

from standpipe.local.cluster.ports import any_port
from standpipe.model import NodeId
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig
from standpipe.node.worker_report import WHY

WORKERS = ("worker-0", "worker-1")


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
        workers=2,
    )
    node_file = tmp_path / "data" / "node.json"
    configuration.save(node_file, config)
    command = [sys.executable, "-m", "tests.e2e.wedging_node", "--node-file", str(node_file)]
    running = Node(config, node_file, subprocess.Popen(command))
    try:
        until("both workers", lambda: all(map(turns(running).get, WORKERS)))
        until("the map", lambda: get(running, "/healthcheck").get("isHealthy"))
        yield running
    finally:
        running.parent.kill()
        running.parent.wait()


def turns(node: Node) -> dict[str, bool]:
    """Which workers have a loop that turned."""
    pages = {name: node.config.paths.run / name.replace("worker", "turns") for name in WORKERS}
    return {name: path.exists() and any(path.read_bytes()[8:16]) for name, path in pages.items()}


def get(node: Node, path: str) -> dict[str, Any]:
    """From whichever worker answers; {} if none does now."""
    try:
        return httpx2.get(f"http://{node.config.public}{path}", timeout=5).json()
    except (httpx2.TransportError, ValueError):
        return {}


def complaint(node: Node) -> str:
    """Why the node is not well because of its workers; empty: it is, or nobody answers now."""
    health = get(node, "/healthcheck")
    if health.get("isHealthy", True):
        return ""
    return str(health["details"].get("workers", {}).get("message", ""))


def post(node: Node, path: str, text: str) -> httpx2.Response | None:
    """None: the connection ended without an answer."""
    with suppress(httpx2.TransportError):
        body = {"ksql": text, "streamsProperties": {}}
        return httpx2.post(f"http://{node.config.public}{path}", json=body, timeout=60)
    return None


def ends(node: Node) -> dict[str, float]:
    """Workers that the parent ended, by reason."""
    with suppress(httpx2.TransportError):
        text = httpx2.get(f"http://{node.config.public}/metrics", timeout=5).text
        found: dict[str, float] = {}
        for line in text.splitlines():
            if line.startswith("standpipe_worker_ends_total{"):
                reason = line.partition('reason="')[2].partition('"')[0]
                found[reason] = found.get(reason, 0.0) + float(line.split()[-1])
        return found
    return {}


def pids(node: Node) -> list[int]:
    return [node.pid(name) for name in WORKERS]


def is_back(node: Node, before: list[int]) -> bool:
    """One worker is another process now."""
    now = pids(node)
    changed = sum(old != new for old, new in zip(before, now, strict=True))
    return changed == 1 and all(map(lives, now)) and all(turns(node).values())


def lives(pid: int) -> bool:
    return pid != 0 and Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/query", "SELECT * FROM T WHERE K = 'WEDGE';"),
        ("/query-stream", "SELECT * FROM T WHERE K = 'WEDGE' EMIT CHANGES;"),
        ("/ksql", "SHOW TABLES; -- WEDGE"),
        (
            "/ksql",
            "CREATE STREAM WEDGE (K STRING KEY) WITH (KAFKA_TOPIC='a', VALUE_FORMAT='JSON');",
        ),
    ],
    ids=["pull query", "push query", "statement", "statement that asks Kafka"],
)
def test_a_text_that_wedges_a_worker_costs_one_worker_once(
    node: Node, path: str, text: str
) -> None:
    """133 bytes held all workers of two nodes: its client asked again, and again."""
    before = pids(node)
    assert post(node, path, text) is None, "its worker was killed"
    # at once: ten seconds later it is well again, and a start may take as long
    until("the other says why", lambda: WHY["wedged"] in complaint(node))
    until("its worker is back", lambda: is_back(node, before))
    until("the count", lambda: ends(node) == {"wedged": 1.0})
    for _ in range(6):  # at both workers
        refused = post(node, path, text)
        assert refused is not None
        assert (refused.status_code, refused.json()["error_code"]) == (429, 42901), refused.text
        assert refused.headers["retry-after"] == "60"
    others = post(node, "/ksql", "SHOW TABLES;")
    assert others is not None
    assert others.status_code == 200
    assert ends(node) == {"wedged": 1.0}
    until("well again", lambda: get(node, "/healthcheck").get("isHealthy"))


def test_a_stopped_worker_is_replaced(node: Node) -> None:
    before = pids(node)
    os.kill(before[0], signal.SIGSTOP)
    until("it is back", lambda: is_back(node, before))
    until("the count", lambda: ends(node) == {"wedged": 1.0})


@pytest.mark.parametrize("parent_first", [True, False])
def test_a_node_that_was_stopped_as_a_whole_loses_no_worker(node: Node, parent_first: bool) -> None:
    """A suspended machine, or SIGSTOP of all of it, for longer than a worker may be silent."""
    everybody = [node.parent.pid, *pids(node)]
    before = pids(node)
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(4.0)
    for pid in everybody if parent_first else everybody[::-1]:
        os.kill(pid, signal.SIGCONT)
    until("it answers", lambda: get(node, "/info"))
    time.sleep(1.0)  # ten looks of the watch
    assert pids(node) == before
    assert ends(node) == {}


def test_starved_workers_are_not_wedged(node: Node) -> None:
    """Everybody who can computes, and workers get what is left."""
    before = pids(node)
    for pid in before:
        os.setpriority(os.PRIO_PROCESS, pid, 19)
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    try:
        time.sleep(5.0)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert pids(node) == before
    until("it answers", lambda: get(node, "/info"))
    assert ends(node) == {}
