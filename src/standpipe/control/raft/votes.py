"""Whether a replica grants its vote, and if not, why: the first refusal is the one reported.

Safety rests on the real vote alone: one per epoch, never to a candidate whose log is behind.  A
pre-vote promises nothing, stores nothing and may go to many; its only duty is to refuse those whose
election would disturb a working leader (KIP-650 "Pre-vote", with KIP-996's rule that a follower
that has fetched from its leader is the witness that the leader works).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from standpipe.control.raft.events import ElectionState
from standpipe.control.raft.majority import LeaderEpoch, LogOffset, ReplicaKey
from standpipe.control.raft.messages import Error, VoteRequest
from standpipe.control.raft.roles import Role


@dataclass(frozen=True, slots=True)
class Voter:
    """What decides about a replica's vote, in the epoch of the request."""

    role: Role
    election: ElectionState
    last_epoch: LeaderEpoch
    end_offset: LogOffset
    hears_leader: bool
    """It follows a leader of this epoch and has fetched from it with success."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """A vote, or the reason why it was refused."""

    granted: bool
    why: str


Rule = Callable[[Voter, VoteRequest], str | None]


def log_is_behind(me: Voter, asks: VoteRequest) -> str | None:
    """A log that is behind may lack committed entries (KIP-595; Raft section 5.4.1)."""
    if (asks.last_epoch, asks.end_offset) >= (me.last_epoch, me.end_offset):
        return None
    theirs, mine = (asks.last_epoch, asks.end_offset), (me.last_epoch, me.end_offset)
    return f"log {theirs[0]}/{theirs[1]} is behind {mine[0]}/{mine[1]}"


def epoch_has_leader(me: Voter, asks: VoteRequest) -> str | None:
    """An epoch that has a leader needs no vote, and cannot get a second leader."""
    leader = me.election.leader
    return None if leader is None else f"{leader} leads epoch {asks.epoch}"


def vote_is_given(me: Voter, asks: VoteRequest) -> str | None:
    """One vote per epoch and replica; a candidate's incarnation is part of its key (KIP-853)."""
    voted: ReplicaKey | None = me.election.voted
    return None if voted in {None, asks.candidate} else f"voted for {voted}"


def leads(me: Voter, asks: VoteRequest) -> str | None:
    """A leader knows that there is a leader (KIP-996)."""
    return f"leads epoch {asks.epoch}" if me.role is Role.LEADER else None


def hears_leader(me: Voter, asks: VoteRequest) -> str | None:
    """A follower that has fetched in this epoch is the witness of a working leader (KIP-996)."""
    return f"fetches from {me.election.leader}" if me.hears_leader else None


VOTE_RULES: Final[Sequence[Rule]] = (epoch_has_leader, vote_is_given, log_is_behind)
PRE_VOTE_RULES: Final[Sequence[Rule]] = (leads, hears_leader, log_is_behind)


def ballot(me: Voter, asks: VoteRequest) -> Ballot:
    """The answer to a request of our own epoch."""
    rules = PRE_VOTE_RULES if asks.pre else VOTE_RULES
    refusals = (why for rule in rules if (why := rule(me, asks)) is not None)
    why = next(refusals, None)
    return Ballot(granted=why is None, why=why or "log is up to date")


def inadmissible(asks: VoteRequest, me: ReplicaKey, epoch: LeaderEpoch) -> Error:
    """Why a request is refused before its epoch is used; Error.NONE if it is not."""
    if asks.voter != me:
        return Error.INVALID_VOTER_KEY
    if is_malformed(asks):
        return Error.INVALID_REQUEST
    return Error.FENCED_LEADER_EPOCH if asks.epoch < epoch else Error.NONE


def is_malformed(asks: VoteRequest) -> bool:
    """Whether no correct replica sends this; then not even its epoch is used (INVALID_REQUEST).

    A candidate's own epoch is new, so its log cannot hold it yet; a pre-vote's may (KIP-996).
    """
    too_new = asks.last_epoch > asks.epoch if asks.pre else asks.last_epoch >= asks.epoch
    return asks.end_offset < 0 or asks.last_epoch < 0 or too_new
