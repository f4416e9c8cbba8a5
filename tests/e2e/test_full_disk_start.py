"""A node that is started on a full disk: no blocks or no inodes are left, on a disk that it has
used before or on a new one. No Kafka, no Spark.

A disk that fills up under a running node: tests/e2e/test_quorum_disk.py, and `make exhaustion`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.control_cluster import until
from tests.e2e.test_quorum_disk import SMALL_DISK, may_mount, use_up

from standpipe.adapters.files.private import write_secret
from standpipe.adapters.http.peer_client import PathFailed
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.local.cluster.ports import any_port
from standpipe.model import NodeId
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not may_mount(), reason="this machine mounts no disk for a process"),
]
NO_KAFKA = "127.0.0.1:9"


class NodeOnSmallDisk:
    """One node, all of its processes, whose data directory is a small disk of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "node-1"
        self.errors = folder / "parent.err"
        write_secret(folder / "secret", "swordfish")
        public, internal, peer = (f"127.0.0.1:{any_port()}" for _ in range(3))
        self.address = public
        self.config = NodeConfig(
            node_id=NodeId("node-1"),
            data_dir=str(self.data),
            bootstrap_servers=NO_KAFKA,
            public=public,
            internal=internal,
            peer=peer,
            voters=(NodeId("node-1"),),
            nodes={},
            secret_file=str(folder / "secret"),
            config={},
        )
        self.node_file = self.data / "node.json"
        configuration.save(self.node_file, self.config)
        # keeps the disk mounted while the node is away
        mounting = ["unshare", "-m", "sh", "-c", SMALL_DISK, str(self.data)]
        self.holder = subprocess.Popen([*mounting, "sleep", "600"])
        until("the small disk", lambda: (self.disk / "node.json").exists() and self._is_mounted())
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def disk(self) -> Path:
        """The small disk as this process sees it."""
        return Path(f"/proc/{self.holder.pid}/root") / self.data.relative_to("/")

    def _is_mounted(self) -> bool:
        return os.statvfs(self.disk).f_files == 200

    def start(self) -> None:
        inside = ["nsenter", "-m", "-t", str(self.holder.pid)]
        command = [sys.executable, "-m", "standpipe.node", "--node-file", str(self.node_file)]
        with self.errors.open("wb") as err:
            self.process = subprocess.Popen([*inside, *command], stderr=err)

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0

    def close(self) -> None:
        for process in (self.process, self.holder):
            if process is not None:
                process.kill()
                process.wait()

    def health(self) -> dict[str, Any] | None:
        """The details of /healthcheck; None: nobody answers."""
        with suppress(PathFailed), SyncClient(timeout_s=5.0) as client:
            found: dict[str, Any] = json.loads(client.get(self.address, "/healthcheck").body)
            return found["details"]
        return None

    def is_healthy(self, what: str) -> bool:
        return ((self.health() or {}).get(what) or {}).get("isHealthy") is True

    def sql(self, text: str) -> int:
        """The status of a statement's answer; 0: none."""
        with suppress(PathFailed), SyncClient(timeout_s=10.0) as client:
            body = json.dumps({"ksql": text}).encode()
            kind = {"Content-Type": "application/json"}
            return client.request("POST", self.address, "/ksql", body=body, headers=kind).status
        return 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeOnSmallDisk]:
    made = NodeOnSmallDisk(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("what", ["blocks", "inodes"])
def test_a_node_comes_up_on_the_full_disk_that_it_used(node: NodeOnSmallDisk, what: str) -> None:
    """It serves what it has, says what is wrong, and writes once there is room."""
    node.start()
    until("statements", lambda: node.sql("SHOW STREAMS;") == 200)
    node.stop()
    made = use_up(node.disk, what)
    node.start()
    until("reads", lambda: node.sql("SHOW STREAMS;") == 200)
    assert node.process is not None
    assert node.process.poll() is None
    health = node.health()
    assert health is not None
    assert "is nearly full" in health["disk"]["message"]
    assert "Remove files there, or enlarge it" in health["disk"]["message"], "the next step"
    for file in made:
        file.unlink()
    until("the disk is healthy again", lambda: node.is_healthy("disk"))
    until("control writes the map again", lambda: node.is_healthy("commandRunner"))
    assert node.process.poll() is None, node.errors.read_text()
    assert node.sql("SHOW STREAMS;") == 200


@pytest.mark.parametrize("what", ["blocks", "inodes"])
def test_a_new_node_waits_for_room(node: NodeOnSmallDisk, what: str) -> None:
    """It ended with a traceback, and nothing started it again."""
    made = use_up(node.disk, what)
    node.start()
    until(
        "it says so", lambda: "the node cannot start: its disk is full" in node.errors.read_text()
    )
    assert "remove files there, or enlarge the disk" in node.errors.read_text(), "the next step"
    assert node.process is not None
    assert node.process.poll() is None
    for file in made:
        file.unlink()
    until("it serves", lambda: node.sql("SHOW STREAMS;") == 200)
    assert "Traceback" not in node.errors.read_text()


def test_a_node_that_waits_for_room_can_be_stopped(node: NodeOnSmallDisk) -> None:
    use_up(node.disk, "blocks")
    node.start()
    until("it waits", lambda: "its disk is full" in node.errors.read_text())
    node.stop()
