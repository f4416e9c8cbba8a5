"""A child of a node's parent process: forked, watched, restarted, terminated.

A fork, not a new interpreter: the parent has imported what the child needs, so that a child is
restarted in milliseconds instead of a second of imports, and all children share those pages. It is
safe because the parent has one thread and no event loop. A child's output comes through a pipe and
goes to `logs/<child>.log`; the end of the pipe shows that the child has died.

Not here: which children there are, and in what order (`node.supervisor.parent`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from select import select
from typing import Final, NoReturn

import structlog

from standpipe.adapters.files import published
from standpipe.adapters.process import name_process
from standpipe.node.configuration import NodePaths

BACKOFF_S_MIN: Final = 0.2
BACKOFF_S_MAX: Final = 5.0
#: This many deaths within the window are logged as errors; a run that long resets the back-off.
CRASH_LOOP_DEATHS: Final = 5
DEATHS_WINDOW_S: Final = 10.0
LOG_BYTES_MAX: Final = 8 * 1024 * 1024  # of a child's log; one older file is kept beside it
LINE_BYTES_MAX: Final = 64 * 1024
FORK_AGAIN_S: Final = 1.0
#: More than the parent ever has open; a child starts with none of them.
_FILES_MAX: Final = 1024

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass
class Deaths:
    """Recent deaths of a child, and the back-off. Instants in seconds on one clock."""

    _lately: deque[float] = field(default_factory=lambda: deque[float](maxlen=CRASH_LOOP_DEATHS))
    _delay_s: float = 0.0

    def count(self, *, started_s: float, died_s: float) -> float:
        """Record a death; returns the seconds to wait before the next start.

        0.2 s, doubled with every death up to 5 s, back to 0.2 s after a run of 10 s.
        """
        self._lately.append(died_s)
        is_quick = died_s - started_s < DEATHS_WINDOW_S
        doubled = min(self._delay_s * 2, BACKOFF_S_MAX) if is_quick else 0.0
        self._delay_s = max(doubled, BACKOFF_S_MIN)
        return self._delay_s

    @property
    def is_crash_looping(self) -> bool:
        """The child died CRASH_LOOP_DEATHS times within DEATHS_WINDOW_S."""
        full = len(self._lately) == CRASH_LOOP_DEATHS
        return full and self._lately[-1] - self._lately[0] <= DEATHS_WINDOW_S


class ChildLog:
    """`logs/<child>.log`: whole lines, at most LOG_BYTES_MAX, then it becomes `<child>.log.1`.

    What a full disk rejects is lost, and so is all of it where the file cannot be opened: a node
    that cannot log still serves.
    """

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._file: FileIO | None = None
        self._unfinished = b""

    def write(self, data: bytes) -> None:
        """Write a child's output. An unfinished line waits for its end, up to LINE_BYTES_MAX."""
        lines, newline, self._unfinished = (self._unfinished + data).rpartition(b"\n")
        if len(self._unfinished) > LINE_BYTES_MAX:
            lines, newline, self._unfinished = lines + newline + self._unfinished, b"\n", b""
        if not newline:
            return
        with contextlib.suppress(OSError):
            self._append(lines + newline)

    def _append(self, lines: bytes) -> None:
        if self._file is not None and self._file.tell() + len(lines) > self._bytes_max:
            self._file.close()
            self._file = None
            self.path.replace(self.path.with_name(self.path.name + ".1"))
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        self._file.write(lines)

    def close(self) -> None:
        """Write an unfinished line and close the file."""
        if self._unfinished:
            self.write(b"\n")
        if self._file is not None:
            self._file.close()


@dataclass
class _Life:
    """One run of a child."""

    pid: int
    output: int  # read end of its pipe
    log: ChildLog
    started_s: float


