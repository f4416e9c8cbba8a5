"""When reads move to the next generation of a table, and when not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.control.metadata.test_catalog import after, generation_of, stream, table_as

from standpipe.control.assignment import switchover
from standpipe.control.assignment.from_catalog import ClusterObservation
from standpipe.control.assignment.model import TablePartition
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.commands import (
    CommitAssignment,
    CreateSource,
    GrantLeases,
    HoldTable,
    SetFeatureLevel,
    StartPipeline,
    SwitchTable,
)
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    BatchId,
    LeaseEpoch,
    NodeId,
    Offset,
    Placement,
    QueryStatus,
    ReplicaState,
)
from standpipe.model_liveness import ReplicaLag

A, B = NodeId("a"), NodeId("b")
PLACED = tuple(
    Placement(table_id="U_23", generation=generation, partition=p, replicas=(A, B))
    for generation in (1, 2)
    for p in range(4)
)
CATALOG = after(
    CreateSource(source=stream("R")),
    table_as("U", "R", 23),
    generation_of("U", 2, 24),
    StartPipeline(pipeline_id="p1", version=2),
    GrantLeases(grants=(("CTAS_U_24", "p1"),)),
    CommitAssignment(assignment=Assignment(epoch=AssignmentEpoch(1), placements=PLACED)),
)
STATUS = QueryStatus(
    query_id="CTAS_U_24",
    state="RUNNING",
    lease_epoch=LeaseEpoch(2),
    batch=BatchId(7),
    backlog_records=0,
)


def report(partition: int, **changes: Any) -> ReplicaLag:
    lag = ReplicaLag(
        table_id="U_23",
        generation=2,
        partition=partition,
        position=Offset(50),
        committed_end=Offset(50),
        state=ReplicaState.RUNNING,
        batch=BatchId(7),
    )
    return msgspec.structs.replace(lag, **changes)


def heard(
    away: tuple[NodeId, ...] = (), silent: tuple[NodeId, ...] = (), **changes: Any
) -> ClusterObservation:
    """Both nodes told of all partitions; the last partition of `b` is as `changes` say."""
    reports = {
        node: {
            TablePartition("U_23", 2, p): report(p, **(changes if (node, p) == (B, 3) else {}))
            for p in range(4)
        }
        for node in (A, B)
        if node not in silent
    }
    return ClusterObservation(away_ms=dict.fromkeys(away, 5000), reports=reports)


SWITCH = SwitchTable(name="U", generation=2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "all is there"),
        ({"batch": BatchId(9), "committed_end": Offset(60)}, "a later batch, and more to come"),
        ({"batch": BatchId(-1)}, "made from a compacted topic: at its end, of no batch"),
    ],
)
def test_reads_move_when_every_replica_shows_the_batch(changes: Any, why: str) -> None:
    watch = switchover.Watch()
    assert watch.due(CATALOG, {"CTAS_U_24": STATUS}, heard(**changes), 0) == SWITCH, why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"batch": BatchId(6), "position": Offset(40)}, "an older batch"),
        (
            {"batch": BatchId(6), "position": Offset(40), "committed_end": Offset(40)},
            "it has not heard of the batch",
        ),
        (
            {"batch": BatchId(-1), "position": Offset(40), "committed_end": Offset(40)},
            "nor has this one, which does not know its batch",
        ),
        (
            {"batch": BatchId(-1), "committed_end": Offset(-1), "position": Offset(40)},
            "of no batch",
        ),
        ({"state": ReplicaState.CATCHING_UP}, "not running"),
    ],
)
def test_reads_stay_while_one_replica_trails(changes: Any, why: str) -> None:
    watch = switchover.Watch()
    assert watch.due(CATALOG, {"CTAS_U_24": STATUS}, heard(**changes), 0) is None, why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"backlog_records": 1}, "there was more when its batch was planned"),
        ({"backlog_records": None}, "nobody knows"),
        ({"state": "RETRYING"}, "it does not run"),
        ({"batch": BatchId(-1)}, "no batch yet"),
        ({"lease_epoch": LeaseEpoch(1)}, "said by a pipeline that was replaced"),
        ({"query_id": "CTAS_U_23"}, "another query"),
    ],
)
def test_reads_stay_while_the_query_has_not_caught_up(changes: Any, why: str) -> None:
    status = msgspec.structs.replace(STATUS, **changes)
    assert switchover.Watch().due(CATALOG, {status.query_id: status}, heard(), 0) is None, why


def test_a_dead_node_does_not_hold_reads_back_but_a_silent_one_does() -> None:
    statuses = {"CTAS_U_24": STATUS}
    assert switchover.Watch().due(CATALOG, statuses, heard(away=(B,), silent=(B,)), 0) == SWITCH
    assert switchover.Watch().due(CATALOG, statuses, heard(silent=(B,)), 0) is None
    everybody = heard(away=(A, B))
    assert switchover.Watch().due(CATALOG, statuses, everybody, 0) is None, "nobody would answer"


def test_a_partition_that_nobody_keeps_holds_reads_back() -> None:
    left = Assignment(epoch=AssignmentEpoch(2), placements=PLACED[:-1])
    catalog = after(CommitAssignment(assignment=left), start=CATALOG)
    assert switchover.Watch().due(catalog, {"CTAS_U_24": STATUS}, heard(), 0) is None


def test_nothing_is_due_without_successors() -> None:
    switched = after(SWITCH, start=CATALOG)
    assert switchover.Watch().due(switched, {"CTAS_U_24": STATUS}, heard(), 0) is None


def test_reports_that_come_seldom_do_not_hold_reads_back() -> None:
    """Every report is older than the newest batch; the first one that took all is shown by all."""
    watch = switchover.Watch()

    def due(batch: int, shown: int, **changes: Any) -> object:
        status = msgspec.structs.replace(STATUS, batch=BatchId(batch), **changes)
        lags = {"batch": BatchId(shown), "position": Offset(40)}
        return watch.due(CATALOG, {"CTAS_U_24": status}, heard(**lags), 0)

    assert due(batch=2, shown=0) is None
    assert due(batch=3, shown=1) is None
    assert due(batch=4, shown=2, backlog_records=5) is None, "it fell behind: it begins again"
    assert due(batch=5, shown=4) is None
    assert due(batch=5, shown=5, lease_epoch=LeaseEpoch(1)) is None, "another pipeline writes it"
    assert due(batch=6, shown=5) is None
    assert due(batch=9, shown=6) == SWITCH


# ---------------------------------------------------------------------------------- the floor

#: as CATALOG, at the level that holds tables; both generations have a pipeline
HOLDS = after(
    SetFeatureLevel(level=feature_levels.HOLDS),
    GrantLeases(grants=(("CTAS_U_23", "p1"),)),
    start=CATALOG,
)
HOLD = HoldTable(name="U", generation=2)
Offsets = dict[str, dict[int, int]]


class Pipeline:
    """Both queries of the table over topic `s`, as one pipeline reports them."""

    def __init__(self) -> None:
        self.catalog = HOLDS
        self.first: Offsets = {"s": {0: 100, 1: 100}}
        self.second: Offsets = {"s": {0: 100, 1: 100}}
        self.batch = 7
        self.knows_hold = True

    def statuses(self) -> dict[str, QueryStatus]:
        is_held = bool(self.catalog.held) and self.knows_hold
        epoch = self.catalog.leases["CTAS_U_23"].lease_epoch
        first = msgspec.structs.replace(
            STATUS,
            query_id="CTAS_U_23",
            lease_epoch=epoch if self.knows_hold else HOLDS.leases["CTAS_U_23"].lease_epoch,
            reason="HELD" if is_held else "",
            covered=self.first,
        )
        second = msgspec.structs.replace(STATUS, batch=BatchId(self.batch), covered=self.second)
        return {each.query_id: each for each in (first, second)}

    def look(self, watch: switchover.Watch, now_ms: int = 0) -> switchover.Order | None:
        """What is due, which is logged. Every replica shows the newest batch."""
        shown = heard()
        for reports in shown.reports.values():
            for partition, lag in reports.items():
                assert isinstance(reports, dict)
                reports[partition] = msgspec.structs.replace(lag, batch=BatchId(self.batch))
        order = watch.due(self.catalog, self.statuses(), shown, now_ms)
        if order is not None:
            self.catalog = after(order, start=self.catalog)
        return order


def test_reads_that_move_do_not_go_back() -> None:
    """The generation that answers commits on while the switch is decided: what it ever committed is
    in the next one before reads move there."""
    pipeline, watch = Pipeline(), switchover.Watch()
    assert pipeline.look(watch) == HOLD, "it has caught up with what was there"
    pipeline.first = {"s": {0: 105, 1: 100}}  # before its pipeline read that command
    pipeline.knows_hold = False
    assert pipeline.look(watch) is None, "what is said under the old lease can still change"
    pipeline.knows_hold = True
    for second in ({0: 100, 1: 100}, {0: 104, 1: 200}):
        pipeline.batch, pipeline.second = pipeline.batch + 1, {"s": second}
        assert pipeline.look(watch) is None, f"it has read {second} of {pipeline.first}"
    pipeline.batch, pipeline.second = 10, {"s": {0: 105, 1: 200}}
    floor: Offsets = {"s": {0: 105, 1: 100}}
    assert pipeline.look(watch) == SwitchTable(name="U", generation=2, floor=floor)
    assert pipeline.catalog.held == {}


def test_reads_move_only_when_the_replicas_show_the_floor() -> None:
    pipeline, watch = Pipeline(), switchover.Watch()
    assert pipeline.look(watch) == HOLD
    pipeline.first = pipeline.second = {"s": {0: 105, 1: 100}}
    pipeline.batch = 8
    statuses = pipeline.statuses()
    assert watch.due(pipeline.catalog, statuses, heard(), 0) is None, "they show batch 7"
    assert isinstance(pipeline.look(watch), SwitchTable)


def test_a_topic_that_only_the_old_statement_reads_holds_nothing_back() -> None:
    pipeline, watch = Pipeline(), switchover.Watch()
    assert pipeline.look(watch) == HOLD
    pipeline.first = {"another": {0: 9}}
    assert isinstance(pipeline.look(watch), SwitchTable)


def test_a_table_is_not_held_for_ever() -> None:
    pipeline, watch = Pipeline(), switchover.Watch()
    pipeline.first = {"s": {0: 999, 1: 999}}
    held_ms = switchover.HOLD_MS_MAX
    assert pipeline.look(watch, 1000) == HOLD
    assert pipeline.look(watch, 1000) is None
    assert pipeline.look(watch, 1000 + held_ms - 1) is None
    released = HoldTable(name="U", generation=2, is_held=False)
    assert pipeline.look(watch, 1000 + held_ms) == released
    again_ms = 1000 + held_ms + switchover.HOLD_AGAIN_MS
    assert pipeline.look(watch, again_ms - 1) is None
    assert pipeline.look(watch, again_ms) == HOLD
    assert pipeline.look(switchover.Watch(), 5) is None, "another leader counts anew"
