import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import pytest
from tests.unit.pipeline.fake_node import SECRET, FakeNode
from tests.unit.pipeline.queries_of import commands_of

from standpipe.control.metadata.commands import (
    DropSource,
    EndPipelines,
    IsolateQuery,
    RegisterNode,
    SetQueryState,
    StartPipeline,
    UnknownCommand,
)
from standpipe.data.commit.back_pressure import LagBound
from standpipe.model import (
    BatchId,
    LeaseEpoch,
    NodeId,
    NodeInfo,
    Offset,
    QueryStatus,
    ReplicaState,
)
from standpipe.model_liveness import OwnLags, ReplicaLag
from standpipe.pipeline.commit.replica_wait import ReplicaWait
from standpipe.pipeline.run import control_client, log_follower
from standpipe.pipeline.run.control_client import Follower, PipelineRefused
from standpipe.pipeline.run.watch import stale_log

STATUS = QueryStatus(query_id="Q", state="RUNNING", lease_epoch=LeaseEpoch(1), batch=BatchId(7))


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewals and reports; what a test waits for comes with the first or the second."""
    monkeypatch.setattr(control_client, "RENEW_EVERY_S", 0.1)
    monkeypatch.setattr(control_client, "REPORT_EVERY_S", 0.1)


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_catalog_follows_the_log() -> None:
    with FakeNode() as node:
        follower = Follower([node.address], SECRET, list)
        follower.start()
        eventually(lambda: follower.catalog.index == 1)
        assert follower.catalog.cluster_id == "c"
        node.log(StartPipeline(pipeline_id="p"))
        eventually(lambda: follower.catalog.pipeline_epoch == 1)
        follower.close()


def test_another_node_is_asked_when_one_is_mute() -> None:
    with FakeNode() as mute, FakeNode() as node:
        mute.is_mute = True
        follower = Follower([mute.address, node.address], SECRET, list)
        follower.start()
        eventually(lambda: follower.catalog.index == 1)
        follower.close()


@pytest.mark.parametrize("leader", ["", "node-1"], ids=["says so", "knows a leader that is away"])
def test_a_node_that_has_lost_the_quorum_is_left(
    leader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers with empty pages: the pipeline held leases that it never saw."""
    monkeypatch.setattr(stale_log, "STALE_S", 0.2)
    monkeypatch.setattr(log_follower, "POLL_WAIT_MS", 50)
    with FakeNode() as cut_off, FakeNode() as node:
        cut_off.leader, cut_off.is_read_only = NodeId(leader), True
        follower = Follower([cut_off.address, node.address], SECRET, list)
        follower.start()
        eventually(lambda: follower.catalog.index == 1)
        me = follower.register("p", is_over=lambda: False)
        assert me is not None
        eventually(lambda: follower.catalog.index >= me.log_index)
        node.log(IsolateQuery(name="T"))
        eventually(lambda: "T" in follower.catalog.isolated)
        follower.close()


def test_nobody_moves_while_no_node_has_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale_log, "STALE_S", 0.1)
    monkeypatch.setattr(log_follower, "POLL_WAIT_MS", 50)
    with FakeNode() as first, FakeNode() as second, FakeNode() as mute:
        first.leader = second.leader = NodeId("")
        mute.is_mute = True
        nodes = [first.address, mute.address, second.address]
        follower = Follower(nodes, SECRET, list)
        follower.start()
        eventually(lambda: len(second.polls) > 2)
        assert set(second.polls) == {0}, "it was only asked whether it is better"
        assert set(first.polls) == {50}, "and this one is still waited for"
        second.leader = NodeId("node-2")
        eventually(lambda: 50 in second.polls)
        polls = len(first.polls)
        eventually(lambda: second.polls.count(50) > 3)
        assert len(first.polls) == polls
        follower.close()


def test_members_are_asked_once_the_nodes_that_were_given_have_gone() -> None:
    """A program may live longer than these: it would hear of no DROP, and renew no lease."""
    with FakeNode() as given, FakeNode() as joined:
        joined.commands = given.commands
        follower = Follower([given.address], SECRET, list)
        follower.start()
        me = follower.register("p", is_over=lambda: False)
        assert me is not None
        info = NodeInfo(
            node_id=NodeId("n2"), public="h:1", internal=joined.address, peer="h:2", incarnation="i"
        )
        given.log(RegisterNode(node=info))
        eventually(lambda: follower.catalog.nodes)
        given.is_mute = True
        joined.log(IsolateQuery(name="T"))
        eventually(lambda: "T" in follower.catalog.isolated)
        confirmed = follower.confirmed
        eventually(lambda: follower.confirmed not in (None, confirmed))
        follower.close()


def test_registration_and_reports() -> None:
    with FakeNode() as node:
        follower = Follower([node.address], SECRET, lambda: [STATUS])
        follower.start()
        me = follower.register("p", is_over=lambda: False)
        assert me is not None
        assert (me.pipeline_id, me.lease_epoch, me.log_index) == ("p", 1, 2)
        follower.close()  # reports once more, and leaves
        assert node.reports[-1] == STATUS
        assert node.catalog().pipelines == {}


