"""Whom a replica votes for, and the reason that it gives."""

import pytest
from tests.unit.control.raft_bench import key
from tests.unit.control.scenarios import covers

from standpipe.control.raft.events import ElectionState
from standpipe.control.raft.messages import VoteRequest
from standpipe.control.raft.roles import Role
from standpipe.control.raft.votes import Voter, ballot


def asks(*, pre: bool, last: int = 2, end: int = 5, who: int = 2) -> VoteRequest:
    return VoteRequest(1, 4, key(who), key(1), last, end, pre)


@covers("EL-23")
@pytest.mark.parametrize("pre", [True, False])
@pytest.mark.parametrize(
    ("last", "end", "why"),
    [
        (2, 5, "log is up to date"),
        (2, 6, "log is up to date"),
        (3, 1, "log is up to date"),
        (2, 4, "log 2/4 is behind 2/5"),
        (1, 9, "log 1/9 is behind 2/5"),
    ],
)
def test_the_log_decides_for_both(pre: bool, last: int, end: int, why: str) -> None:
    me = Voter(Role.UNATTACHED, ElectionState(4), 2, 5, hears_leader=False)
    assert ballot(me, asks(pre=pre, last=last, end=end)).why == why


@pytest.mark.parametrize(
    ("role", "election", "hears", "vote", "pre"),
    [
        (Role.FOLLOWER, ElectionState(4, "3"), True, "3 leads epoch 4", "fetches from 3"),
        (Role.FOLLOWER, ElectionState(4, "3"), False, "3 leads epoch 4", None),
        (Role.LEADER, ElectionState(4, "1", key(1)), False, "1 leads epoch 4", "leads epoch 4"),
        (Role.RESIGNED, ElectionState(4, "1", key(1)), False, "1 leads epoch 4", None),
        (Role.CANDIDATE, ElectionState(4, None, key(1)), False, "voted for 1:a", None),
        (Role.UNATTACHED, ElectionState(4, None, key(3)), False, "voted for 3:a", None),
        (Role.UNATTACHED, ElectionState(4, None, key(2)), False, None, None),
        (Role.OBSERVER, ElectionState(4, "3"), True, "3 leads epoch 4", "fetches from 3"),
    ],
)
def test_reasons(role, election, hears: bool, vote: str | None, pre: str | None) -> None:
    me = Voter(role, election, 2, 5, hears_leader=hears)
    for request, why in ((asks(pre=False), vote), (asks(pre=True), pre)):
        answer = ballot(me, request)
        assert answer.granted is (why is None)
        assert why is None or answer.why == why
