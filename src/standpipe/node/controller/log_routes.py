"""Internal routes that read the metadata log at any node (docs/INTERFACES.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from standpipe.adapters.http.internal import Call, Handler, Reply, json_reply, msgpack_reply
from standpipe.model import QueryStatus
from standpipe.node.controller.catalog_replica import CatalogReplica

WAIT_MS_MAX: Final = 30_000  # how long a GET /log may wait


def routes_of(copy: CatalogReplica) -> Mapping[tuple[str, str], Handler]:
    """Routes that read the log (docs/INTERFACES.md)."""

    async def page(call: Call) -> Reply:
        query = call.query(LogQuery)
        await copy.wait_for(query.start, min(query.wait_ms, WAIT_MS_MAX) / 1000)
        return msgpack_reply(copy.page(query.start))

    async def take_statuses(call: Call) -> Reply:
        copy.take_statuses(call.msgpack(list[QueryStatus]))
        return json_reply({"ok": True})

    async def describe(_: Call) -> Reply:
        return json_reply(
            {
                "node_id": copy.config.node_id,
                "leader": copy.leader,
                "cluster_id": copy.catalog.cluster_id,
                "last_index": copy.catalog.index,
                "feature_level": copy.catalog.feature_level,
                "service_id": copy.config.service_id,
                "bootstrap_servers": copy.config.kafka().bootstrap_servers,
                "pipelines": list(copy.catalog.pipelines),
                "leases": dict(copy.catalog.leases),
                "assignment_epoch": copy.catalog.assignment.epoch,
                "nodes": list(copy.catalog.nodes.values()),
            }
        )

    return {
        ("GET", "/log"): page,
        ("GET", "/describe"): describe,
        ("POST", "/query-status"): take_statuses,
    }


class LogQuery(msgspec.Struct, rename={"start": "from"}):
    """Parameters of GET /log."""

    start: int = 1
    wait_ms: int = 0
