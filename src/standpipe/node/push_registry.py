"""The push queries of a node, known to all of its workers: one empty file per query.

    run/push/worker-<k>/<query id>

Workers share a port and no memory, so a request to close a query may reach any of them. That worker
removes the file, and the query's own worker checks its files every 20 ms (`ended`).
`ksql.max.push.queries` bounds the number of files. A killed worker leaves its files; the next one
with its number removes them, and a node removes all when it starts.

Not here: the queries (`node.worker.push`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from standpipe.errors import TooManyPushQueries


class PushRegistry:
    """The board as one worker sees it. `folder`: run/push."""

    def __init__(self, folder: Path, worker: int, queries_max: int) -> None:
        self._folder = folder
        self._own = folder / f"worker-{worker}"
        self._queries_max = queries_max
        shutil.rmtree(self._own, ignore_errors=True)
        self._own.mkdir(parents=True, exist_ok=True)

    def begin(self, query_id: str) -> None:
        """Register a query. Raises TooManyPushQueries.

        If two compete for the last place, both may be refused, but never both served: each counts
        the files after making its own."""
        path = self._own / query_id
        path.touch()
        if sum(1 for _ in self._folder.glob("*/*")) > self._queries_max:
            path.unlink(missing_ok=True)
            raise TooManyPushQueries(
                "Maximum number of push queries exceeded", queries_max=self._queries_max
            )

    def end(self, query_id: str) -> None:
        """Remove a query of this worker."""
        (self._own / query_id).unlink(missing_ok=True)

    def close(self, query_id: str) -> bool:
        """Ask for the end of a query of any worker of the node; False: no query has that id."""
        for path in self._folder.glob("*/*"):
            if path.name == query_id:  # compared, never used as a path: clients send it
                path.unlink(missing_ok=True)
                return True
        return False

    def ended(self, query_ids: Iterable[str]) -> set[str]:
        """Those of this worker's queries that were closed."""
        return set(query_ids) - {path.name for path in self._own.iterdir()}


def clear(folder: Path) -> None:
    """Remove what an earlier run of the node left."""
    shutil.rmtree(folder, ignore_errors=True)
