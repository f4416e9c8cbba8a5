"""Which replicas may answer a read of one table partition, in which order, and why (or why not).

A pure decision on local data: it makes no remote call (KLIP-12, tradeoff 2). Order: the active,
then standbys by lag, the least first, an unknown lag after every known one. Doubtful replicas come
after all others, because a doubt may be wrong and a late answer is better than none. Doubts: no
report yet, not answering as of its last report, heartbeats that came back too often, workers that
hang, no heartbeats, a path that failed. Only a node that neither sends heartbeats nor answers on
its path is refused as dead.

Bounds are enforced here with what this node knows: on its own replica, and on a peer that has just
reported its lag. The target of a forward enforces them again with its own numbers. An older lag is
an upper bound: a replica that exceeds the bound by it is tried last, not refused. The same holds
for a peer's lag against the committed end of this node's own replica, which is current.

Not here: which of equals is preferred (`control.routing.policies`), how heartbeats become verdicts
(`control.liveness.heartbeats`) and reports lags (`control.liveness.lag`), hedging and the forward
(`node.worker.pull.forward`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from standpipe.control.liveness.lag import NO_END, offset_lag
from standpipe.control.routing.bounds import ANYTHING, LAG_UNBOUNDED, Bounds
from standpipe.control.routing.policies import POLICIES
from standpipe.model import (
    NO_BATCH,
    Assignment,
    Health,
    NodeId,
    NodeInfo,
    Offset,
    Placement,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
)
from standpipe.model_liveness import KnownLag, PeerLiveness

Role = Literal["ACTIVE", "STANDBY"]

# -------------------------------------------------------------------------------- candidates


@dataclass(frozen=True, kw_only=True)
class PeerReports:
    """What peers reported about the replicas of one partition, and the verdicts on peers."""

    #: empty: nothing is known (heartbeats or the controller are off); then all count as alive
    liveness: Mapping[NodeId, PeerLiveness] = field(default_factory=dict[NodeId, PeerLiveness])
    #: reports that are fresh enough to be trusted
    lags: Mapping[NodeId, KnownLag] = field(default_factory=dict[NodeId, KnownLag])
    #: the largest committed end in any report, however old: ends only grow; -1: none
    committed_end: Offset = NO_END
    #: a lag from before this instant is only an upper bound
    #: (`control.liveness.lag.FRESH_MS`)
    fresh_since_ms: int = 0


NO_REPORTS: Final = PeerReports()


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A replica and all that this node knows about it."""

    node_id: NodeId
    role: Role
    info: NodeInfo | None  # None: not in the log (the node was removed)
    is_local: bool
    state: ReplicaState | None  # None: unknown
    lag_records: int | None  # None: unknown, which is never 0
    #: lag against the end that was known at the instant of its position; None: the same
    lag_records_then: int | None = None
    #: after a gap that compaction left, its rows are not those of a batch: a superseded row may be
    #: there whose successor lies beyond the position, so no lag bounds how old the rows are
    is_between_batches: bool = False
    #: of the local replica: why a lag in records says nothing now; "": it does
    lag_unknown: str = ""
    health: Health = Health.ALIVE
    is_held_down: bool = False  # DOWN although it sends heartbeats
    workers_ok: bool = True
    is_leaving: bool = False  # it is drained, or about to stop
    is_suspect: bool = False  # its path failed recently
    beat_boot_ms: int = 0
    lag_boot_ms: int = 0
    is_lag_fresh: bool = True

    @property
    def is_silent(self) -> bool:
        """Whether its heartbeats have stopped."""
        return self.health is Health.DOWN and not self.is_held_down

    def is_beyond(self, bounds: Bounds) -> bool:
        """Whether its lag, as known here, exceeds the bound."""
        return self.lag_records is not None and self.lag_records > bounds.lag_records_max

    def is_surely_beyond(self, bounds: Bounds) -> bool:
        """Whether its current lag exceeds the bound, and not just an upper bound of its lag."""
        then = self.lag_records if self.lag_records_then is None else self.lag_records_then
        return self.is_lag_fresh and then is not None and then > bounds.lag_records_max


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was decided about one replica. `why` is a sentence for logs, errors and tests."""

    node_id: NodeId
    role: Role
    ok: bool
    why: str
    is_local: bool = False
    lag_records: int | None = None
    lag_records_max: int = LAG_UNBOUNDED
    info: NodeInfo | None = None
    state: ReplicaState | None = None
    health: Health = Health.ALIVE
    #: instants of the last heartbeat and of the lag, on this node's boot clock; 0: none
    beat_boot_ms: int = 0
    lag_boot_ms: int = 0

    def __str__(self) -> str:
        return f"{self.node_id} ({self.role.lower()}): {self.why}"

    def describe(self, now_boot_ms: int) -> dict[str, object]:
        """As JSON, for errors, `GET /route` and `EXPLAIN ROUTE`; what is unknown is null."""
        bound = self.lag_records_max
        return {
            "node": self.node_id,
            "host": self.info.public if self.info else None,
            "role": self.role,
            "usable": self.ok,
            "why": self.why,
            "alive": self.health.name,
            "beat_age_ms": now_boot_ms - self.beat_boot_ms if self.beat_boot_ms else None,
            "state": self.state.name if self.state is not None else None,
            "lag_records": self.lag_records,
            "lag_records_max": bound if bound < LAG_UNBOUNDED else None,
            "lag_age_ms": now_boot_ms - self.lag_boot_ms if self.lag_boot_ms else None,
        }


BETWEEN_BATCHES: Final = (
    "Replica is between two batches: its rows may be further behind than its lag in records says."
)

#: A rule refuses a candidate with a reason, or accepts it with None.
Rule = Callable[[Candidate, Bounds], str | None]


def is_member(candidate: Candidate, bounds: Bounds) -> str | None:
    """A node that was removed from the metadata log no longer holds anything."""
    return None if candidate.info else "Host is not a member of the cluster."


def is_role_allowed(candidate: Candidate, bounds: Bounds) -> str | None:
    """Source: ksqlDB's ActiveHostFilter, `ksql.query.pull.enable.standby.reads`."""
    if candidate.role == "ACTIVE" or bounds.standby_reads:
        return None
    return "Host is not the active host for this partition."


