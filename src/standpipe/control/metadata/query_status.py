"""The pipelines' newest reports about their queries, and when these are too old. Pure.

Pipelines report once a second, to every node. The newest report of a query counts; a report with an
older lease epoch is ignored. A pipeline that has been silent for SILENT_MS may be dead: its reports
of running queries no longer hold, and those queries are shown as UNRESPONSIVE (a state of
ksqlDB's). Silence is measured by the receiver's clock, so the clock of the pipeline's machine does
not matter.

Not here: the route (`node.controller.main`), how a state is shown (`node.worker.statements.show`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from standpipe.model import QueryStatus

#: ten reports in a row are missing
SILENT_MS: Final = 10_000
#: states that last only while a pipeline works on the query
_LIVELY: Final = frozenset({"STARTING", "RUNNING", "RETRYING"})


class QueryReports:
    """The newest report of each query, in memory only. `now_ms`: a clock that never goes back."""

    def __init__(self) -> None:
        self._newest: dict[str, QueryStatus] = {}
        self._heard_ms: dict[str, int] = {}

    @property
    def newest(self) -> Mapping[str, QueryStatus]:
        """The newest report of each query, as it was received."""
        return self._newest

    def take(self, statuses: Sequence[QueryStatus], now_ms: int) -> None:
        """Record a pipeline's reports."""
        for status in statuses:
            if status.state == "UNRESPONSIVE":
                continue  # no pipeline reports this state
            known = self._newest.get(status.query_id)
            if known is None or status.lease_epoch >= known.lease_epoch:
                self._newest[status.query_id] = status
                self._heard_ms[status.query_id] = now_ms

    def shown(
        self, queries: Collection[str], now_ms: int, without_driver: Mapping[str, str] | None = None
    ) -> tuple[QueryStatus, ...]:
        """The states to show of these queries, which are all; none for a query without a report.
        What was said of others is forgotten after a while: this node may only be behind.

        `without_driver`: queries that nobody runs, and what to do (`isolation.without_driver`).
        """
        for query in [q for q, at_ms in self._heard_ms.items() if now_ms - at_ms >= SILENT_MS]:
            if query not in queries:
                del self._newest[query], self._heard_ms[query]
        shown: list[QueryStatus] = []
        for query in queries:
            status = self._newest.get(query)
            if status is not None:
                status = self._as_of_now(status, now_ms)
            if message := (without_driver or {}).get(query):
                status = _waits_for_driver(query, status, message)
            if status is not None:
                shown.append(status)
        return tuple(shown)

    def _as_of_now(self, status: QueryStatus, now_ms: int) -> QueryStatus:
        silent_ms = now_ms - self._heard_ms[status.query_id]
        if silent_ms < SILENT_MS or status.state not in _LIVELY:
            return status
        by = f"Pipeline {status.pipeline_id}" if status.pipeline_id else "Its pipeline"
        why = f"{by} has sent this node no report for over {SILENT_MS // 1000} s"
        message = f"{why}: is it running, and does it reach this node?"
        return msgspec.structs.replace(status, state="UNRESPONSIVE", reason="", message=message)


def _waits_for_driver(query: str, status: QueryStatus | None, message: str) -> QueryStatus:
    """A failure stays; anything else that was reported is from before."""
    status = status or QueryStatus(query_id=query, state="UNRESPONSIVE")
    if status.state not in {*_LIVELY, "STOPPED", "UNRESPONSIVE"}:
        return status
    return msgspec.structs.replace(status, state="UNRESPONSIVE", reason="", message=message)
