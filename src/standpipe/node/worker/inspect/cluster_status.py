"""`GET /clusterStatus`: every member as this node sees it.

Shape: ksqlDB's REST API; field names: as docs/sources.md says. A host that sends no heartbeats,
whose path failed or that has sent nothing yet is not alive and shows empty maps (as
docs/sources.md's article does); an unknown lag is left out, never 0 (ksql#4833). Nodes that left
the log are not listed. What ksqlDB has no field for (why, ages, states, batches) is under
`standpipe`.

Not here: verdicts (`control.liveness.heartbeats`), lags (`control.liveness.lag`), what workers know
of it (`node.liveness.peer_state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from standpipe.adapters.clock import Clock
from standpipe.adapters.store.size import size_of
from standpipe.control.liveness.lag import NO_END, known_lag_ms, known_source_lag_ms, offset_lag
from standpipe.model import (
    UNLABELLED,
    Health,
    NodeId,
    NodeInfo,
    Offset,
    Placement,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
    Source,
)
from standpipe.model_liveness import KnownLag
from standpipe.node.liveness.peer_state import PeerState, PeerStateReader
from standpipe.node.liveness.wire import store_lags, store_name
from standpipe.node.worker.inspect.kip535 import HeldPartition, Metadata, StreamsMetadata
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.request.answer import describe
from standpipe.node.worker.request.cluster_view import ClusterView, Map, Replicas

_Statuses = Mapping[ReplicaId, ReplicaStatus | None]


@dataclass(frozen=True)
class _Ends:
    """What lags count against: the largest committed end that any node knows, this one included."""

    state: PeerState
    own: _Statuses

    def of(self, replica: ReplicaId) -> Offset:
        """NO_END: no node knows one."""
        status = self.own.get(replica)
        return max(self.state.end_of(replica), status.committed_end if status else NO_END)


@dataclass(frozen=True)
class ClusterStatus:
    """The page of one worker."""

    node_id: NodeId
    map: Map
    replicas: Replicas
    forwarder: Forwarder
    peers: PeerStateReader
    clock: Clock
    #: `run/restores.json`: what the tailer says about replicas that it restores
    restores: Path

    def page(self) -> dict[str, object]:
        """The body of the answer, as JSON values."""
        view, state = self.map.view, self.peers.state
        suspects = self.forwarder.suspects(view.nodes)
        statuses = {
            each: self.replicas.get(each).status() for each in view.replicas_of(self.node_id)
        }
        ends, metadata = _Ends(state, statuses), Metadata(view, statuses)
        return {
            "clusterStatus": {
                node.public: self._self(view, node, metadata, ends)
                if node.node_id == self.node_id
                else self._peer(view, node, metadata, ends, is_suspect=node.node_id in suspects)
                for node in view.nodes.values()
            }
        }

    def _self(
        self, view: ClusterView, node: NodeInfo, metadata: Metadata, ends: _Ends
    ) -> dict[str, object]:
        now_ms, boot_ms = self.clock.wall_ms(), self.clock.boot_ms()
        restores = self._restores()
        lags = metadata.all_local_store_partition_lags(ends.of)
        return {
            "hostAlive": True,
            "lastStatusUpdateMs": now_ms,
            "activeStandbyPerQuery": active_standby(metadata.metadata_of(node)),
            "hostStoreLags": {
                "stateStoreLags": {
                    store: {"lagByPartition": by_partition} for store, by_partition in lags.items()
                },
                "updateTimeMs": now_ms,
            },
            "standpipe": {
                **_place(view, node),
                "alive": Health.ALIVE.name,
                "replicas": {
                    (name := str(each)): {
                        **describe(
                            status, reported_end=ends.of(each), boot_ms=boot_ms, unix_ms=now_ms
                        ),
                        **({"restore": restores[name]} if name in restores else {}),
                    }
                    for each, status in ends.own.items()
                },
                "storage": self._storage(view),
                "topicFailures": list(view.snapshot.topic_faults),
            },
        }

    def _storage(self, view: ClusterView) -> dict[str, object]:
        """What this node keeps on its disk, including copies that are being fetched."""
        return {
            str(each): self._stored(each, table, _role(self.node_id, placement))
            for each, table, placement in view.copies_of(self.node_id)
        }

    def _stored(self, replica_id: ReplicaId, table: Source, role: str) -> dict[str, object]:
        replica = self.replicas.get(replica_id)
        status, size = replica.status(), size_of(replica.store_path)
        return {
            "table": table.name,
            "role": role,
            "state": (status.state if status else ReplicaState.ABSENT).name,
            "rows": status.rows if status else None,
            "storeBytes": size.disk_bytes if size else None,
            "mapBytes": size.map_bytes if size else None,
        }

    def _restores(self) -> dict[str, object]:
        try:
            return msgspec.json.decode(self.restores.read_bytes(), type=dict[str, object])
        except (OSError, msgspec.MsgspecError):
            return {}  # the tailer has not written it yet

    def _peer(
        self,
        view: ClusterView,
        node: NodeInfo,
        metadata: Metadata,
        ends: _Ends,
        *,
        is_suspect: bool,
    ) -> dict[str, object]:
        now_ms, boot_ms, state = self.clock.wall_ms(), self.clock.boot_ms(), ends.state
        verdict = state.liveness.get(node.node_id)
        unknown = Health.UNKNOWN if state.liveness else Health.ALIVE  # heartbeats may be off
        health = verdict.health if verdict else unknown
        is_alive = health is Health.ALIVE and not is_suspect
        lags = state.lags_of(node.node_id) if is_alive else []
        beat_ms = verdict.beat_boot_ms if verdict else 0
        newest_ms = max((known.at_boot_ms for known in lags), default=0)
        return {
            "hostAlive": is_alive,
            "lastStatusUpdateMs": now_ms - (boot_ms - beat_ms) if beat_ms else 0,
            "activeStandbyPerQuery": active_standby(metadata.metadata_of(node)) if is_alive else {},
            "hostStoreLags": {
                "stateStoreLags": _store_lags(view, ends, lags),
                "updateTimeMs": now_ms - (boot_ms - newest_ms) if newest_ms else 0,
            }
            if is_alive
            else {},
            "standpipe": {
                **_place(view, node),
                "alive": health.name,
                "pathFailed": is_suspect,
                "beatAgeMs": boot_ms - beat_ms if beat_ms else None,
                "workersOk": verdict.workers_ok if verdict else None,
                "tailerOk": verdict.tailer_ok if verdict else None,
                "leaving": verdict.is_leaving if verdict else None,
                "replicas": {
                    str(known.lag.replica_id): _reported(ends, known, boot_ms) for known in lags
                },
            },
        }


def _place(view: ClusterView, node: NodeInfo) -> dict[str, object]:
    return {
        "nodeId": node.node_id,
        "internal": node.internal,
        "peer": node.peer,
        "tags": node.tags,
        "assignmentEpoch": view.snapshot.assignment.epoch,
        "mapStamp": view.snapshot.stamp,
    }


def _reported(ends: _Ends, known: KnownLag, boot_ms: int) -> dict[str, object]:
    """A peer's replica as last reported; ages grow here, so no lag in ms is too small."""
    lag = known.lag
    return {
        "state": lag.state.name,
        "position": lag.position,
        "committedEnd": None if lag.committed_end < 0 else lag.committed_end,
        "offsetLag": offset_lag((ends.of(lag.replica_id),), lag.position),
        "replicaLagMs": known_lag_ms(known, boot_ms),
        "sourceLagMs": known_source_lag_ms(known, boot_ms),
        "batch": None if lag.batch in UNLABELLED else lag.batch,
        "ageMs": boot_ms - known.at_boot_ms,
    }


