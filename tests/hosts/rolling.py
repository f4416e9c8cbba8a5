"""A rolling restart under load: `python -m tests.hosts.rolling`. Exit status 0: no read was lost.

Three nodes on hosts of their own, a real Kafka, one batch. Each node in turn gets SIGTERM and is
started again, while reads of all keys come at a steady pace through two kinds of clients: those
that a load balancer keeps away from the node that restarts (none of their reads may fail), and
those that know nothing (a read may fail once, through the node whose port is closed; the second
try, on another node, must succeed).
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import structlog
from tests.chaos.load import Load
from tests.hosts.cluster import HostCluster, HostNode, Plan, until
from tests.hosts.network import Network, enter

ROWS = {f"k{number}": 1 + number % 3 for number in range(120)}
RATE = 60.0  # of each kind
CALM_S = 2.0


def restart(cluster: HostCluster, node: HostNode) -> float:
    """SIGTERM, and back again with all replicas; how long it took to end, in s."""
    assert node.child.process is not None
    began = time.monotonic()
    node.child.process.send_signal(signal.SIGTERM)
    node.child.wait(60)
    ended_s = time.monotonic() - began
    assert node.child.process.returncode == 0, node.child.process.returncode
    node.start()
    until(f"{node.node_id} to answer", node.answers)
    cluster.all_alive()
    until("its replicas", lambda: cluster.is_caught_up(node))
    return ended_s


def run(cluster: HostCluster) -> bool:
    cluster.commit(ROWS)
    cluster.until_everywhere(ROWS)
    everybody = [node.public for node in cluster.nodes]
    kept_away = Load(list(ROWS), cluster.partition, list(everybody), RATE)
    knows_nothing = Load(list(ROWS), cluster.partition, list(everybody), RATE)
    time.sleep(CALM_S)
    for node in cluster.nodes:
        kept_away.entries = [address for address in everybody if address != node.public]
        time.sleep(CALM_S)  # its last reads through this node are over
        print(f"{node.node_id} ended in {restart(cluster, node):.1f} s", flush=True)
        kept_away.entries = list(everybody)
        time.sleep(CALM_S)
    first, second = kept_away.stop(), knows_nothing.stop()
    failed = [sample for sample in first if not sample.is_answered]
    lost = [sample for sample in second if sample.is_lost]
    wrong = [s for s in (*first, *second) if s.is_answered and s.row != (ROWS[s.key],) * 2]
    once = sum(not sample.is_answered for sample in second)
    print(f"{len(first)} reads, kept away: {len(failed)} failed")
    print(f"{len(second)} reads, knowing nothing: {once} failed once, {len(lost)} twice")
    for sample in [*failed, *lost][:5]:
        print(f"  {sample.entry} {sample.key}: {sample.why}")
    print(f"{len(wrong)} wrong", flush=True)
    return not failed and not lost and not wrong and len(first) > 100


def main() -> int:
    enter()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    folder = Path(tempfile.mkdtemp(prefix="rolling-"))
    is_good = False
    try:
        with HostCluster(folder, Network(), Plan(nodes=3, spark=False)) as cluster:
            is_good = run(cluster)
    finally:
        if is_good:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
