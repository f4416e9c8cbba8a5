"""Which transient queries the leader ends, and that a renewal is for the leader alone."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import msgspec
import pytest
from tests.unit.control.metadata.test_catalog import after
from tests.unit.control.metadata.test_transients import RUNNING, transient

from standpipe.adapters.http.internal import Call
from standpipe.control.metadata.commands import EndPipelines, StartPipeline, TerminateQuery
from standpipe.control.raft.messages import Error
from standpipe.node.controller import leases
from standpipe.node.controller.leases import LOOK_MS, PUSH_TIMEOUT_MS, LeaseWrites, Leasing
from standpipe.node.controller.raft_driver import ProposalRefused

TWO = after(transient("transient_S_8"), start=RUNNING)


class LeaderClock:
    """The leader's, which the test turns."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LeaderClock:
    made = LeaderClock()
    monkeypatch.setattr(leases, "_now_ms", made)
    return made


def writes_of(leasing: Leasing) -> LeaseWrites:
    async def never(_: object) -> NoReturn:
        raise AssertionError("a renewal is not logged")

    return LeaseWrites(leasing, lambda: TWO, lambda: 1, log=never, once=never)


def renewed(writes: LeaseWrites, *query_ids: str) -> object:
    call = Call("/pushes/renew", {}, msgspec.json.encode({"query_ids": query_ids}))
    return asyncio.run(writes.by_path[call.path](call))  # type: ignore[arg-type]


def test_what_no_worker_renews_ends(clock: LeaderClock) -> None:
    """Of two workers, one was killed."""
    leasing = Leasing(1000)
    writes = writes_of(leasing)
    leasing.begin(TWO)
    while clock.now_ms < PUSH_TIMEOUT_MS:
        assert leasing.due(TWO) is None
        clock.now_ms += LOOK_MS
        assert renewed(writes, "transient_S_8") == {"log_index": TWO.index}
    assert leasing.due(TWO) is None
    clock.now_ms += LOOK_MS
    assert leasing.due(TWO) == TerminateQuery(query_ids=("transient_S_7",))


def test_a_new_leader_gives_each_a_whole_timeout(clock: LeaderClock) -> None:
    clock.now_ms = 10 * PUSH_TIMEOUT_MS
    leasing = Leasing(1000)
    leasing.begin(RUNNING)
    for _ in range(PUSH_TIMEOUT_MS // LOOK_MS):
        clock.now_ms += LOOK_MS
        assert leasing.due(RUNNING) is None
    clock.now_ms += LOOK_MS
    assert leasing.due(RUNNING) == TerminateQuery(query_ids=("transient_S_7",))


def test_a_silent_pipeline_comes_first(clock: LeaderClock) -> None:
    catalog = after(
        StartPipeline(pipeline_id="p", version=2),
        StartPipeline(pipeline_id="q", version=2),
        start=RUNNING,
    )
    leasing = Leasing(PUSH_TIMEOUT_MS)
    leasing.begin(catalog)
    for _ in range(PUSH_TIMEOUT_MS // LOOK_MS + 1):
        clock.now_ms += LOOK_MS
        leasing.heard("q")
        due = leasing.due(catalog)
    assert due == EndPipelines(pipeline_ids=("p",))


def test_only_a_leader_takes_a_renewal(clock: LeaderClock) -> None:
    """Otherwise a query could be renewed at one node, and ended by another."""

    async def never(_: object) -> NoReturn:
        raise AssertionError

    def lost() -> NoReturn:
        raise ProposalRefused(Error.NOT_LEADER_OR_FOLLOWER, None)

    writes = LeaseWrites(Leasing(1000), lambda: TWO, lost, log=never, once=never)
    with pytest.raises(ProposalRefused):
        renewed(writes, "transient_S_7")
