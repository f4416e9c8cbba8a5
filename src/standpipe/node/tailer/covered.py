"""Tells the workers which source offsets the batches of this node's tables cover.

A table's file is replaced before the rows of a batch are, so a read that finds new rows finds what
they cover, too. What is known is taken up again from the file after a restart.

Not here: what is covered (`data/commit/covered_offsets.py`), the files (`node/covered_files.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from standpipe.adapters.files.published import RecordReader, RecordWriter
from standpipe.data.commit.commit_history import CommitHistory
from standpipe.data.commit.covered_offsets import Chains, CoveredBatches, QueryGraph
from standpipe.data.replica.holdings import Holding
from standpipe.model import Snapshot
from standpipe.node.covered_files import Table, covered_path


class _TableFile:
    """What is told of one table."""

    def __init__(self, path: Path, query_id: str) -> None:
        self.path, self.query_id = path, query_id
        self._writer = RecordWriter(path)
        reader = RecordReader(path, CoveredBatches)
        reader.refresh()
        self._told = reader.record or CoveredBatches()
        #: the queries on the way to it, itself among them
        self.chain: frozenset[str] = frozenset()

    def tell(self, chains: Chains, way: str, log_index: int) -> bool:
        """A query of its chain has committed, or the chain is another one. False: the disk refused.
        `way`: of `QueryGraph.way_to`, by the catalog at `log_index`."""
        newest = chains.newest(self.query_id)
        if newest is None:
            return True
        known = self._told.on_way(way, log_index).after(newest)
        if known is self._told:
            return True
        if not self._writer.write(known):
            return False
        self._told = known
        return True


class CoveredTables:
    """The files of one tailer."""

    def __init__(self, status: Path) -> None:
        self._status = status
        self._snapshot: Snapshot | None = None
        self._graph: QueryGraph | None = None
        self._files: dict[Table, _TableFile] = {}
        #: files to bring up to date, whatever has been committed
        self._due = set[Table]()
        self._history: CommitHistory | None = None

    def follow(self, snapshot: Snapshot, holdings: Iterable[Holding]) -> None:
        """A newer map: open files for the tables that this node holds, remove the others."""
        if snapshot is self._snapshot:
            return
        self._snapshot, graph = snapshot, QueryGraph.of(snapshot)
        if graph != self._graph:
            self._graph = graph
            self._due = set(self._files)
        held = {each.replica_id[:2]: each.query_id for each in holdings if each.query_id}
        for table in self._files.keys() - held.keys():
            self._files.pop(table).path.unlink(missing_ok=True)
            self._due.discard(table)
        for table in held.keys() - self._files.keys():
            self._files[table] = _TableFile(covered_path(self._status, table), held[table])
            self._due.add(table)

    def tell(self, history: CommitHistory) -> None:
        """After the progress topic was read to its end: write what has changed. `history`: of all
        its commits; another one than before: it was read again."""
        news = history.take_news()
        if self._graph is None or self._snapshot is None:
            return
        if history is not self._history:
            self._history, self._due = history, set(self._files)
        if not news and not self._due:
            return
        graph, chains = self._graph, Chains(self._graph, history)
        refused = set[Table]()
        for table, file in self._files.items():
            if table in self._due or not file.chain.isdisjoint(news):
                file.chain = chains.before(file.query_id)
                way = graph.way_to(file.query_id)
                if not file.tell(chains, way, self._snapshot.log_index):
                    refused.add(table)
        self._due = refused  # once more, whatever is committed
