"""A node's parent process: starts control, tailer and HTTP workers, and starts again what dies.

    run_node ─► control ─► (run/snapshot appears) ─► workers
            └─► tailer

The node is a process group of its own: one signal to the group kills all of it, and every child
also dies with this process (PDEATHSIG). What children write is copied to `logs/<child>.log`. On
SIGTERM the workers end first (no more questions), then the tailer, then control.

A child that cannot live does not take the others with it: a node with a dead tailer still answers
from its stores, and says how old they are.

Not here: anything that children do.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import structlog

from standpipe.errors import DataDirectoryRefused
from standpipe.node import node_config
from standpipe.node.node_config import NodeConfig, NodePaths

BACKOFF_S_MIN: Final = 0.2
BACKOFF_S_MAX: Final = 5.0
#: So many deaths within so many seconds are reported loudly; a life that long resets the back-off.
DEATHS_LOUD: Final = 5
DEATHS_WINDOW_S: Final = 10.0
#: From SIGTERM to SIGKILL: workers, tailer, control. Together they stay below 5 s.
GRACES_S: Final = (2.0, 1.5, 1.3)
LOG_BYTES_MAX: Final = 8 * 1024 * 1024  # of a child's log; one older file is kept beside it
LINE_BYTES_MAX: Final = 64 * 1024
SNAPSHOT_POLL_S: Final = 0.02

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass
class Deaths:
    """How often a child died lately, and what follows. Instants in seconds on any one clock."""

    _lately: deque[float] = field(default_factory=lambda: deque[float](maxlen=DEATHS_LOUD))
    _delay_s: float = 0.0

    def count(self, *, started_s: float, died_s: float) -> float:
        """Note a death; returns how long to wait before the next start.

        0.2 s, doubled with every death up to 5 s, back to 0.2 s after a life of 10 s.
        """
        self._lately.append(died_s)
        is_quick = died_s - started_s < DEATHS_WINDOW_S
        doubled = min(self._delay_s * 2, BACKOFF_S_MAX) if is_quick else 0.0
        self._delay_s = max(doubled, BACKOFF_S_MIN)
        return self._delay_s

    @property
    def is_loud(self) -> bool:
        """The child died DEATHS_LOUD times within DEATHS_WINDOW_S."""
        full = len(self._lately) == DEATHS_LOUD
        return full and self._lately[-1] - self._lately[0] <= DEATHS_WINDOW_S


class ChildLog:
    """`logs/<child>.log`: whole lines, at most LOG_BYTES_MAX, then it becomes `<child>.log.1`."""

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._file: BinaryIO = path.open("ab")
        self._unfinished = b""

    def write(self, data: bytes) -> None:
        """Take what a child wrote. An unfinished line waits for its end, but not for ever."""
        lines, newline, self._unfinished = (self._unfinished + data).rpartition(b"\n")
        if len(self._unfinished) > LINE_BYTES_MAX:
            lines, newline, self._unfinished = lines + newline + self._unfinished, b"\n", b""
        if not newline:
            return
        if self._file.tell() + len(lines) >= self._bytes_max:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = self._path.open("ab")
        self._file.write(lines + newline)
        self._file.flush()

    def close(self) -> None:
        if self._unfinished:
            self.write(b"\n")
        self._file.close()


class Child:
    """One process that is meant to run until it is told to end."""

    def __init__(self, name: str, command: Sequence[str], paths: NodePaths) -> None:
        self.name = name
        self._command = command
        self._paths = paths
        self._deaths = Deaths()
        self._process: asyncio.subprocess.Process | None = None
        self._ending = asyncio.Event()

    async def keep_running(self) -> None:
        """Start, watch, start again; returns when the child was told to end and has ended."""
        while not self._ending.is_set():
            started_s = time.monotonic()
            status = await self._live()
            if self._ending.is_set():
                return
            delay_s = self._deaths.count(started_s=started_s, died_s=time.monotonic())
            tell = _log.error if self._deaths.is_loud else _log.warning
            tell(
                "child keeps dying" if self._deaths.is_loud else "child died",
                child=self.name,
                status=status,
                restart_after_s=delay_s,
                log=str(self._log_path),
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), delay_s)

    async def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after `grace_s`."""
        self._ending.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 1.0)):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), wait_s)
                return
            _log.warning("child did not end in time", child=self.name, signal=number.name)

    async def _live(self) -> int:
        """One life of the child; its exit status."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._process = process
        if self._ending.is_set():  # it was told to end while it was being started
            process.terminate()
        self._note(process.pid)
        assert process.stdout is not None
        with contextlib.closing(ChildLog(self._log_path)) as log:
            while data := await process.stdout.read(LINE_BYTES_MAX):
                log.write(data)
        return await process.wait()

    def _note(self, pid: int) -> None:
        """`run/<child>.pid`, whole at every instant."""
        temporary = self._paths.run / f"{self.name}.pid.new"
        temporary.write_text(f"{pid}\n")
        temporary.replace(self._paths.run / f"{self.name}.pid")

    @property
    def _log_path(self) -> Path:
        return self._paths.logs / f"{self.name}.log"


@dataclass(frozen=True)
class Family:
    """The children of a node, in the order in which they end."""

    workers: tuple[Child, ...]
    tailer: Child
    control: Child

    @classmethod
    def of(cls, config: NodeConfig, node_file: Path) -> Family:
        """Children as `node.json` asks for them."""
        count = config.workers or len(os.sched_getaffinity(0))

        def child(name: str, module: str, *more: str) -> Child:
            command = [sys.executable, "-m", f"standpipe.node.{module}"]
            return Child(name, [*command, "--node-file", str(node_file), *more], config.paths)

        return cls(
            workers=tuple(
                child(f"worker-{number}", "serve", "--worker", str(number))
                for number in range(count)
            ),
            tailer=child("tailer", "tail_loop"),
            control=child("control", "control_loop"),
        )

    async def live(self, snapshot: Path, stop: asyncio.Event) -> None:
        """Start all, keep them running until `stop`, end them in order."""
        tasks = [asyncio.create_task(child.keep_running()) for child in (self.control, self.tailer)]
        await _appears(snapshot, stop)
        tasks += [asyncio.create_task(worker.keep_running()) for worker in self.workers]
        await stop.wait()
        groups: tuple[Iterable[Child], ...] = (self.workers, (self.tailer,), (self.control,))
        for group, grace_s in zip(groups, GRACES_S, strict=True):
            await asyncio.gather(*(child.end(grace_s) for child in group))
        await asyncio.wait(tasks, timeout=1)


async def _appears(path: Path, stop: asyncio.Event) -> None:
    while not path.exists() and not stop.is_set():  # noqa: ASYNC240 - one stat
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), SNAPSHOT_POLL_S)


def run_node(node_file: Path) -> int:
    """Run a node until SIGTERM or SIGINT; returns the exit status.

    Raises ConfigError or DataDirectoryRefused before anything is started.
    """
    config = node_config.load(node_file)
    config.settings()
    config.secret()
    node_config.log_json("parent")
    node_config.claim(config)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    with _locked(config.paths.data / "lock"):
        asyncio.run(_run(config, node_file))
    return 0


async def _run(config: NodeConfig, node_file: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await Family.of(config, node_file).live(config.paths.snapshot, stop)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the data directory for this node alone. Raises DataDirectoryRefused."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataDirectoryRefused(
                f"{path.parent} is in use by another node process",
                next_step="stop it, or give another directory",
            ) from error
        yield
