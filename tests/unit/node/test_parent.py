"""The parent: when a child is started again, how its log is kept, and the order of the end."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from standpipe.errors import DataDirectoryRefused
from standpipe.node import parent
from standpipe.node.node_config import NodePaths
from standpipe.node.parent import Child, ChildLog, Deaths, Family


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
    assert deaths.is_loud is loud, why


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
    log.write(b"x" * (parent.LINE_BYTES_MAX + 1))
    assert (tmp_path / "child.log").stat().st_size == parent.LINE_BYTES_MAX + 2
    log.close()


def python(name: str, code: str, directory: Path) -> Child:
    paths = NodePaths(directory)
    paths.make()
    return Child(name, [sys.executable, "-c", code], paths)


async def until(path: Path, text: str, count: int = 1) -> None:
    """Wait for what another process writes: there is no event to wait for."""

    def is_there() -> bool:
        return path.exists() and path.read_text().count(text) >= count

    async with asyncio.timeout(20):
        while not is_there():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    async def story() -> None:
        code = "import os, sys; print('pid', os.getpid(), file=sys.stderr); sys.exit(3)"
        child = python("sick", code, tmp_path)
        keeping = asyncio.create_task(child.keep_running())
        await until(tmp_path / "logs" / "sick.log", "pid ", count=2)
        await child.end(1.0)
        await keeping

    asyncio.run(story())


@pytest.mark.parametrize(
    ("code", "status", "why"),
    [
        ("", -signal.SIGTERM, "it ends on SIGTERM"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN);", -signal.SIGKILL, "it would not"),
    ],
)
def test_a_child_is_told_and_then_made_to_end(
    tmp_path: Path, code: str, status: int, why: str
) -> None:
    async def story() -> int | None:
        code_ = f"import signal, time; {code} print('up', flush=True); time.sleep(60)"
        child = python("child", code_, tmp_path)
        keeping = asyncio.create_task(child.keep_running())
        await until(tmp_path / "logs" / "child.log", "up")
        pid = int((tmp_path / "run" / "child.pid").read_text())
        assert child._process is not None
        assert child._process.pid == pid
        await child.end(0.2)
        await asyncio.wait_for(keeping, 5)
        return child._process.returncode

    assert asyncio.run(story()) == status, why


def test_workers_end_first_and_control_last(tmp_path: Path) -> None:
    noting = (
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n"
        "    time.sleep(0.1)\n"
        f"    with pathlib.Path({str(tmp_path / 'order')!r}).open('a') as f: f.write('NAME\\n')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )

    def noted(name: str) -> Child:
        return python(name, noting.replace("NAME", name), tmp_path)

    async def story() -> None:
        stop = asyncio.Event()
        family = Family(
            workers=(noted("worker"),), tailer=noted("tailer"), control=noted("control")
        )
        living = asyncio.create_task(family.live(tmp_path / "run" / "snapshot", stop))
        await until(tmp_path / "logs" / "control.log", "up")
        assert not (tmp_path / "logs" / "worker.log").exists(), "no worker before a snapshot"
        (tmp_path / "run" / "snapshot").touch()
        for name in ("tailer", "worker"):
            await until(tmp_path / "logs" / f"{name}.log", "up")
        stop.set()
        await asyncio.wait_for(living, 10)

    asyncio.run(story())
    assert (tmp_path / "order").read_text().split() == ["worker", "tailer", "control"]


def test_one_node_per_directory(tmp_path: Path) -> None:
    with (
        parent._locked(tmp_path / "lock"),
        pytest.raises(DataDirectoryRefused, match="in use by another node"),
        parent._locked(tmp_path / "lock"),
    ):
        pass
