"""To whom a node reports its lags, and what does not wait for the next report."""

from __future__ import annotations

import msgspec

from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    BatchId,
    NodeId,
    Offset,
    Placement,
    ReplicaState,
)
from standpipe.model_liveness import ReplicaLag
from standpipe.node.liveness.lag_reports import NEWS_MS, LagReports

ME, CO_HOLDER, WARMING, LEADER = (NodeId(name) for name in ("me", "co", "warming", "leader"))


def placed(*replicas: NodeId, warmups: tuple[NodeId, ...] = ()) -> Catalog:
    placement = Placement(
        table_id="t", generation=1, partition=0, replicas=replicas, warmups=warmups
    )
    assignment = Assignment(epoch=AssignmentEpoch(1), placements=(placement,))
    return msgspec.structs.replace(EMPTY, assignment=assignment)


def lag(state: ReplicaState, position: int = 0) -> ReplicaLag:
    return ReplicaLag(
        table_id="t",
        generation=1,
        partition=0,
        position=Offset(position),
        committed_end=Offset(9),
        state=state,
        batch=BatchId(1),
    )


def reports(catalog: Catalog) -> LagReports:
    made = LagReports(ME, "of me", "me:1", session=1)
    made.follow(catalog)
    return made


def test_who_needs_them() -> None:
    made = reports(placed(ME, CO_HOLDER, warmups=(WARMING,)))
    assert made.hearers(LEADER) == {CO_HOLDER, WARMING, LEADER}
    made.follow(placed(CO_HOLDER))
    assert made.hearers(LEADER) == {LEADER}, "it holds nothing of it any more"


def test_what_is_news_and_how_often() -> None:
    made, now_ms = reports(placed(ME, CO_HOLDER)), 50
    assert made.take_news(LEADER, now_ms), "nothing was told yet"
    for what, change in {
        "another leader": lambda: None,
        "a replica": lambda: made.reporter.observe([lag(ReplicaState.BOOTSTRAP)]),
        "it answers now": lambda: made.reporter.observe([lag(ReplicaState.RUNNING)]),
        "another co-holder": lambda: made.follow(placed(ME, WARMING)),
        "a peer restarted": made.forget_news,
    }.items():
        change()
        assert not made.take_news(CO_HOLDER, now_ms + NEWS_MS - 1), "at the most once a second"
        now_ms += NEWS_MS
        assert made.take_news(CO_HOLDER, now_ms), what
        assert not made.take_news(CO_HOLDER, now_ms + NEWS_MS), "told once"


def test_a_position_is_no_news() -> None:
    made = reports(placed(ME, CO_HOLDER))
    made.reporter.observe([lag(ReplicaState.RUNNING)])
    assert made.take_news(LEADER, 0)
    made.reporter.observe([lag(ReplicaState.RUNNING, position=7)])
    assert not made.take_news(LEADER, 10_000)
    assert [one.position for one in made.full(EMPTY, 1).standpipe.lags.changes] == [7]  # pyright: ignore[reportOptionalMemberAccess]
