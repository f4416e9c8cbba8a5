"""`GET /replica-lags`: how far this node's replicas are, for pipelines that wait for them.

A node speaks for itself, so one that is dead is not waited for. Warm-ups are left out, and replicas
that may not answer reads: a copy that is being made would hold up the table.

Not here: who waits (`data/commit/back_pressure.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from standpipe.adapters.clock import Clock
from standpipe.adapters.http.internal import Call, Handler, Reply, msgpack_reply
from standpipe.control.metadata.catalog import Catalog
from standpipe.model_liveness import OwnLags
from standpipe.node.configuration import NodeConfig
from standpipe.node.liveness.local_state import LocalReplicas

PATH: Final = "/replica-lags"
#: for how long an answer is given again: pipelines whose batches wait ask twenty times a second
SAME_MS: Final = 20


def routes_of(
    config: NodeConfig, catalog: Callable[[], Catalog], clock: Clock | None = None
) -> Mapping[tuple[str, str], Handler]:
    """The route of this module, for the internal listener."""
    own, ticking = LocalReplicas(config.node_id, config.paths), clock or Clock()
    said: tuple[int, Reply] | None = None

    async def lags(_: Call) -> Reply:
        nonlocal said
        now_ms = ticking.boot_ms()
        if said is None or now_ms - said[0] >= SAME_MS:  # several pipelines may ask
            said = now_ms, msgpack_reply(own_lags(own, catalog(), now_ms))
        return said[1]

    return {("GET", PATH): lags}


def own_lags(own: LocalReplicas, catalog: Catalog, now_boot_ms: int) -> OwnLags:
    """Lags of the replicas of a node that count."""
    counted = {
        placement.replica_id
        for placement in catalog.assignment.placements
        if own.node_id in placement.replicas
    }
    return OwnLags(
        node_id=own.node_id,
        lags=tuple(
            lag
            for lag in own.lags(catalog, now_boot_ms)
            if lag.replica_id in counted and lag.state.answers
        ),
    )
