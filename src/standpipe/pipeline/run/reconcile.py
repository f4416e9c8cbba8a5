"""Which runs to start and which to stop: a pure comparison of the catalog with what is running.

A pipeline wants the queries whose leases it holds. When a lease is granted again, to this pipeline
or to another one, the run under the old lease epoch ends; the next one begins under the new epoch.

Not here: what a wanted query is (`pipeline/wanted.py`); starting and stopping (`scheduler.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.holds import held_queries
from standpipe.control.metadata.isolation import SHARED, isolation_of
from standpipe.data.commit.committed import written_by_one_query
from standpipe.model import LeaseEpoch, LogIndex, Record
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.wanted import WantedQuery


class PipelineRegistration(Record, frozen=True, kw_only=True):
    """A pipeline that the metadata log has registered (`POST /pipeline/start`).

    `lease_epoch`: the epoch that the log gave it; `log_index`: the entry that did so. `isolates`:
    the isolated name whose queries it runs; empty: it is shared.
    """

    pipeline_id: str
    lease_epoch: LeaseEpoch
    log_index: LogIndex
    isolates: str = SHARED

    def is_over(self, catalog: Catalog) -> bool:
        """Whether the name that it was started for is no longer isolated."""
        return self.isolates != SHARED and self.isolates not in catalog.isolated


@dataclass(frozen=True)
class StartRun:
    """Start a run that is not here."""

    wanted: WantedRun


@dataclass(frozen=True)
class StopRun:
    """Stop a run and forget it."""

    run_id: str


RunOrder = StartRun | StopRun


def lease_epoch_of(query_id: str, catalog: Catalog, me: PipelineRegistration) -> LeaseEpoch | None:
    """The lease epoch under which this pipeline writes the query; None: it does not hold the lease.

    Below the feature level of leases, the newest pipeline writes all queries.
    """
    if catalog.feature_level < feature_levels.LEASES:
        return me.lease_epoch if catalog.pipeline_epoch <= me.lease_epoch else None
    lease = catalog.leases.get(query_id)
    return lease.lease_epoch if lease and lease.pipeline_id == me.pipeline_id else None


def wanted_queries(catalog: Catalog, me: PipelineRegistration) -> dict[str, WantedQuery]:
    """The queries whose leases this pipeline holds, by query id."""
    return _queries(catalog, lambda query_id: lease_epoch_of(query_id, catalog, me))


def every_query(catalog: Catalog, isolates: str = SHARED) -> list[WantedQuery]:
    """The queries of all pipelines that are started for that name (default: shared ones), which
    each of them may have to take over. Lease epoch 0."""

    def epoch_of(query_id: str) -> LeaseEpoch | None:
        name = isolation_of(catalog.queries[query_id], catalog.isolated)
        return LeaseEpoch(0) if name == isolates else None

    return list(_queries(catalog, epoch_of).values())


def external_query(catalog: Catalog, query_id: str, me: PipelineRegistration) -> WantedQuery | None:
    """The external query that this process, a user's application, holds the lease of; None: it does
    not, or the query is paused or gone."""
    epoch, query = lease_epoch_of(query_id, catalog, me), catalog.queries.get(query_id)
    if epoch is None or query is None or query.state != "RUNNING":
        return None
    table = catalog.sources[query.sink]
    # measured from the start: its program could not be told afterwards that Kafka refused a row
    return WantedQuery(query=query, table=table, lease_epoch=epoch, measures_rows=True)


def _queries(
    catalog: Catalog, epoch_of: Callable[[str], LeaseEpoch | None]
) -> dict[str, WantedQuery]:
    """The queries that should run, whose table exists and that have an epoch, by id."""
    written = written_by_one_query(catalog.sources.values())
    sinks = {source.query_id: source for source in catalog.generations}
    held = held_queries(catalog)
    successors = {source.query_id for source in catalog.successors.values()}
    return {
        query.query_id: WantedQuery(
            query=query,
            table=(sinks.get(query.query_id) or catalog.sources[query.sink]).stored_form(),
            is_successor=query.query_id in successors,
            is_held=query.query_id in held,
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
        if not query.is_external  # which only a user's application can run
        and (query.state == "RUNNING" or query.query_id in held)
        and (query.query_id in sinks or query.sink in catalog.sources)
        and (epoch := epoch_of(query.query_id)) is not None
    }


def diff(wanted: Sequence[WantedRun], running: Mapping[str, WantedRun]) -> list[RunOrder]:
    """Orders that make `running` equal `wanted`: stops first, then starts in the catalog's order.

    A run whose queries or whose members are others is stopped and started.
    """
    stays = {
        run.run_id for run in wanted if run.run_id in running and _is_same(running[run.run_id], run)
    }
    stops: list[RunOrder] = [StopRun(run_id) for run_id in running if run_id not in stays]
    starts = [StartRun(run) for run in wanted if run.run_id not in stays]
    return stops + starts


def _is_same(run: WantedRun, other: WantedRun) -> bool:
    # an identity has a digest of each plan; nearly always, nothing at all has changed
    return run == other or run.identity == other.identity
