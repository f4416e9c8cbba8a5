"""The files in which a tailer tells the workers of its node what rows have read: `run/status`.

    <table id>-<generation>.covered   `CoveredBatches`: replaced before the rows of a batch are
    source-ends                       `ToldEnds`: replaced with each answer of Kafka

What they say stays true, so files of a tailer that has ended do no harm. Only reads of a session
that has written open them.

Not here: what they say (`data/commit/covered_offsets.py`, `node/tailer/source_ends.py`).
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from standpipe.adapters.files.named_paths import folder_below
from standpipe.adapters.files.published import RecordReader
from standpipe.data.commit.covered_offsets import CoveredBatches, ToldEnds

#: a table and a generation of it
Table = tuple[str, int]


def covered_path(status: Path, table: Table) -> Path:
    """The file of a table. Raises UnsafePath."""
    return folder_below(status, f"{table[0]}-{table[1]}.covered")


def ends_path(status: Path) -> Path:
    """The file with the ends of topics."""
    return status / "source-ends"


class CoveredFiles:
    """One worker's view of these files. A look costs one `stat` while nothing has changed."""

    def __init__(self, status: Path) -> None:
        self._status = status
        self._tables: dict[Table, RecordReader[CoveredBatches]] = {}
        self._ends = RecordReader(ends_path(status), ToldEnds)

    def of(self, table: Table) -> CoveredBatches:
        """What the batches of a table cover; none is known if there is no file."""
        reader = self._tables.get(table)
        if reader is None:
            reader = RecordReader(covered_path(self._status, table), CoveredBatches)
            self._tables[table] = reader
        reader.refresh()
        return reader.record or CoveredBatches()

    def ends_after(self, boot_ms: int, now_boot_ms: int) -> ToldEnds | None:
        """Where topics ended when Kafka was asked after an instant of the boot clock; None: it has
        not answered since. A file of an earlier boot may have any instant."""
        self._ends.refresh()
        told = self._ends.record
        if told is None or not boot_ms < told.asked_boot_ms <= now_boot_ms:
            return None
        return told

    def keep(self, tables: Container[Table]) -> None:
        """Forget the others."""
        for table in [each for each in self._tables if each not in tables]:
            del self._tables[table]
