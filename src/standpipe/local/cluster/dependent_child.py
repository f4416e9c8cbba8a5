"""A child process that the kernel kills when this process ends, for whatever reason."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from standpipe.adapters.files.private import UMASK
from standpipe.adapters.process import signal_at_parent_death

_DIE_WITH_PARENT: Final = partial(signal_at_parent_death, signal.SIGKILL)


class DependentChild:
    """A process that dies with this one.

    The kernel sends PDEATHSIG when the *thread* that forked ends, so a dedicated thread forks the
    child and then waits for it; the thread that made this object may end.
    """

    def __init__(self, command: list[str], *, output: Path) -> None:
        self._command = command
        self._output = output
        self._started = threading.Event()
        self._ended = threading.Event()
        self._error: OSError | None = None
        self.pid = 0
        self.exit_status: int | None = None
        threading.Thread(target=self._fork_and_wait, name="child", daemon=True).start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def _fork_and_wait(self) -> None:
        try:
            with self._output.open("wb") as output:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C goes to the parent, which stops the child
                    umask=UMASK,
                    preexec_fn=_DIE_WITH_PARENT,  # noqa: PLW1509 -- one system call, no lock
                )
        except OSError as error:
            self._error = error
            self._started.set()
            return
        self.pid = process.pid
        self._started.set()
        self.exit_status = process.wait()
        self._ended.set()

    def is_alive(self) -> bool:
        """Whether the process is running."""
        return not self._ended.is_set()

    def end(self, patience_s: float) -> None:
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            if self.is_alive():
                with suppress(ProcessLookupError):  # it has ended, and is about to be marked so
                    os.kill(self.pid, signal_number)
                self._ended.wait(patience_s)
