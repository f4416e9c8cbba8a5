"""Steps from the committed assignment to the plan, without interrupting reads (KIP-441).

One call of `advance` takes the holders, the lags and the plan, and returns the next holders. It
keeps no state: the committed assignment, warm-ups included, is all that a new leader needs to
continue a move.
  an active moves only to a copy that has caught up; until then the old owner serves
  a copy that the plan wants elsewhere is made first and dropped after (make before break)
  copies beyond the wanted number are warm-ups; they are throttled by count and by bytes
KIP-441 probes every ten minutes (probing.rebalance.interval.ms). Here the caller calls again when
a warm-up has caught up; `Step.moves` names the copies that it waits for.

Not here: when a node counts as gone (the caller leaves it out of `nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from standpipe.control.assignment.model import (
    DEFAULT_RULES,
    HeldCopies,
    Holdings,
    PlanNode,
    PlanRules,
    Replicas,
    TablePartition,
)
from standpipe.control.assignment.plan import Violation, place_stateless, plan
from standpipe.control.assignment.readiness import Lags
from standpipe.control.assignment.transition import Draft, Transition, on_nodes
from standpipe.model import NodeId


class Throttle(msgspec.Struct, frozen=True):
    """How much may move at once, and how far an owner may lag before it loses its role."""

    #: max.warmup.replicas: warm-ups in the whole cluster
    warmup_count_max: int = 2
    #: bytes of the stores being warmed up; None: no limit. One warm-up is always allowed; otherwise
    #: a store larger than the limit could never move
    warmup_bytes_max: int | None = None
    #: a caught-up standby replaces an owner whose lag exceeds this (None: never). Larger than
    #: acceptable.recovery.lag, so that a lag that fluctuates around it does not swap actives
    leaving_lag_records: int | None = 20_000


DEFAULT_THROTTLE: Final = Throttle()


class MoveKind(StrEnum):
    """What still separates a partition from its plan."""

    PROMOTE = "promote"  # the planned active must catch up first
    WARM_UP = "warm up"  # a planned standby must catch up before it replaces another copy
    WAIT = "wait"  # a planned copy waits for its turn: the throttle is at its limit


class Move(msgspec.Struct, frozen=True):
    """One move under way or waiting."""

    partition: TablePartition
    kind: MoveKind
    node: NodeId
    why: str
    size_bytes: int = 0


class Step(msgspec.Struct, frozen=True):
    """What to commit next, and what remains. No moves left: the plan is reached."""

    holdings: Holdings
    moves: tuple[Move, ...] = ()
    unmet: tuple[Violation, ...] = ()

    @property
    def wants_followup(self) -> bool:
        """Call again when one of `moves` has caught up."""
        return bool(self.moves)


class Cluster(msgspec.Struct, frozen=True):
    """What `rebalance` looks at."""

    nodes: tuple[PlanNode, ...]
    partitions: tuple[TablePartition, ...]
    #: None: lags could not be determined at all
    lags: Lags | None
    #: partition -> bytes of one copy; unlisted ones count as 0
    sizes_bytes: Mapping[TablePartition, int] = {}


def rebalance(
    cluster: Cluster,
    current: Holdings,
    standby_count: int,
    rules: PlanRules = DEFAULT_RULES,
    throttle: Throttle = DEFAULT_THROTTLE,
) -> Step:
    """Plan, and take the next step towards the plan."""
    stateful = [p for p in cluster.partitions if p.stateful]
    if cluster.lags is None:
        return keep_owners(cluster, current)
    goal = plan(
        cluster.nodes,
        stateful,
        {p: held.nodes for p, held in current.items()},
        standby_count,
        rules=rules,
        lags=cluster.lags,
        begun={p: held.warmups for p, held in current.items()},
    )
    step = advance(cluster, current, goal.replicas, rules, throttle)
    alone = place_stateless(
        cluster.nodes,
        cluster.partitions,
        {p: held.replicas for p, held in current.items()},
        [held.replicas[0] for held in step.holdings.values() if held.replicas],
    )
    holdings = {**step.holdings, **{p: HeldCopies(replicas=row) for p, row in alone.items()}}
    if not step.moves and any(held.warmups for held in current.values()):
        # The plan kept warm-ups in place that have just become ordinary copies: plan again.
        return rebalance(cluster, holdings, standby_count, rules, throttle)
    return Step(holdings, step.moves, goal.unmet)


def keep_owners(cluster: Cluster, current: Holdings) -> Step:
    """Without lags nothing moves: no copy is known to be ready (KIP-441, fallback assignor).

    Copies on nodes that are gone are dropped; the next copy in order is the active. A partition
    without holders goes to the node with capacity and the fewest copies: that can lose no copy.
    """
    live = {node.node_id for node in cluster.nodes}
    kept = {p: on_nodes(current.get(p, HeldCopies()), live) for p in sorted(cluster.partitions)}
    load = {node.node_id: 0 for node in cluster.nodes if node.capacity > 0}
    for held in kept.values():
        for node in held.nodes:
            load[node] = load.get(node, 0) + 1
    moves: list[Move] = []
    able = sorted(node.node_id for node in cluster.nodes if node.capacity > 0)
    for partition, held in kept.items():
        if not held.replicas and able:
            node = min(able, key=lambda n: (load[n], n))
            load[node] += 1
            kept[partition] = HeldCopies(replicas=(node,))
        if kept[partition].replicas:
            why = "lags are unknown: owners stay; retry once lags are known"
            moves.append(Move(partition, MoveKind.WAIT, kept[partition].replicas[0], why))
    return Step(kept, tuple(moves))


# ------------------------------------------------------------------------------- one step


def advance(
    cluster: Cluster,
    current: Holdings,
    goal: Replicas,
    rules: PlanRules = DEFAULT_RULES,
    throttle: Throttle = DEFAULT_THROTTLE,
) -> Step:
    """The next holdings on the way to `goal`, and the moves that remain after them."""
    road = Transition(cluster.nodes, cluster.lags or {}, rules, throttle.leaving_lag_records)
    budget = _Budget(throttle, cluster.sizes_bytes)
    drafts = {p: road.draft(p, current.get(p, HeldCopies()), goal[p]) for p in sorted(goal)}
    admitted = budget.admit(drafts.values())
    holdings: dict[TablePartition, HeldCopies] = {}
    moves: list[Move] = []
    for partition, draft in drafts.items():
        warmups = tuple(n for n in draft.wanted if (partition, n) in admitted)
        holdings[partition] = HeldCopies(draft.replicas, warmups)
        moves += _remaining(draft, warmups, cluster.sizes_bytes.get(partition, 0))
    return Step(holdings, tuple(moves))


class _Budget:
    """Which warm-ups may exist at once."""

    def __init__(self, throttle: Throttle, sizes_bytes: Mapping[TablePartition, int]) -> None:
        self._throttle = throttle
        self._sizes_bytes = sizes_bytes

    def admit(self, drafts: Iterable[Draft]) -> set[tuple[TablePartition, NodeId]]:
        """Begun copies first, then future actives, then standbys; each in order of partition.

        Finishing a begun copy frees its slot soonest, and no half-read copy is discarded. A copy
        that cannot be used without a second one comes last: it could hold the last slot
        permanently while the second one waits for a slot.
        """
        queue = sorted(
            (
                node not in draft.usable,
                node not in draft.begun,
                node != draft.goal[0],
                draft.partition,
                node,
            )
            for draft in drafts
            for node in draft.wanted
        )
        admitted: set[tuple[TablePartition, NodeId]] = set()
        total_bytes = 0
        for *_, partition, node in queue:
            if len(admitted) >= self._throttle.warmup_count_max:
                break
            size_bytes = self._sizes_bytes.get(partition, 0)
            limit = self._throttle.warmup_bytes_max
            if admitted and limit is not None and total_bytes + size_bytes > limit:
                continue
            admitted.add((partition, node))
            total_bytes += size_bytes
        return admitted


def _remaining(draft: Draft, warmups: tuple[NodeId, ...], size_bytes: int) -> list[Move]:
    moves: list[Move] = []
    partition, goal = draft.partition, draft.goal
    if goal and draft.replicas[0] != goal[0] and goal[0] in draft.replicas:
        why = f"standby here; {draft.replicas[0]} serves until it has caught up"
        moves.append(Move(partition, MoveKind.PROMOTE, goal[0], why, size_bytes))
    for node in draft.wanted:
        kind = MoveKind.PROMOTE if node == goal[0] else MoveKind.WARM_UP
        why = f"copies the data; {', '.join(draft.replicas)} serve until it has caught up"
        if node not in warmups:
            kind, why = MoveKind.WAIT, "the throttle is at its limit"
        moves.append(Move(partition, kind, node, why, size_bytes))
    return moves
