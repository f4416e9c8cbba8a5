"""How long does an assignment take?  Budget, one core, pure Python:
1,000 nodes × 10,000 partitions × 3 replicas over 2 tags ≤ 10 s from scratch, ≤ 2 s for one node
lost; 100 nodes × 1,000 partitions × 3 ≤ 1 s.

Sketch: each of 20,000 standbys looks at a few corners of the tag grid, ~10 µs each = ~0.5 s.
"lost" is the whole decision after a loss, as the leader makes it: plan, then one step of moves.
"skewed" has 80 % of the nodes in one zone: spread and balance exclude each other there, which is
the slow case. Budgets are for core seconds; wall seconds stand beside them. Not here: the child
process in which the leader runs it, and reading the lags.

    .venv/bin/python bench/assignor.py          # writes bench/results/assignor.json
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from standpipe.control.assignment.model import HeldCopies, PlanNode, PlanRules, TablePartition
from standpipe.control.assignment.plan import Plan, plan
from standpipe.control.assignment.readiness import BadReport
from standpipe.control.assignment.rebalance import Cluster, rebalance
from standpipe.model import NodeId

RUNS = 5
STANDBYS = 2
RULES = PlanRules(rack_aware_tags=("zone", "rack"))
RESULTS = Path(__file__).parent / "results" / "assignor.json"
#: nodes, partitions: the curve, and the two sizes that have a budget
CURVE = [(10, 100), (30, 300), (100, 1_000), (300, 3_000), (1_000, 10_000)]
SIZES = {"even": CURVE, "skewed": CURVE[:3]}
BUDGETS_S = {
    ("even", 100, "from scratch"): 1.0,
    ("even", 1_000, "from scratch"): 10.0,
    ("even", 1_000, "lost"): 2.0,
}


def cluster_nodes(shape: str, count: int) -> list[PlanNode]:
    def zone(number: int) -> str:
        if shape == "even":
            return "abcde"[number % 5]
        return "a" if number < count * 0.8 else "b" if number < count * 0.95 else "c"

    return [
        PlanNode(NodeId(f"node-{n:04d}"), {"zone": zone(n), "rack": f"rack-{n % 40}"})
        for n in range(count)
    ]


def table_partitions(count: int) -> list[TablePartition]:
    tables = max(1, count // 100)
    return [
        TablePartition(f"table-{t:03d}", 1, p)
        for t in range(tables)
        for p in range(count // tables)
    ]


def timed(work: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Seconds of the core, and seconds on the wall: they differ where others use the machine."""
    core: list[float] = []
    wall: list[float] = []
    for _ in range(RUNS):
        began, began_core = time.perf_counter(), time.process_time()
        work()
        core.append(round(time.process_time() - began_core, 4))
        wall.append(round(time.perf_counter() - began, 4))
    return core, wall


def after_loss(nodes: list[PlanNode], settled: Plan) -> Callable[[], object]:
    """The first node is gone; every other copy has caught up."""
    lost = nodes[0].node_id
    lags = {
        p: {n: (0 if place else BadReport.SERVING) for place, n in enumerate(row) if n != lost}
        for p, row in settled.replicas.items()
    }
    cluster = Cluster(tuple(nodes[1:]), tuple(settled.replicas), lags)
    current = {p: HeldCopies(replicas=row) for p, row in settled.replicas.items()}
    return lambda: rebalance(cluster, current, STANDBYS, RULES)


def measure(shape: str, node_count: int, partition_count: int) -> list[dict[str, object]]:
    nodes, partitions = cluster_nodes(shape, node_count), table_partitions(partition_count)
    settled = plan(nodes, partitions, {}, STANDBYS, rules=RULES)
    cases: dict[str, Callable[[], object]] = {
        "from scratch": lambda: plan(nodes, partitions, {}, STANDBYS, rules=RULES),
        "lost": after_loss(nodes, settled),
    }
    rows: list[dict[str, object]] = []
    for case, work in cases.items():
        core, wall = timed(work)
        budget_s = BUDGETS_S.get((shape, node_count, case))
        rows.append(
            {
                "shape": shape,
                "nodes": node_count,
                "partitions": partition_count,
                "replicas": 1 + STANDBYS,
                "case": case,
                "core_s": core,
                "wall_s": wall,
                "median_core_s": statistics.median(core),
                "median_wall_s": statistics.median(wall),
                "budget_s": budget_s,
                "unmet_wishes": len(settled.unmet),
            }
        )
        note = f"  (budget {budget_s} s)" if budget_s else ""
        print(
            f"{shape:7} {node_count:5} nodes {partition_count:6} partitions  {case:12} "
            f"{statistics.median(core):7.3f} s core {statistics.median(wall):7.3f} s wall{note}",
            flush=True,
        )
    return rows


def machine() -> dict[str, object]:
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": os.getloadavg(),
    }


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip() or "uncommitted"


def main() -> int:
    report: dict[str, object] = {
        "question": "how long does an assignment take",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
    }
    rows = [row for shape, sizes in SIZES.items() for s in sizes for row in measure(shape, *s)]
    report["results"] = rows
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    over = [r for r in rows if isinstance(b := r["budget_s"], float) and r["median_core_s"] > b]
    print(f"{len(over)} over budget; written to {RESULTS}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
