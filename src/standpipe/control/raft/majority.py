"""Majorities as arithmetic: which replicas must agree, and how far they do.

Nothing here knows a role, a message or a clock; every function maps a voter set and one value per
voter to one number or verdict.  Commit offset and read round are the same question: *which is the
greatest value that a majority has reached?*  (`docs/sources.md`: KIP-595, KIP-650, KIP-853.)

Not here: which entries may be committed (only those of the leader's own epoch: `leader`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from standpipe.model import NodeId

Incarnation = NewType("Incarnation", str)
"""The identity of one data directory (KIP-853's directory id), drawn when it is formatted."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Raft's term: at most one leader each; 0 before the first election."""
LogOffset = NewType("LogOffset", int)
"""Position in the quorum's log, 0-based; an *end* is the next one to be written (exclusive)."""
Round = NewType("Round", int)
"""Number of a confirmation of leadership, issued by one leader within one leader epoch."""

NO_EPOCH = LeaderEpoch(0)
NO_OFFSET = LogOffset(0)
NO_ROUND = Round(0)


class ReplicaKey(NamedTuple):
    """A replica's full identity: a node that lost its disk is another replica (KIP-853)."""

    node: NodeId
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.node}:{self.incarnation}"


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The replicas whose majority decides; ordered by key, without duplicates of a node."""

    keys: tuple[ReplicaKey, ...]
    """Ascending by node; at most one key per node."""

    def __post_init__(self) -> None:
        nodes = [key.node for key in self.keys]
        assert nodes == sorted(set(nodes)), f"voters not ascending or a node twice: {nodes}"

    @classmethod
    def of(cls, keys: Iterable[ReplicaKey]) -> "VoterSet":
        """The set of these keys, in order; a duplicate node is refused."""
        return cls(tuple(sorted(keys)))

    def __contains__(self, key: ReplicaKey) -> bool:
        return key in self.keys

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def majority(self) -> int:
        """Number of voters in a majority.  1 for an empty set, which can never be reached."""
        return len(self.keys) // 2 + 1

    def key_of(self, node: NodeId) -> ReplicaKey | None:
        """The key under which a node votes, or None if it is not a voter."""
        return next((key for key in self.keys if key.node == node), None)

    def others(self, me: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """All voters but this one, ascending."""
        return tuple(key for key in self.keys if key != me)

    def adding(self, key: ReplicaKey) -> "VoterSet":
        """One more voter; its node must not be a voter yet (KIP-853: DUPLICATE_VOTER)."""
        return VoterSet.of((*self.keys, key))

    def removing(self, key: ReplicaKey) -> "VoterSet":
        """One voter fewer."""
        assert key in self.keys, f"{key} does not vote"
        return VoterSet(self.others(key))

    def differs_by_one(self, other: "VoterSet") -> bool:
        """Whether one added or one removed voter leads from this set to the other.

        Only then does each majority of one overlap each majority of the other, which makes a
        change safe without a joint phase.  Source: KIP-853; Raft dissertation 4.1.
        """
        return len(set(self.keys) ^ set(other.keys)) == 1

    def __str__(self) -> str:
        return "{" + " ".join(str(key) for key in self.keys) + "}"


def majority_value(values: Iterable[int]) -> int:
    """The greatest value that a majority has reached, given one value per voter.

    Unit: that of the values.  Raises ValueError when there are none: no voter, no majority.
    Source: KIP-595 (high watermark); KIP-650 (round of a ReadOffset).
    """
    ordered = sorted(values, reverse=True)
    if not ordered:
        msg = "a majority of no voters"
        raise ValueError(msg)
    return ordered[len(ordered) // 2]


def reached(voters: VoterSet, value_of: Callable[[ReplicaKey], int]) -> int:
    """The greatest value that a majority of these voters has reached; non-voters never count."""
    return majority_value([value_of(key) for key in voters.keys])


class VoteOutcome(Enum):
    """The outcome of a vote."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


@dataclass(slots=True)
class Tally:
    """The answers to one vote or pre-vote, one per voter; the first one is final."""

    voters: VoterSet
    granted: set[ReplicaKey] = field(default_factory=set[ReplicaKey])
    rejected: set[ReplicaKey] = field(default_factory=set[ReplicaKey])

    def count(self, voter: ReplicaKey, *, granted: bool) -> None:
        """Record one answer; a repeated one changes nothing.

        Raises ValueError for a replica that is not a voter, and for a voter that changes its
        answer: both violate the protocol, and counting either could elect two leaders.
        """
        if voter not in self.voters:
            msg = f"{voter} is not a voter in {self.voters}"
            raise ValueError(msg)
        mine, other = (self.granted, self.rejected) if granted else (self.rejected, self.granted)
        if voter in other:
            msg = f"{voter} had answered {'no' if granted else 'yes'}"
            raise ValueError(msg)
        mine.add(voter)

    @property
    def open(self) -> tuple[ReplicaKey, ...]:
        """The voters that have not answered, ascending."""
        answered = self.granted | self.rejected
        return tuple(key for key in self.voters.keys if key not in answered)

    @property
    def outcome(self) -> VoteOutcome:
        """Won by a majority, lost when a majority has become impossible, else open."""
        if len(self.granted) >= self.voters.majority:
            return VoteOutcome.WON
        if len(self.voters) - len(self.rejected) < self.voters.majority:
            return VoteOutcome.LOST
        return VoteOutcome.OPEN
