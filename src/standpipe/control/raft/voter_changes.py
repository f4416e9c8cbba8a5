"""Changing the voters one at a time, as the leader does it (KIP-853).

    refused? ─► add: wait until the newcomer has caught up ─► append the new set ─► committed: done
                remove: ──────────────────────────────────┘   (in force from the append on)

One change at a time, of one voter, and only after this leader has committed in its own epoch. So
consecutive sets have overlapping majorities, and two uncommitted sets never coexist.
"""

from dataclasses import dataclass

from standpipe.control.raft.events import AnswerChange, VoterAddRequested, VoterRemoveRequested
from standpipe.control.raft.log import LogView
from standpipe.control.raft.majority import LogOffset, ReplicaKey, VoterSet
from standpipe.control.raft.messages import Error
from standpipe.model import NodeId


@dataclass(slots=True)
class _Pending:
    change: int
    added: ReplicaKey | None  # None: a removal, or a change that is already in the log
    offset: LogOffset | None  # of the new set in the log; None: not appended yet
    due_ms: int


class PendingVoterChange:
    """The leader's one pending change; lives as long as one leadership."""

    def __init__(self, log: LogView, epoch_start: LogOffset, change_ms: int) -> None:
        """`change_ms`: how long catching up and committing may take."""
        self._log = log
        self._epoch_start = epoch_start
        self._change_ms = change_ms
        self._pending: _Pending | None = None

    def refuses(self) -> Error | None:
        """Why no change may begin now.  Kafka calls all three cases REQUEST_TIMED_OUT: retry."""
        recorded = self._log.voters_offset
        uncommitted = recorded is not None and recorded >= self._log.high_watermark
        own_commit = self._log.high_watermark > self._epoch_start
        if self._pending is not None or uncommitted or not own_commit:
            return Error.REQUEST_TIMED_OUT
        return None

    def add(self, asked: VoterAddRequested) -> Error | None:
        """Begin to add a voter; None if it has begun."""
        if not asked.voter.incarnation:
            return Error.INVALID_REQUEST
        if self._log.voters.key_of(asked.voter.node) is not None:
            return Error.DUPLICATE_VOTER  # by node: its old incarnation must be removed first
        if (error := self.refuses()) is not None:
            return error
        due_ms = asked.at_ms + self._change_ms
        self._pending = _Pending(asked.change, asked.voter, None, due_ms)
        return None

    def remove(self, asked: VoterRemoveRequested) -> VoterSet | Error:
        """Begin to remove a voter: the set to append, or why not."""
        if asked.voter not in self._log.voters:
            return Error.VOTER_NOT_FOUND
        if len(self._log.voters) == 1:
            return Error.INVALID_REQUEST  # no voter would be left to decide
        if (error := self.refuses()) is not None:
            return error
        due_ms = asked.at_ms + self._change_ms
        self._pending = _Pending(asked.change, None, self._log.end, due_ms)
        return self._log.voters.removing(asked.voter)

    @property
    def newcomer(self) -> ReplicaKey | None:
        """The replica that must catch up before the pending change can be appended."""
        return self._pending.added if self._pending else None

    def newcomer_caught_up(self) -> VoterSet:
        """The newcomer is ready: the set to append now."""
        assert self._pending is not None
        assert self._pending.added is not None
        voters = self._log.voters.adding(self._pending.added)
        self._pending.added, self._pending.offset = None, self._log.end
        return voters

    def settled(self, now_ms: int, applied: LogOffset) -> AnswerChange | None:
        """The answer to a change that is committed or timed out (it may still commit)."""
        pending = self._pending
        if pending is None:
            return None
        if pending.offset is not None and pending.offset < applied:
            self._pending = None
            return AnswerChange(pending.change, Error.NONE)
        if pending.due_ms <= now_ms:
            # A set in the log stays in force; `refuses` blocks further changes until it commits.
            self._pending = None
            return AnswerChange(pending.change, Error.REQUEST_TIMED_OUT)
        return None

    def abandoned(self, leader: NodeId | None) -> list[AnswerChange]:
        """The answer when the leadership ends: the next leader may commit it, or drop it."""
        pending, self._pending = self._pending, None
        if pending is None:
            return []
        return [AnswerChange(pending.change, Error.NOT_LEADER_OR_FOLLOWER, leader)]

    def deadline_ms(self) -> int | None:
        """When the caller is told that the change timed out."""
        return self._pending.due_ms if self._pending else None
