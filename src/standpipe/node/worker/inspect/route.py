"""`GET /route` and `EXPLAIN ROUTE SELECT …`: which nodes would answer a key, in what order, why.

The holders of the key come from KIP-535's metadata (`node.worker.inspect.kip535`); the verdicts are
those that a read would use at this moment. No row is read. A read with a bound in ms finds out by
the rows that they are too old, wherever they are: of this node's own replica its page says the
same, of a peer's only that it was so as of its last report.

Not here: the verdicts (`control.routing.route`, `node.worker.pull.route_cache`), the statement
(`sql.analyzer`), which rows are too old (`node.worker.pull.forward_checks`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from standpipe.adapters.clock import Clock
from standpipe.control.liveness.lag import known_lag_ms, known_source_lag_ms
from standpipe.control.routing.bounds import LAG_UNBOUNDED, AskedBounds, Bounds
from standpipe.control.routing.key_metadata import KeyQueryMetadata
from standpipe.control.routing.route import Verdict
from standpipe.data.replica.positions import replica_lag_ms, source_lag_ms
from standpipe.errors import BadRequest
from standpipe.model import NodeInfo, ReplicaId, ReplicaStatus, Source
from standpipe.node.worker.inspect.kip535 import Metadata
from standpipe.node.worker.pull.route_cache import RouteCache
from standpipe.node.worker.request.cluster_view import ClusterView, Map, Replicas
from standpipe.sql.plans import PullPlan

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_WORDS = frozenset({"true", "false"})


@dataclass(frozen=True)
class Routes:
    """Routes of one worker, for people and tools."""

    map: Map
    replicas: Replicas
    route_cache: RouteCache
    clock: Clock

    def of(self, table: str, keys: Sequence[str], asked: AskedBounds) -> dict[str, object]:
        """Routes of the partition that holds a key of a table; of all if no key is given.

        Raises BadRequest for an unknown table or a key of the wrong type.
        """
        view = self.map.view
        source = view.sources.get(table) or view.sources.get(table.upper())
        if source is None or not source.is_materialized:
            raise BadRequest(f"{table} is not a table that this cluster serves")
        if keys:
            return self.explain(view.plans.plan(_lookup_text(source, keys), {}), asked)
        metadata = Metadata(view)
        every = [metadata.of_partition(source, number) for number in range(source.partitions)]
        return self._described(view, source, every, asked)

    def explain(self, plan: PullPlan, asked: AskedBounds) -> dict[str, object]:
        """Routes of a pull query."""
        view = self.map.view
        found = Metadata(view).query_metadata_for_plan(plan)
        return self._described(view, plan.source, found, asked)

    def _described(
        self,
        view: ClusterView,
        source: Source,
        found: Sequence[KeyQueryMetadata],
        asked: AskedBounds,
    ) -> dict[str, object]:
        bounds = self.route_cache.bounds(asked, source)
        return {
            "table": source.name,
            "tableId": source.table_id,
            "generation": source.generation,
            "assignmentEpoch": view.snapshot.assignment.epoch,
            "policy": self.route_cache.policy,
            "maxAllowedOffsetLag": _bound(bounds.lag_records_max),
            "maxAllowedReplicaLagMs": _bound(bounds.replica_lag_ms_max),
            "maxAllowedSourceLagMs": _bound(bounds.source_lag_ms_max),
            "standbyReads": bounds.standby_reads,
            "partitions": [self._partition(view, source, each, bounds) for each in found],
        }

    def _partition(
        self, view: ClusterView, source: Source, metadata: KeyQueryMetadata, bounds: Bounds
    ) -> dict[str, object]:
        replica_id = source.replica_id(metadata.partition)
        status = self.replicas.get(replica_id).status()
        verdicts = self.route_cache.of(view, replica_id, status, bounds).verdicts
        return {
            "partition": metadata.partition,
            "activeHost": _host(metadata.active),
            "standbyHosts": [_host(standby) for standby in metadata.standbys],
            "route": [self._line(each, replica_id, status, bounds) for each in verdicts],
        }

    def _line(
        self, verdict: Verdict, replica_id: ReplicaId, status: ReplicaStatus | None, bounds: Bounds
    ) -> dict[str, object]:
        """One replica, with its lags in ms and what they mean for a read with these bounds."""
        boot_ms = self.clock.boot_ms()
        replica_ms = source_ms = None
        known = self.route_cache.peers.state.of(replica_id).lags.get(verdict.node_id)
        if not verdict.is_local and known is not None:
            replica_ms = known_lag_ms(known, boot_ms)
            source_ms = known_source_lag_ms(known, boot_ms)
        elif verdict.is_local and status is not None:
            replica_ms = replica_lag_ms(status, boot_ms)
            source_ms = source_lag_ms(
                status,
                status.source_instant_ms,
                now_ms=self.clock.wall_ms(),
                now_boot_ms=boot_ms,
            )
        late = bounds.late(replica_ms, source_ms) if verdict.ok else ""
        if late and verdict.is_local:
            verdict = replace(verdict, ok=False, why=late)
        elif late and known is not None:
            verdict = replace(verdict, why=f"Its host decides. As of its last report: {late}")
        lags = {"replica_lag_ms": replica_ms, "source_lag_ms": source_ms}
        return {**verdict.describe(boot_ms), **lags}


def _bound(maximum: int) -> int | None:
    return maximum if maximum < LAG_UNBOUNDED else None


def _host(node: NodeInfo | None) -> str | None:
    return node.public if node else None


def _lookup_text(source: Source, keys: Sequence[str]) -> str:
    """The pull query for one key: one value per key column, in the table's order."""
    columns = source.key_columns
    if len(keys) != len(columns):
        names = ", ".join(column.name for column in columns)
        raise BadRequest(f"{source.name} has the key columns {names}: give `key` once for each")
    terms = " AND ".join(
        f"`{column.name}` = {_literal(column.type, key)}"
        for column, key in zip(columns, keys, strict=True)
    )
    return f"SELECT * FROM `{source.name}` WHERE {terms};"  # noqa: S608 planned, never run


def _literal(type_: str, text: str) -> str:
    """A value as an SQL literal. Raises BadRequest, so that no text passes for something else."""
    if type_ == "BOOLEAN" and text.lower() in _WORDS:
        return text
    if type_ in ("INTEGER", "BIGINT", "DOUBLE") or type_.startswith("DECIMAL"):
        if not _NUMBER.fullmatch(text):
            raise BadRequest(f"{text!r} is no {type_}")
        return text
    return "'" + text.replace("'", "''") + "'"
