"""A disk that refuses, one that is full and one that is slow, under real processes: the C library's
fsync answers EIO from a moment on, or takes its time; the full one is a small disk of its own.

Torn tails and flipped bits of real processes: tests/e2e/test_control.py. No Kafka.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.e2e.control_cluster import NAMES, WAIT_S_MAX, ControlCluster, until
from tests.e2e.quorum_faults import check, load_on, lost, more
from tests.e2e.test_control import STREAM

from standpipe.adapters.files.published import read_snapshot
from standpipe.adapters.raft.reserve import COUNT
from standpipe.config.keys import FETCH_TIMEOUT
from standpipe.model import Snapshot

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
int fsync(int descriptor) {
    const char *flag = getenv("EIO_WHEN");
    const char *slow_ms = getenv("SLOW_MS");
    if (flag && access(flag, F_OK) == 0) { errno = EIO; return -1; }
    if (slow_ms) usleep(atoi(slow_ms) * 1000);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(descriptor);
}
"""


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("the shim of fsync needs gcc")
    source, library = tmp_path / "eio.c", tmp_path / "eio.so"
    source.write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture
def cluster(tmp_path: Path, shim: Path) -> Iterator[ControlCluster]:
    """Each node's disk fails once the file `<node>.eio` is there."""
    cluster = ControlCluster(tmp_path)
    cluster.environment = {
        name: {**os.environ, "LD_PRELOAD": str(shim), "EIO_WHEN": str(tmp_path / f"{name}.eio")}
        for name in NAMES
    }
    try:
        cluster.start(*NAMES)
        cluster.until_voters(*NAMES)
        cluster.until_members(3, *NAMES)
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_failed_fsync_ends_the_process_and_loses_nothing(
    cluster: ControlCluster, tmp_path: Path, who: str
) -> None:
    """The kernel may have dropped the pages: nothing after it can be believed (fsyncgate)."""
    load = load_on(cluster)
    load.start()
    more(load, 20)
    leader = cluster.leader()
    name = leader if who == "leader" else next(one for one in NAMES if one != leader)
    flag = tmp_path / f"{name}.eio"
    flag.touch()
    assert cluster.processes[name].wait(WAIT_S_MAX) == 1
    assert "could not be written: [Errno 5] Input/output error" in cluster.errors(name)
    more(load, 20)
    cluster.start(name)
    assert cluster.processes[name].wait(WAIT_S_MAX) == 1, "its disk still refuses"
    flag.unlink()
    cluster.start(name)
    until("it follows", lambda: cluster.quorum(name))
    more(load, 20)
    history = load.stop()
    check(history, tmp_path)
    assert lost(cluster, history) == 0


#: mounts a small disk on the data directory ($0) in a namespace of the process's own
SMALL_DISK = """
node=$(cat "$0/node.json") && mount -t tmpfs -o size=64m,nr_inodes=200 small "$0" &&
printf %s "$node" >"$0/node.json" && exec "$@"
"""


def may_mount() -> bool:
    return (
        subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0
    )


def disk_of(cluster: ControlCluster, name: str) -> Path:
    """The small disk as its process sees it."""
    inside = Path(f"/proc/{cluster.processes[name].pid}/root")
    return inside / cluster.configs[name].paths.data.relative_to("/")


def snapshot_at(page: Path) -> Snapshot:
    found = read_snapshot(page)
    assert found is not None
    return found


def reserve_in(log: Path) -> dict[str, int]:
    """Its files, and when each was made."""
    return {path.name: path.stat().st_ctime_ns for path in log.glob("reserve-*")}


#: a node replaces each of its files within this time, or cannot
REPLACED_S = 1.5


def use_up(disk: Path, what: str) -> list[Path]:
    """All of its blocks, or all of its inodes. Returns the files that do it. A file that a running
    node was just replacing leaves the room of the one before: that is used up, too."""
    made: list[Path] = []

    def stays_full() -> bool:
        fill(disk, what, made)
        time.sleep(REPLACED_S)
        return room_on(disk, what) == 0

    until(f"no {what} left", stays_full)
    return made


def room_on(disk: Path, what: str) -> int:
    left = os.statvfs(disk)
    return left.f_bavail if what == "blocks" else left.f_favail


