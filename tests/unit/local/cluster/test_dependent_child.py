"""A child ends when it is told, or when its parent does."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from standpipe.local.cluster.dependent_child import DependentChild


def child(code: str, output: Path) -> DependentChild:
    return DependentChild([sys.executable, "-c", code], output=output)


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ignore = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
    deaf = child(f"{ignore}; time.sleep(60)", tmp_path / "out")
    while b"up" not in (tmp_path / "out").read_bytes():
        assert deaf.is_alive()
    deaf.end(0.2)
    assert deaf.exit_status == -signal.SIGKILL


def test_a_child_that_ends_by_itself_meanwhile(tmp_path: Path) -> None:
    """It was reaped, and not marked as ended yet: the signal raised ProcessLookupError."""
    brief = child("", tmp_path / "out")
    assert brief._ended.wait(60)
    brief._ended.clear()
    brief.end(0.01)
    assert brief.exit_status == 0


def test_the_thread_that_started_a_child_may_end(tmp_path: Path) -> None:
    made: list[DependentChild] = []
    starter = threading.Thread(
        target=lambda: made.append(child("import time; time.sleep(60)", tmp_path / "out"))
    )
    starter.start()
    starter.join()
    (one,) = made
    assert not one._ended.wait(0.3)
    one.end(5)
    assert one.exit_status == -signal.SIGTERM


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from standpipe.local.cluster.dependent_child import DependentChild\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        f"c = DependentChild(sleep, output=Path({str(tmp_path / 'out')!r}))\n"
        "print(c.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(ran.stdout)
    deadline = time.monotonic() + 60
    while _lives(pid):
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
