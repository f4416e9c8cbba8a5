"""What a leader knows of other replicas: how far each has read, whether a majority still follows.

Everything here comes from fetches of this epoch: a fetch acknowledges what its sender has
flushed (KIP-595), echoes a round (KIP-650), and proves that its sender follows (check-quorum).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from standpipe.control.raft.log import LogView
from standpipe.control.raft.majority import (
    NO_OFFSET,
    NO_ROUND,
    LeaderEpoch,
    LogOffset,
    ReplicaKey,
    Round,
    reached,
)
from standpipe.control.raft.timeouts import RaftSettings
from standpipe.model import NodeId

NOT_COMPARED = LogOffset(-1)
"""End offset of a replica whose log has not been found to be a prefix of ours."""


@dataclass(slots=True)
class ReplicaProgress:
    """What the leader knows of one replica, from its fetches in this epoch."""

    end_offset: LogOffset = NOT_COMPARED
    """Flushed there and equal to our log."""
    round: Round = NO_ROUND
    """Newest round that it echoed."""
    fetched_ms: int | None = None
    caught_up_ms: int | None = None
    """Last instant at which it had everything that we had then."""
    end_at_fetch: LogOffset = NO_OFFSET
    """Our end when it fetched last: reaching it means having been caught up at that time."""


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One line of `standpipe quorum describe`."""

    key: ReplicaKey
    votes: bool
    end_offset: LogOffset
    """-1: unknown."""
    fetched_ms: int | None
    caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """What `standpipe quorum describe` shows; only the leader knows it.  Source: KIP-595."""

    leader: NodeId
    epoch: LeaderEpoch
    high_watermark: LogOffset
    replicas: Sequence[ReplicaDescription]
    """The leader first."""


class Followers:
    """Every replica that has fetched from one leader in its epoch, and every voter."""

    def __init__(
        self, me: ReplicaKey, log: LogView, settings: RaftSettings, *, now_ms: int
    ) -> None:
        """Begins without any progress, and with a full check-quorum time to receive fetches."""
        self._me = me
        self._log = log
        self._settings = settings
        self._progress: dict[ReplicaKey, ReplicaProgress] = {}
        #: voters that fetched since the check-quorum time began
        self._seen: set[ReplicaKey] = set()
        self._check_due_ms = now_ms + settings.check_ms

    def of(self, key: ReplicaKey) -> ReplicaProgress | None:
        """What is known of one replica; None: it has not fetched in this epoch."""
        return self._progress.get(key)

    def note_fetch(self, key: ReplicaKey, now_ms: int, round_: Round = NO_ROUND) -> int | None:
        """A replica sent Fetch or FetchSnapshot in this epoch: it follows (check-quorum).

        Returns when its previous fetch arrived; None: there was none.  Unit: ms.
        """
        progress = self._progress.setdefault(key, ReplicaProgress())
        progress.round = max(progress.round, round_)
        before_ms, progress.fetched_ms = progress.fetched_ms, now_ms
        voters = self._log.voters
        if key in voters:
            self._seen.add(key)
        if sum(seen in voters for seen in self._seen) >= self._others_needed:
            self._seen.clear()
            self._check_due_ms = now_ms + self._settings.check_ms
        return before_ms

    def compared(self, key: ReplicaKey, offset: LogOffset, before_ms: int | None) -> None:
        """A fetch continues our log from `offset`; `before_ms`: when the previous fetch arrived."""
        progress = self._progress[key]
        # A delayed fetch cannot undo what an earlier one proved: no replica truncates flushed
        # entries while it stays in our epoch.
        progress.end_offset = max(progress.end_offset, offset)
        if offset >= self._log.end:
            progress.caught_up_ms = progress.fetched_ms
        elif before_ms is not None and offset >= progress.end_at_fetch:
            progress.caught_up_ms = before_ms
        progress.end_at_fetch = self._log.end

    def flushed_end(self) -> int:
        """The end that a majority of the voters has flushed."""
        return reached(self._log.voters, self.flushed_end_of)

    def flushed_end_of(self, key: ReplicaKey) -> int:
        """The end that one replica has flushed; `NOT_COMPARED` if its fetches do not tell."""
        if key == self._me:
            return self._log.flushed_end  # our own unflushed entries do not count either
        progress = self._progress.get(key)
        return progress.end_offset if progress else NOT_COMPARED

    def round(self, newest: Round) -> int:
        """The round that a majority of the voters has echoed; a voting leader echoes at once."""

        def round_of(key: ReplicaKey) -> int:
            if key == self._me:
                return newest
            progress = self._progress.get(key)
            return progress.round if progress else NO_ROUND

        return reached(self._log.voters, round_of)

    @property
    def _others_needed(self) -> int:
        """How many other voters form a majority with us; we count only while we are a voter."""
        return self._log.voters.majority - (self._me in self._log.voters)

    def has_lost_quorum(self, now_ms: int) -> bool:
        """Whether no majority fetched within the check-quorum time; a sole voter needs none."""
        return self._others_needed > 0 and now_ms >= self._check_due_ms

    def silent_voters(self, now_ms: int) -> list[ReplicaKey]:
        """Voters that have not fetched recently: they may not know that we lead (KIP-595)."""
        return [
            key
            for key in self._log.voters.others(self._me)
            if (known := self._progress.get(key)) is None
            or known.fetched_ms is None
            or now_ms - known.fetched_ms >= self._settings.begin_ms
        ]

    @property
    def check_due_ms(self) -> int | None:
        """When check-quorum expires; None for a sole voter."""
        return self._check_due_ms if self._others_needed > 0 else None

    def describe(self, now_ms: int) -> list[ReplicaDescription]:
        """Voters, and observers that fetched within `forget_ms`.  Source: DescribeQuorum."""
        forget_ms = self._settings.forget_ms
        lines: list[ReplicaDescription] = []
        voters = self._log.voters
        for key in sorted({*voters.keys, *self._progress} - {self._me}):
            known = self._progress.get(key, ReplicaProgress())
            silent = known.fetched_ms is None or now_ms - known.fetched_ms > forget_ms
            if key in voters or not silent:
                lines.append(
                    ReplicaDescription(
                        key, key in voters, known.end_offset, known.fetched_ms, known.caught_up_ms
                    )
                )
        mine = ReplicaDescription(self._me, self._me in voters, self._log.end, now_ms, now_ms)
        return [mine, *lines]
