"""What a worker says about its node: /info, /healthcheck, /status.

Shapes: ksqlDB's REST API.

Not here: routes; /clusterStatus (`node.worker.inspect.cluster_status`); what a status page holds
(`model.ReplicaStatus`).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from standpipe.adapters.clock import Clock
from standpipe.errors import NotReady
from standpipe.model import NodeId, ReplicaStatus
from standpipe.node.leaving import Leaving
from standpipe.node.worker.request.cluster_view import Map, Replicas
from standpipe.node.worker_report import WorkersReportReader

#: If control has not renewed the snapshot for this long, control is down, and the map ages.
MAP_AGE_MS_MAX = 5000

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Standpipe {node}</title>
<h1>Standpipe {version}</h1><p>Node {node} of cluster {cluster}.</p>
<ul><li><a href="/info">/info</a><li><a href="/clusterStatus">/clusterStatus</a>
<li><a href="/healthcheck">/healthcheck</a><li><a href="/metrics">/metrics</a></ul></html>
"""


@dataclass(frozen=True)
class StatusRoutes:
    """Answers of the GET routes of one worker."""

    node_id: NodeId
    map: Map
    replicas: Replicas
    leaving: Leaving
    workers: WorkersReportReader

    def info(self) -> dict[str, object]:
        """Body of `/info`."""
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
        """Body of `/v1/metadata`."""
        snapshot = self.map.view.snapshot
        clusters = {"kafka-cluster": snapshot.cluster_id, "ksql-cluster": snapshot.service_id}
        cluster_id = {"id": "", "scope": {"path": list[str](), "clusters": clusters}}
        return {"version": version("standpipe"), "clusterId": cluster_id}

    def health(self) -> dict[str, object]:
        """Healthy: there is a map, control renews it, no replica of this node has failed, its
        workers turn and none had to be ended a moment ago, it is not about to stop (so that a load
        balancer takes it out in time), and, if it leads, Kafka's topics are as statements want
        them.

        Status 200 either way, as in ksqlDB.
        """
        try:
            view = self.map.view
        except NotReady as error:
            metastore: dict[str, object] = {"isHealthy": False, "message": error.message}
            return {"isHealthy": False, "details": {"metastore": metastore}}
        own = view.replicas_of(self.node_id)
        failed = [str(each) for each in own if _is_failed(self.replicas.get(each).status())]
        now_boot_ms = Clock().boot_ms()
        self.workers.refresh()
        complaint = self.workers.report.complaint(now_boot_ms)
        age_ms = now_boot_ms - view.snapshot.published_boot_ms
        details = {
            "metastore": {"isHealthy": True},
            "kafka": {"isHealthy": not failed, **({"failedReplicas": failed} if failed else {})},
            "workers": {
                "isHealthy": complaint is None,
                **({"message": complaint} if complaint else {}),
            },
            "serving": {"isHealthy": not self.leaving.is_set},
            "commandRunner": {"isHealthy": age_ms <= MAP_AGE_MS_MAX, "mapAgeMs": age_ms},
            "topics": _topics(view.snapshot.topic_faults),
        }
        is_healthy = all(detail["isHealthy"] for detail in details.values())
        return {"isHealthy": is_healthy, "details": details, "serverState": "READY"}

    def commands(self) -> dict[str, str]:
        """Statements in force, as ksqlDB names them: `stream/S1/create` -> `SUCCESS`."""
        sources = self.map.view.snapshot.sources
        return {f"{s.kind.lower()}/{s.name}/create": "SUCCESS" for s in sources}

    def page(self) -> str:
        """A plain page for a browser."""
        snapshot = self.map.view.snapshot
        return _PAGE.format(
            version=version("standpipe"), node=self.node_id, cluster=snapshot.cluster_id
        )


def _topics(faults: tuple[str, ...]) -> dict[str, object]:
    """What the leader's last round over the topics left undone; other nodes know of nothing."""
    return {"isHealthy": not faults, **({"failures": list(faults)} if faults else {})}


def _is_failed(status: ReplicaStatus | None) -> bool:
    return status is not None and status.state.name in ("FAILED", "DATA_LOSS")
