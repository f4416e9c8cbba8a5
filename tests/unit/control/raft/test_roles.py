"""The table of roles: complete where it must be, silent where it must be."""

from collections import deque

import pytest

from standpipe.control.raft.roles import NEXT, Cause, IllegalTransition, Role, next_role


def test_every_role_can_be_reached_from_the_start() -> None:
    seen, queue = {Role.UNATTACHED}, deque([Role.UNATTACHED])
    while queue:
        role = queue.popleft()
        for (was, _), then in NEXT.items():
            if was is role and then not in seen:
                seen.add(then)
                queue.append(then)
    assert seen == set(Role)


@pytest.mark.parametrize("role", Role)
def test_a_higher_epoch_moves_everyone(role: Role) -> None:
    assert next_role(role, Cause.HIGHER_EPOCH) in {Role.UNATTACHED, Role.OBSERVER}
    assert next_role(role, Cause.LEADER_FOUND) in {Role.FOLLOWER, Role.OBSERVER}


def test_one_way_into_candidacy_and_one_into_leadership() -> None:
    into = {then: {key for key, value in NEXT.items() if value is then} for then in Role}
    assert into[Role.CANDIDATE] == {(Role.PROSPECTIVE, Cause.MAJORITY)}
    assert into[Role.LEADER] == {(Role.CANDIDATE, Cause.MAJORITY)}


@pytest.mark.parametrize(
    ("role", "cause"),
    [
        (Role.FOLLOWER, Cause.MAJORITY),
        (Role.UNATTACHED, Cause.MAJORITY),
        (Role.OBSERVER, Cause.MAJORITY),
        (Role.LEADER, Cause.GRANTED),
        (Role.RESIGNED, Cause.GRANTED),
        (Role.CANDIDATE, Cause.GRANTED),
    ],
)
def test_what_cannot_happen(role: Role, cause: Cause) -> None:
    with pytest.raises(IllegalTransition):
        next_role(role, cause)
