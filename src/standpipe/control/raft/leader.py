"""A leader's state, from election to end: followers' progress, parked fetches, pending answers.

    append ─► parked fetches are answered ─► followers flush, fetch again ─► progress
           └► own disk flushes ────────────► commit offset of a majority ─► high watermark
                                             └► answers: proposals, changes, reads, parked fetches

The leader's own copy counts like a follower's: only what its disk has flushed, and only while it is
a voter.  Only entries of this epoch are committed by counting (KIP-595; Raft 5.4.2); older entries
are committed with them.

Not here: becoming or ceasing to be the leader (`core`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from standpipe.control.raft.events import (
    AnswerChange,
    AnswerProposal,
    AppendLog,
    Order,
    Proposed,
    Send,
    SendSnapshotChunk,
    TransferRequested,
    VoterAddRequested,
    VoterRemoveRequested,
)
from standpipe.control.raft.followers import Followers, QuorumDescription
from standpipe.control.raft.log import (
    Diverges,
    Entry,
    LeaderChange,
    LogView,
    NeedsSnapshot,
    Payload,
)
from standpipe.control.raft.majority import LeaderEpoch, LogOffset, ReplicaKey, VoterSet
from standpipe.control.raft.messages import (
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    ReadOffsetResponse,
    refusal,
)
from standpipe.control.raft.reads import NotedRead, ReadRounds
from standpipe.control.raft.timeouts import RaftSettings
from standpipe.control.raft.voter_changes import PendingVoterChange
from standpipe.model import NodeId


@dataclass(frozen=True, slots=True)
class _Parked:
    request: FetchRequest
    to: NodeId
    due_ms: int


@dataclass(frozen=True, slots=True)
class _Transfer:
    change: int
    to: ReplicaKey
    due_ms: int


class Leadership:
    """One replica's leadership of one epoch."""

    def __init__(
        self,
        me: ReplicaKey,
        epoch: LeaderEpoch,
        log: LogView,
        settings: RaftSettings,
        *,
        now_ms: int,
    ) -> None:
        """Begins at the current end of the log, without any follower's progress."""
        self.me = me
        self.epoch = epoch
        self.epoch_start = log.end
        self.rounds = ReadRounds()
        self.changes = PendingVoterChange(log, log.end, settings.change_ms)
        self._log = log
        self._settings = settings
        self.followers = Followers(me, log, settings, now_ms=now_ms)
        #: fetches that wait for something to return, at most one per replica
        self._parked: dict[ReplicaKey, _Parked] = {}
        #: [(offset, proposal)] ascending, appended here and not yet applied
        self._proposals: deque[tuple[LogOffset, int]] = deque()
        self._transfer: _Transfer | None = None

    # -- appending --------------------------------------------------------------------------------

    def begin(self, granted: Sequence[ReplicaKey]) -> AppendLog:
        """The first append of the epoch.  Source: KIP-595 LeaderChange; KIP-853 bootstrap."""
        change = LeaderChange(self.me.node, self._log.voters, tuple(sorted(granted)))
        if self._log.voters_offset is None and self._log.start.end_offset == 0:
            # The set comes only from our bootstrap: observers must learn it from the log.
            return self.append(change, self._log.voters)
        return self.append(change)

    def append(self, *payloads: Payload) -> AppendLog:
        """Append payloads to the log, in this epoch."""
        entries = tuple(
            Entry(LogOffset(self._log.end + index), self.epoch, payload)
            for index, payload in enumerate(payloads)
        )
        self._log.append(entries)
        return AppendLog(self._log.wrote(), entries)

    def propose(self, asked: Proposed) -> list[Order]:
        """Append a client's command, or say why not."""
        if asked.epoch not in {None, self.epoch} or self._transfer is not None:
            return [AnswerProposal(asked.proposal, Error.NOT_LEADER_OR_FOLLOWER)]
        if len(asked.data) > self._settings.entry_bytes_max:
            return [AnswerProposal(asked.proposal, Error.RECORD_TOO_LARGE)]
        self._proposals.append((self._log.end, asked.proposal))
        return [self.append(asked.data)]

    # -- fetches ----------------------------------------------------------------------------------

    def fetch(self, asked: FetchRequest, sender: NodeId, now_ms: int) -> list[Order]:
        """Record what a fetch says about its sender; answer it, or park it."""
        verdict = self._log.check_fetch(asked.offset, asked.last_epoch)
        before_ms = self.followers.note_fetch(asked.replica, now_ms, asked.round)
        if isinstance(verdict, Diverges):
            return [self._answer(asked, sender, diverging=verdict)]
        if isinstance(verdict, NeedsSnapshot):
            return [self._answer(asked, sender, snapshot=verdict)]
        self.followers.compared(asked.replica, asked.offset, before_ms)
        # Not answered before `settle`: this very fetch may commit entries that its answer carries.
        # Parked no longer than our own `wait_ms`: a follower with longer time-outs (keys change one
        # node at a time) would fetch less often than our check-quorum needs.
        due_ms = now_ms + min(asked.wait_ms, self._settings.wait_ms)
        self._parked[asked.replica] = _Parked(asked, sender, due_ms)
        return []

    def _answer(
        self,
        asked: FetchRequest,
        to: NodeId,
        *,
        diverging: Diverges | None = None,
        snapshot: NeedsSnapshot | None = None,
        entries: Sequence[Entry] = (),
    ) -> Send:
        return Send(
            to,
            FetchResponse(
                asked.request,
                Error.NONE,
                self.epoch,
                self.me.node,
                high_watermark=self._log.high_watermark,
                round=self.rounds.round,
                entries=tuple(entries),
                diverging=diverging.end if diverging else None,
                snapshot=snapshot.snapshot if snapshot else None,
            ),
        )

    def _answer_parked(self, now_ms: int) -> list[Order]:
        """Answer every parked fetch that is due or whose answer has something new."""
        orders: list[Order] = []
        for key, parked in list(self._parked.items()):
            asked = parked.request
            if asked.offset < self._log.start.end_offset:
                # Trimmed while it was parked: judge it again.
                del self._parked[key]
                orders += self.fetch(asked, parked.to, now_ms)
            elif (
                asked.offset < self._log.end
                or asked.high_watermark < self._log.high_watermark  # KIP-1166
                or asked.round < self.rounds.wanted  # a read waits for the echo (KIP-650)
                or parked.due_ms <= now_ms
            ):
                del self._parked[key]
                entries = self._log.read(
                    asked.offset, self._log.end, count_max=self._settings.entries_max
                )
                entries = _within(entries, self._settings.answer_bytes_max)
                orders.append(self._answer(asked, parked.to, entries=entries))
        return orders

    def chunk(self, asked: FetchSnapshotRequest, sender: NodeId, now_ms: int) -> Order:
        """The requested piece of a snapshot, or a refusal (KIP-630)."""
        self.followers.note_fetch(asked.replica, now_ms)
        known = (self._log.snapshot, self._log.start)
        snapshot = next((one for one in known if one.id == asked.snapshot), None)
        if snapshot is None or snapshot.end_offset == 0:
            error = Error.SNAPSHOT_NOT_FOUND
        elif not 0 <= asked.position < snapshot.size:
            error = Error.POSITION_OUT_OF_RANGE
        else:
            bytes_max = min(asked.bytes_max, self._settings.chunk_bytes_max)
            return SendSnapshotChunk(
                sender, asked.request, self.epoch, snapshot, asked.position, bytes_max
            )
        return Send(sender, refusal(asked, error, self.epoch, self.me.node))

    # -- deciding ---------------------------------------------------------------------------------

    @property
    def has_own_commit(self) -> bool:
        """Whether an entry of this epoch is committed: only then is the high watermark current."""
        return self._log.high_watermark > self.epoch_start

    def commit_offset(self) -> LogOffset | None:
        """The end that a majority of the voters has flushed, if it commits anything.

        Source: KIP-595: only a majority beyond the epoch's start counts; older entries follow.
        """
        end = self.followers.flushed_end()
        return LogOffset(end) if end > self.epoch_start else None

    def settle(self, now_ms: int, applied: LogOffset) -> list[Order]:
        """Send every answer that is now due; called at the end of each event."""
        orders: list[Order] = []
        while self._proposals and self._proposals[0][0] < applied:
            offset, proposal = self._proposals.popleft()
            orders.append(AnswerProposal(proposal, Error.NONE, offset, self.me.node))
        orders += self._advance_newcomer(now_ms)
        if (answer := self.changes.settled(now_ms, applied)) is not None:
            orders.append(answer)
        if self._transfer is not None and self._transfer.due_ms <= now_ms:
            orders.append(AnswerChange(self._transfer.change, Error.REQUEST_TIMED_OUT))
            self._transfer = None
        if self.has_own_commit:
            self.rounds.watermark_known(self._log.high_watermark)
        return orders + self._answer_parked(now_ms)

    def note_read(self, reader: NodeId | None, request: int) -> None:
        """Accept a read; `reader` is None for a read of this node."""
        high_watermark = self._log.high_watermark if self.has_own_commit else None
        self.rounds.note(reader, request, high_watermark)

    def confirmed_reads(self) -> list[NotedRead]:
        """Reads whose round a majority has echoed: this leader still led after they arrived."""
        return self.rounds.confirmed(self.followers.round(self.rounds.round))

    def read_answer(self, read: NotedRead) -> ReadOffsetResponse:
        """The answer to a read whose round is confirmed."""
        leader = self.me.node
        return ReadOffsetResponse(read.request, Error.NONE, self.epoch, leader, read.offset)

    # -- voters and successors --------------------------------------------------------------------

    def change_voters(self, asked: VoterAddRequested | VoterRemoveRequested) -> list[Order]:
        """Begin a voter change, or say why not."""
        if isinstance(asked, VoterAddRequested):
            error = self.changes.add(asked)
            return [] if error is None else [AnswerChange(asked.change, error, self.me.node)]
        voters = self.changes.remove(asked)
        if isinstance(voters, VoterSet):
            return [self.append(voters)]
        return [AnswerChange(asked.change, voters, self.me.node)]

    def _advance_newcomer(self, now_ms: int) -> list[Order]:
        newcomer = self.changes.newcomer
        progress = self.followers.of(newcomer) if newcomer else None
        if progress is None or progress.caught_up_ms is None:
            return []
        # It must still be alive: a set with a dead newcomer may lack a majority at once.
        if now_ms - progress.caught_up_ms > self._settings.fetch_ms:
            return []
        return [self.append(self.changes.newcomer_caught_up())]

    @property
    def is_removed(self) -> bool:
        """Whether the committed voter set no longer contains this leader: its last duty is done."""
        recorded = self._log.voters_offset
        return self.me not in self._log.voters and (
            recorded is None or recorded < self._log.high_watermark
        )

    def transfer(self, asked: TransferRequested) -> list[Order]:
        """Begin the hand-over: stop appending until the successor has everything."""
        if asked.voter not in self._log.voters or asked.voter == self.me:
            return [AnswerChange(asked.change, Error.VOTER_NOT_FOUND, self.me.node)]
        if self._transfer is not None:
            return [AnswerChange(asked.change, Error.REQUEST_TIMED_OUT, self.me.node)]
        due_ms = asked.at_ms + self._settings.check_ms
        self._transfer = _Transfer(asked.change, asked.voter, due_ms)
        return []

    def transfer_ready(self) -> bool:
        """Whether the successor holds everything that this leader has appended."""
        if self._transfer is None or self._transfer.to not in self._log.voters:
            return False
        return self.followers.flushed_end_of(self._transfer.to) >= self._log.end

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, best first: the chosen one, then by flushed end (KIP-595)."""
        chosen = self._transfer.to if self._transfer else None
        return tuple(
            sorted(
                self._log.voters.others(self.me),
                key=lambda key: (key != chosen, -self.followers.flushed_end_of(key), key),
            )
        )

    # -- time and the end -------------------------------------------------------------------------

    def describe(self, now_ms: int) -> QuorumDescription:
        """The quorum and each replica's progress."""
        replicas = self.followers.describe(now_ms)
        return QuorumDescription(self.me.node, self.epoch, self._log.high_watermark, replicas)

    def deadline_ms(self) -> int | None:
        """When `settle` will have something to answer without a further event."""
        dues = [parked.due_ms for parked in self._parked.values()]
        if self._transfer:
            dues.append(self._transfer.due_ms)
        if (due := self.changes.deadline_ms()) is not None:
            dues.append(due)
        return min(dues, default=None)

    def end(self, epoch: LeaderEpoch, leader: NodeId | None) -> list[Order]:
        """Refuse everything pending, naming the next leader if it is known."""
        error = Error.NOT_LEADER_OR_FOLLOWER
        orders: list[Order] = [
            Send(parked.to, refusal(parked.request, error, epoch, leader))
            for parked in self._parked.values()
        ]
        orders += [
            # It was appended, so the next leader may still commit it.
            AnswerProposal(proposal, error, offset, leader)
            for offset, proposal in self._proposals
        ]
        orders += [
            Send(reader, ReadOffsetResponse(request, error, epoch, leader))
            for reader, request in self.rounds.abandoned()
            if reader is not None
        ]
        if self._transfer is not None:
            handed_over = Error.NONE if self.transfer_ready() else error
            orders.append(AnswerChange(self._transfer.change, handed_over, leader))
        return orders + list(self.changes.abandoned(leader))


def is_malformed_fetch(asked: FetchRequest) -> bool:
    """Whether no correct replica sends this (INVALID_REQUEST)."""
    negative = min(asked.offset, asked.last_epoch, asked.wait_ms) < 0
    return negative or asked.last_epoch > asked.epoch


def _within(entries: Sequence[Entry], bytes_max: int) -> Sequence[Entry]:
    """The first entries, as many as fit into an answer; at least one."""
    size = 0
    for count, entry in enumerate(entries):
        size += len(entry.payload) if isinstance(entry.payload, bytes) else 0
        if count and size > bytes_max:
            return entries[:count]
    return entries
