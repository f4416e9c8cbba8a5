"""Which node holds what, why, and what would move: the assignment for people and tools.

`suppose` applies an operator's hypothetical change ("remove node-3") to a problem, `view` describes
a problem and its step. Nothing here is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from standpipe.control.assignment import racks
from standpipe.control.assignment.from_catalog import Problem
from standpipe.control.assignment.model import HeldCopies, Holdings, PlanNode, TablePartition
from standpipe.control.assignment.readiness import Lags
from standpipe.control.assignment.rebalance import Move, Step, Throttle
from standpipe.control.metadata.catalog import Catalog
from standpipe.model import NodeId

#: steps simulated towards a plan; if it is not reached by then, the last step is shown
STEPS_MAX: Final = 10
_UNTHROTTLED: Final = Throttle(warmup_count_max=10**9)
SUPPOSITIONS: Final = (
    "remove NODE",
    "drain NODE",
    "add NODE [tag=value …]",
    "capacity NODE NUMBER",
    "standbys NUMBER",
)


# ----------------------------------------------------------------------------------- what if


def suppose(problem: Problem, text: str) -> Problem:
    """The problem after these hypothetical changes, separated by commas.

    Raises ValueError that quotes the part that cannot be parsed.
    """
    for clause in filter(None, (part.split() for part in text.split(","))):
        change = _CHANGES.get(clause[0].lower())
        if change is None or len(clause) < 2:
            raise ValueError(
                f"{' '.join(clause)!r} is not a change; use one of: {', '.join(SUPPOSITIONS)}"
            )
        problem = change(problem, clause[1:])
    return problem


def _remove(problem: Problem, words: list[str]) -> Problem:
    gone = _node(problem, words[0]).node_id
    return _with_nodes(problem, [n for n in problem.cluster.nodes if n.node_id != gone])


def _drain(problem: Problem, words: list[str]) -> Problem:
    return _capacity(problem, [words[0], "0"])


def _capacity(problem: Problem, words: list[str]) -> Problem:
    changed = msgspec.structs.replace(
        _node(problem, words[0]), capacity=_number("".join(words[1:2]))
    )
    nodes = problem.cluster.nodes
    return _with_nodes(problem, [changed if n.node_id == changed.node_id else n for n in nodes])


def _add(problem: Problem, words: list[str]) -> Problem:
    name, *tags = words
    if any(node.node_id == name for node in problem.cluster.nodes):
        raise ValueError(f"{name} is in the cluster already")
    if not all("=" in tag for tag in tags):
        raise ValueError(f"tags are written tag=value, not {' '.join(tags)!r}")
    pairs = dict(tag.split("=", 1) for tag in tags)
    return _with_nodes(problem, [*problem.cluster.nodes, PlanNode(NodeId(name), pairs)])


def _standbys(problem: Problem, words: list[str]) -> Problem:
    return msgspec.structs.replace(problem, standby_count=_number(words[0]))


_CHANGES: Final[Mapping[str, Callable[[Problem, list[str]], Problem]]] = {
    "remove": _remove,
    "drain": _drain,
    "capacity": _capacity,
    "add": _add,
    "standbys": _standbys,
}


def _node(problem: Problem, name: str) -> PlanNode:
    found = next((node for node in problem.cluster.nodes if node.node_id == name), None)
    if found is None:
        names = ", ".join(sorted(node.node_id for node in problem.cluster.nodes))
        raise ValueError(f"there is no node {name}; the nodes are {names}")
    return found


def _number(word: str) -> int:
    if not word.isdigit():
        raise ValueError(f"{word!r} is not a number")
    return int(word)


def _with_nodes(problem: Problem, nodes: Iterable[PlanNode]) -> Problem:
    cluster = msgspec.structs.replace(problem.cluster, nodes=tuple(nodes))
    return msgspec.structs.replace(problem, cluster=cluster)


def destination(problem: Problem) -> Holdings:
    """Where copies are once everything has moved, each as soon as it can."""
    current, lags = problem.current, problem.cluster.lags
    for _ in range(STEPS_MAX):
        cluster = msgspec.structs.replace(problem.cluster, lags=lags)
        step = msgspec.structs.replace(
            problem, cluster=cluster, current=current, throttle=_UNTHROTTLED
        ).solve()
        if step.holdings == current:
            break
        current, lags = step.holdings, _all_caught_up(step.holdings)
    return current


def _all_caught_up(holdings: Holdings) -> Lags:
    return {partition: dict.fromkeys(held.nodes, 0) for partition, held in holdings.items()}


# -------------------------------------------------------------------------------------- view


def view(
    catalog: Catalog, problem: Problem, step: Step, goal: Holdings | None = None
) -> dict[str, object]:
    """JSON-serializable. `goal` None: not computed. Lags in records; null where unknown."""
    names = {(source.table_id, source.generation): source.name for source in catalog.generations}
    return {
        "assignmentEpoch": catalog.assignment.epoch,
        "rules": {
            "standbyCount": problem.standby_count,
            "rackAwareTags": list(problem.rules.rack_aware_tags),
            "forced": {tag: list(values) for tag, values in problem.rules.forced.items()},
        },
        "nodes": [
            _node_line(catalog, node, problem, goal) for node in _all_node_ids(catalog, problem)
        ],
        "partitions": [
            _partition_line(names, at, problem, step, goal) for at in sorted(step.holdings)
        ],
        "moves": [_move_line(names, move) for move in step.moves],
        "moveBytes": sum(move.size_bytes for move in step.moves),
        "unmet": [
            {
                "wish": unmet.wish.value,
                "why": unmet.why,
                **(_named(names, unmet.partition) if unmet.partition else {}),
            }
            for unmet in step.unmet
        ],
    }


def _all_node_ids(catalog: Catalog, problem: Problem) -> list[NodeId]:
    return sorted({*catalog.nodes, *(node.node_id for node in problem.cluster.nodes)})


def _node_line(
    catalog: Catalog, node_id: NodeId, problem: Problem, goal: Holdings | None
) -> dict[str, object]:
    node = next((n for n in problem.cluster.nodes if n.node_id == node_id), None)
    line: dict[str, object] = {
        "nodeId": node_id,
        "tags": dict(node.tags) if node else {},
        "capacity": node.capacity if node else 0,
        "state": "gone" if node is None else "draining" if node.capacity == 0 else "member",
        **_counts(node_id, problem.current),
    }
    if goal is not None:
        line["then"] = _counts(node_id, goal)
    return line


def _counts(node_id: NodeId, holdings: Holdings) -> dict[str, int]:
    return {
        "actives": sum(held.active == node_id for held in holdings.values()),
        "standbys": sum(node_id in held.replicas[1:] for held in holdings.values()),
        "warmups": sum(node_id in held.warmups for held in holdings.values()),
    }


def _partition_line(
    names: Mapping[tuple[str | None, int], str],
    at: TablePartition,
    problem: Problem,
    step: Step,
    goal: Holdings | None,
) -> dict[str, object]:
    now = problem.current.get(at, HeldCopies())
    lags = (problem.cluster.lags or {}).get(at, {})
    line: dict[str, object] = {
        **_named(names, at),
        **_held(now),
        "lags": {node: lag if isinstance(lag, int) else None for node, lag in lags.items()},
        "bytes": problem.cluster.sizes_bytes.get(at, 0),
        "spread": _spread(problem, now),
        "next": _held(step.holdings[at]) if step.holdings[at] != now else None,
    }
    if goal is not None:
        line["then"] = _held(goal[at]) if at in goal and goal[at] != now else None
    return line


def _held(held: HeldCopies) -> dict[str, object]:
    return {
        "active": held.active,
        "standbys": list(held.replicas[1:]),
        "warmups": list(held.warmups),
    }


def _spread(problem: Problem, held: HeldCopies) -> dict[str, list[str | None]]:
    """Dimension -> the tag values of the copies' nodes, the active's first."""
    nodes = problem.cluster.nodes
    tags = problem.rules.rack_aware_tags
    stands = racks.places([(node.tags, node.rack) for node in nodes], tags)
    where = {node.node_id: place for node, place in zip(nodes, stands, strict=True)}
    dimensions = tags or (("client.rack",) if stands and stands[0] else ())
    return {
        name: [where[node][d] for node in held.replicas if node in where]
        for d, name in enumerate(dimensions)
    }


def _move_line(names: Mapping[tuple[str | None, int], str], move: Move) -> dict[str, object]:
    return {
        **_named(names, move.partition),
        "kind": move.kind.value,
        "node": move.node,
        "why": move.why,
        "bytes": move.size_bytes,
    }


def _named(names: Mapping[tuple[str | None, int], str], at: TablePartition) -> dict[str, object]:
    return {
        "table": names.get((at.table_id, at.generation), at.table_id),
        "tableId": at.table_id,
        "generation": at.generation,
        "partition": at.partition,
    }