class Child:
    """One process that is kept running until `end`. `run` returns its exit status."""

    def __init__(self, name: str, run: Callable[[], int], paths: NodePaths) -> None:
        self.name = name
        self._run = run
        self._paths = paths
        self._deaths = Deaths()
        self._life: _Life | None = None
        self._due_s = 0.0

    @property
    def output(self) -> int | None:
        """A descriptor that is readable when `tend` has something to do; None: it is dead."""
        return self._life.output if self._life else None

    @property
    def pid(self) -> int | None:
        """Its process id; None: it is dead."""
        return self._life.pid if self._life else None

    def tend(self) -> None:
        """Start it if that is due, copy its output, and notice its death."""
        if self._life is None and time.monotonic() >= self._due_s:
            self._start()
        elif self._life is not None:
            self._listen(self._life)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child, if it is alive."""
        if self._life is not None:
            os.kill(self._life.pid, number)  # not reaped yet: the id is still its own

    def listen(self) -> bool:
        """Copy its output; returns whether it still lives. Does not restart it."""
        if self._life is not None:
            self._listen(self._life)
        return self._life is not None

    def _start(self) -> None:
        """Without descriptors or memory for it, it is tried again: the other children go on."""
        try:
            self._life = self._forked()
        except OSError as error:
            self._due_s = time.monotonic() + FORK_AGAIN_S
            _log.error("child cannot be started", child=self.name, error=str(error))
        else:
            self._note(self._life.pid)

    def _forked(self) -> _Life:
        output, input_ = os.pipe()
        try:
            log = ChildLog(self._paths.logs / f"{self.name}.log")
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
        except OSError:
            os.close(output)
            os.close(input_)
            raise
        if pid == 0:
            _live(self.name, self._run, input_)
        os.close(input_)
        os.set_blocking(output, False)
        return _Life(pid, output, log, time.monotonic())

    def _listen(self, life: _Life) -> None:
        _copy(life)
        # not only at the end of its output: a process that it started may keep that open
        pid, status = os.waitpid(life.pid, os.WNOHANG)
        if pid:
            _copy(life)  # what it wrote meanwhile
            self._reap(life, os.waitstatus_to_exitcode(status))

    def _reap(self, life: _Life, status: int) -> None:
        os.close(life.output)
        life.log.close()
        self._life = None
        now_s = time.monotonic()
        delay_s = self._deaths.count(started_s=life.started_s, died_s=now_s)
        self._due_s = now_s + delay_s
        tell = _log.error if self._deaths.is_crash_looping else _log.warning
        tell(
            "child dies repeatedly" if self._deaths.is_crash_looping else "child ended",
            child=self.name,
            status=status,
            restart_after_s=delay_s,
            log=str(life.log.path),
        )

    def _note(self, pid: int) -> None:
        """Write `run/<child>.pid` atomically; on a full disk the old one stays."""
        try:
            published.replace(self._paths.run / f"{self.name}.pid", b"%d\n" % pid)
        except OSError as error:
            _log.warning("pid file cannot be written", child=self.name, pid=pid, error=str(error))


def _copy(life: _Life) -> None:
    with contextlib.suppress(BlockingIOError):
        while data := os.read(life.output, LINE_BYTES_MAX):
            life.log.write(data)


def _live(name: str, run: Callable[[], int], output: int) -> NoReturn:
    """What the forked process does: drops its parent's files and handlers; never returns."""
    status = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for ours, standard in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(ours, standard)
        os.closerange(3, _FILES_MAX)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        name_process(name)
        status = run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def wait(children: Sequence[Child], seconds: float) -> None:
    """Wait until one of them wrote or died, at most `seconds`."""
    select([child.output for child in children if child.output is not None], [], [], seconds)


def end(children: Sequence[Child], grace_s: float) -> None:
    """SIGTERM to all, SIGKILL after `grace_s`; returns when all have ended."""
    for child in children:
        child.signal(signal.SIGTERM)
    deadline_s = time.monotonic() + grace_s
    while living := [child for child in children if child.listen()]:
        if time.monotonic() >= deadline_s:
            for child in living:
                _log.warning("child did not end in time", child=child.name, grace_s=grace_s)
                child.signal(signal.SIGKILL)
            deadline_s += 1.0
        wait(living, 0.01)
