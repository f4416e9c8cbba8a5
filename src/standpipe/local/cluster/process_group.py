"""A supervised process group: started, signalled as one, and ended with its parent.

Not here: when it is restarted (`supervisor.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from standpipe.adapters.files.private import UMASK
from standpipe.adapters.process import signal_at_parent_death

#: The kernel sends PDEATHSIG when the *thread* that forked exits: this one lives as long as the
#: process.
_SPAWNER = ThreadPoolExecutor(1, thread_name_prefix="spawn")
#: However this process ends, its children get SIGTERM and end their own children.
_END_WITH_PARENT: Final = partial(signal_at_parent_death, signal.SIGTERM)
RESTART_DELAY_S_MAX: Final = 10.0


def restart_delay_s(restarts: int) -> float:
    """Delay before a process that exited by itself is restarted: 0, then 1, 2, 4 … 10 s."""
    return min(float(2 ** min(restarts - 1, 4)), RESTART_DELAY_S_MAX) if restarts else 0.0


@dataclass
class ManagedProcess:
    """A supervised process group. `wanted` false: it was stopped on purpose."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    wanted: bool = True
    restarts: int = 0
    retry_at: float = 0.0

    @property
    def pid(self) -> int | None:
        """Process id of the leader; None: not running."""
        return self.process.pid if self.process and self.process.poll() is None else None

    def start(self) -> None:
        """Start it as the leader of its own process group; output goes to its log."""
        self.process = _SPAWNER.submit(self._spawn).result()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to us; we stop the children
                umask=UMASK,
                preexec_fn=_END_WITH_PARENT,  # noqa: PLW1509 one system call, no lock
            )

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the whole group; it is not an error if the group has ended."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the leader. Returns whether it ended in time."""
        if self.process is None:
            return True
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def tail_of_log(self, lines: int = 15) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