def _store_lags(view: ClusterView, ends: _Ends, lags: Iterable[KnownLag]) -> object:
    """KIP-535's LagInfo per store, each against the furthest end that any node reported."""
    tables = view.tables()
    against_all = (
        msgspec.structs.replace(
            known.lag,
            committed_end=max(known.lag.committed_end, ends.of(known.lag.replica_id)),
        )
        for known in lags
    )
    return store_lags(against_all, tables)


def _role(node_id: NodeId, placement: Placement) -> str:
    if node_id in placement.warmups:
        return "warm-up"
    return "active" if placement.replicas[:1] == (node_id,) else "standby"


def active_standby(held: StreamsMetadata) -> Mapping[str, object]:
    """Per query: partitions that a node is the active of, and those that it is a standby of."""
    by_query: dict[str, list[HeldPartition]] = {}
    for each in held.held:
        by_query.setdefault(each.table.query_id or each.table.name, []).append(each)
    return {
        query: {
            "activeStores": _stores(actives := [each for each in parts if each.is_active]),
            "activePartitions": [_topic_partition(each) for each in actives],
            "standByStores": _stores(standbys := [each for each in parts if not each.is_active]),
            "standByPartitions": [_topic_partition(each) for each in standbys],
        }
        for query, parts in by_query.items()
    }


def _stores(held: Sequence[HeldPartition]) -> list[str]:
    """The store of one query's partitions."""
    return [store_name(held[-1].table)] if held else []


def _topic_partition(held: HeldPartition) -> dict[str, object]:
    topic, partition = held.topic_partition
    return {"topic": topic, "partition": partition}
