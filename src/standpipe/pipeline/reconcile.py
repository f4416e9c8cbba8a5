"""Which queries are to be started and stopped: a pure comparison of catalog and reality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from standpipe.control.catalog import Catalog
from standpipe.model import PersistentQuery, Source
from standpipe.pipeline.checkpoint import plan_digest
from standpipe.sql.stored import stored


@dataclass(frozen=True, kw_only=True)
class WantedQuery:
    """A query that ought to run, and the table that it fills."""

    query: PersistentQuery
    table: Source
    #: {topic that it reads: id of the query of ours that writes it}
    writers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def query_id(self) -> str:
        return self.query.query_id

    @property
    def identity(self) -> tuple[str | None, int, str]:
        """What cannot change under a running query: another table, or another plan."""
        return (self.table.table_id, self.table.generation, plan_digest(self.query.plan))


@dataclass(frozen=True)
class StartQuery:
    """Start it; it is not known here."""

    wanted: WantedQuery


@dataclass(frozen=True)
class StopQuery:
    """Stop it and forget it."""

    query_id: str


Order = StartQuery | StopQuery


def wanted_queries(catalog: Catalog) -> dict[str, WantedQuery]:
    """Query id -> query, of those that the catalog wants running and whose table exists."""
    # By topic, not by name: a topic may be declared under several. One that others write too (by
    # INSERT INTO, or below a CREATE SOURCE TABLE) is read as it is: no progress names all its rows.
    written = {
        source.topic: source.query_id
        for source in catalog.sources.values()
        if source.query_id is not None and source.changelog is None and not source.takes_inserts
    }
    return {
        query.query_id: WantedQuery(
            query=query,
            table=stored(catalog.sources[query.sink]),
            writers={
                source.topic: written[source.topic]
                for source in query.plan.inputs
                if source.topic in written
            },
        )
        for query in catalog.queries.values()
        if query.state == "RUNNING" and query.sink in catalog.sources
    }


def diff(wanted: Mapping[str, WantedQuery], running: Mapping[str, WantedQuery]) -> list[Order]:
    """Orders that make `running` equal `wanted`: stops first, then starts in the catalog's order.

    A query that was dropped and made again under its old id is stopped and started.
    """
    stays = {
        query_id
        for query_id, known in running.items()
        if query_id in wanted and wanted[query_id].identity == known.identity
    }
    stops: list[Order] = [StopQuery(query_id) for query_id in running if query_id not in stays]
    starts = [StartQuery(query) for query_id, query in wanted.items() if query_id not in stays]
    return stops + starts