def test_a_report_that_fails_is_not_the_last_one() -> None:
    """It was: queries then seemed to stand still for ever."""
    answers: list[list[QueryStatus] | Exception] = [ValueError("odd"), [STATUS]]

    def statuses() -> list[QueryStatus]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    with FakeNode() as node:
        follower = Follower([node.address], SECRET, statuses)
        follower.start()
        eventually(lambda: node.reports)
        assert node.reports[-1] == STATUS
        follower.close()


def test_who_was_given_up_registers_anew() -> None:
    """As after SIGSTOP: it finds out with its next renewal."""
    with FakeNode() as node:
        follower = Follower([node.address], SECRET, list)
        follower.start()
        assert follower.register("p", is_over=lambda: False) is not None
        node.log(EndPipelines(pipeline_ids=("p",)))
        eventually(lambda: node.catalog().pipelines == {"p": 2})
        follower.close()


def test_a_pipeline_says_whose_queries_it_runs() -> None:
    with FakeNode() as node:
        node.log(IsolateQuery(name="T"))
        follower = Follower([node.address], SECRET, list, "T")
        follower.start()
        me = follower.register("p", is_over=lambda: False)
        assert me is not None
        assert (me.isolates, node.catalog().isolated) == ("T", {"T": ("p",)})
        follower.close()
        assert node.catalog().isolated == {"T": ()}, "the name outlives its driver"


def test_a_pipeline_for_what_is_not_isolated_is_told_why() -> None:
    """It would otherwise try again for ever, or run what others run."""
    with FakeNode() as node:
        node.log(IsolateQuery(name="T"))
        follower = Follower([node.address], SECRET, list, "U")
        follower.start()
        with pytest.raises(
            PipelineRefused, match=r"U is not isolated\. Isolated are: T"
        ) as refused:
            follower.register("p", is_over=lambda: False)
        assert "`standpipe query isolate NAME` first" in refused.value.next_step
        follower.close()


def test_a_driver_that_was_paused_does_not_bring_an_isolation_back() -> None:
    """Its name was taken back meanwhile. It goes on following the log, which tells it to end."""
    with FakeNode() as node:
        node.log(IsolateQuery(name="T"))
        follower = Follower([node.address], SECRET, list, "T")
        follower.start()
        me = follower.register("p", is_over=lambda: False)
        assert me is not None
        refused = node.log(IsolateQuery(name="T", is_isolated=False)) + 1
        eventually(lambda: follower.catalog.index >= refused)  # it tried to register again
        assert follower.catalog.pipelines == follower.catalog.isolated == {}
        assert me.is_over(follower.catalog)
        follower.close()


def test_renewals_go_to_a_node_that_takes_them() -> None:
    with FakeNode() as mute, FakeNode() as node:
        follower = Follower([mute.address, node.address], SECRET, list)
        follower.start()
        assert follower.register("p", is_over=lambda: False) is not None
        mute.is_mute = True
        eventually(lambda: "p" in node.catalog().pipelines)
        follower.close()


def test_a_process_that_stands_still_renews_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its storage hangs, say. The thread renewed its leases, so that nobody took over."""
    monkeypatch.setattr(control_client, "STILL_S_MAX", 0.5)
    with FakeNode() as node:
        renewals, renew = deque[float](), node.renew

        def counted(body: bytes) -> bytes:
            renewals.append(time.monotonic())
            return renew(body)

        monkeypatch.setattr(node, "renew", counted)
        follower = Follower([node.address], SECRET, list)
        follower.start()
        assert follower.register("p", is_over=lambda: False) is not None
        time.sleep(0.7)
        renewals.clear()
        eventually(lambda: renewals)  # a program has no such loop, and one that starts not yet
        follower.beat()
        still = time.monotonic() + 0.5
        eventually(lambda: time.monotonic() > still + 0.5)
        assert max(renewals) < still + 0.2
        renewals.clear()
        follower.beat()
        eventually(lambda: renewals)
        follower.close()


def test_no_registration_when_it_is_over() -> None:
    with FakeNode() as node:
        node.is_mute = True
        follower = Follower([node.address], SECRET, list)
        follower.start()
        assert follower.register("p", is_over=lambda: True) is None
        follower.close()


def test_who_stops_while_it_is_being_registered_is_not_left_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The quorum is slow, and logs it later: leases were granted to a process that had ended."""
    monkeypatch.setattr(control_client, "RENEW_MS_MAX", 30_000)
    with FakeNode() as node:
        is_asked, log_it = threading.Event(), node.start_pipeline

        def slow(body: bytes) -> bytes:
            is_asked.set()
            time.sleep(1.0)
            return log_it(body)

        monkeypatch.setattr(node, "start_pipeline", slow)
        follower = Follower([node.address], SECRET, list)
        follower.start()
        assert follower.register("p", is_over=is_asked.is_set) is None
        follower.close()
        eventually(lambda: any(isinstance(each, StartPipeline) for each in node.commands))
        eventually(lambda: node.catalog().pipelines == {})


