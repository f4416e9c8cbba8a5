"""Scenario data (servers, tasks, lags in JSON) → our records → a result for the evaluator.

The evaluator is `expect_eval.py` in the scenarios' own folder, loaded at run time: it judges,
this file only translates. Words: server = node, task = table partition. No scenario is known by
name here. Declared out: kinds `cost` and `cost_guard` (KIP-925: traffic between racks has no
price in Standpipe, where every replica tails the changelog itself).
"""

from __future__ import annotations

import importlib.util
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from standpipe.control.assignment.model import HeldCopies, PlanNode, PlanRules, TablePartition
from standpipe.control.assignment.plan import plan
from standpipe.control.assignment.racks import keeps_spread, places, strategy
from standpipe.control.assignment.readiness import BadReport, Lag, lag_records
from standpipe.control.assignment.rebalance import Cluster, Throttle, advance, rebalance
from standpipe.model import NodeId

Json = dict[str, Any]
Failures = list[str]

DECLARED_OUT = {
    "cost": "KIP-925's traffic cost is not built",
    "cost_guard": "KIP-925's traffic cost is not built",
}
SHUFFLES = 5


@dataclass(frozen=True)
class Outcome:
    name: str
    kind: str
    failures: Failures
    skipped: str = ""
    seconds: float = 0.0
    seconds_max: float | None = None