def is_not_dead(candidate: Candidate, bounds: Bounds) -> str | None:
    """A node is dead if it neither sends heartbeats nor answers: one sign alone proves nothing.

    A node whose controller stopped sends no heartbeats but answers reads; a path that failed may
    work again. Source: KLIP-12; ksqlDB's LivenessFilter.
    """
    if candidate.is_silent and candidate.is_suspect:
        return "Host is not alive: no heartbeats, and its path failed."
    return None


def is_answering(candidate: Candidate, bounds: Bounds) -> str | None:
    """The local replica's state is known. A peer checks its own state, which may be newer than
    its report."""
    if not candidate.is_local:
        return None
    if candidate.state is None:
        return "Replica is ABSENT on this host."
    return None if candidate.state.answers else f"Replica is {candidate.state.name}."


def is_of_one_batch(candidate: Candidate, bounds: Bounds) -> str | None:
    """Rows between two batches satisfy no bound, whatever the lag: only a read without one gets
    them. A peer checks its own rows."""
    is_refused = bounds.is_bounded and candidate.is_local and candidate.is_between_batches
    return BETWEEN_BATCHES if is_refused else None


def is_within_lag(candidate: Candidate, bounds: Bounds) -> str | None:
    """Lag equal to the bound is allowed (KLIP-12's sketch says less; docs/sources.md).

    A peer with an unknown or stale lag passes, since it enforces the bound itself; the local
    replica with an unknown lag passes only if there is no bound. Source: KLIP-12; texts of
    ksqlDB's MaximumLagFilter.
    """
    if not bounds.is_lag_bounded:
        return None
    if candidate.lag_unknown:
        return candidate.lag_unknown
    if candidate.lag_records is None:
        return "Lag information is not present for host." if candidate.is_local else None
    is_refused = candidate.is_surely_beyond(bounds)
    return excluded(candidate.lag_records, bounds) if is_refused else None


def excluded(lag_records: int, bounds: Bounds) -> str:
    """The reason for a refusal by lag, in ksqlDB's words (MaximumLagFilter)."""
    maximum = bounds.lag_records_max
    return f"Host excluded because lag {lag_records} exceeds maximum allowed lag {maximum}."


#: The first refusal is the one that is reported.
RULES: Final[tuple[Rule, ...]] = (
    is_member,
    is_role_allowed,
    is_not_dead,
    is_answering,
    is_of_one_batch,
    is_within_lag,
)

#: Doubts about a usable replica. Each outweighs all before it; the last that applies gives the
#: reason.
DOUBTS: Final[tuple[tuple[Callable[[Candidate], bool], str], ...]] = (
    (lambda c: c.is_leaving, "Host reports that it is draining or stopping; tried late."),
    (lambda c: c.health is Health.UNKNOWN, "No heartbeat received yet; tried after live hosts."),
    (
        lambda c: c.state is not None and not c.state.answers,
        "Replica was not answering as of its last report; tried late.",
    ),
    (lambda c: c.is_held_down, "Host sends heartbeats again but has flapped recently; tried late."),
    (lambda c: not c.workers_ok, "Host reports hung or dead workers; tried late."),
    (lambda c: c.is_silent, "Host sends no heartbeats; tried late."),
    (lambda c: c.is_suspect, "Path failed recently; tried last."),
)


# ----------------------------------------------------------------------------------- order


#: sorts candidates; False and smaller values go first
_Rank = tuple[bool, int, int, tuple[int, ...], bool, int, int]


