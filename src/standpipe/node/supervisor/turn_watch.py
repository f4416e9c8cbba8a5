"""Whether a worker is wedged: its event loop makes no turn although it could. Pure.

Silence adds up from one look to the next until the next turn, and not all of it counts:

| the process | counts |
|---|---|
| runs, or waits for a processor | the processor time that it had: a starved worker is not wedged |
| sleeps while another of its threads runs: it waits for the interpreter | likewise |
| sleeps (a lock, a read that blocks), is stopped | the time that passed |
| waits for a disk, is traced by a debugger | nothing: killing it would not help, or is not wanted |

From one look to the next at most LOOK_MS_MAX counts: the watcher that was itself stopped or starved
(a suspended machine, SIGSTOP of the whole node) knows nothing about the time in between. A worker
whose loop has not begun is starting, and not watched.

Not here: how a process is observed, and what happens to it (`node.supervisor.worker_watch`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: How often the watcher looks, and how much of a longer gap counts.
LOOK_MS: Final = 100
LOOK_MS_MAX: Final = 250
#: A worker that is silent for this share of the limit is reported as sick.
SICK_SHARE: Final = 0.5

RUNNING: Final = "R"
SLEEPING: Final = "S"
#: letters of /proc/<pid>/stat for which the time that passed counts
IDLE: Final = frozenset("STI")


@dataclass(frozen=True)
class ProcessSeen:
    """A worker at one look. Instants in ms on a monotonic clock."""

    at_ms: float
    pid: int
    turns: int
    #: processor time of all its threads since its start
    cpu_ms: float
    #: of /proc/<pid>/stat, of its main thread; RUNNING also if that waits for another one
    state: str


class TurnWatch:
    """The silence of one worker. `limit_ms`: 0 never calls it wedged."""

    def __init__(self, limit_ms: float) -> None:
        self._limit_ms = limit_ms
        self._last: ProcessSeen | None = None
        self.silent_ms = 0.0

    @property
    def seen_turns(self) -> int:
        """How many turns the last look found; 0: none."""
        return self._last.turns if self._last else 0

    def look(self, seen: ProcessSeen) -> None:
        """Take what a look found."""
        last, self._last = self._last, seen
        if last is None or last.pid != seen.pid or seen.turns != last.turns or seen.turns == 0:
            self.silent_ms = 0.0
            return
        passed_ms = min(seen.at_ms - last.at_ms, LOOK_MS_MAX)
        if seen.state == RUNNING:
            passed_ms = min(passed_ms, seen.cpu_ms - last.cpu_ms)
        elif seen.state not in IDLE:
            passed_ms = 0.0
        self.silent_ms += max(0.0, passed_ms)

    @property
    def is_wedged(self) -> bool:
        """Whether it was silent for as long as the limit."""
        return 0 < self._limit_ms <= self.silent_ms

    @property
    def is_sick(self) -> bool:
        """Whether it has been silent for so long that reads should go elsewhere."""
        return 0 < self._limit_ms * SICK_SHARE <= self.silent_ms
