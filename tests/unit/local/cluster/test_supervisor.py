"""Process groups: started apart, killed as a whole, started again when they end by themselves."""

import io
import signal
import sys
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from standpipe.local.cluster.process_group import ManagedProcess
from standpipe.local.cluster.steps import Steps
from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster
from standpipe.model import NodeId

#: says that it runs, together with a child of its own, and waits for its end
FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
child.wait()
"""


def started(tmp_path: Path, script: str) -> ManagedProcess:
    child = ManagedProcess("node-1", [sys.executable, "-c", script], tmp_path / "log")
    child.start()
    return child


def first_line(path: Path) -> str:
    """Wait for a line of a log; bounded by the test's own time-out."""
    while "\n" not in (text := path.read_text()):
        pass
    return text.splitlines()[0]


@pytest.mark.timeout(20)
def test_a_kill_takes_the_whole_group(tmp_path: Path) -> None:
    child = started(tmp_path, FAMILY)
    grandchild = psutil.Process(int(first_line(tmp_path / "log")))
    child.signal_group(signal.SIGKILL)
    assert child.wait(5)
    gone, alive = psutil.wait_procs([grandchild], timeout=5)
    assert (len(gone), alive) == (1, [])
    assert child.pid is None
    child.signal_group(signal.SIGKILL)  # a group that is gone is no error


@pytest.mark.timeout(20)
def test_a_child_is_not_in_our_group_and_its_log_has_a_tail(tmp_path: Path) -> None:
    child = started(tmp_path, "print('one'); print('two', flush=True)")
    assert child.wait(10)
    assert child.tail_of_log(1) == "two"


def cluster_with(child: ManagedProcess, tmp_path: Path) -> tuple[LocalCluster, io.StringIO]:
    said = io.StringIO()
    steps = Steps(Console(file=said, width=200), quiet=True)
    cluster = LocalCluster(ClusterOptions(directory=tmp_path / "c"), steps)
    cluster.directory.take()
    cluster.nodes[NodeId("node-1")] = child
    return cluster, said


@pytest.mark.timeout(20)
def test_what_ends_by_itself_is_started_again_later_each_time(tmp_path: Path) -> None:
    child = started(tmp_path, "pass")
    cluster, said = cluster_with(child, tmp_path)
    starts: list[float] = []
    for now in range(8):
        assert child.wait(10)
        before = child.restarts
        cluster._look_after(float(now))
        if child.restarts > before:
            starts.append(float(now))
    assert starts == [0.0, 2.0, 5.0], "at once, after 1 s, after 2 s; each seen a look later"
    assert said.getvalue().count("restarting it") == 4
    cluster.stop()


@pytest.mark.timeout(20)
def test_a_restart_is_counted_once_the_process_runs(tmp_path: Path) -> None:
    # counted before, a reader of the count could signal the process that had ended
    counts: list[int] = []

    class Watched(ManagedProcess):
        def start(self) -> None:
            super().start()
            counts.append(self.restarts)

    child = Watched("node-1", [sys.executable, "-c", "pass"], tmp_path / "log")
    child.start()
    cluster, _ = cluster_with(child, tmp_path)
    assert child.wait(10)
    cluster._look_after(0.0)
    assert (counts, child.restarts) == ([0, 0], 1)
    cluster.stop()


@pytest.mark.timeout(20)
def test_files_that_cannot_be_written_are_tried_again(tmp_path: Path) -> None:
    # a full disk ended the supervisor's thread: nothing was restarted from then on
    child = started(tmp_path, "pass")
    cluster, said = cluster_with(child, tmp_path)
    assert child.wait(10)
    log, cluster_file = child.log, cluster.directory.cluster_file
    child.log = tmp_path / "none/log"
    for now in (0.0, 1.0):
        cluster._look_after(now)
        assert (child.restarts, cluster_file.exists()) == (0, False)
    assert said.getvalue().count("trying again until it succeeds") == 1
    child.log = log
    cluster_file.mkdir()
    cluster._look_after(2.0)
    assert child.restarts == 1
    cluster_file.rmdir()
    cluster._look_after(3.0)
    assert cluster_file.is_file()
    cluster.stop()


@pytest.mark.timeout(20)
def test_what_was_killed_on_purpose_stays_down(tmp_path: Path) -> None:
    child = started(tmp_path, FAMILY)
    cluster, _ = cluster_with(child, tmp_path)
    cluster.kill_node(NodeId("node-1"))
    cluster._look_after(0.0)
    assert (child.pid, child.restarts) == (None, 0)
    cluster.restart_node(NodeId("node-1"))
    assert child.pid is not None
    cluster.stop()
    assert child.pid is None
    assert not cluster.directory.cluster_file.exists()
