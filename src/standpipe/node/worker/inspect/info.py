"""A worker's answers about its node: /info, /healthcheck, /status.

Shapes: ksqlDB's REST API.

Not here: routes; /clusterStatus (`node.worker.inspect.cluster_status`); the fields of a status page
(`model.ReplicaStatus`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version

from standpipe.adapters.clock import Clock
from standpipe.data.replica.positions import end_age_ms
from standpipe.errors import NotReady
from standpipe.model import NodeId, ReplicaStatus
from standpipe.node.leaving import Leaving
from standpipe.node.room import NodeRoom
from standpipe.node.worker.request.cluster_view import Map, Replicas
from standpipe.node.worker_report import WorkersReportReader

#: If control has not renewed the snapshot for this long, control is down, and the map ages.
MAP_AGE_MS_MAX = 5000
#: The tailer asks Kafka about once a second; a broker that restarts is back sooner.
KAFKA_SILENT_MS_MAX = 15_000

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
    room: NodeRoom

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
        """Healthy: there is a map, control renews it, no replica of this node has failed, Kafka
        answered its tailer a moment ago, its workers turn and none had to be ended, it is not about
        to stop (so that a load balancer takes it out in time), its disk and its processes'
        descriptors are not nearly used up, and, if it leads, Kafka's topics are as statements want
        them.

        Status 200 either way, as in ksqlDB. What is not healthy has a `message`.
        """
        try:
            view = self.map.view
        except NotReady as error:
            details = {"metastore": _detail(error.message), **self._room()}
            return {"isHealthy": False, "details": details}
        own = view.replicas_of(self.node_id)
        own_statuses = [self.replicas.get(each).status() for each in own]
        pairs = zip(own, own_statuses, strict=True)
        failed = [str(each) for each, status in pairs if _is_failed(status)]
        now_boot_ms = Clock().boot_ms()
        self.workers.refresh()
        complaint = self.workers.report.complaint(now_boot_ms)
        age_ms = now_boot_ms - view.snapshot.published_boot_ms
        leaves = "the node is about to stop" if self.leaving.is_set else None
        is_aged = age_ms > MAP_AGE_MS_MAX
        map_aged = f"control has not renewed the map for {age_ms / 1000:.0f} s" if is_aged else None
        details = {
            "metastore": _detail(None),
            "kafka": _kafka(own_statuses, failed, now_boot_ms),
            "workers": _detail(complaint),
            "serving": _detail(leaves),
            "commandRunner": _detail(map_aged, mapAgeMs=age_ms),
            "topics": _topics(view.snapshot.topic_faults),
            **self._room(),
        }
        is_healthy = all(detail["isHealthy"] for detail in details.values())
        return {"isHealthy": is_healthy, "details": details, "serverState": "READY"}

    def _room(self) -> dict[str, dict[str, object]]:
        return {"disk": self._disk(), "descriptors": self._descriptors()}

    def _disk(self) -> dict[str, object]:
        try:
            disk = self.room.disk()
        except OSError as error:
            return _detail(f"the disk cannot be read: {error}")
        return _detail(disk.complaint, freeBytes=disk.free_bytes)

    def _descriptors(self) -> dict[str, object]:
        try:
            short = [each.complaint for each in self.room.descriptors() if each.complaint]
        except OSError as error:  # this worker has none left to look with
            return _detail(f"they cannot be counted: {error}")
        return _detail("; ".join(short) or None)

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


def _kafka(
    statuses: Iterable[ReplicaStatus | None], failed: list[str], now_boot_ms: int
) -> dict[str, object]:
    """Whether the tailer reads what its replicas need. `answeredMsAgo`: since Kafka last confirmed
    an end to this node; absent where it has no replica that knows one."""
    known = [end_age_ms(status, now_boot_ms) for status in statuses if status is not None]
    age_ms = min((age for age in known if age is not None), default=None)
    complaint = None
    if failed:
        complaint = f"replicas have failed: {', '.join(failed)}"
    elif age_ms is not None and age_ms > KAFKA_SILENT_MS_MAX:
        complaint = f"Kafka has not answered for {age_ms / 1000:.0f} s"
    return {
        **_detail(complaint),
        **({"failedReplicas": failed} if failed else {}),
        **({"answeredMsAgo": age_ms} if age_ms is not None else {}),
    }


def _topics(faults: tuple[str, ...]) -> dict[str, object]:
    """What the leader's last round over the topics left undone; other nodes know of nothing."""
    detail = _detail("; ".join(faults) or None)
    return {**detail, **({"failures": list(faults)} if faults else {})}


def _detail(complaint: str | None, **facts: object) -> dict[str, object]:
    """One part of the health; None: it is healthy."""
    message = {} if complaint is None else {"message": complaint}
    return {"isHealthy": complaint is None, **message, **facts}


def _is_failed(status: ReplicaStatus | None) -> bool:
    return status is not None and status.state.name in ("FAILED", "DATA_LOSS")
