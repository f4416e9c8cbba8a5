"""Entities of DESCRIBE and SHOW … EXTENDED: all that this node knows of a stream or a table. Pure.

Source: ksqlDB's rest model (SourceDescription). Ours is under `standpipe`. Not here: listings, and
what a query is like (`node.worker.statements.show`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from standpipe.control.liveness.lag import NO_END
from standpipe.control.routing.bounds import of_table
from standpipe.model import Column, NodeId, ReplicaId, Source
from standpipe.node.worker.request.answer import describe
from standpipe.node.worker.statements.show import (
    Entity,
    Scene,
    entity,
    progress_percent,
    query_item,
    schema,
)
from standpipe.sql.declarations.published import public_form
from standpipe.sql.types.types import parse_type


def each_described(scene: Scene, kind: str) -> Iterator[dict[str, object]]:
    """The items of SHOW STREAMS EXTENDED and SHOW TABLES EXTENDED, made one by one."""
    return (_described(scene, s, extended=True) for s in scene.snapshot.sources if s.kind == kind)


def source_descriptions(text: str, items: Sequence[msgspec.Raw]) -> Entity:
    """SHOW STREAMS EXTENDED and SHOW TABLES EXTENDED, of encoded items."""
    return entity("source_descriptions", text, sourceDescriptions=items)


def source_description(scene: Scene, source: Source, text: str, *, extended: bool) -> Entity:
    """DESCRIBE, and DESCRIBE EXTENDED."""
    described = _described(scene, source, extended=extended)
    return entity("sourceDescription", text, sourceDescription=described)


def _described(scene: Scene, source: Source, *, extended: bool) -> dict[str, object]:
    writers, readers = scene.writers_of(source), scene.readers_of(source)
    public = public_form(source)
    return {
        "name": source.name,
        "windowType": source.window.kind if source.window else None,
        "readQueries": [query_item(scene, query) for query in readers],
        "writeQueries": [query_item(scene, query) for query in writers],
        "fields": [field_of(column, source) for column in shown_columns(source)],
        "type": source.kind,
        "timestamp": source.timestamp_column or "",
        "statistics": "",
        "errorStats": "",
        "extended": extended,
        "keyFormat": public.key_format,
        "valueFormat": public.value_format,
        "topic": public.topic,
        "partitions": source.partitions if extended else 0,
        "replication": 0,
        "statement": source.statement,
        "queryOffsetSummaries": list[object](),
        "sourceConstraints": sorted({s for query in writers for s in query.sources}),
        "standpipe": {
            "tableId": source.table_id,
            "keyFormat": source.key_format,  # of the keys by which reads find their partition
            "generation": source.generation,
            "isMaterialized": source.is_materialized,
            "isDirect": bool(source.is_direct),
            "versionColumn": source.version_column or None,
            "window": source.window,
            "bounds": _bounds(source),
            "successor": _successor(scene, source),
            "replicas": _replicas(scene, source),
        },
    }


def _bounds(source: Source) -> dict[str, object]:
    """How far behind the table's rows may be, by its WITH; null: the node's own bound applies."""
    bounds = of_table(source)
    return {
        "offsetLagMax": bounds.lag_records_max,
        "replicaLagMsMax": bounds.replica_lag_ms_max,
        "sourceLagMsMax": bounds.source_lag_ms_max,
    }


def _successor(scene: Scene, table: Source) -> dict[str, object] | None:
    """The next generation, which is being built beside the one that answers."""
    successor = next((s for s in scene.snapshot.successors if s.name == table.name), None)
    if successor is None:
        return None
    status = scene.query_status(successor.query_id or "")
    return {
        "generation": successor.generation,
        "queryId": successor.query_id,
        "statement": successor.statement,
        "progressPercent": None if status is None else progress_percent(status),
    }


def _replicas(scene: Scene, source: Source) -> list[dict[str, object]]:
    """Placement of each partition, with the state of the replica that this node has."""
    found: list[dict[str, object]] = []
    for placement in scene.placements_of(source):
        for place, node_id in enumerate(placement.replicas):
            key = placement.replica_id
            found.append(
                {
                    "partition": placement.partition,
                    "node": node_id,
                    "role": "STANDBY" if place else "ACTIVE",
                    **_local(scene, key, node_id),
                }
            )
    return found


def _local(scene: Scene, key: ReplicaId, node_id: NodeId) -> dict[str, object]:
    if node_id != scene.snapshot.node_id:
        return {"state": None}  # only this node's replicas have a status here
    instant = scene.instant
    return describe(
        scene.replicas.get(key),
        reported_end=scene.reported_ends.get(key, NO_END),
        boot_ms=instant.boot_ms,
        unix_ms=instant.unix_ms,
    )


def shown_columns(source: Source) -> Sequence[Column]:
    """The columns of a row, window bounds among its keys."""
    bounds = [Column(name=n, type="BIGINT", is_key=True) for n in ("WINDOWSTART", "WINDOWEND")]
    return (*source.key_columns, *(bounds if source.window else ()), *source.value_columns)


def field_of(column: Column, source: Source) -> dict[str, object]:
    """A column as DESCRIBE shows it."""
    shown: dict[str, object] = {"name": column.name, "schema": schema(parse_type(column.type))}
    return {**shown, "type": "KEY"} if column.is_key else shown
