"""`run/workers`: what the parent knows about the node's workers, for all its processes.

The parent writes it when something changed (`node.supervisor.worker_watch`); workers and the
controller read it. It lists who makes no turns now, whom the parent had to end and why, and which
texts it holds responsible. A node that starts drops it: only the boot clock of this run dates it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from standpipe.adapters.files.published import RecordReader
from standpipe.model import Record

#: How long after a worker was ended the node says that it is not well.
UNWELL_MS: Final = 10_000

Reason = Literal["wedged", "memory"]


class WorkerEnded(Record, frozen=True, kw_only=True):
    """The parent ended a worker. `count`: how often for this reason since the node's start."""

    worker: int
    reason: Reason
    count: int
    #: the newest time
    at_boot_ms: int


class RefusedText(Record, frozen=True, kw_only=True):
    """A text that a worker was executing when it stopped turning."""

    digest: bytes
    until_boot_ms: int


class WorkersReport(Record, frozen=True, kw_only=True):
    """What `run/workers` holds."""

    #: workers that make no turns now
    silent: tuple[int, ...] = ()
    ended: tuple[WorkerEnded, ...] = ()
    refused: tuple[RefusedText, ...] = ()
    #: numbers of the heavy workers
    heavy: tuple[int, ...] = ()

    def are_lookups_held_up(self) -> bool:
        """Whether a worker that makes no turns now has lookups: a heavy one has none."""
        return bool(set(self.silent).difference(self.heavy))

    def has_heavy_ended(self, now_boot_ms: int) -> bool:
        """Whether the parent ended a heavy worker within UNWELL_MS."""
        return any(
            each.worker in self.heavy and now_boot_ms - each.at_boot_ms < UNWELL_MS
            for each in self.ended
        )

    def _name(self, number: int) -> str:
        return f"{'heavy' if number in self.heavy else 'worker'}-{number}"

    def complaint(self, now_boot_ms: int) -> str | None:
        """Why the node is not well because of its workers; None: it is."""
        if self.silent:
            named = ", ".join(map(self._name, self.silent))
            return f"{named}: no turn of the event loop"
        lately = [each for each in self.ended if now_boot_ms - each.at_boot_ms < UNWELL_MS]
        if not lately:
            return None
        newest = max(lately, key=lambda each: each.at_boot_ms)
        age_s = (now_boot_ms - newest.at_boot_ms) / 1000
        return f"{self._name(newest.worker)} was ended {age_s:.0f} s ago: {WHY[newest.reason]}"


#: why a worker was ended, in words
WHY: Final[dict[Reason, str]] = {
    "wedged": "its event loop made no turn (standpipe.worker.turn.timeout.ms)",
    "memory": "it took too much memory (standpipe.worker.memory.bytes.max)",
}
_NOTHING: Final = WorkersReport()


class WorkersReportReader:
    """One process's view of the report."""

    def __init__(self, path: Path) -> None:
        self._file = RecordReader(path, WorkersReport)

    def refresh(self) -> bool:
        """Read it if it has changed. True: it has."""
        return self._file.refresh()

    @property
    def report(self) -> WorkersReport:
        """The newest one that was read; an empty one before that."""
        return self._file.record or _NOTHING
