"""Nodes that lost their stores: `python -m tests.hosts.restore`. Exit status 0: all came back.

Three nodes on hosts of their own, a real Kafka, one batch. (1) A node is stopped, its stores are
removed, it is started again: it copies them from its peers, and answers. (2) All nodes lose them:
there is nobody to copy from, and the changelog is replayed (a replica that is late may find one
that was faster, and copy that). Reads go on through (1).
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import structlog
from tests.chaos.load import Load
from tests.hosts.cluster import HostCluster, HostNode, Plan, until
from tests.hosts.network import Network, enter

ROWS = {f"k{number}": 1 + number % 3 for number in range(600)}
RATE = 50.0


def lose_stores(nodes: Sequence[HostNode]) -> None:
    """Stopped in order, started with an empty `state/`."""
    for node in nodes:
        assert node.child.process is not None
        node.child.process.send_signal(signal.SIGTERM)
    for node in nodes:
        node.child.wait(60)
        shutil.rmtree(node.config.paths.state)
        (node.config.paths.logs / "tailer.log").unlink()
    for node in nodes:
        node.start()


def came_back(cluster: HostCluster, nodes: Sequence[HostNode]) -> dict[str, int]:
    """How often tailers said that they copied, once all replicas are whole again."""
    for node in nodes:
        until(f"{node.node_id} to answer", node.answers)
        until(  # status pages of the life before say RUNNING until a tailer writes them anew
            f"{node.node_id}'s replicas",
            lambda node=node: (
                said(node, "replica opened") >= held_by(cluster, node)
                and cluster.is_caught_up(node)
            ),
        )
    words = ("store copied", "no copy from a peer", "no peer gave a copy")
    return {word: sum(said(node, word) for node in nodes) for word in words}


def said(node: HostNode, event: str) -> int:
    """How often its tailer said so in this life."""
    log = node.config.paths.logs / "tailer.log"
    return log.read_text().count(f'"event": "{event}') if log.exists() else 0


def held_by(cluster: HostCluster, node: HostNode) -> int:
    return sum(node in holders for holders in cluster.placements().values())


def run(cluster: HostCluster) -> bool:
    cluster.commit(ROWS)
    cluster.until_everywhere(ROWS)
    victim, *others = cluster.nodes
    load = Load(list(ROWS), cluster.partition, [node.public for node in others], RATE)
    time.sleep(2)
    lose_stores([victim])
    one = came_back(cluster, [victim])
    samples = load.stop()
    failed = [sample for sample in samples if not sample.is_answered]
    lost = [sample for sample in failed if sample.is_lost]
    print(f"one node: {one}, of {held_by(cluster, victim)} replicas")
    print(f"{len(samples)} reads: {len(failed)} failed once, {len(lost)} twice", flush=True)
    for why in sorted({sample.why for sample in failed})[:5]:
        print(f"  {why}")
    lose_stores(cluster.nodes)
    print(f"all nodes: {came_back(cluster, cluster.nodes)}", flush=True)
    cluster.until_everywhere(ROWS)
    return (
        one["store copied"] == held_by(cluster, victim)
        and not lost
        and all(s.row == (ROWS[s.key],) * 2 for s in samples if s.is_answered)
    )


def main() -> int:
    enter()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    folder = Path(tempfile.mkdtemp(prefix="restore-"))
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
