"""Whether a program may still write its table, as the catalog says. Pure.

Not here: who gets the lease (`control/metadata/isolation.py`), what makes the records of a former
holder void (`data/commit/progress.py`).
"""

from __future__ import annotations

from standpipe.control.metadata.catalog import Catalog
from standpipe.pipeline.run.reconcile import PipelineRegistration, external_query
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark.errors import ServeEnded, ServeRefused


def why_gone(catalog: Catalog, query_id: str, table: str) -> ServeEnded | None:
    """Why nobody may write the table any more; None: somebody may."""
    if query_id in catalog.queries:
        return None
    there = catalog.sources.get(table)
    if there is None or there.query_id != query_id:
        return ServeEnded("DROPPED", f"{table} was dropped: its rows are gone, and so is its query")
    return ServeEnded(
        "TERMINATED",
        f"{query_id} was terminated, so {table} stays as it is. To write it again: DROP TABLE"
        f" {table}; and serve it again",
    )


def why_over(catalog: Catalog, mine: WantedQuery, me: PipelineRegistration) -> ServeEnded | None:
    """Why the holder of a lease must stop; None: it still holds it."""
    query_id, table = mine.query_id, mine.table.name
    if gone := why_gone(catalog, query_id, table):
        return gone
    if catalog.queries[query_id].state != "RUNNING":
        return ServeEnded("PAUSED", f"{query_id} was paused. RESUME {query_id}; and start again")
    held = external_query(catalog, query_id, me)
    if held is not None and held.lease_epoch == mine.lease_epoch:
        return None
    lease = catalog.leases.get(query_id)
    holder = "no application" if lease is None else lease.pipeline_id
    if held is not None:  # it was silent for too long, and got the lease again
        holder = "this one again, under a newer lease"
    return ServeEnded(
        "FENCED",
        f"this application lost the lease of {table}, as it was silent for too long; the holder is"
        f" {holder}. Start it again to stand by",
    )


def busy(catalog: Catalog, query_id: str, table: str) -> ServeRefused:
    """Why a load that must not wait is refused: somebody else writes the table."""
    is_paused = query_id in catalog.queries and catalog.queries[query_id].state != "RUNNING"
    instead = f"RESUME {query_id};" if is_paused else "stop that program"
    return ServeRefused(
        f"{table} cannot be loaded now: {standby_message(catalog, query_id, table)}",
        next_step=f"{instead}, or load with wait=True",
    )


def standby_message(catalog: Catalog, query_id: str, table: str) -> str:
    """What a program that waits for the lease says."""
    if query_id in catalog.queries and catalog.queries[query_id].state != "RUNNING":
        return f"{query_id} is paused: waiting for RESUME {query_id};"
    lease = catalog.leases.get(query_id)
    holder = "nobody yet" if lease is None else lease.pipeline_id
    return f"standing by: {table} is written by {holder}"
