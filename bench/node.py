"""How fast is a node back, and how much memory does it take?  Budgets: ≤ 2 s; ≤ 300 MB.

Sketch: a restart is one Python that imports about 0.5 core-seconds of modules before it forks its
first worker; the worker maps its stores, which takes milliseconds.

Three nodes with all flights in three tables; Kafka and Spark run, idle. One node is killed (the
whole process group) and started again, then stopped in order and started again. Counted from the
start of its process: the first answer to a key lookup at its public address, whoever served it, and
the first that it served from its own store. Memory is PSS of all its processes without the mapped
stores. Not here: failover (reads go on at the other nodes meanwhile).

    python bench/node.py [--rounds 5]        writes bench/results/node.json
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx2
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import report  # noqa: E402

from standpipe.local.cluster.steps import Steps  # noqa: E402
from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster, NodePlan  # noqa: E402
from standpipe.local.demo import flights as demo_flights  # noqa: E402
from standpipe.local.demo.main import Demo, DemoOptions  # noqa: E402
from standpipe.local.demo.report import RunLog  # noqa: E402

POLL_S = 0.01
WAIT_S_MAX = 60.0
RESULT = report.RESULTS / "node.json"


def fill(cluster: LocalCluster, directory: Path, steps: Steps) -> demo_flights.Flights:
    """All flights through Spark into all tables, on all replicas."""
    flights = demo_flights.load()
    options = DemoOptions(seconds=0, directory=directory, out=directory / "out")
    log = RunLog(started=time.time(), nodes=3, tables=tuple(demo_flights.TABLES))
    demo = Demo(options, steps, cluster, flights, log)
    demo.prepare()
    demo.progress.start()
    try:
        demo.load()
    finally:
        demo.progress.stop()
    return flights


def own_key(plan: NodePlan, flights: demo_flights.Flights) -> str:
    """An aircraft whose row this node serves itself."""
    with httpx2.Client(base_url=f"http://{plan.public}", trust_env=False) as http:
        for flight in flights.flights[:500]:
            if ask(http, flight.tailnum) == plan.node_id:
                return flight.tailnum
    raise AssertionError(f"{plan.node_id} serves no aircraft")


def ask(http: httpx2.Client, tailnum: str) -> str:
    """Who served the row; empty: nobody yet."""
    sql = f"SELECT * FROM AIRCRAFT WHERE TAILNUM = '{tailnum}';"
    try:
        answer = http.post("/query", json={"ksql": sql})
    except httpx2.TransportError:
        return ""
    is_row = answer.status_code == 200 and '"row"' in answer.text
    return answer.headers.get("standpipe-served-by", "?") if is_row else ""


def back_after_ms(cluster: LocalCluster, plan: NodePlan, tailnum: str) -> dict[str, float]:
    """Start the node; ms to the first answer and to the first of its own."""
    start = time.monotonic()
    cluster.restart_node(plan.node_id)
    first = None
    with httpx2.Client(base_url=f"http://{plan.public}", trust_env=False, timeout=5) as http:
        while time.monotonic() - start < WAIT_S_MAX:
            served_by = ask(http, tailnum)
            now_ms = round((time.monotonic() - start) * 1000)
            if served_by:
                first = now_ms if first is None else first
            if served_by == plan.node_id:
                assert first is not None
                return {"first_answer_ms": first, "first_own_answer_ms": now_ms}
            time.sleep(POLL_S)
    raise AssertionError(f"{plan.node_id} does not answer")


def down(cluster: LocalCluster, plan: NodePlan, *, killed: bool) -> None:
    if killed:
        cluster.kill_node(plan.node_id)
        return
    child = cluster.nodes[plan.node_id]
    child.wanted = False
    assert child.process is not None
    child.process.send_signal(signal.SIGTERM)
    assert child.wait(10)


def memory_mb(cluster: LocalCluster, plan: NodePlan) -> dict[str, float]:
    """Process name -> PSS without the mapped stores."""
    parent = cluster.nodes[plan.node_id].pid
    assert parent is not None
    pids = {"parent": parent}
    for path in (plan.data_directory / "run").glob("*.pid"):
        pids[path.stem] = int(path.read_text())
    return {name: round(pss_kb(Path(f"/proc/{pid}/smaps")) / 1024, 1) for name, pid in pids.items()}


def pss_kb(smaps: Path) -> int:
    total, is_store = 0, False
    for line in smaps.read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if not first.endswith(":"):
            is_store = line.endswith("data.mdb")
        elif first == "Pss:" and not is_store:
            total += int(line.split()[1])
    return total


def measure(cluster: LocalCluster, flights: demo_flights.Flights, rounds: int) -> dict[str, object]:
    plan = cluster.plans[1]  # an ordinary node, not the first
    tailnum = own_key(plan, flights)
    runs: dict[str, list[dict[str, float]]] = {"killed": [], "stopped": []}
    for number in range(rounds):
        for how, done in runs.items():
            down(cluster, plan, killed=how == "killed")
            time.sleep(1)
            done.append(back_after_ms(cluster, plan, tailnum))
            print(f"round {number + 1}, {how}: {done[-1]}", flush=True)
            time.sleep(3)
    memory = memory_mb(cluster, plan)
    medians = {
        f"{how}_{name}_median": statistics.median(run[name] for run in done)
        for how, done in runs.items()
        for name in done[0]
    }
    return {**medians, "memory_mb": memory, "memory_mb_sum": round(sum(memory.values()), 1), **runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    described = report.circumstances()
    steps = Steps(Console())
    with tempfile.TemporaryDirectory(prefix="bench-node-") as name:
        directory = Path(name)
        cluster_options = ClusterOptions(directory=directory / "cluster", nodes=3, workers=1)
        with LocalCluster(cluster_options, steps) as cluster:
            found = measure(cluster, fill(cluster, directory, steps), options.rounds)
    result = {"question": (__doc__ or "").splitlines()[0], **described, **found}
    print(json.dumps(report.write_summary(options.output, result), indent=2))


if __name__ == "__main__":
    main()
