"""What a node can run out of, as it is here, and from which figure on that is too little."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from standpipe.adapters.clock import Clock
from standpipe.node.configuration import NodePaths
from standpipe.node.room import DescriptorRoom, DiskRoom, NodeRoom
from standpipe.node.supervisor.room_watch import LOOK_MS, RoomWatch

GIB = 1 << 30


@pytest.mark.parametrize(
    ("size_bytes", "free_bytes", "inodes", "free_inodes", "complaint", "why"),
    [
        (768 << 20, 100 << 20, 1000, 900, None, "a small disk with more than a tenth"),
        (768 << 20, 52 << 20, 1000, 900, "52 of 768 MiB are free", "less than a tenth"),
        (4000 * GIB, 2 * GIB, 1000, 900, None, "a large one: less than a tenth, and enough"),
        (4000 * GIB, GIB - 1, 1000, 900, "1023 of 4096000 MiB", "less than 1 GiB of it"),
        (40 * GIB, 20 * GIB, 1000, 99, "99 of 1000 inodes are free", "files need inodes, too"),
        (40 * GIB, 20 * GIB, 10**7, 20_000, None, "20,000 files are enough"),
        (40 * GIB, 20 * GIB, 0, 0, None, "btrfs: inodes are made as needed"),
    ],
)
def test_a_disk_is_nearly_full_where_both_limits_say_so(
    size_bytes: int, free_bytes: int, inodes: int, free_inodes: int, complaint: str | None, why: str
) -> None:
    found = DiskRoom(
        folder=Path("/data"),
        size_bytes=size_bytes,
        free_bytes=free_bytes,
        inodes=inodes,
        free_inodes=free_inodes,
    ).complaint
    assert (found is None) == (complaint is None), why
    assert complaint is None or (complaint in str(found) and "/data" in str(found))


@pytest.mark.parametrize(("is_open", "is_well"), [(899, True), (900, False), (1000, False)])
def test_descriptors_are_nearly_used_up_at_nine_tenths(is_open: int, is_well: bool) -> None:
    found = DescriptorRoom(name="tailer", open=is_open, max=1000).complaint
    assert (found is None) == is_well
    assert is_well or found == f"tailer has {is_open} of 1000 file descriptors open"


#: opens five files when told to, and says when it has
CHILD = """
import sys
print(flush=True)
files = [open("/dev/null") for _ in sys.stdin.readline().split()]
print(flush=True)
sys.stdin.readline()
"""


def test_it_is_read_from_the_machine(tmp_path: Path) -> None:
    paths = NodePaths(tmp_path)
    paths.make()

    def descriptors() -> dict[str, DescriptorRoom]:
        return {each.name: each for each in NodeRoom(paths, os.getpid()).descriptors()}

    command, pipe = [sys.executable, "-c", CHILD], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        (paths.run / "tailer.pid").write_text(f"{child.pid}\n")
        (paths.run / "control.pid").write_text("999999999\n")
        (paths.run / "worker-0.pid").write_text("not a number")
        child.stdout.readline()
        before = descriptors()
        child.stdin.write("1 2 3 4 5\n")
        child.stdout.readline()
        after = descriptors()
        resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (after["tailer"].open, 100))
        full = descriptors()
        child.communicate("\n")
    assert before.keys() == {"parent", "tailer"}, "a process that is gone has none"
    assert before["parent"].open > 0
    assert before["parent"].max == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert after["tailer"].open == before["tailer"].open + 5
    assert after["tailer"].complaint is None
    assert full["tailer"].complaint is not None
    disk, found = NodeRoom(paths, 0).disk(), os.statvfs(tmp_path)
    assert disk.size_bytes == found.f_blocks * found.f_frsize
    assert 0 < disk.free_bytes <= disk.size_bytes


class Still(Clock):
    now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms


def test_the_log_tells_once_and_when_it_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = NodePaths(tmp_path)
    paths.make()
    room, clock = NodeRoom(paths, os.getpid()), Still()
    watch = RoomWatch(room, clock)

    def after(free_part: float) -> list[Any]:
        disk = DiskRoom(paths.data, 1000 << 20, int(free_part * (1000 << 20)), 0, 0)
        monkeypatch.setattr(NodeRoom, "disk", lambda _: disk)
        clock.now_ms += LOOK_MS
        watch.look()
        watch.look()  # too early: nothing is looked at
        return capsys.readouterr().out.splitlines()

    assert after(0.2) == []
    (told,) = after(0.05)
    assert "nearly used up" in told
    assert after(0.04) == [], "it was told"
    (over,) = after(0.5)
    assert "enough again" in over
