"""Which replicas may answer a read of one table partition, in which order, and why (or why not).

A pure decision on what is at hand: no call leaves the node for it (KLIP-12, tradeoff 2). Order:
the active, then standbys by lag, the least first, an unknown lag after every known one; replicas
whose path failed a moment ago (suspects) after all others, because a suspicion may be wrong and a
late answer is better than none; the refused last, with their reasons.

The bounds are enforced here with what this node knows, that is for its own replica and where a peer
reported a lag; the target of a forward enforces them again with its own numbers.

Not here: heartbeats and lag reports of peers (they arrive as `lags` and `suspects`), hedging and
the forward itself (`node.serve`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal

from standpipe.errors import NoReplica
from standpipe.model import Assignment, NodeId, NodeInfo, Placement, ReplicaStatus

Role = Literal["ACTIVE", "STANDBY"]

#: ksqlDB's default of `ksql.query.pull.max.allowed.offset.lag`: no bound at all
LAG_UNBOUNDED: Final = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How stale an answer may be. `lag_records_max` at or above 2^63 - 1: no bound."""

    lag_records_max: int = LAG_UNBOUNDED
    standby_reads: bool = True

    @property
    def is_bounded(self) -> bool:
        return self.lag_records_max < LAG_UNBOUNDED


ANYTHING: Final = Bounds()


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A replica and all that this node knows about it."""

    node_id: NodeId
    role: Role
    info: NodeInfo | None  # None: the log knows no such node (it was removed)
    is_local: bool
    status: ReplicaStatus | None  # of the local replica; a peer's is not known here
    lag_records: int | None  # None: unknown, which is never 0
    is_suspect: bool


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was decided about one replica. `why` is a sentence for logs, errors and tests."""

    node_id: NodeId
    role: Role
    ok: bool
    why: str
    is_local: bool = False
    lag_records: int | None = None
    info: NodeInfo | None = None

    def __str__(self) -> str:
        return f"{self.node_id} ({self.role.lower()}): {self.why}"


#: A rule refuses with a reason, or lets pass with None.
Rule = Callable[[Candidate, Bounds], str | None]


def is_member(candidate: Candidate, bounds: Bounds) -> str | None:
    return None if candidate.info else "Host is not a member of the cluster."


def is_role_allowed(candidate: Candidate, bounds: Bounds) -> str | None:
    """Source: ksqlDB's ActiveHostFilter, `ksql.query.pull.enable.standby.reads`."""
    if candidate.role == "ACTIVE" or bounds.standby_reads:
        return None
    return "Host is not the active host for this partition."


def is_answering(candidate: Candidate, bounds: Bounds) -> str | None:
    """Only the local replica's state is known here; a peer judges its own."""
    if not candidate.is_local:
        return None
    if candidate.status is None:
        return "Replica is ABSENT on this host."
    if candidate.status.state.answers:
        return None
    return f"Replica is {candidate.status.state.name}."


def is_within_lag(candidate: Candidate, bounds: Bounds) -> str | None:
    """Lag equal to the bound is allowed (KLIP-12's sketch says less; DESIGN section 10).

    An unknown lag passes for a peer, which enforces the bound itself, and for the local replica
    only where nothing was asked. Source: KLIP-12; texts of ksqlDB's MaximumLagFilter.
    """
    if not bounds.is_bounded:
        return None
    if candidate.lag_records is None:
        return "Lag information is not present for host." if candidate.is_local else None
    if candidate.lag_records <= bounds.lag_records_max:
        return None
    return (
        f"Host excluded because lag {candidate.lag_records} exceeds "
        f"maximum allowed lag {bounds.lag_records_max}."
    )


#: The first refusal is the one that is reported.
RULES: Final[tuple[Rule, ...]] = (is_member, is_role_allowed, is_answering, is_within_lag)


def route(
    placement: Placement,
    nodes: Mapping[NodeId, NodeInfo],
    *,
    local: NodeId,
    local_status: ReplicaStatus | None = None,
    suspects: AbstractSet[NodeId] = frozenset(),
    lags: Mapping[NodeId, int] | None = None,
    bounds: Bounds = ANYTHING,
    rules: Iterable[Rule] = RULES,
) -> list[Verdict]:
    """Verdicts on all replicas of a partition, in the order in which they should be tried.

    `suspects`: nodes whose path failed lately. `lags`: lag of peers in records, where they reported
    it. The usable ones come first; if none is, `no_replica` makes the error.
    """
    known = lags or {}
    candidates = [
        Candidate(
            node_id=node_id,
            role="ACTIVE" if place == 0 else "STANDBY",
            info=nodes.get(node_id),
            is_local=node_id == local,
            status=local_status if node_id == local else None,
            lag_records=_lag(node_id, local, local_status, known),
            is_suspect=node_id in suspects,
        )
        for place, node_id in enumerate(placement.replicas)
    ]
    judged = [(candidate, _judge(candidate, bounds, rules)) for candidate in candidates]
    return [verdict for _, verdict in sorted(judged, key=_rank)]


def no_replica(statement: str, partition: int, verdicts: Iterable[Verdict]) -> NoReplica:
    """The error of a read that no replica may answer. Source: the article's text and KLIP-12."""
    listed = list(verdicts)
    reasons = "; ".join(str(verdict) for verdict in listed)
    return NoReplica(
        f"Unable to execute pull query {statement}. "
        "All nodes are dead or exceed max allowed lag."
        f" [Partition {partition}: {reasons or 'no replica is assigned'}]",
        partition=partition,
        verdicts=[
            {
                "node": verdict.node_id,
                "role": verdict.role,
                "why": verdict.why,
                "lag_records": verdict.lag_records,
            }
            for verdict in listed
        ],
    )


def placements(assignment: Assignment) -> dict[tuple[str, int, int], Placement]:
    """An index over an assignment: (table id, generation, partition) -> placement."""
    return {
        (placement.table_id, placement.generation, placement.partition): placement
        for placement in assignment.placements
    }


def _lag(
    node_id: NodeId, local: NodeId, status: ReplicaStatus | None, known: Mapping[NodeId, int]
) -> int | None:
    if node_id != local:
        return known.get(node_id)
    return status.offset_lag if status else None


def _judge(candidate: Candidate, bounds: Bounds, rules: Iterable[Rule]) -> Verdict:
    refusal = next((why for rule in rules if (why := rule(candidate, bounds))), None)
    passed = "Path failed lately; tried last." if candidate.is_suspect else "In reach."
    return Verdict(
        node_id=candidate.node_id,
        role=candidate.role,
        ok=refusal is None,
        why=refusal or passed,
        is_local=candidate.is_local,
        lag_records=candidate.lag_records,
        info=candidate.info,
    )


def _rank(judged: tuple[Candidate, Verdict]) -> tuple[bool, bool, bool, bool, int]:
    """Sort key; False sorts first. Equal ranks keep the assignment's order."""
    candidate, verdict = judged
    lag = candidate.lag_records
    return (not verdict.ok, candidate.is_suspect, candidate.role != "ACTIVE", lag is None, lag or 0)