def load_evaluator(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("expect_eval", folder / "expect_eval.py")
    assert spec is not None, f"no expect_eval.py in {folder}"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------------- names and records


def partition_of(task: str, *, stateful: bool = True) -> TablePartition:
    """`7_12` → table 7, partition 12; zero-padded, since their order is numeric."""
    table, _, number = task.rpartition("_")
    if table.isdigit() and number.isdigit():
        return TablePartition(f"{int(table):09d}", 1, int(number), stateful)
    return TablePartition(task, 1, 0, stateful)


def partitions_of(tasks: Sequence[Json]) -> dict[str, TablePartition]:
    return {t["id"]: partition_of(t["id"], stateful=t.get("stateful", True)) for t in tasks}


def node_of(server: Json) -> PlanNode:
    return PlanNode(
        node_id=NodeId(server["id"]),
        tags=server.get("tags", {}),
        capacity=server.get("capacity", 1),
        rack=server.get("rack") or "",
    )


def lag_of(value: int | str) -> Lag:
    return BadReport(value) if isinstance(value, str) else value


def rules_of(config: Json) -> PlanRules:
    limit = config.get("acceptable_recovery_lag", 10000)
    return PlanRules(
        rack_aware_tags=tuple(config.get("rack_aware_tags", [])),
        acceptable_lag_records=None if limit == "inf" else limit,
    )


def throttle_of(config: Json) -> Throttle:
    """The vocabulary knows one limit of lag, so the band for owners has no width here."""
    limit = config.get("acceptable_recovery_lag", 10000)
    return Throttle(
        warmup_count_max=config.get("max_warmups", 2),
        leaving_lag_records=None if limit == "inf" else limit,
    )


def cluster_of(problem: Json, *, lags_known: bool = True) -> Cluster:
    named = partitions_of(problem["tasks"])
    lags: dict[TablePartition, dict[NodeId, Lag]] = {}
    for server in problem["servers"]:
        for task, value in server.get("lags", {}).items():
            if task in named:
                lags.setdefault(named[task], {})[NodeId(server["id"])] = lag_of(value)
    return Cluster(
        nodes=tuple(node_of(s) for s in problem["servers"]),
        partitions=tuple(named.values()),
        lags=lags if lags_known else None,
    )


def copies_of(
    problem: Json, active_key: str, standby_key: str
) -> dict[TablePartition, tuple[str | None, list[str]]]:
    named = partitions_of(problem["tasks"])
    active: dict[TablePartition, str | None] = dict.fromkeys(named.values())
    standbys: dict[TablePartition, list[str]] = {p: [] for p in named.values()}
    for server in problem["servers"]:
        for task in server.get(active_key, []):
            if task in named:
                active[named[task]] = server["id"]
        for task in server.get(standby_key, []):
            if task in named:
                standbys[named[task]].append(server["id"])
    return {p: (active[p], standbys[p]) for p in named.values()}


#: stands in for an active that was on a server which is no longer in the problem
GONE = NodeId("(gone)")


def holdings_of(problem: Json) -> dict[TablePartition, HeldCopies]:
    copies = copies_of(problem, "prev_active", "prev_standby")
    return {
        p: HeldCopies(replicas=(NodeId(active or GONE), *map(NodeId, standbys)))
        for p, (active, standbys) in copies.items()
        if active or standbys
    }


def result_of(problem: Json, holdings: Mapping[TablePartition, HeldCopies], followup: bool) -> Json:
    assignment = {s["id"]: {"active": [], "standby": [], "warmup": []} for s in problem["servers"]}
    for task, partition in partitions_of(problem["tasks"]).items():
        held = holdings.get(partition, HeldCopies())
        for place, node in enumerate(held.replicas):
            assignment[node]["standby" if place else "active"].append(task)
        for node in held.warmups:
            assignment[node]["warmup"].append(task)
    return {"assignment": assignment, "followup": followup}


# ------------------------------------------------------------------------- what each kind runs


def assign(problem: Json) -> Json:
    config = problem["config"]
    step = rebalance(
        cluster_of(problem),
        holdings_of(problem),
        config.get("num_standbys", 0),
        rules_of(config),
        throttle_of(config),
    )
    return result_of(problem, step.holdings, step.wants_followup)


def run_assign(scenario: Json, judge: ModuleType) -> Failures:
    expect = scenario["expect"]
    policy = scenario.get("policies", {}).get("spread_first", {})
    result = assign(scenario)
    failures: Failures = judge.check_assign(scenario, result, {**expect, **policy})
    if expect.get("order_independent"):
        failures += [
            f"order_independent: shuffle {seed} gives another result"
            for seed in range(SHUFFLES)
            if _canonical(assign(_shuffled(scenario, seed))) != _canonical(result)
        ]
    return failures


def _shuffled(problem: Json, seed: int) -> Json:
    rng = random.Random(seed)

    def mixed(items: Sequence[Any]) -> list[Any]:
        return rng.sample(list(items), len(items))

    servers = [dict(mixed(list(s.items()))) for s in mixed(problem["servers"])]
    for server in servers:
        server["lags"] = dict(mixed(list(server.get("lags", {}).items())))
        server["tags"] = dict(mixed(list(server.get("tags", {}).items())))
    return {**problem, "servers": servers, "tasks": mixed(problem["tasks"])}


def _canonical(result: Json) -> Json:
    rows = result["assignment"].items()
    return {s: {role: sorted(tasks) for role, tasks in row.items()} for s, row in rows}


def run_rounds(scenario: Json, judge: ModuleType) -> Failures:
    return judge.run_rounds(scenario, assign)[0]


def run_standby_only(scenario: Json, judge: ModuleType) -> Failures:
    cluster = cluster_of(scenario)
    copies = copies_of(scenario, "active", "standby")
    goal = plan(
        cluster.nodes,
        cluster.partitions,
        holdings_previous(scenario),
        scenario["config"].get("num_standbys", 0),
        rules=rules_of(scenario["config"]),
        actives={p: NodeId(active) for p, (active, _) in copies.items() if active},
    )
    held = {p: HeldCopies(replicas=row) for p, row in goal.replicas.items()}
    result = result_of(scenario, held, followup=False)
    return judge.check_assign(scenario, result, scenario["expect"])


def holdings_previous(problem: Json) -> dict[TablePartition, tuple[NodeId, ...]]:
    return {p: held.replicas for p, held in holdings_of(problem).items()}


def run_movement_only(scenario: Json, judge: ModuleType) -> Failures:
    config, expect = scenario["config"], scenario["expect"]
    copies = copies_of(scenario, "active", "standby")
    goal = {
        p: (NodeId(active), *map(NodeId, standbys))
        for p, (active, standbys) in copies.items()
        if active
    }
    cluster = cluster_of(scenario)
    step = advance(cluster, holdings_of(scenario), goal, rules_of(config), throttle_of(config))
    result = result_of(scenario, step.holdings, step.wants_followup)
    failures: Failures = judge.check_assign(scenario, result, expect)
    movements = sum(step.holdings[p].active != row[0] for p, row in goal.items())
    if "movements" in expect and movements != expect["movements"]:
        failures.append(f"movements: {movements} != {expect['movements']}")
    return failures


def run_move_ok(scenario: Json, judge: ModuleType) -> Failures:
    del judge
    query, names = scenario["query"], tuple(scenario["config"].get("rack_aware_tags", []))
    stands = {s["id"]: places([(s.get("tags", {}), "")], names)[0] for s in scenario["servers"]}
    others = [
        stands[s["id"]]
        for s in scenario["servers"]
        if s["id"] != query["from"]
        and query["task"] in [*s.get("active", []), *s.get("standby", [])]
    ]
    allowed = keeps_spread(others, stands[query["from"]], stands[query["to"]])
    wanted = scenario["expect"]["allowed"]
    return [] if allowed is wanted else [f"allowed: {allowed} != {wanted}"]


def run_lag(scenario: Json, judge: ModuleType) -> Failures:
    del judge
    failures: Failures = []
    for task, wanted in scenario["expect"]["lags"].items():
        ends = scenario["end_offsets"][task]
        position = scenario["servers"][0].get("offsets", {}).get(task, "inf")
        lag = lag_records(lag_of(position), ends if isinstance(ends, list) else [ends])
        shown = str(lag) if isinstance(lag, BadReport) else lag
        if shown != wanted:
            failures.append(f"lags: {task} {shown} != {wanted}")
    return failures


def run_fallback(scenario: Json, judge: ModuleType) -> Failures:
    config = scenario["config"]
    step = rebalance(
        cluster_of(scenario, lags_known=False),
        holdings_of(scenario),
        config.get("num_standbys", 0),
        rules_of(config),
        throttle_of(config),
    )
    result = result_of(scenario, step.holdings, step.wants_followup)
    return judge.check_assign(scenario, result, scenario["expect"])


def run_choice(scenario: Json, judge: ModuleType) -> Failures:
    del judge
    config, wanted = scenario["config"], scenario["expect"]["placement"]
    chosen = strategy(config.get("rack_aware_tags", []), config.get("every_server_has_rack", False))
    return [] if chosen == wanted else [f"placement: {chosen} != {wanted}"]


def run_assign_compact(scenario: Json, judge: ModuleType) -> Failures:
    return run_assign({**scenario, "tasks": list(_expanded(scenario["tasks"]))}, judge)


def _expanded(tasks: Sequence[Json]) -> Iterator[Json]:
    for task in tasks:
        if "id_range" not in task:
            yield task
            continue
        first, _, last = task["id_range"].partition("..")
        table = first.rpartition("_")[0]
        low, high = (int(end.rpartition("_")[2]) for end in (first, last))
        for number in range(low, high + 1):
            yield {"id": f"{table}_{number}", "stateful": task.get("stateful", True)}


def run_random(scenario: Json, judge: ModuleType) -> Failures:
    """Traffic cost is not built, so it cannot change a result; what remains to be shown on each
    generated cluster is a valid, balanced result that input order does not change."""
    failures: Failures = []
    for seed in scenario["generator"]["seeds"]:
        problem = generated(scenario, seed)
        expect = {
            "each_task_active_once": True,
            "no_task_twice_on_server": True,
            "balanced_active": 1.0,
            "replicas": {"standbys": problem["config"].get("num_standbys", 0)},
        }
        known = {k: v for k, v in scenario["expect"].items() if k != "note"}
        first = assign(problem)
        found: Failures = judge.check_assign(problem, first, {**expect, **known})
        if _canonical(assign(_shuffled(problem, seed))) != _canonical(first):
            found.append("order_independent: a shuffle gives another result")
        failures += [f"seed {seed}: {failure}" for failure in found]
    return failures


def generated(scenario: Json, seed: int) -> Json:
    """The cluster that `generator` describes. `lags` is one value for every copy ("all 0")."""
    generator, rng = scenario["generator"], random.Random(seed)
    low, high = generator["capacity"]
    tasks = [
        {"id": f"{table}_{number}", "stateful": True}
        for table in range(generator["subtopologies"])
        for number in range(generator["partitions"])
    ]
    word = str(generator.get("lags", "all inf")).split()[-1]
    lag = int(word) if word.isdigit() else word
    servers = [
        {
            "id": f"s{number:04d}",
            "capacity": rng.randint(low, high),
            "lags": {t["id"]: lag for t in tasks},
        }
        for number in range(generator["servers"])
    ]
    return {"servers": servers, "tasks": tasks, "config": scenario["config"]}


RUN: Mapping[str, Callable[[Json, ModuleType], Failures]] = {
    "assign": run_assign,
    "standby_only": run_standby_only,
    "movement_only": run_movement_only,
    "move_ok": run_move_ok,
    "rounds": run_rounds,
    "lag": run_lag,
    "fallback": run_fallback,
    "choice": run_choice,
    "random": run_random,
    "assign_compact": run_assign_compact,
}


def run(scenario: Json, judge: ModuleType) -> Outcome:
    kind = scenario["kind"]
    outcome = Outcome(scenario["name"], kind, [], DECLARED_OUT.get(kind, ""))
    if outcome.skipped:
        return outcome
    if kind not in RUN:
        return replace(outcome, failures=[f"kind: {kind!r} is unknown"])
    began = time.perf_counter()
    failures = RUN[kind](scenario, judge)
    return replace(
        outcome,
        failures=failures,
        seconds=time.perf_counter() - began,
        seconds_max=scenario["expect"].get("wall_seconds_max"),
    )
