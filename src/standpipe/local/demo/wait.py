"""Waits for the demo's progress: running queries, events in tables, replicas at committed ends.

Not here: the follower of the progress topic (`progress.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from standpipe.adapters.http.sync_client import SyncClient
from standpipe.errors import ServerError
from standpipe.local.client import status
from standpipe.local.demo.progress import DemoProgress

STALL_S_MAX = 240.0  # no progress for this long is a fault, even on a busy machine
LOOK_EVERY_S = 0.1


class Arrival:
    """Waits for the pipeline and the replicas. `tail_of_log`: the end of the pipeline's log.

    Every wait raises ServerError when there is no progress for STALL_S_MAX.
    """

    def __init__(
        self,
        nodes: Sequence[tuple[str, str]],
        progress: DemoProgress,
        topic: str,
        tail_of_log: Callable[[], str],
    ) -> None:
        self._nodes = nodes
        self._progress = progress
        self._topic = topic
        self._tail_of_log = tail_of_log
        #: table -> id of the query that fills it; set when the tables exist
        self.queries: Mapping[str, str] = {}

    def wait_for_queries(self) -> None:
        """Wait until the pipeline reports each query as running."""
        wanted = set(self.queries.values())
        self._wait(lambda: len(wanted - self._running()), "queries do not run")

    def wait_for_events(self, count: int, show: Callable[[int], None] | None = None) -> None:
        """Wait until every query has committed `count` events; `show` gets the number so far."""

        def missing() -> int:
            done = self.events_in_tables()
            if show is not None:
                show(done)
            return max(0, count - done)

        self._wait(missing, f"of {count:,} events are not in the tables")

    def wait_for_replicas(self, copies: int = 2) -> None:
        """Wait until every replica on every node has applied what is committed now. `copies`: of
        each table partition; those of a node that does not answer are behind, too."""
        with SyncClient(timeout_s=1.0) as http:
            behind = "replicas trail the committed end"
            self._wait(lambda: self._replicas_behind(http, copies), behind)

    def events_in_tables(self) -> int:
        """Number of events that every table has."""
        queries = self.queries.values()
        return min((self._progress.events(query, self._topic) for query in queries), default=0)

    def _running(self) -> set[str]:
        found: set[str] = set()
        for query in status.gather(self._nodes).queries:
            said = cast(Mapping[str, Any], query.get("standpipe") or {})
            if said.get("state") == "RUNNING":
                found.add(str(query["id"]))
        return found

    def _replicas_behind(self, http: SyncClient, copies: int) -> int:
        found: list[status.ReplicaView] = []
        for node_id, public in self._nodes:
            node = status.NodeView(node_id=node_id, public=public, is_up=True)
            found += status.ask_replicas(http, node)
        ends = {query: self._progress.sinks(query) for query in self.queries.values()}
        held = [replica for replica in found if replica.query_id in ends]
        behind = sum(
            replica.position is None
            or replica.position < ends[replica.query_id].get(replica.partition, 0)
            for replica in held
        )
        wanted = min(copies, len(self._nodes)) * sum(map(len, ends.values()))
        return behind + max(0, wanted - len(held))

    def _wait(self, left: Callable[[], int], what: str) -> None:
        """Wait until nothing is left; each change restarts the time-out STALL_S_MAX."""
        before, moved = -1, time.monotonic()
        while (now := left()) > 0:
            if now != before:
                before, moved = now, time.monotonic()
            elif time.monotonic() - moved > STALL_S_MAX:
                tail = self._tail_of_log()
                raise ServerError(
                    f"nothing moved for {STALL_S_MAX:.0f} s: {now:,} {what}; "
                    f"the pipeline's log ends with\n{tail}"
                )
            time.sleep(LOOK_EVERY_S)
