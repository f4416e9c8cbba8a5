"""What do beats and lag reports cost a node?  Budget: 3 % of a core at 3 nodes, O(log N) at 1,000.

Sketch: at 3 nodes, 20 messages out and 20 in per second, each about 0.3 ms of Python on both ends.
Up to 20 nodes everybody beats to everybody; above that 4 beats and 3 messages of gossip per
interval, however many nodes there are (`control.liveness.gossip`).

Real: 3 and 10 nodes on loopback (control and a worker each, one table, nothing else to do), seconds
of processor time of each control process over SECONDS, with beats and lag reports and without.
Simulated, deterministic: 10 to 1,000 nodes with 10,000 table partitions (`tests/sim/gossip.py`):
messages, bytes, and when a lost node is known everywhere.

    python bench/beats.py [--nodes 3,10] [--seconds 20] [--simulated 10,20,21,100,1000] [--output …]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import structlog

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import report  # noqa: E402
from tests.e2e.liveness_cluster import LivenessCluster  # noqa: E402
from tests.sim.gossip import simulate  # noqa: E402

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
WARM_S = 3.0
OFF = {"ksql.heartbeat.enable": False, "ksql.lag.reporting.enable": False}
SIMULATED_S = 3.0


def processor_s(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def measure(count: int, keys: dict[str, object], seconds: float) -> list[float]:
    """Share of a core that each control process takes, in percent."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = LivenessCluster(Path(folder), count=count, keys=keys)
        cluster.start({f"k{number}": [number] for number in range(40)})
        try:
            time.sleep(WARM_S)
            pids = [node.control.pid for node in cluster.nodes if node.control]
            before, began_s = [processor_s(pid) for pid in pids], time.monotonic()
            time.sleep(seconds)
            spent_s = time.monotonic() - began_s
            after = [processor_s(pid) for pid in pids]
        finally:
            cluster.stop()
    return [100 * (a - b) / spent_s for a, b in zip(after, before, strict=True)]


def real(counts: list[int], seconds: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for count in counts:
        on, off = measure(count, {}, seconds), measure(count, OFF, seconds)
        row = {
            "nodes": count,
            "with_percent": {"median": statistics.median(on), "max": max(on)},
            "without_percent": {"median": statistics.median(off), "max": max(off)},
            "beats_and_lags_percent": round(statistics.median(on) - statistics.median(off), 2),
        }
        print(row, flush=True)
        found.append(row)
    return found


def simulated(counts: list[int]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for count in counts:
        found.append(simulate(count, SIMULATED_S, seed=1))
        print(found[-1], flush=True)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", default="3,10")
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--simulated", default="10,20,21,100,1000")
    options.add_argument("--output", type=Path, default=ROOT / "bench/results/beats.json")
    given = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **report.circumstances(),
        "simulated": simulated([int(n) for n in given.simulated.split(",") if n]),
        "real": real([int(n) for n in given.nodes.split(",") if n], given.seconds),
    }
    report.write_summary(given.output, result)


if __name__ == "__main__":
    main()
