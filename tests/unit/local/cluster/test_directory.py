"""The cluster's directory: one holder, one secret, cluster.json whole or not there."""

import stat
from pathlib import Path

import pytest

from standpipe.errors import DataDirectoryRefused, SetupError
from standpipe.local.cluster.directory import ClusterDirectory, ClusterFile, NodeEntry
from standpipe.model import NodeId

CLUSTER = ClusterFile(
    directory="d",
    bootstrap_servers="127.0.0.1:9092",
    service_id="default_",
    secret_file="s",
    supervisor_pid=1,
    nodes=(
        NodeEntry(
            node_id=NodeId("node-1"),
            public="127.0.0.1:8088",
            internal="127.0.0.1:8089",
            peer="127.0.0.1:8091",
            data_directory="d/node-1",
        ),
    ),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.take()
    directory.write(CLUSTER)
    assert directory.read() == CLUSTER
    directory.release()
    with pytest.raises(SetupError, match="no cluster is running"):
        directory.read()


def test_a_second_holder_is_refused_and_told_who_holds(tmp_path: Path) -> None:
    first, second = ClusterDirectory(tmp_path), ClusterDirectory(tmp_path)
    first.take()
    with pytest.raises(DataDirectoryRefused, match="in use by another `standpipe`"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_the_secret_is_private_and_stays(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.take()
    secret = directory.secret_file.read_text()
    assert len(secret) >= 32
    assert stat.S_IMODE(directory.secret_file.stat().st_mode) == 0o600
    directory.release()
    directory.take()
    assert directory.secret_file.read_text() == secret
    directory.release()


def test_purge_removes_everything_but_not_under_a_holder(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "c")
    assert directory.purge() == 0
    directory.take()
    with pytest.raises(DataDirectoryRefused):
        ClusterDirectory(tmp_path / "c").purge()
    directory.release()
    assert directory.purge() > 0
    assert not directory.root.exists()


def test_a_damaged_cluster_file_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.take()
    directory.cluster_file.write_text("{")
    with pytest.raises(SetupError, match="cannot be read"):
        directory.read()
    directory.release()