def test_who_stops_before_a_node_has_answered_leaves_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_client, "RENEW_MS_MAX", 200)
    with FakeNode() as node:
        is_asked, is_left = threading.Event(), threading.Event()

        def hanging(body: bytes) -> bytes:
            is_asked.set()
            assert is_left.wait(30)
            return b"{}"

        def leave(body: bytes) -> bytes:
            is_left.set()
            return b"{}"

        monkeypatch.setattr(node, "start_pipeline", hanging)
        monkeypatch.setattr(node, "leave", leave)
        follower = Follower([node.address], SECRET, list)
        follower.start()
        assert follower.register("p", is_over=is_asked.is_set) is None
        follower.close()
        assert is_left.wait(30)


def test_a_command_from_the_future_stops_it_by_name() -> None:
    with FakeNode() as node:
        node.log(DropSource(name="S", version=99))
        follower = Follower([node.address], SECRET, list)
        follower.start()

        def has_failed() -> bool:
            try:
                return follower.catalog is None
            except UnknownCommand:
                return True

        eventually(has_failed)
        with pytest.raises(UnknownCommand, match="version 99"):
            _ = follower.catalog
        follower.close()


@pytest.mark.parametrize("chore", ["_follow", "_keep_reporting", "_keep_renewing"])
def test_a_chore_that_fails_ends_the_process(chore: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody awaited them: a pipeline went on with an old catalog, or without renewing a lease."""

    async def fails(_: Follower) -> None:
        raise ValueError(f"a bug in {chore}")

    monkeypatch.setattr(Follower, chore, fails)
    with FakeNode() as node:
        follower = Follower([node.address], SECRET, list)
        follower.start()

        def has_failed() -> bool:
            try:
                return follower.catalog is None
            except ValueError:
                return True

        eventually(has_failed)
        with pytest.raises(ValueError, match=f"a bug in {chore}"):
            follower.register("p", is_over=lambda: False)
        follower.close()


def test_what_was_paused_for_a_moment_is_noticed() -> None:
    """PAUSE and RESUME in one page of the log: the catalog before and after are the same."""
    with FakeNode() as node:
        for command in commands_of(
            "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
            "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
        ):
            node.log(command)
        (query_id,) = node.catalog().queries
        for state in ("PAUSED", "RUNNING"):
            node.log(SetQueryState(query_ids=(query_id,), state=state))
        follower = Follower([node.address], SECRET, list)
        follower.start()
        eventually(lambda: follower.catalog.index == node.catalog().index)
        assert follower.catalog.queries[query_id].state == "RUNNING"
        assert follower.take_ended() == {query_id: follower.catalog.index - 1}
        assert follower.take_ended() == {}
        follower.close()


EXTERNAL = """
CREATE TABLE X (ID STRING PRIMARY KEY, V INT)
    WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', PARTITIONS=1, WRITER='EXTERNAL');
"""


def test_an_application_registers_for_its_table_and_no_pipeline_does() -> None:
    (created,) = commands_of(EXTERNAL)
    with FakeNode() as node:
        node.log(created)
        follower = Follower([node.address], SECRET, list, "EXTERNAL_X_1", is_external=True)
        follower.start()
        assert follower.register("a", is_over=lambda: False) is not None
        eventually(lambda: "EXTERNAL_X_1" in follower.catalog.leases)
        node.log(EndPipelines(pipeline_ids=("a",)))
        eventually(lambda: node.catalog().isolated == {"EXTERNAL_X_1": ("a",)})
        follower.close()
        pipeline = Follower([node.address], SECRET, list, "EXTERNAL_X_1")
        pipeline.start()
        with pytest.raises(PipelineRefused, match="is run by a Spark application"):
            pipeline.register("p", is_over=lambda: False)
        pipeline.close()


class Told(ReplicaWait):
    """Keeps what it is told."""

    def __init__(self, bound: LagBound) -> None:
        super().__init__(bound)
        self.told: list[tuple[NodeId, tuple[ReplicaLag, ...]]] = []

    def take(self, node: NodeId, lags: Sequence[ReplicaLag]) -> None:
        self.told.append((node, (*lags,)))


def test_each_node_is_asked_how_far_its_replicas_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an older release, and one that is mute, are not waited for."""
    lag = ReplicaLag(
        table_id="T",
        generation=1,
        partition=0,
        position=Offset(7),
        committed_end=Offset(9),
        state=ReplicaState.RUNNING,
        batch=BatchId(3),
    )
    replicas = Told(LagBound(records=10, ms=0, wait_s_max=1.0))
    with FakeNode() as older, FakeNode() as node:
        node.lags = OwnLags(node_id=NodeId("b"), lags=(lag,))
        for each, name in ((older, "a"), (node, "b")):
            info = NodeInfo(
                node_id=NodeId(name), public="", internal=each.address, peer="", incarnation="i"
            )
            older.log(RegisterNode(node=info))
        follower = Follower([older.address], SECRET, list, replicas=replicas)
        follower.start()
        eventually(lambda: len(replicas.told) > 1)
        monkeypatch.setattr(control_client, "REPLICAS_EVERY_S", 600.0)
        eventually(lambda: not replicas.ask() and len(replicas.told) > 4)
        follower.close()
    assert set(replicas.told) == {("b", (lag,))}
