"""The directory of a local cluster: where each part keeps its files, and the lock on it.

    .standpipe/ kafka/  node-1/ node-2/ …  checkpoints/  logs/  run/{cluster.json,lock,secret}

`run/cluster.json` records the actual addresses and pids; `sql` and `status` read it.
Not here: starting or stopping anything (supervisor.py).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from pathlib import Path
from typing import IO

import msgspec

from standpipe.adapters.files import published
from standpipe.adapters.files.private import keep_private, private_directory, write_secret
from standpipe.errors import DataDirectoryRefused, SetupError
from standpipe.model import NodeId, Record

DEFAULT_DIRECTORY = Path(".standpipe")


class NodeEntry(Record, frozen=True, kw_only=True):
    """A node of the local cluster. Addresses are `host:port`; `pid` is a process group leader."""

    node_id: NodeId
    public: str
    internal: str
    peer: str
    data_directory: str
    #: None while it is down (killed on purpose, or not started yet)
    pid: int | None = None


class ClusterFile(Record, frozen=True, kw_only=True):
    """`run/cluster.json`: how other commands find the running cluster."""

    directory: str
    bootstrap_servers: str
    service_id: str
    secret_file: str
    nodes: tuple[NodeEntry, ...]
    supervisor_pid: int
    #: None: an existing Kafka is used
    broker_pid: int | None = None
    pipeline_pids: tuple[int, ...] = ()
    started_at_ms: int = 0


class ClusterDirectory:
    """Paths below a cluster's directory, its lock and its secret."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._lock: IO[str] | None = None

    @property
    def kafka(self) -> Path:
        """Kafka's data."""
        return self.root / "kafka"

    @property
    def checkpoints(self) -> Path:
        """Spark's checkpoints."""
        return self.root / "checkpoints"

    @property
    def logs(self) -> Path:
        """The logs of all processes."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Files that describe the running cluster; empty while none runs."""
        return self.root / "run"

    @property
    def cluster_file(self) -> Path:
        """The description of the running cluster (`ClusterFile`)."""
        return self.run / "cluster.json"

    @property
    def secret_file(self) -> Path:
        """The cluster's secret, readable by its owner only."""
        return self.run / "secret"

    def node(self, node_id: NodeId) -> Path:
        """The data of one node."""
        return self.root / node_id

    def take(self) -> None:
        """Create the folders and the secret; hold the lock until the process ends, whose files are
        private from now on.

        Raises DataDirectoryRefused when another supervisor holds it.
        """
        keep_private()
        for folder in (self.root, self.kafka, self.checkpoints, self.logs, self.run):
            private_directory(folder)
        lock = (self.run / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise DataDirectoryRefused(
                f"{self.root} is in use by another `standpipe` (pid {self._holder()})",
                next_step="stop it with Ctrl-C, or use another directory: --directory DIR",
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        if not self.secret_file.exists():
            write_secret(self.secret_file, secrets.token_urlsafe(32))

    def release(self) -> None:
        """Release the lock and remove `cluster.json`, because nothing is running."""
        self.cluster_file.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, cluster: ClusterFile) -> None:
        """Replace `run/cluster.json` by a rename, so that a reader never sees part of it."""
        data = msgspec.json.format(msgspec.json.encode(cluster), indent=2)
        published.replace(self.cluster_file, data)

    def read(self) -> ClusterFile:
        """The running cluster. Raises SetupError when none is running here."""
        try:
            return msgspec.json.decode(self.cluster_file.read_bytes(), type=ClusterFile)
        except FileNotFoundError:
            raise SetupError(
                f"no cluster is running in {self.root}",
                next_step="start one with `standpipe up`, or name a node with --server HOST:PORT",
            ) from None
        except msgspec.MsgspecError as error:
            raise SetupError(
                f"{self.cluster_file} cannot be read: {error}", next_step="start the cluster again"
            ) from error

    def purge(self) -> int:
        """Remove everything. Returns the bytes removed; raises if a cluster is running."""
        if not self.root.exists():
            return 0
        self.take()
        size = sum(path.lstat().st_size for path in self.root.rglob("*") if path.is_file())
        self.release()
        shutil.rmtree(self.root)
        return size

    def _holder(self) -> str:
        try:
            return (self.run / "lock").read_text() or "unknown"
        except OSError:
            return "unknown"


def running_cluster(directory: Path) -> ClusterFile:
    """The cluster running in the directory, or otherwise the demo's in its `demo` folder."""
    demo_directory = ClusterDirectory(directory / "demo")
    found = ClusterDirectory(directory)
    if not found.cluster_file.exists() and demo_directory.cluster_file.exists():
        return demo_directory.read()
    return found.read()
