"""Which queries are to be started and stopped: a pure comparison of catalog and reality.

A pipeline wants the queries that it holds a lease of. One that was granted anew, to whomever, ends
under the old lease epoch and begins under the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.catalog import Catalog
from standpipe.model import LeaseEpoch, LogIndex, PersistentQuery, Record, Source
from standpipe.pipeline.commit.checkpoint import plan_digest
from standpipe.sql.stored import stored


class Registration(Record, frozen=True, kw_only=True):
    """A pipeline as the log knows it: by `POST /pipeline/start` it was given an epoch and told
    where the log says so."""

    pipeline_id: str
    lease_epoch: LeaseEpoch
    log_index: LogIndex


@dataclass(frozen=True, kw_only=True)
class WantedQuery:
    """A query that ought to run here, and the table that it fills."""

    query: PersistentQuery
    table: Source
    lease_epoch: LeaseEpoch
    #: {topic that it reads: id of the query of ours that writes it}
    writers: Mapping[str, str] = field(default_factory=dict[str, str])
    #: {topic that it reads: how many partitions its declaration says}
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])
    #: its table is built beside the one that reads go to
    is_successor: bool = False
    #: the sizes of its rows are looked at, for Kafka has refused one; of this pipeline alone
    looks_at_sizes: bool = False

    @property
    def query_id(self) -> str:
        return self.query.query_id

    @property
    def identity(self) -> tuple[object, ...]:
        """What cannot change under a running query: another table, plan or lease, who writes what
        it reads, or where its rows are published."""
        plan = plan_digest(self.query.plan)
        table = (self.table.table_id, self.table.generation)
        writers = tuple(sorted(self.writers.items()))
        return (*table, plan, self.lease_epoch, writers, self.published_topic)

    @property
    def published_topic(self) -> str | None:
        """Where the table's rows are written for others, too. Not before reads go to it."""
        return None if self.is_successor else self.table.public_topic


@dataclass(frozen=True)
class StartQuery:
    """Start it; it is not known here."""

    wanted: WantedQuery


@dataclass(frozen=True)
class StopQuery:
    """Stop it and forget it."""

    query_id: str


Order = StartQuery | StopQuery


def lease_epoch_of(query_id: str, catalog: Catalog, me: Registration) -> LeaseEpoch | None:
    """Under which lease epoch this pipeline writes the query; None: another one does, or none.

    Below the feature level of leases, the newest pipeline writes all queries.
    """
    if catalog.feature_level < feature_levels.LEASES:
        return me.lease_epoch if catalog.pipeline_epoch <= me.lease_epoch else None
    lease = catalog.leases.get(query_id)
    return lease.lease_epoch if lease and lease.pipeline_id == me.pipeline_id else None


def wanted_queries(catalog: Catalog, me: Registration) -> dict[str, WantedQuery]:
    """Query id -> query, of those that are this pipeline's to run."""
    return _queries(catalog, lambda query_id: lease_epoch_of(query_id, catalog, me))


def every_query(catalog: Catalog) -> list[WantedQuery]:
    """Those that any pipeline runs, under no lease: what one may have to take over."""
    return list(_queries(catalog, lambda _: LeaseEpoch(0)).values())


def _queries(
    catalog: Catalog, epoch_of: Callable[[str], LeaseEpoch | None]
) -> dict[str, WantedQuery]:
    """Query id -> query, of those that should run, whose table exists, and that have an epoch."""
    # By topic, not by name: a topic may be declared under several. One that others write too (by
    # INSERT INTO, or below a CREATE SOURCE TABLE) is read as it is: no progress names all its rows.
    written = {
        source.topic: source.query_id
        for source in catalog.sources.values()
        if source.query_id is not None and source.changelog is None and not source.takes_inserts
    }
    sinks = {source.query_id: source for source in catalog.generations}
    successors = {source.query_id for source in catalog.successors.values()}
    return {
        query.query_id: WantedQuery(
            query=query,
            table=stored(sinks.get(query.query_id) or catalog.sources[query.sink]),
            is_successor=query.query_id in successors,
            lease_epoch=epoch,
            writers={
                source.topic: written[source.topic]
                for source in query.plan.inputs
                if source.topic in written
            },
            partitions={
                each.topic: catalog.sources[each.source].partitions
                for each in query.plan.inputs
                if each.source in catalog.sources
            },
        )
        for query in catalog.queries.values()
        if query.state == "RUNNING"
        and query.sink in catalog.sources
        and (epoch := epoch_of(query.query_id)) is not None
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
