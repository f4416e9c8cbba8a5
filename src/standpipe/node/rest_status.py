"""What a worker says of its node and its cluster: /info, /healthcheck, /clusterStatus, /status.

Shapes: conformance surface, section (b), and the article's field names. A host that is dead, or
whose lags nobody has reported, shows empty maps: unknown is never 0. Ours rides under `standpipe`.

Not here: routes; what a status page holds (`model.ReplicaStatus`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

from standpipe.errors import NotReady
from standpipe.model import NodeId, NodeInfo, ReplicaStatus, Source
from standpipe.node.forward import Forwarder
from standpipe.node.rest_fresh import describe
from standpipe.node.rest_view import Map, Replicas, View

#: A snapshot that control has not renewed for so long: control is down, and the map ages.
MAP_AGE_MS_MAX = 5000

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Standpipe {node}</title>
<h1>Standpipe {version}</h1><p>Node {node} of cluster {cluster}.</p>
<ul><li><a href="/info">/info</a><li><a href="/clusterStatus">/clusterStatus</a>
<li><a href="/healthcheck">/healthcheck</a><li><a href="/metrics">/metrics</a></ul></html>
"""


@dataclass(frozen=True)
class Status:
    """Answers of the GET routes of one worker."""

    node_id: NodeId
    map: Map
    replicas: Replicas
    forwarder: Forwarder

    def info(self) -> dict[str, object]:
        snapshot = self.map.view.snapshot
        return {
            "KsqlServerInfo": {
                "version": version("standpipe"),
                "kafkaClusterId": snapshot.cluster_id,
                "ksqlServiceId": snapshot.service_id,
                "serverStatus": "RUNNING",
            }
        }

    def metadata(self) -> dict[str, object]:
        snapshot = self.map.view.snapshot
        clusters = {"kafka-cluster": snapshot.cluster_id, "ksql-cluster": snapshot.service_id}
        cluster_id = {"id": "", "scope": {"path": list[str](), "clusters": clusters}}
        return {"version": version("standpipe"), "clusterId": cluster_id}

    def health(self) -> dict[str, object]:
        """Healthy: there is a map, control renews it, and no replica of this node has failed.

        Status 200 either way, as in ksqlDB.
        """
        try:
            view = self.map.view
        except NotReady as error:
            metastore: dict[str, object] = {"isHealthy": False, "message": error.message}
            return {"isHealthy": False, "details": {"metastore": metastore}}
        replicas = _local_replicas(self.node_id, view, self.replicas)
        failed = [name for name, status in replicas.items() if _is_failed(status)]
        age_ms = _boot_ms() - view.snapshot.published_boot_ms
        details = {
            "metastore": {"isHealthy": True},
            "kafka": {"isHealthy": not failed, **({"failedReplicas": failed} if failed else {})},
            "commandRunner": {"isHealthy": age_ms <= MAP_AGE_MS_MAX, "mapAgeMs": age_ms},
        }
        is_healthy = all(detail["isHealthy"] for detail in details.values())
        return {"isHealthy": is_healthy, "details": details, "serverState": "READY"}

    def commands(self) -> dict[str, str]:
        """Statements that hold, as ksqlDB names them: `stream/S1/create` -> `SUCCESS`."""
        sources = self.map.view.snapshot.sources
        return {f"{s.kind.lower()}/{s.name}/create": "SUCCESS" for s in sources}

    def cluster(self) -> dict[str, object]:
        """All members, as this node sees them. A failed path is a dead host until it works."""
        view = self.map.view
        suspects = self.forwarder.suspects(view.nodes)
        hosts = {
            node.public: self._host(view, node, is_alive=node.node_id not in suspects)
            for node in view.nodes.values()
        }
        return {"clusterStatus": hosts}

    def page(self) -> str:
        """A plain page for a browser."""
        snapshot = self.map.view.snapshot
        return _PAGE.format(
            version=version("standpipe"), node=self.node_id, cluster=snapshot.cluster_id
        )

    def _host(self, view: View, node: NodeInfo, *, is_alive: bool) -> dict[str, object]:
        is_self = node.node_id == self.node_id
        replicas = _local_replicas(self.node_id, view, self.replicas) if is_self else {}
        now_ms = int(time.time() * 1000)
        lags = {"stateStoreLags": _store_lags(view, replicas), "updateTimeMs": now_ms}
        unknown = {"stateStoreLags": dict[str, object](), "updateTimeMs": 0}
        return {
            "hostAlive": is_alive,
            "lastStatusUpdateMs": now_ms if is_self else 0,
            "activeStandbyPerQuery": _active_standby(view, node.node_id) if is_alive else {},
            "hostStoreLags": lags if is_self else unknown if is_alive else {},
            "standpipe": {
                "nodeId": node.node_id,
                "internal": node.internal,
                "peer": node.peer,
                "tags": node.tags,
                "assignmentEpoch": view.snapshot.assignment.epoch,
                "mapStamp": view.snapshot.stamp,
                "replicas": {
                    name: describe(status, boot_ms=_boot_ms(), unix_ms=now_ms)
                    for name, status in replicas.items()
                },
            },
        }


def _local_replicas(
    node_id: NodeId, view: View, replicas: Replicas
) -> dict[str, ReplicaStatus | None]:
    """`<table id>-<generation>-<partition>` -> status page of this node's replica."""
    return {
        "-".join(map(str, replica_id)): replicas.get(replica_id).status()
        for replica_id, placement in view.placements.items()
        if node_id in placement.replicas
    }


def _store_lags(
    view: View, replicas: Mapping[str, ReplicaStatus | None]
) -> dict[str, dict[str, object]]:
    """KIP-535's LagInfo per store and partition, against the committed end (DESIGN section 3)."""
    stores: dict[str, dict[str, object]] = {}
    for table in view.sources.values():
        lags: dict[str, object] = {}
        for partition in range(table.partitions):
            status = replicas.get(f"{table.table_id}-{table.generation}-{partition}")
            if status is not None and status.offset_lag is not None:
                lags[str(partition)] = {
                    "currentOffsetPosition": status.position,
                    "endOffsetPosition": status.committed_end,
                    "offsetLag": status.offset_lag,
                }
        if lags:
            stores[store_name(table)] = {"lagByPartition": lags}
    return stores


def store_name(table: Source) -> str:
    """Name of a table's state store, as ksqlDB reports it: `<query id>#<store>`."""
    return f"{table.query_id or table.name}#Aggregate-Aggregate-Materialize"


def _active_standby(view: View, node_id: NodeId) -> dict[str, object]:
    by_table = {(s.table_id or "", s.generation): s for s in view.sources.values()}
    partitions: defaultdict[str, dict[bool, list[dict[str, object]]]]
    partitions = defaultdict(lambda: {True: [], False: []})
    tables: dict[str, Source] = {}
    for placement in view.placements.values():
        table = by_table.get((placement.table_id, placement.generation))
        if table is None or node_id not in placement.replicas:
            continue
        query = table.query_id or table.name
        tables[query] = table
        is_active = placement.replicas[0] == node_id
        partitions[query][is_active].append(
            {"topic": table.topic, "partition": placement.partition}
        )
    return {
        query: {
            "activeStores": [store_name(tables[query])] if split[True] else [],
            "activePartitions": split[True],
            "standByStores": [store_name(tables[query])] if split[False] else [],
            "standByPartitions": split[False],
        }
        for query, split in partitions.items()
    }


def _is_failed(status: ReplicaStatus | None) -> bool:
    return status is not None and status.state.name in ("FAILED", "DATA_LOSS")


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
