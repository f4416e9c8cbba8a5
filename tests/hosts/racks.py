"""A rack is killed under load and comes back: `python -m tests.hosts.racks`. Exit status 0: good.

Four nodes on hosts of their own, two in each of the racks a and b, a real Kafka, one batch, one
standby. All nodes of rack b get SIGKILL at once, while reads of all keys come at a steady pace
through the nodes of rack a (a client may try once more, on the other one). (1) With forced
awareness the lost copies are made nowhere, with a warning, and come with the rack. (2) Without it
they are made anew in rack a, and move when the rack is back.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog
from tests.chaos.judge import Sample
from tests.chaos.load import Load
from tests.hosts.cluster import PARTITIONS, HostCluster, HostNode, Plan, until
from tests.hosts.network import Network, enter

from standpipe.config import keys
from standpipe.control.assignment.plan import Goal
from standpipe.control.metadata.commands import CommitAssignment, LogPage, decode
from standpipe.local.client.internal_client import InternalClient, QuorumRefused
from standpipe.model import Assignment, PlacementRules
from standpipe.node import configuration

ROWS = {f"k{number}": 1 + number % 3 for number in range(120)}
RATE = 30.0
CALM_S = 2.0
RACKS = ("a", "b")
FORCED = "rack:a,rack:b"
RULES = PlacementRules(standby_count=1, rack_aware_tags=("rack",))
CONFIG = {
    keys.STANDBYS.name: "1",
    keys.RACK_TAGS.name: "rack",
    keys.RACK_FORCED.name: FORCED,
    keys.GONE_AFTER.name: "8000",
}


class Racks:
    """The cluster by racks, and its assignment as its nodes tell it."""

    def __init__(self, cluster: HostCluster) -> None:
        self.cluster = cluster
        self.rack = {node.node_id: node.config.tags["rack"] for node in cluster.nodes}
        self.asked = InternalClient(
            [node.config.internal for node in cluster.nodes], cluster.nodes[0].config.secret()
        )

    def nodes(self, rack: str) -> list[HostNode]:
        return [node for node in self.cluster.nodes if self.rack[node.node_id] == rack]

    def view(self) -> dict[str, Any] | None:
        """None: nobody can say now."""
        try:
            return msgspec.json.decode(self.asked.ask("GET", "/assignment"))
        except QuorumRefused:
            return None

    def settled(self, stand: Callable[[list[str]], bool]) -> dict[str, Any] | None:
        """The view once nothing moves, and the racks of every partition's copies are right."""
        view = self.view()
        if view is None or view["moves"] or any(line["next"] for line in view["partitions"]):
            return None
        stands = [
            sorted(self.rack[name] for name in (line["active"], *line["standbys"]))
            for line in view["partitions"]
        ]
        return view if len(stands) == PARTITIONS and all(map(stand, stands)) else None

    def committed(self, after: int) -> Iterator[Assignment]:
        """Every assignment that was committed behind an index of the log."""
        page = msgspec.msgpack.decode(
            self.asked.ask("GET", f"/log?from={after + 1}&wait_ms=0"), type=LogPage
        )
        assert not page.catalog, "the log reaches back so far"
        for entry in page.entries:
            if isinstance(command := decode(bytes(entry.command)), CommitAssignment):
                yield command.assignment

    def last_index(self) -> int:
        return int(msgspec.json.decode(self.asked.ask("GET", "/describe"))["last_index"])

    @contextmanager
    def without(self, rack: str) -> Iterator[None]:
        """All nodes of the rack are killed at once, and started again at the end."""
        nodes = self.nodes(rack)
        for node in nodes:
            node.kill()
        assert [node.child.process and node.child.process.returncode for node in nodes] == [-9, -9]
        yield
        for node in nodes:
            node.start()
        for node in nodes:
            until(f"{node.node_id} to answer", node.answers)
        self.cluster.all_alive()


def is_spread(racks: Sequence[str]) -> bool:
    return list(racks) == ["a", "b"]


