"""What pipelines said of their queries, and whether that may still be so. Pure.

Pipelines report once a second, to every node. The newest report of a query stands; a pipeline with
an older lease epoch is not heard. Whoever says nothing for long may be dead: what it said of a
query that runs is no news then, and the query is UNRESPONSIVE (a state of ksqlDB's). Silence is
measured by the receiver's clock, so that of the pipeline's machine cannot matter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from standpipe.model import QueryStatus

#: ten reports did not come
SILENT_MS: Final = 10_000
#: states that last only as long as somebody works on it
_LIVELY: Final = frozenset({"STARTING", "RUNNING", "RETRYING"})


class QueryReports:
    """The newest report of each query, in memory only. `now_ms`: a clock that never goes back."""

    def __init__(self) -> None:
        self._newest: dict[str, QueryStatus] = {}
        self._heard_ms: dict[str, int] = {}

    @property
    def newest(self) -> Mapping[str, QueryStatus]:
        """As they were said, by query id."""
        return self._newest

    def take(self, statuses: Sequence[QueryStatus], now_ms: int) -> None:
        """A pipeline said so."""
        for status in statuses:
            if status.state == "UNRESPONSIVE":
                continue  # nobody says so of himself
            known = self._newest.get(status.query_id)
            if known is None or status.lease_epoch >= known.lease_epoch:
                self._newest[status.query_id] = status
                self._heard_ms[status.query_id] = now_ms

    def shown(self, queries: Collection[str], now_ms: int) -> tuple[QueryStatus, ...]:
        """To be shown of these queries; nothing of one that no pipeline ever named."""
        reported = (self._newest[query] for query in queries if query in self._newest)
        return tuple(self._as_of_now(status, now_ms) for status in reported)

    def _as_of_now(self, status: QueryStatus, now_ms: int) -> QueryStatus:
        silent_ms = now_ms - self._heard_ms[status.query_id]
        if silent_ms < SILENT_MS or status.state not in _LIVELY:
            return status
        by = f"Pipeline {status.pipeline_id}" if status.pipeline_id else "Its pipeline"
        why = f"{by} has told this node nothing for over {SILENT_MS // 1000} s"
        message = f"{why}: is it running, and does it reach this node?"
        return msgspec.structs.replace(status, state="UNRESPONSIVE", reason="", message=message)
