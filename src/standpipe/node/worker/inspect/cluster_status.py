"""`GET /clusterStatus`: every member as this node sees it.

Shape: ksqlDB's REST API; field names: as docs/sources.md says. A host that does not beat,
whose path failed or that was not heard of yet is not alive and shows empty maps (as the
article in docs/sources.md does); an unknown lag is left out, never 0 (ksql#4833).
Nodes that left the log are not listed.
What ksqlDB has no word for (why, ages, states, batches) rides under `standpipe`.

Not here: verdicts (`control.liveness.heartbeats`), lags (`control.liveness.lag`), what workers are
state (`node.liveness.peer_state`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from standpipe.adapters.clock import Clock
from standpipe.adapters.store.size import size_of
from standpipe.control.liveness.lag import NO_END, known_lag_ms, offset_lag
from standpipe.model import (
    NO_BATCH,
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
from standpipe.node.liveness.wire import lag_of, store_lags, store_name
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.request.answer import describe
from standpipe.node.worker.request.cluster_view import ClusterView, Map, Replicas

_Statuses = Mapping[ReplicaId, ReplicaStatus | None]


@dataclass(frozen=True)
class _Ends:
    """What lags count against: the largest committed end that any node, this one too, tells of."""

    state: PeerState
    own: _Statuses

    def of(self, replica: ReplicaId) -> Offset:
        """NO_END: nobody knows."""
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
    #: `run/restores.json`: what the tailer says of replicas that it makes
    restores: Path

    def page(self) -> dict[str, object]:
        view, state = self.map.view, self.peers.state
        suspects = self.forwarder.suspects(view.nodes)
        statuses = {
            each: self.replicas.get(each).status() for each in own_replicas(self.node_id, view)
        }
        ends = _Ends(state, statuses)
        return {
            "clusterStatus": {
                node.public: self._self(view, node, statuses, ends)
                if node.node_id == self.node_id
                else self._peer(view, ends, node, is_suspect=node.node_id in suspects)
                for node in view.nodes.values()
            }
        }

    def _self(
        self, view: ClusterView, node: NodeInfo, statuses: _Statuses, ends: _Ends
    ) -> dict[str, object]:
        now_ms, boot_ms = self.clock.wall_ms(), self.clock.boot_ms()
        restores = self._restores()
        lags = [
            KnownLag(
                node_id=self.node_id,
                lag=lag_of(each, status, boot_ms),
                at_boot_ms=boot_ms,
                reported_boot_ms=boot_ms,
            )
            for each, status in statuses.items()
            if status is not None
        ]
        return {
            "hostAlive": True,
            "lastStatusUpdateMs": now_ms,
            "activeStandbyPerQuery": active_standby(view, node.node_id),
            "hostStoreLags": {
                "stateStoreLags": _store_lags(view, ends, lags),
                "updateTimeMs": now_ms,
            },
            "standpipe": {
                **_place(view, node),
                "alive": Health.ALIVE.name,
                "replicas": {
                    (name := "-".join(map(str, each))): {
                        **describe(
                            status, reported_end=ends.of(each), boot_ms=boot_ms, unix_ms=now_ms
                        ),
                        **({"restore": restores[name]} if name in restores else {}),
                    }
                    for each, status in statuses.items()
                },
                "storage": self._storage(view),
            },
        }

    def _storage(self, view: ClusterView) -> dict[str, object]:
        """What this node keeps on its disk, with copies that are on their way."""
        return {
            "-".join(map(str, each)): self._stored(each, table, _role(self.node_id, placement))
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
            return {}  # no tailer has said anything yet

    def _peer(
        self, view: ClusterView, ends: _Ends, node: NodeInfo, *, is_suspect: bool
    ) -> dict[str, object]:
        now_ms, boot_ms, state = self.clock.wall_ms(), self.clock.boot_ms(), ends.state
        verdict = state.liveness.get(node.node_id)
        unheard = Health.UNKNOWN if state.liveness else Health.ALIVE  # heartbeats may be off
        health = verdict.health if verdict else unheard
        is_alive = health is Health.ALIVE and not is_suspect
        lags = state.lags_of(node.node_id) if is_alive else []
        beat_ms = verdict.beat_boot_ms if verdict else 0
        newest_ms = max((known.at_boot_ms for known in lags), default=0)
        return {
            "hostAlive": is_alive,
            "lastStatusUpdateMs": now_ms - (boot_ms - beat_ms) if beat_ms else 0,
            "activeStandbyPerQuery": active_standby(view, node.node_id) if is_alive else {},
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
                    str(known.lag.replica_id): _heard(ends, known, boot_ms) for known in lags
                },
            },
        }


def own_replicas(node_id: NodeId, view: ClusterView) -> list[ReplicaId]:
    """Replicas that are assigned to a node."""
    return [each for each, placement in view.placements.items() if node_id in placement.replicas]


def _place(view: ClusterView, node: NodeInfo) -> dict[str, object]:
    return {
        "nodeId": node.node_id,
        "internal": node.internal,
        "peer": node.peer,
        "tags": node.tags,
        "assignmentEpoch": view.snapshot.assignment.epoch,
        "mapStamp": view.snapshot.stamp,
    }


def _heard(ends: _Ends, known: KnownLag, boot_ms: int) -> dict[str, object]:
    """A peer's replica as it was reported last; ages grow here, so no lag in ms is too small."""
    lag = known.lag
    return {
        "state": lag.state.name,
        "position": lag.position,
        "committedEnd": None if lag.committed_end < 0 else lag.committed_end,
        "offsetLag": offset_lag((ends.of(lag.replica_id),), lag.position),
        "replicaLagMs": known_lag_ms(known, boot_ms),
        "batch": None if lag.batch == NO_BATCH else lag.batch,
        "ageMs": boot_ms - known.at_boot_ms,
    }


def _store_lags(view: ClusterView, ends: _Ends, lags: Iterable[KnownLag]) -> object:
    """KIP-535's LagInfo per store, each against the furthest end that anybody reported."""
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


def active_standby(view: ClusterView, node_id: NodeId) -> Mapping[str, object]:
    """Per query: partitions that a node is the active of, and those that it is a standby of."""
    tables = view.tables()
    split: defaultdict[str, dict[bool, list[dict[str, object]]]]
    split = defaultdict(lambda: {True: [], False: []})
    stores: dict[str, str] = {}
    for placement in view.placements.values():
        table = tables.get((placement.table_id, placement.generation))
        if table is None or node_id not in placement.replicas:
            continue
        query = table.query_id or table.name
        stores[query] = store_name(table)
        is_active = placement.replicas[0] == node_id
        split[query][is_active].append({"topic": table.topic, "partition": placement.partition})
    return {
        query: {
            "activeStores": [stores[query]] if held[True] else [],
            "activePartitions": held[True],
            "standByStores": [stores[query]] if held[False] else [],
            "standByPartitions": held[False],
        }
        for query, held in split.items()
    }