def gone(view: dict[str, Any]) -> set[str]:
    return {line["nodeId"] for line in view["nodes"] if line["state"] == "gone"}


def is_gone(racks: Racks, rack: str) -> bool:
    view = racks.view()
    return view is not None and gone(view) == {node.node_id for node in racks.nodes(rack)}


def forced_on(racks: Racks) -> None:
    """Elasticsearch's promise: the rack that is left is not filled with second copies."""
    before = racks.last_index()
    with racks.without("b"):
        until("the rack to count as gone", lambda: is_gone(racks, "b"))
        alone = until("one copy of each", lambda: racks.settled(lambda stand: stand == ["a"]))
        left_out = {one["partition"] for one in alone["unmet"] if one["wish"] == Goal.FORCED}
        time.sleep(CALM_S)
        placed = [one for each in racks.committed(before) for one in each.placements]
        assert placed, "the loss led to other assignments"
        doubled = [one for one in placed if list(map(racks.rack.get, one.replicas)).count("a") > 1]
        print(f"forced: {len(placed)} placements, {len(doubled)} with two copies in rack a")
        print(f"forced: told that {len(left_out)} copies are left out", flush=True)
        assert not doubled
        assert len(left_out) == PARTITIONS
    until("copies in both racks", lambda: racks.settled(is_spread))


def forced_off(racks: Racks) -> None:
    """KIP-708 as it is: best effort, so the copies are made anew where there is room."""
    racks.asked.ask("POST", "/assignment/rules", msgspec.json.encode(RULES))
    for node in racks.cluster.nodes:  # a file that says something else would be refused
        mine = {**node.config.config, keys.RACK_FORCED.name: ""}
        changed = msgspec.structs.replace(node.config, config=mine)
        configuration.save(node.config.paths.data / "node.json", changed)
    with racks.without("b"):
        until("two copies in rack a", lambda: racks.settled(lambda stand: stand == ["a", "a"]))
        for node in racks.nodes("a"):
            until("copies that are whole", lambda node=node: racks.cluster.is_caught_up(node))
        print("not forced: two copies of each partition in rack a", flush=True)
        time.sleep(CALM_S)
    until("copies in both racks", lambda: racks.settled(is_spread))


def run(cluster: HostCluster) -> bool:
    racks = Racks(cluster)
    cluster.commit(ROWS)
    cluster.until_everywhere(ROWS)
    until("copies in both racks", lambda: racks.settled(is_spread))
    load = Load(list(ROWS), cluster.partition, [node.public for node in racks.nodes("a")], RATE)
    time.sleep(CALM_S)
    counts: list[int] = []
    try:
        for story in (forced_on, forced_off):
            before = len(load.samples)
            story(racks)
            counts.append(len(load.samples) - before)
    finally:
        samples = load.stop()
    return judged(samples, counts)


def judged(samples: Sequence[Sample], counts: Sequence[int]) -> bool:
    """Whether no read was lost or wrong, and there were enough of them around each fault."""
    lost = [sample for sample in samples if sample.is_lost]
    wrong = [s for s in samples if s.is_answered and s.row != (ROWS[s.key],) * 2]
    once = sum(sample.is_retried for sample in samples)
    print(f"{len(samples)} reads, {counts} around the faults: {once} tried twice")
    for sample in [*lost, *wrong][:5]:
        print(f"  {sample.entry} {sample.key}: {sample.why} {sample.row}")
    print(f"{len(lost)} lost, {len(wrong)} wrong", flush=True)
    return not lost and not wrong and min(counts) > 100


def main() -> int:
    enter()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    folder = Path(tempfile.mkdtemp(prefix="racks-"))
    plan = Plan(nodes=4, spark=False, racks=RACKS, config=CONFIG)
    is_good = False
    try:
        with HostCluster(folder, Network(), plan) as cluster:
            is_good = run(cluster)
    finally:
        if is_good:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
