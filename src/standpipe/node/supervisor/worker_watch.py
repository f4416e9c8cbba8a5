"""The parent kills a worker that hangs, or whose memory grows beyond its limit.

    page of turns, /proc ─► TurnWatch ─► SIGKILL ─► Child starts it again
                                    └──► run/workers: which worker, why, which texts are refused

Not here: when a silence is too long (`node.supervisor.turn_watch`), the restart
(`node.supervisor.child`).
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from standpipe.adapters.clock import Clock
from standpipe.adapters.files.published import RecordWriter
from standpipe.adapters.files.turn_page import page_of, read_turns
from standpipe.adapters.process import has_running_thread, own_bytes, state_and_time_of
from standpipe.config.registry import Config
from standpipe.config.workers import MEMORY_MAX, REFUSED_TEXT_MS, TURN_TIMEOUT
from standpipe.node.configuration import NodePaths
from standpipe.node.supervisor.child import Child
from standpipe.node.supervisor.turn_watch import (
    LOOK_MS,
    RUNNING,
    SLEEPING,
    ProcessSeen,
    TurnWatch,
)
from standpipe.node.worker_report import (
    WHY,
    Reason,
    RefusedText,
    WorkerEnded,
    WorkersReport,
)

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass
class _Watched:
    """One worker."""

    number: int
    child: Child
    turns: TurnWatch
    suspects: tuple[bytes, ...] = ()
    #: its process was killed, and is not reaped yet
    ended_pid: int = 0


@dataclass
class WorkersWatch:
    """The watch over all workers of a node."""

    workers: Sequence[Child]
    paths: NodePaths
    settings: Config
    #: numbers of the heavy ones
    heavy: tuple[int, ...] = ()
    clock: Clock = field(default_factory=Clock)
    _ended: dict[tuple[int, Reason], WorkerEnded] = field(
        default_factory=dict[tuple[int, Reason], WorkerEnded]
    )
    _refused: dict[bytes, RefusedText] = field(default_factory=dict[bytes, RefusedText])
    _published: WorkersReport | None = None
    _looked_ms: int = 0

    def __post_init__(self) -> None:
        self._file = RecordWriter(self.paths.workers)
        limit_ms = self.settings[TURN_TIMEOUT]
        self._watched = [
            _Watched(number, child, TurnWatch(limit_ms))
            for number, child in enumerate(self.workers)
        ]

    def look(self) -> None:
        """Look at each worker, at most every LOOK_MS; end those that have to be."""
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        for worker in self._watched:
            pid = worker.child.pid
            if pid is None or pid == worker.ended_pid:
                continue
            self._look_at(worker, pid, now_ms)
            if worker.turns.is_wedged:
                self._end(worker, pid, "wedged", silent_ms=round(worker.turns.silent_ms))
            elif (own := own_bytes(pid) or 0) > self.settings[MEMORY_MAX]:
                self._end(worker, pid, "memory", own_bytes=own)
        self._publish()

    def _look_at(self, worker: _Watched, pid: int, now_ms: int) -> None:
        page = read_turns(page_of(self.paths.run, worker.number))
        thread = state_and_time_of(pid)
        is_begun = page is not None and page.pid == pid
        if thread is None or page is None or not is_begun:
            state, cpu_ms, turns = "", 0.0, 0
        else:
            (state, cpu_ms), turns = thread, page.turns
            if state == SLEEPING and turns == worker.turns.seen_turns and has_running_thread(pid):
                state = RUNNING  # its main thread waits for the interpreter, which another one has
            worker.suspects = page.suspects
        seen = ProcessSeen(at_ms=now_ms, pid=pid, turns=turns, cpu_ms=cpu_ms, state=state)
        worker.turns.look(seen)

    def _end(self, worker: _Watched, pid: int, reason: Reason, **facts: object) -> None:
        worker.ended_pid = pid
        worker.child.signal(signal.SIGKILL)
        at_ms = self.clock.boot_ms()
        key = (worker.number, reason)
        before = self._ended[key].count if key in self._ended else 0
        self._ended[key] = WorkerEnded(
            worker=worker.number, reason=reason, count=before + 1, at_boot_ms=at_ms
        )
        suspects = worker.suspects if reason == "wedged" else ()
        for digest in suspects:
            until_ms = at_ms + self.settings[REFUSED_TEXT_MS]
            self._refused[digest] = RefusedText(digest=digest, until_boot_ms=until_ms)
        _log.error(
            "worker is killed",
            child=worker.child.name,
            pid=pid,
            why=WHY[reason],
            texts=len(suspects),
            **facts,
        )

    def _publish(self) -> None:
        """Write the report if it has changed; what a full disk refuses is tried again."""
        now_ms = self.clock.boot_ms()
        for digest in [d for d, text in self._refused.items() if text.until_boot_ms <= now_ms]:
            del self._refused[digest]
        report = WorkersReport(
            silent=tuple(each.number for each in self._watched if each.turns.is_sick),
            ended=tuple(self._ended.values()),
            refused=tuple(self._refused.values()),
            heavy=self.heavy,
        )
        if report != self._published and self._file.write(report):
            self._published = report