def fill(disk: Path, what: str, made: list[Path]) -> None:
    with suppress(OSError):
        while True:
            file = disk / f"filler-{len(made)}"
            file.touch()
            made.append(file)
            if what == "blocks":
                with file.open("wb", buffering=0) as filler:
                    while True:
                        filler.write(bytes(1 << 12))


@pytest.mark.skipif(not may_mount(), reason="this machine mounts no disk for a process")
@pytest.mark.parametrize("what", ["blocks", "inodes"])
def test_a_full_disk_takes_no_vote(tmp_path: Path, what: str) -> None:
    """Its vote is needed all the time: for entries, and for the next leader."""
    with closing(ControlCluster(tmp_path)) as cluster:
        for name in NAMES:
            disk = str(cluster.configs[name].paths.data)
            cluster.before[name] = ["unshare", "-m", "sh", "-c", SMALL_DISK, disk]
        cluster.start(*NAMES)
        cluster.until_voters(*NAMES)
        cluster.until_members(3, *NAMES)
        leader = cluster.leader()
        full, other = (name for name in NAMES if name != leader)
        reserve = disk_of(cluster, full) / "log"
        before = reserve_in(reserve)
        made = use_up(disk_of(cluster, full), what)
        cluster.signal(other, signal.SIGSTOP)
        for number in range(10):
            statement = STREAM.format(f"S{number}", f"s{number}")
            assert cluster.execute(leader, statement, f"r{number}").status_code == 200
        cluster.signal(other, signal.SIGCONT)
        cluster.signal(leader, signal.SIGSTOP)
        cluster.leader(full, other)
        assert cluster.execute(full, STREAM.format("T", "t"), "t").status_code == 200
        cluster.signal(leader, signal.SIGCONT)
        assert cluster.processes[full].poll() is None, cluster.errors(full)
        assert reserve_in(reserve) != before, "it was needed"
        for file in made:
            file.unlink()
        assert cluster.execute(full, STREAM.format("U", "u"), "u").status_code == 200
        until("a whole reserve again", lambda: len(reserve_in(reserve)) == COUNT)
        page = disk_of(cluster, full) / "run" / "snapshot"
        until("its own page", lambda: "U" in {s.name for s in snapshot_at(page).sources})


SLOW_MS = 700  # longer than the quorum's time-outs are by themselves


def slow_cluster(folder: Path, shim: Path, *names: str, **settings: int) -> ControlCluster:
    cluster = ControlCluster(folder, names=names, settings={**settings})
    environment = {**os.environ, "LD_PRELOAD": str(shim), "SLOW_MS": str(SLOW_MS)}
    cluster.environment = dict.fromkeys(names, environment)
    return cluster


def test_leaders_stay_on_slow_disks_where_time_outs_are_longer(tmp_path: Path, shim: Path) -> None:
    """With the time-outs as they are nobody leads there for long."""
    longer = {FETCH_TIMEOUT.name: int(FETCH_TIMEOUT.high or 0)}
    with closing(slow_cluster(tmp_path, shim, *NAMES, **longer)) as cluster:
        cluster.start(*NAMES)
        cluster.until_voters(*NAMES)
        cluster.until_members(3, *NAMES)
        before = cluster.quorum("node-1")
        for number in range(5):
            statement = STREAM.format(f"S{number}", f"s{number}")
            assert cluster.execute_once("node-2", statement, f"r{number}").status_code == 200
        after = cluster.quorum("node-1")
        assert before is not None
        assert after is not None
        assert (after["leader"], after["epoch"]) == (before["leader"], before["epoch"])
        for name in NAMES:
            until(f"{name}'s", lambda name=name: cluster.snapshot(name).quorum_sync_ms >= SLOW_MS)


def test_a_disk_that_is_slow_for_the_quorum_is_named(tmp_path: Path, shim: Path) -> None:
    with closing(slow_cluster(tmp_path, shim, "node-1")) as cluster:
        cluster.start("node-1")
        cluster.until_voters("node-1")
        said = "the disk is slow for the quorum"
        until("its log says so", lambda: said in cluster.errors("node-1"))
        assert FETCH_TIMEOUT.name in cluster.errors("node-1"), "and what to do"
