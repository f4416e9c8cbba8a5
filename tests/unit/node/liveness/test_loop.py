"""How far copies are for who assigns them, by reports that come seconds apart, and where the way
that lags go changes: no copy that stands still is caught up, no busy one falls behind by waiting.

One node's loop, told by hand; nothing is sent. Over connections: tests/e2e/test_liveness_large.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from standpipe.adapters.clock import Clock
from standpipe.adapters.http.internal import Call
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.config.liveness import HEARTBEAT, LAG_SEND
from standpipe.control.assignment import from_catalog
from standpipe.control.assignment.from_catalog import MoveLimits
from standpipe.control.assignment.model import TablePartition
from standpipe.control.assignment.readiness import BadReport, Lag, is_caught_up
from standpipe.control.liveness.failure_detector import SWITCH_NODES
from standpipe.control.liveness.lag import Reporter
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.feature_levels import GOSSIP
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    BatchId,
    LeaseEpoch,
    NodeId,
    NodeInfo,
    Offset,
    Placement,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
)
from standpipe.model_liveness import ReplicaLag
from standpipe.node.configuration import NodeConfig
from standpipe.node.liveness.loop import LivenessLoop
from standpipe.node.liveness.wire import Beat, BeatExtra, HostStoreLags, LagExtra, LagReport

NAMES = [NodeId(f"n{number:02}") for number in range(SWITCH_NODES + 1)]
ME, BUSY, OTHER = NAMES[0], NAMES[1], NAMES[2]
AT = TablePartition("t", 1, 0)
#: of one partition; within a second more than may lag
RECORDS_PER_S = 25_000
LAG_MAX = 10_000


class Hands(Clock):
    """A clock that is set by hand."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def boot_ms(self) -> int:
        return self.now_ms


