"""The files in which a tailer tells the workers of its node what rows have read: `run/status`.

    <table id>-<generation>.covered   `CoveredBatches`: replaced before the rows of a batch are
    source-ends                       `ToldEnds`: replaced with each answer of Kafka

What they say stays true while the same queries lead to the table, so files of a tailer that has
ended do no harm. Only reads of a session that has written open them.

Not here: what they say (`data/commit/covered_offsets.py`, `node/tailer/source_ends.py`).
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from standpipe.adapters.files.named_paths import folder_below
from standpipe.adapters.files.published import RecordReader
from standpipe.data.commit.covered_offsets import CoveredBatches, QueryGraph, ToldEnds
from standpipe.model import Snapshot, Source

#: a table and a generation of it
Table = tuple[str, int]


def covered_path(status: Path, table: Table) -> Path:
    """The file of a table. Raises UnsafePath."""
    return folder_below(status, f"{table[0]}-{table[1]}.covered")


def ends_path(status: Path) -> Path:
    """The file with the ends of topics."""
    return status / "source-ends"


class _Way(NamedTuple):
    """What leads to a table, as the map has it that was seen last."""

    digest: str
    since: int
    seen: int


class CoveredFiles:
    """One worker's view of these files. A look costs one `stat` while nothing has changed."""

    def __init__(self, status: Path) -> None:
        self._status = status
        self._tables: dict[Table, RecordReader[CoveredBatches]] = {}
        self._ends = RecordReader(ends_path(status), ToldEnds)
        #: of the newest map
        self._graph = QueryGraph({}, {}, {}, frozenset())
        self._log_index = -1
        self._ways: dict[Table, _Way] = {}

    def way(self, snapshot: Snapshot, source: Source) -> int:
        """The log index since which the same queries lead to a table, as this worker's newest map
        has it: by then what is known of its batches may be kept. The first call for a map looks at
        the whole catalog."""
        if snapshot.log_index > self._log_index:
            self._graph, self._log_index = QueryGraph.of(snapshot), snapshot.log_index
        table = source.table_id or "", source.generation
        known = self._ways.get(table)
        if known is None or known.seen < self._log_index:
            digest = self._graph.way_to(source.query_id or "")
            is_same = known is not None and known.digest == digest
            since = known.since if known is not None and is_same else self._log_index
            known = self._ways[table] = _Way(digest, since, self._log_index)
        return known.since

    def of(self, table: Table) -> CoveredBatches:
        """What the batches of a table cover; none is known if there is no file, or if it was
        written before another query led to the table."""
        reader = self._tables.get(table)
        if reader is None:
            reader = RecordReader(covered_path(self._status, table), CoveredBatches)
            self._tables[table] = reader
        reader.refresh()
        way = self._ways.get(table)
        if reader.record is None or way is None:
            return CoveredBatches()
        return reader.record if reader.record.holds_for(way.digest, way.seen) else CoveredBatches()

    def ends_after(self, boot_ms: int, now_boot_ms: int) -> ToldEnds | None:
        """Where topics ended when Kafka was asked after an instant of the boot clock; None: it has
        not answered since. A file of an earlier boot may have any instant."""
        told = self.newest_ends(now_boot_ms)
        return told if told is not None and boot_ms < told.asked_boot_ms else None

    def newest_ends(self, now_boot_ms: int) -> ToldEnds | None:
        """Where topics ended when Kafka answered last, however long ago; None: it has not answered
        since this machine started."""
        self._ends.refresh()
        told = self._ends.record
        return told if told is not None and told.asked_boot_ms <= now_boot_ms else None

    def keep(self, tables: Container[Table]) -> None:
        """Forget the others."""
        for table in [each for each in self._tables if each not in tables]:
            del self._tables[table]
        for table in [each for each in self._ways if each not in tables]:
            del self._ways[table]
