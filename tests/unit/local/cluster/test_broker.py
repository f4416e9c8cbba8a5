import socket
import sys
from pathlib import Path

import pytest

from standpipe.errors import BrokerDied, DataDirectoryRefused, PortInUse
from standpipe.local.cluster import broker as brokers
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.dependent_child import DependentChild


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=str(port)):
            Broker(tmp_path, port)._choose_port()


def test_the_next_free_port_is_said_aloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(brokers, "_is_free", lambda host, port: port >= 9094)
    assert Broker(tmp_path, say=said.append)._choose_port() == 9094
    assert said == ["Port 9092 is in use; Kafka listens on 9094."]
    monkeypatch.setattr(brokers, "_is_free", lambda host, port: True)
    assert Broker(tmp_path, say=said.append)._choose_port() == 9092
    assert len(said) == 1


def test_one_supervisor_for_one_data_directory(tmp_path: Path) -> None:
    first, second = Broker(tmp_path), Broker(tmp_path)
    first._take_lock()
    with pytest.raises(DataDirectoryRefused):
        second._take_lock()
    first.stop()
    second._take_lock()
    second.stop()


@pytest.mark.parametrize(
    ("pid", "why"),
    [("", "torn"), ("999999999", "no such process"), (str(1), "the number of another process")],
)
def test_a_stale_pid_file_does_not_matter(tmp_path: Path, pid: str, why: str) -> None:
    (tmp_path / "broker.pid").write_text(pid)
    broker = Broker(tmp_path)
    assert not broker._leftover_process(), why
    broker._take_lock()
    broker.stop()


class Stopping(Broker):
    """Another thread ends the child after whoever asks has looked once whether there is one."""

    @property
    def _child(self) -> DependentChild | None:
        child, self._left = self._left, None
        return child

    @_child.setter
    def _child(self, child: DependentChild | None) -> None:
        self._left = child


def test_a_child_that_another_thread_ends_is_asked_or_not_there(tmp_path: Path) -> None:
    """A supervisor restarts its broker while others ask for its process id."""
    child = DependentChild([sys.executable, "-c", "pass"], output=tmp_path / "out")
    stopping = Stopping(tmp_path)
    seen: list[object] = []
    for _ in range(2):
        stopping._child = child
        seen.append(stopping.pid)
        assert stopping.pid is None
    child.end(10)
    stopping._child = child
    assert not stopping.is_alive()
    stopping._child = child
    with pytest.raises(BrokerDied):
        stopping.raise_if_dead()
    assert seen == [child.pid, child.pid]


def test_properties(tmp_path: Path) -> None:
    text = Broker(tmp_path)._write_properties().read_text()
    said = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    assert said["auto.create.topics.enable"] == "false"
    assert said["log.dirs"] == str(tmp_path / "log")
    assert all("//127.0.0.1:" in listener for listener in said["listeners"].split(","))


def test_tail_of_log_has_what_the_jvm_said_first(tmp_path: Path) -> None:
    (tmp_path / "broker.out").write_text("cannot allocate\n")
    (tmp_path / "broker.log").write_text("".join(f"line {n}\n" for n in range(50)))
    assert Broker(tmp_path).tail_of_log(2) == "cannot allocate\nline 48\nline 49"
    assert Broker(tmp_path / "absent").tail_of_log() == ""


def test_a_child_that_ends_is_noticed(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    code = "import sys; print('no memory'); sys.exit(3)"
    command = [sys.executable, "-c", code]
    broker._child = DependentChild(command, output=tmp_path / "broker.out")
    assert broker._child._ended.wait(20)
    assert not broker.is_alive()
    with pytest.raises(BrokerDied, match=r"exit status 3(?s:.)*no memory"):
        broker.raise_if_dead()
