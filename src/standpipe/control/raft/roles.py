"""The roles of a replica and what moves it from one to another, as a table.

    unattached    knows no leader to follow; waits for one, or for its election time-out
    follower      a voter that fetches from the leader of its epoch
    prospective   a voter that lost its leader and asks whether it *would* be elected (pre-vote)
    candidate     a voter that asks to be elected; the only role that begins a new epoch
    leader        the one replica that may append in its epoch
    resigned      led this epoch and will not lead it again; helps the hand-over
    observer      does not vote: fetches if it knows a leader, looks for one if it does not

`state.QuorumState` changes the role only through `next_role`, so a pair that is missing here
cannot happen; docs/states.md is drawn from `NEXT`.  Sources: KIP-595, KIP-650 (pre-vote),
KIP-996 (prospective).
"""

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What a replica does in its epoch."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"
    OBSERVER = "observer"


class Cause(StrEnum):
    """What happened to a replica, by its name in the table."""

    TIMED_OUT = "timed out"
    """No fetch, election or answer succeeded in time."""
    MAJORITY = "majority"
    """A majority of the voters granted what was asked."""
    LOST = "lost"
    """A majority refused, and no leader of this epoch is known."""
    LEADER_FOUND = "leader found"
    """A message named, or came from, the leader of this epoch."""
    HIGHER_EPOCH = "higher epoch"
    """A message had a higher epoch and no leader to follow."""
    GRANTED = "granted"
    """This replica gave its vote of the epoch to another replica."""
    QUORUM_LOST = "quorum lost"
    """No majority has fetched within the check-quorum time."""
    RESIGNS = "resigns"
    """It shuts down, hands over, or its removal is committed."""
    LEADER_RESIGNED = "leader resigned"
    """The leader of this epoch announced that it gave up."""
    REMOVED = "removed"
    """The voter set in force does not contain this replica."""
    JOINED = "joined"
    """The voter set in force now contains this replica, an observer."""


#: roles that fetch from a leader, ask for votes, lead or have led this epoch
FETCHING: Final = frozenset({Role.FOLLOWER, Role.OBSERVER})
ASKING: Final = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})
LED: Final = frozenset({Role.LEADER, Role.RESIGNED})


class IllegalTransition(Exception):
    """A role change that is not in the table: a bug, so the process ends."""


_R, _C = Role, Cause
NEXT: Final[dict[tuple[Role, Cause], Role]] = {
    (
        _R.UNATTACHED,
        _C.TIMED_OUT,
    ): _R.PROSPECTIVE,  # a pre-vote; raises no epoch (KIP-650)
    (_R.UNATTACHED, _C.LEADER_FOUND): _R.FOLLOWER,
    (_R.UNATTACHED, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.UNATTACHED, _C.GRANTED): _R.UNATTACHED,
    (_R.UNATTACHED, _C.LEADER_RESIGNED): _R.UNATTACHED,
    (_R.UNATTACHED, _C.REMOVED): _R.OBSERVER,
    (_R.FOLLOWER, _C.TIMED_OUT): _R.PROSPECTIVE,
    (_R.FOLLOWER, _C.LEADER_FOUND): _R.FOLLOWER,  # of a higher epoch only
    (_R.FOLLOWER, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.FOLLOWER, _C.LEADER_RESIGNED): _R.UNATTACHED,
    (_R.FOLLOWER, _C.REMOVED): _R.OBSERVER,
    (_R.PROSPECTIVE, _C.MAJORITY): _R.CANDIDATE,  # the only place where an epoch grows
    (_R.PROSPECTIVE, _C.LOST): _R.UNATTACHED,
    (_R.PROSPECTIVE, _C.LEADER_FOUND): _R.FOLLOWER,
    (_R.PROSPECTIVE, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.PROSPECTIVE, _C.GRANTED): _R.UNATTACHED,
    (_R.PROSPECTIVE, _C.LEADER_RESIGNED): _R.UNATTACHED,
    (_R.CANDIDATE, _C.MAJORITY): _R.LEADER,
    (_R.CANDIDATE, _C.TIMED_OUT): _R.PROSPECTIVE,  # after its back-off
    (_R.CANDIDATE, _C.LEADER_FOUND): _R.FOLLOWER,
    (_R.CANDIDATE, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.LEADER, _C.QUORUM_LOST): _R.RESIGNED,
    (_R.LEADER, _C.RESIGNS): _R.RESIGNED,
    (_R.LEADER, _C.LEADER_FOUND): _R.FOLLOWER,  # of a higher epoch only
    (_R.LEADER, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.RESIGNED, _C.TIMED_OUT): _R.PROSPECTIVE,
    (_R.RESIGNED, _C.LEADER_FOUND): _R.FOLLOWER,  # of a higher epoch only
    (_R.RESIGNED, _C.HIGHER_EPOCH): _R.UNATTACHED,
    (_R.RESIGNED, _C.REMOVED): _R.OBSERVER,
    (_R.OBSERVER, _C.TIMED_OUT): _R.OBSERVER,  # looks for a leader; never asks for votes
    (_R.OBSERVER, _C.LEADER_FOUND): _R.OBSERVER,
    (_R.OBSERVER, _C.HIGHER_EPOCH): _R.OBSERVER,
    (_R.OBSERVER, _C.GRANTED): _R.OBSERVER,
    (_R.OBSERVER, _C.LEADER_RESIGNED): _R.OBSERVER,
    (_R.OBSERVER, _C.JOINED): _R.FOLLOWER,
}


def next_role(role: Role, cause: Cause) -> Role:
    """The role after a cause.  Raises IllegalTransition for a pair that is not in the table."""
    try:
        return NEXT[role, cause]
    except KeyError:
        msg = f"{role} has no answer to: {cause}"
        raise IllegalTransition(msg) from None
