"""TERMINATE, PAUSE and RESUME: which queries they mean, and which they may not name.

Source: ksqlDB's ValidatedCommandFactory. Not here: what ends with a query (`control.metadata`).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from standpipe.control.ddl import transients
from standpipe.control.ddl.responses import StatementReply, warning
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import Receipt, SetQueryState, TerminateQuery
from standpipe.errors import StatementError
from standpipe.sql.plans import PausePlan, TerminatePlan


@dataclass(frozen=True)
class QueryStates:
    """One such statement against one catalog."""

    catalog: Catalog
    statement: str
    request_id: str

    def terminate(self, plan: TerminatePlan) -> TerminateQuery | StatementReply:
        """Raises StatementError for an id that may not be named. Without one, ksqlDB ends only
        persistent queries, and those of source tables too."""
        queries = self.catalog.persistent_queries
        query_id = transients.named(plan.query_id, self.catalog)
        if query_id is None and not queries:
            return warning(self.statement, "No query is running.")
        if query_id is not None:
            self._check(query_id, plan.query_id, self.catalog.queries)
            self._check_not_of_source_table(query_id)
        return TerminateQuery(
            query_ids=tuple(queries) if query_id is None else (query_id,),
            request_id=self.request_id,
            receipt=self._receipt("terminate", plan.query_id, "Query terminated."),
        )

    def pause(self, plan: PausePlan) -> SetQueryState | StatementReply:
        """Raises StatementError for an unknown id. The query of a source table may be paused, which
        ksqlDB refuses: PAUSE and RESUME start one again that has failed."""
        queries = self.catalog.persistent_queries
        if plan.query_id is not None:
            self._check(plan.query_id, plan.query_id, queries)
        if not queries:
            return warning(self.statement, "There are no queries.")
        verb = "pause" if plan.state == "PAUSED" else "resume"
        return SetQueryState(
            query_ids=tuple(queries) if plan.query_id is None else (plan.query_id,),
            state=plan.state,
            request_id=self.request_id,
            receipt=self._receipt(verb, plan.query_id, f"Query {verb}d."),
        )

    def _check(self, query_id: str, asked: str | None, known: Container[str]) -> None:
        if query_id not in known:
            raise StatementError(f"Unknown queryId: {asked}", statement=self.statement)

    def _check_not_of_source_table(self, query_id: str) -> None:
        """The table would stay, and no statement could start its query again."""
        for source in self.catalog.sources.values():
            if source.is_read_only and source.query_id == query_id:
                raise StatementError(
                    f"Cannot terminate query '{query_id}' because it is linked to a source table.",
                    statement=self.statement,
                    hint=f"DROP TABLE {source.name} ends it.",
                )

    def _receipt(self, verb: str, asked: str | None, message: str) -> Receipt:
        return Receipt(
            statement=self.statement,
            command_id=f"{verb}/{asked or 'ALL'}/execute",
            message=message,
        )