class Leader:
    """The loop of ME, which leads. A partition grows by RECORDS_PER_S."""

    def __init__(
        self,
        folder: Path,
        *,
        count: int,
        level: int = GOSSIP,
        holds: bool = True,
        values: dict[str, bool | int] | None = None,
    ) -> None:
        (folder / "secret").write_text("swordfish")
        config = NodeConfig(
            node_id=ME,
            data_dir=str(folder),
            bootstrap_servers="",
            public="me:1",
            internal="me:2",
            peer="me:3",
            secret_file=str(folder / "secret"),
            config=values or {},
        )
        config.paths.make()
        self.clock = Hands(1_000_000)
        self.holders = (ME, BUSY, OTHER) if holds else (BUSY, OTHER)
        self.catalog = EMPTY
        self.turn(count, level)
        self.loop = LivenessLoop(config, "of n00", lambda: self.catalog, self.clock, lambda: ME)
        self.told_count = 0  # nothing is sent
        self.loop.send_reports = self._count  # type: ignore[method-assign]
        self.page = (
            StatusWriter(page_path(config.paths.run, ReplicaId("t", 1, 0))) if holds else None
        )
        self.reporters: dict[NodeId, Reporter] = {}
        self._acknowledged: dict[NodeId, int] = {}
        self.pass_ms(0)

    def _count(self) -> None:
        self.told_count += 1

    def turn(self, count: int, level: int = GOSSIP) -> None:
        """The log says another count of members, or another feature level."""
        placed = Placement(table_id="t", generation=1, partition=0, replicas=self.holders)
        nodes = {
            name: NodeInfo(
                node_id=name, public="p", internal="i", peer="r", incarnation=f"of {name}"
            )
            for name in NAMES[:count]
        }
        self.catalog: Catalog = msgspec.structs.replace(
            EMPTY,
            feature_level=level,
            nodes=nodes,
            assignment=Assignment(epoch=AssignmentEpoch(1), placements=(placed,)),
        )

    @property
    def end(self) -> int:
        return self.clock.now_ms * RECORDS_PER_S // 1000

    def pass_ms(self, ms: int) -> None:
        """Time goes on, and the own copy with it."""
        for step_ms in [500] * (ms // 500) + [ms % 500]:
            self.clock.now_ms += step_ms
            self._follow()
            self.loop.send_news()

    def _follow(self) -> None:
        if self.page is None:
            return
        status = ReplicaStatus(
            state=ReplicaState.RUNNING,
            position=Offset(self.end),
            committed_end=Offset(self.end),
            log_end=Offset(self.end),
            batch=BatchId(7),
            lease_epoch=LeaseEpoch(1),
            confirmed_boot_ms=self.clock.now_ms,
            source_instant_ms=0,
            foreign_records=0,
            rows=1,
            watermark_ms=0,
        )
        self.page.write(status)

    def _reporter(self, node: NodeId, stuck_ms: int) -> Reporter:
        """What a node says now. `stuck_ms`: for so long its tailer stands still."""
        position = Offset(self.end - stuck_ms * RECORDS_PER_S // 1000)
        lag = ReplicaLag(
            table_id="t",
            generation=1,
            partition=0,
            position=position,
            committed_end=position,
            state=ReplicaState.RUNNING,
            batch=BatchId(7),
            replica_lag_ms=stuck_ms + 300,
        )
        reporter = self.reporters.setdefault(node, Reporter(session=1))
        reporter.observe([lag])
        return reporter

    def report(self, node: NodeId, stuck_ms: int = 0) -> None:
        delta = self._reporter(node, stuck_ms).full()
        extra = LagExtra(node_id=node, incarnation=f"of {node}", lags=delta)
        said = LagReport(
            ksqlHost="p", hostStoreLags=HostStoreLags(stateStoreLags={}), standpipe=extra
        )
        call = Call("/lag", {}, msgspec.json.encode(said), peer=node)
        asyncio.run(self.loop.lag(call))

    def beat(self, node: NodeId, stuck_ms: int = 0) -> None:
        delta = self._reporter(node, stuck_ms).delta(self._acknowledged.get(node, 0))
        extra = BeatExtra(node_id=node, incarnation=f"of {node}", lags=delta)
        said = Beat(hostInfo="p", timestamp=0, standpipe=extra)
        call = Call("/heartbeat", {}, msgspec.json.encode(said), peer=node)
        reply = asyncio.run(self.loop.heartbeat(call))
        answer: dict[str, int] = msgspec.json.decode(reply.body)
        self._acknowledged[node] = answer.get("lag_version") or 0

    def lag_of(self, node: NodeId) -> Lag:
        """As the assignor gets it."""
        due = from_catalog.problem(
            self.catalog, self.loop.told(), MoveLimits(acceptable_lag_records=LAG_MAX)
        )
        return due.cluster.lags[AT][node]

    def finds(self, node: NodeId) -> bool:
        """Whether a copy is caught up."""
        return is_caught_up(self.lag_of(node), LAG_MAX)


@pytest.fixture(params=[True, False], ids=["the leader holds a copy", "it holds none"])
def leader(tmp_path: Path, request: pytest.FixtureRequest) -> Leader:
    return Leader(tmp_path, count=SWITCH_NODES + 1, holds=request.param)


@pytest.mark.parametrize("first", [BUSY, OTHER], ids=["it reports first", "it reports last"])
def test_a_busy_copy_is_caught_up_between_its_reports(leader: Leader, first: NodeId) -> None:
    second = OTHER if first == BUSY else BUSY
    leader.report(second)
    for _ in range(3):
        leader.report(first)
        for at_ms in range(0, 5000, 100):
            if at_ms == 2500:
                leader.report(second)
            assert (leader.finds(BUSY), leader.finds(OTHER)) == (True, True), at_ms
            leader.pass_ms(100)


def test_a_copy_that_stands_still_is_found(leader: Leader) -> None:
    leader.report(BUSY)
    for stuck_ms in range(5000, 30_000, 5000):
        leader.pass_ms(5000)
        leader.report(BUSY, stuck_ms)
        leader.report(OTHER)
    for _ in range(49):  # until its next report
        assert not leader.finds(BUSY)
        assert leader.finds(OTHER)
        leader.pass_ms(100)


@pytest.mark.parametrize("first", [BUSY, OTHER])
def test_so_it_is_by_a_leader_that_never_heard_of_it(leader: Leader, first: NodeId) -> None:
    for node in (first, OTHER if first == BUSY else BUSY):
        leader.report(node, stuck_ms=60_000 if node == BUSY else 0)
        leader.pass_ms(700)
    assert (leader.finds(BUSY), leader.finds(OTHER)) == (False, True)


@pytest.mark.parametrize(
    ("count", "level"), [(SWITCH_NODES, GOSSIP), (SWITCH_NODES + 1, GOSSIP - 1)]
)
@pytest.mark.parametrize("holds", [True, False])
def test_and_while_the_cluster_turns_to_rumours(
    tmp_path: Path, count: int, level: int, holds: bool
) -> None:
    """At the 21st node, and where the last program learns of rumours."""
    leader = Leader(tmp_path, count=count, level=level, holds=holds)
    for stuck_ms in range(0, 20_000, 100):
        leader.beat(BUSY, stuck_ms)
        leader.beat(OTHER)
        leader.pass_ms(100)
    assert (leader.finds(BUSY), leader.finds(OTHER)) == (False, True)
    leader.turn(SWITCH_NODES + 1)
    for turned_ms in range(0, 4000, 100):
        leader.pass_ms(100)
        assert not leader.finds(BUSY), turned_ms
        if turned_ms == 1000:
            leader.report(BUSY, stuck_ms=21_000)
            leader.report(OTHER)
    assert leader.finds(OTHER)


def test_what_was_told_long_ago_is_not_believed_when_beats_carry_lags_again(
    leader: Leader,
) -> None:
    leader.report(BUSY)
    leader.pass_ms(60_000)
    leader.turn(SWITCH_NODES)
    leader.report(OTHER)
    assert leader.lag_of(BUSY) is BadReport.UNKNOWN
    leader.beat(BUSY)
    assert leader.finds(BUSY)


def test_a_peer_that_restarted_is_told_again(leader: Leader) -> None:
    """Its store may be gone, and it waits seconds for somebody to copy one from."""

    def look() -> int:
        leader.pass_ms(2000)
        return leader.told_count

    leader.report(BUSY)
    before = look()
    leader.report(BUSY)
    assert look() == before, "nothing is new"
    leader.reporters[BUSY] = Reporter(session=2)
    leader.report(BUSY)
    assert look() == before + 1
    leader.turn(SWITCH_NODES)
    assert look() == before + 1, "beats carry lags"
    leader.turn(SWITCH_NODES + 1)
    assert look() == before + 2, "and cease to"


@pytest.mark.parametrize("count", [3, SWITCH_NODES + 1])
def test_a_leader_that_stood_still_finds_nobody_unheard_of(tmp_path: Path, count: int) -> None:
    """By the boot clock all is old when it goes on, and nobody beat meanwhile."""
    leader = Leader(tmp_path, count=count)
    for _ in range(3):
        for node in (BUSY, OTHER):
            leader.report(node)
        leader.pass_ms(100)
    leader.clock.now_ms += 20_000
    assert leader.lag_of(BUSY) is not BadReport.UNKNOWN
    leader.report(OTHER)
    leader.pass_ms(900)
    assert leader.lag_of(BUSY) is not BadReport.UNKNOWN, "its next report is on its way"


def test_a_short_interval_makes_nobody_unheard_of(tmp_path: Path) -> None:
    values: dict[str, bool | int] = {LAG_SEND.name: 100}
    leader = Leader(tmp_path, count=SWITCH_NODES + 1, values=values)
    leader.report(BUSY)
    for _ in range(20):
        leader.pass_ms(100)
    assert leader.finds(BUSY)


@pytest.mark.parametrize("stuck_ms", [0, 60_000])
def test_without_beats_it_is_the_same(tmp_path: Path, stuck_ms: int) -> None:
    values: dict[str, bool | int] = {HEARTBEAT.name: False}
    leader = Leader(tmp_path, count=3, values=values)
    leader.report(BUSY, stuck_ms)
    leader.report(OTHER)
    for _ in range(45):
        leader.pass_ms(100)
        assert (leader.finds(BUSY), leader.finds(OTHER)) == (stuck_ms == 0, True)
    for _ in range(120):
        leader.pass_ms(100)
    assert leader.lag_of(OTHER) is BadReport.UNKNOWN, "silent for three intervals"
