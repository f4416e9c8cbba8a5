"""The parent: when a child is started again, how its log is kept, and the order of the end."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from standpipe.adapters import process
from standpipe.adapters.clock import Clock
from standpipe.config import registry
from standpipe.errors import DataDirectoryRefused
from standpipe.node.configuration import NodePaths
from standpipe.node.room import NodeRoom
from standpipe.node.supervisor import child as children
from standpipe.node.supervisor import parent
from standpipe.node.supervisor.child import Child, ChildLog, Deaths, end, wait
from standpipe.node.supervisor.parent import ROOM_POLL_S, Family, with_room
from standpipe.node.supervisor.room_watch import RoomWatch
from standpipe.node.supervisor.worker_watch import WorkersWatch


def test_what_was_told_before_the_node_ended_is_forgotten(tmp_path: Path) -> None:
    """A node that was killed for 10 s served a row 74 records behind where 40 were allowed, by its
    page of before (chaos, seed 5); after a restart of the machine instants would even look young.
    """
    paths = NodePaths(tmp_path)
    paths.make()
    page = paths.run / "status" / "T1-1-0"
    page.parent.mkdir(exist_ok=True)
    counted = paths.run / "metrics-3"
    told = (page, paths.liveness, paths.lags, paths.digests, counted)
    for file in (*told, paths.snapshot):
        file.touch()
    parent.drop_previous_run(paths)
    assert not any(file.exists() for file in told)
    assert paths.snapshot.exists(), "the map says nothing about a lag"


@pytest.mark.parametrize(
    ("lives_s", "delays_s", "loud", "why"),
    [
        ([0.1], [0.2], False, "the first death"),
        ([0.1] * 4, [0.2, 0.4, 0.8, 1.6], False, "four are not loud"),
        ([0.1] * 5, [0.2, 0.4, 0.8, 1.6, 3.2], True, "five within ten seconds"),
        ([0.1] * 7, [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0], False, "slower than 5 in 10 s by now"),
        ([0.1, 0.1, 10.0], [0.2, 0.4, 0.2], False, "ten good seconds start afresh"),
        ([0.1, 0.1, 9.9], [0.2, 0.4, 0.8], False, "9.9 do not"),
    ],
)
def test_deaths(lives_s: list[float], delays_s: list[float], loud: bool, why: str) -> None:
    deaths, now_s = Deaths(), 100.0
    for life_s, delay_s in zip(lives_s, delays_s, strict=True):
        died_s = now_s + life_s
        assert deaths.count(started_s=now_s, died_s=died_s) == pytest.approx(delay_s), why
        now_s = died_s + delay_s
    assert deaths.is_crash_looping is loud, why


def test_a_log_holds_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "child.log"
    log = ChildLog(path)
    log.write(b"one\ntw")
    assert path.read_bytes() == b"one\n"
    log.write(b"o\nthree")
    assert path.read_bytes() == b"one\ntwo\n"
    log.close()
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_a_log_rotates_between_lines(tmp_path: Path) -> None:
    path = tmp_path / "child.log"
    log = ChildLog(path, bytes_max=30)
    for number in range(20):
        log.write(b"line %02d\n" % number)
    log.close()
    kept = (tmp_path / "child.log.1").read_bytes() + path.read_bytes()
    assert kept.endswith(b"line 18\nline 19\n")
    assert all(line.startswith(b"line ") for line in kept.splitlines())
    assert len(list(tmp_path.iterdir())) == 2, "one older file"


def test_a_line_without_end_is_not_kept_in_memory(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "child.log")
    log.write(b"x" * (children.LINE_BYTES_MAX + 1))
    assert (tmp_path / "child.log").stat().st_size == children.LINE_BYTES_MAX + 2
    log.close()


def test_a_full_disk_costs_lines_and_not_the_node() -> None:
    log = ChildLog(Path("/dev/full"))
    log.write(b"one\n")
    log.write(b"two\n")
    log.close()


def test_a_log_that_cannot_be_opened_costs_lines_and_is_opened_later(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "child.log"
    log = ChildLog(path, bytes_max=8)
    log.write(b"one\n")
    path.parent.mkdir()
    log.write(b"two\n")
    (tmp_path / "logs" / "child.log.1" / "in the way").mkdir(parents=True)
    log.write(b"three\n")
    log.write(b"four\n")
    log.close()
    assert path.read_bytes() == b"two\nfour\n"


def test_a_child_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a free descriptor the parent ended, and the node with it."""
    monkeypatch.setattr(children, "FORK_AGAIN_S", 0.05)

    def well() -> int:
        print("well", file=sys.stderr)
        return 0

    child = made("well", well, tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        child.tend()
        assert child.pid is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    until("well", tmp_path / "logs" / "well.log", child)
    end([child], 1.0)


def test_a_child_lives_although_its_pid_file_cannot_be_written(tmp_path: Path) -> None:
    """A full disk took the parent, and with it the workers that served (chaos, `disk full`)."""
    child = made("well", lambda: time.sleep(60) or 0, tmp_path)
    (tmp_path / "run" / "well.pid.new").mkdir()  # OSError, as ENOSPC is one
    child.tend()
    assert child.listen()
    end([child], 1.0)


def until(text: str, path: Path, child: Child, count: int = 1) -> None:
    """Tend a child until it has written `text` so many times."""
    deadline = time.monotonic() + 20
    while not path.exists() or path.read_text().count(text) < count:
        assert time.monotonic() < deadline, f"no {text!r} in {path}"
        child.tend()
        wait([child], 0.01)


def made(name: str, run: Callable[[], int], directory: Path) -> Child:
    paths = NodePaths(directory)
    paths.make()
    return Child(name, run, paths)


def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    def sick() -> int:
        print("pid", os.getpid(), file=sys.stderr)
        return 3

    child = made("sick", sick, tmp_path)
    until("pid ", tmp_path / "logs" / "sick.log", child, count=2)
    end([child], 1.0)
    pids = (tmp_path / "logs" / "sick.log").read_text().split()[1::2]
    assert len(set(pids)) == len(pids) >= 2


def test_a_death_is_noticed_while_something_holds_the_child_s_output(tmp_path: Path) -> None:
    """A process that control had started, for instance; the node went on without control."""

    def sick() -> int:
        holder = os.fork()
        if holder == 0:
            time.sleep(20)  # its end if the test does not come to kill it
            os._exit(0)
        print("holder", holder, file=sys.stderr)
        return 3

    child = made("sick", sick, tmp_path)
    log = tmp_path / "logs" / "sick.log"
    until("holder ", log, child, count=2)
    end([child], 1.0)
    for holder in map(int, log.read_text().split()[1::2]):
        os.kill(holder, signal.SIGKILL)


def test_a_child_that_raises_leaves_its_traceback(tmp_path: Path) -> None:
    def broken() -> int:
        raise ValueError("what went wrong")

    child = made("broken", broken, tmp_path)
    until("ValueError: what went wrong", tmp_path / "logs" / "broken.log", child)
    end([child], 1.0)


def test_a_child_holds_nothing_that_is_open_in_its_parent(tmp_path: Path) -> None:
    """Least of all the lock of the data directory, which must end with the parent."""

    def look() -> int:
        print(sorted(os.listdir("/proc/self/fd")), flush=True)  # noqa: PTH208
        return 0

    with parent._locked(tmp_path / "lock"):
        child = made("child", look, tmp_path)
        until("]", tmp_path / "logs" / "child.log", child)
        end([child], 1.0)
    listed = (tmp_path / "logs" / "child.log").read_text().splitlines()[0]
    assert listed == "['0', '1', '2', '3']", "3 is the listing itself"


@pytest.mark.parametrize(
    ("handler", "seconds_max", "why"),
    [(signal.SIG_DFL, 0.2, "it ends on SIGTERM"), (signal.SIG_IGN, 2.0, "it would not")],
)
def test_a_child_is_told_and_then_made_to_end(
    tmp_path: Path, handler: signal.Handlers, seconds_max: float, why: str
) -> None:
    def stay() -> int:
        signal.signal(signal.SIGTERM, handler)
        print("up", flush=True)
        time.sleep(60)
        return 0

    child = made("child", stay, tmp_path)
    until("up", tmp_path / "logs" / "child.log", child)
    pid = int((tmp_path / "run" / "child.pid").read_text())
    end([child], seconds_max)
    assert child.output is None, why
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_workers_wait_for_a_snapshot_and_end_first_after_handing_over(tmp_path: Path) -> None:
    snapshot = tmp_path / "run" / "snapshot"
    prepared: list[str] = []

    def noted(name: str) -> Child:
        def run() -> int:
            asked = process.StopSignal()
            print("up", flush=True)
            while not asked.is_set:
                time.sleep(0.01)
            time.sleep(0.1)
            with (tmp_path / "order").open("a") as file:
                file.write(f"{name}\n")
            return 0

        return made(name, run, tmp_path)

    def is_up(name: str) -> bool:
        path = tmp_path / "logs" / f"{name}.log"
        return path.exists() and "up" in path.read_text()

    def must_end() -> bool:
        if is_up("control"):
            snapshot.touch()
        else:
            assert not is_up("worker"), "no worker before a snapshot"
        return all(map(is_up, ("worker", "tailer", "control")))

    def hand_over() -> None:
        (tmp_path / "order").write_text("over\n")  # while all of them still run

    workers = (noted("worker"),)
    family = Family(
        workers=workers,
        tailer=noted("tailer"),
        control=noted("control"),
        watch=WorkersWatch(workers, NodePaths(tmp_path), registry.load({})),
        room=RoomWatch(NodeRoom(NodePaths(tmp_path), os.getpid()), Clock()),
    )
    family.live(snapshot, must_end, prepared.append, hand_over)
    assert (tmp_path / "order").read_text().split() == ["over", "worker", "tailer", "control"]
    assert prepared == ["tailer.main", "controller.main", "worker.main"]
    snapshot.touch()
    prepared.clear()
    (tmp_path / "order").unlink()
    family.live(snapshot, must_end, prepared.append, lambda: None)
    assert prepared[0] == "worker.main", "after a restart workers come first"


def test_one_node_per_directory(tmp_path: Path) -> None:
    with (
        parent._locked(tmp_path / "lock"),
        pytest.raises(DataDirectoryRefused, match="in use by another node"),
        parent._locked(tmp_path / "lock"),
    ):
        pass


def test_what_needs_room_is_tried_until_there_is_some(tmp_path: Path) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    waits: list[float] = []
    assert with_room(work, tmp_path, lambda: False, waits.append)
    assert (len(tries), waits) == (3, [ROOM_POLL_S] * 2)


def test_a_node_that_waits_for_room_ends_when_it_must(tmp_path: Path) -> None:
    def work() -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    assert not with_room(work, tmp_path, lambda: True, lambda _: None)


def test_any_other_error_is_raised(tmp_path: Path) -> None:
    def work() -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(PermissionError):
        with_room(work, tmp_path, lambda: False, lambda _: None)