def route(
    placement: Placement,
    nodes: Mapping[NodeId, NodeInfo],
    *,
    local: NodeId,
    local_status: ReplicaStatus | None = None,
    suspects: AbstractSet[NodeId] = frozenset(),
    heard: PeerReports = NO_REPORTS,
    bounds: Bounds = ANYTHING,
    policy: str = "active-first",
    rules: Iterable[Rule] = RULES,
    lag_unknown: str = "",
) -> list[Verdict]:
    """Verdicts on all replicas of a partition, in the order in which they should be tried.

    `suspects`: nodes whose path failed recently. `lag_unknown`: why the local replica's lag in
    records says nothing; "": it does. Usable replicas come first; if there are none,
    `node.worker.pull.refusals` builds the error.
    """
    own_end = local_status.committed_end if local_status is not None else NO_END
    ranked: list[tuple[_Rank, Verdict]] = []
    for place, node_id in enumerate(placement.replicas):
        role: Role = "ACTIVE" if place == 0 else "STANDBY"
        info, is_suspect = nodes.get(node_id), node_id in suspects
        if node_id == local:
            candidate = replace(
                _here(node_id, role, info, local_status, heard), lag_unknown=lag_unknown
            )
        else:
            candidate = _there(node_id, role, info, heard, own_end=own_end, is_suspect=is_suspect)
        refusal = next((why for rule in rules if (why := rule(candidate, bounds))), None)
        doubts = [n for n, (applies, _) in enumerate(DOUBTS) if applies(candidate)]
        lag = candidate.lag_records
        rank = (
            refusal is not None,
            sum(1 << n for n in doubts),
            _lag_doubt(candidate, bounds),
            POLICIES[policy](candidate, placement, nodes.get(local)),
            lag is None,
            lag or 0,
            place,
        )
        why = refusal or (DOUBTS[doubts[-1]][1] if doubts else _why_usable(candidate, bounds))
        ranked.append((rank, _verdict(candidate, bounds, ok=refusal is None, why=why)))
    return [verdict for _, verdict in sorted(ranked, key=lambda pair: pair[0])]


def _lag_doubt(candidate: Candidate, bounds: Bounds) -> int:
    """After those known to be within the bound: unknown lags, then those beyond it as of their
    last report, by their lag or because their rows were of no batch."""
    if not bounds.is_bounded:
        return 0
    if candidate.is_between_batches or candidate.is_beyond(bounds):
        return 2
    return int(bounds.is_lag_bounded and candidate.lag_records is None)


def _why_usable(candidate: Candidate, bounds: Bounds) -> str:
    if bounds.is_bounded and candidate.is_between_batches:
        return "Replica was between two batches as of its last report; tried late."
    if not candidate.is_beyond(bounds):
        return "Usable."
    lag, maximum = candidate.lag_records, bounds.lag_records_max
    return f"Lag of at most {lag} exceeded {maximum} as of the last report; tried late."


def _here(
    node_id: NodeId,
    role: Role,
    info: NodeInfo | None,
    status: ReplicaStatus | None,
    heard: PeerReports,
) -> Candidate:
    """The local replica: its position against the furthest end that any node reported, since the
    local tailer may have stopped."""
    lag = None
    if status is not None:
        lag = offset_lag((status.committed_end, heard.committed_end), status.position)
    return Candidate(
        node_id=node_id,
        role=role,
        info=info,
        is_local=True,
        state=status.state if status is not None else None,
        lag_records=lag,
        is_between_batches=status is not None and status.batch == NO_BATCH,
    )


def _there(
    node_id: NodeId,
    role: Role,
    info: NodeInfo | None,
    heard: PeerReports,
    *,
    own_end: Offset,
    is_suspect: bool,
) -> Candidate:
    """`own_end`: the committed end that this node's replica knows."""
    peer, known = heard.liveness.get(node_id), heard.lags.get(node_id)
    lag = offset_lag((heard.committed_end, own_end), known.lag.position) if known else None
    lag_then = offset_lag((heard.committed_end,), known.lag.position) if known else None
    unheard = Health.UNKNOWN if heard.liveness else Health.ALIVE
    return Candidate(
        node_id=node_id,
        role=role,
        info=info,
        is_local=False,
        state=known.lag.state if known else None,
        is_between_batches=known is not None and known.lag.batch == NO_BATCH,
        lag_records=lag,
        lag_records_then=lag_then,
        health=peer.health if peer else unheard,
        is_held_down=peer.is_held_down if peer else False,
        workers_ok=peer.workers_ok if peer else True,
        is_leaving=peer.is_leaving if peer else False,
        is_suspect=is_suspect,
        beat_boot_ms=peer.beat_boot_ms if peer else 0,
        lag_boot_ms=known.at_boot_ms if known else 0,
        is_lag_fresh=known is not None and known.at_boot_ms >= heard.fresh_since_ms,
    )


def _verdict(candidate: Candidate, bounds: Bounds, *, ok: bool, why: str) -> Verdict:
    return Verdict(
        node_id=candidate.node_id,
        role=candidate.role,
        ok=ok,
        why=why,
        is_local=candidate.is_local,
        lag_records=candidate.lag_records,
        lag_records_max=bounds.lag_records_max,
        info=candidate.info,
        state=candidate.state,
        health=candidate.health,
        beat_boot_ms=candidate.beat_boot_ms,
        lag_boot_ms=candidate.lag_boot_ms,
    )


def placements(assignment: Assignment) -> dict[ReplicaId, Placement]:
    """An index over an assignment: (table id, generation, partition) -> placement."""
    return {placement.replica_id: placement for placement in assignment.placements}
