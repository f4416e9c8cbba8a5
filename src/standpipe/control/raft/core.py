"""The metadata quorum's core: pull-based Raft with pre-vote and linearizable reads, sans I/O.

    facts ─► handle(event) ─► orders, in the order of `raft_events`' contract: disk first

One `Raft` is one replica.  It has no clock (each event says when it happened), no randomness
(jitter is drawn from what the constructor is given), no disk and no network (orders).  Whoever
carries the orders out, a node's control loop or the simulation, is a loop without decisions.

Where to read on: roles and what changes them `raft_roles` · epochs `raft_state` · elections
`raft_elections`, `raft_votes` · fetching `raft_fetching` · what a leader keeps `raft_leader` · what
a follower keeps `raft_follower` · reads `raft_reads` · the log `raft_log` · majorities `quorum`.

Sources: KIP-595 (pull-based Raft), KIP-630 (snapshots), KIP-650 (pre-vote, ReadOffset), KIP-853
(voters, incarnations), KIP-996 (the pre-vote's epoch and its witnesses).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, get_args

from standpipe.control.raft.events import (
    FORGOTTEN_VOTE,
    AnnounceLeader,
    AnswerChange,
    AnswerProposal,
    ApplyCommitted,
    BeginLeading,
    DiskOrder,
    ElectionState,
    Event,
    LoadSnapshot,
    LogFlushed,
    MessageReceived,
    Order,
    PersistElection,
    Proposed,
    ReadRequested,
    RequestFailed,
    ResignRequested,
    SendSnapshotChunk,
    ShutdownRequested,
    SnapshotTaken,
    Started,
    Stop,
    TimePassed,
    TransferRequested,
    TrimLog,
    VoterAddRequested,
    VoterRemoveRequested,
)
from standpipe.control.raft.fetching import Fetching
from standpipe.control.raft.inflight import Kind
from standpipe.control.raft.leader import Leadership
from standpipe.control.raft.log import Snapshot
from standpipe.control.raft.majority import LeaderEpoch, LogOffset
from standpipe.control.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumEpochResponse,
    ReadOffsetRequest,
    ReadOffsetResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from standpipe.control.raft.progress import ReplicaDescription
from standpipe.control.raft.roles import Cause, Role
from standpipe.control.raft.state import ASKING, LED
from standpipe.model import NodeId

_DISK_ORDERS: Final = frozenset(get_args(DiskOrder))


def _is_not_for_disk(order: Order) -> bool:
    return type(order) not in _DISK_ORDERS  # sorts first; the order within each half stays


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """What `standpipe quorum describe` shows; only the leader can say it.  Source: KIP-595."""

    leader: NodeId
    epoch: LeaderEpoch
    high_watermark: LogOffset
    replicas: Sequence[ReplicaDescription]
    """The leader first."""


class Raft(Fetching):
    """One replica of the quorum: the whole core behind one method."""

    # -- the whole interface ----------------------------------------------------------------------

    def handle(self, event: Event) -> list[Order]:
        """Take one fact in; the orders that follow from it (contract: `raft_events`).

        Raises ProtocolViolation, LogViolation or IllegalTransition where going on would be unsafe.
        """
        self.now_ms = max(self.now_ms, event.at_ms)
        self._orders = []
        remembered = self.election
        if not isinstance(event, Started):
            # Before the event itself: a process that was stopped must not act on what it believed
            # before, and its clock is the first to tell (KIP-595 check-quorum).
            self._on_time()
        self._on(event)
        self._follow_up()
        self._orders.sort(key=_is_not_for_disk)
        if self.election != remembered:
            self._orders.insert(0, PersistElection(self.election))
        return self._orders

    def deadline_ms(self) -> int | None:
        """The next instant at which time alone changes something: then say TimePassed."""
        dues = [
            self._timer_ms,
            self._stop_due_ms,
            self._calls.deadline_ms(),
            self._reads.deadline_ms(),
        ]
        if (leadership := self._leadership) is not None:
            dues += [
                leadership.deadline_ms(),
                leadership.followers.check_due_ms,
                self._begin_due_ms,
            ]
        return min((due for due in dues if due is not None), default=None)

    def describe(self) -> QuorumDescription | None:
        """The quorum as its leader sees it; None at any other replica (ask `known_leader`)."""
        if self._leadership is None:
            return None
        replicas = self._leadership.followers.describe(self.now_ms)
        return QuorumDescription(self.me.node, self.epoch, self.log.high_watermark, replicas)

    # -- start, time, what every event ends with --------------------------------------------------

    def _on_started(self) -> None:
        if self.log.snapshot.end_offset > 0:
            self._load(self.log.snapshot)
        if self.election.epoch < self.log.last_epoch:
            # An older file than the log: a vote of this epoch may be forgotten, so none is given.
            self._remember(ElectionState(self.log.last_epoch, None, FORGOTTEN_VOTE))
        was = self.election
        if not self.votes:
            self.role = Role.OBSERVER
            self.leader = was.leader if was.leader != self.me.node else None
            self._timer_ms = self._fetch_due_ms()
        elif was.leader == self.me.node:
            # It may have appended what its disk has lost: never again in this epoch (KIP-595).
            self.role = Role.RESIGNED
            self._timer_ms = self._election_due_ms()
            self._send_end_quorum()
        elif was.voted == self.me:
            self.role = Role.CANDIDATE
            self._ask_for_votes()
        elif was.leader is not None:
            self.role = Role.FOLLOWER
            self.leader = was.leader
            self._timer_ms = self._fetch_due_ms()
        else:
            self._timer_ms = self._election_due_ms()
        if self.log.voters.keys == (self.me,) and self.role is not Role.LEADER:
            self._seek_election()

    def _on_time(self) -> None:
        now_ms = self.now_ms
        if self._timer_ms is not None and self._timer_ms <= now_ms:
            self._on_timer()
        if (leadership := self._leadership) is not None:
            if leadership.followers.has_lost_quorum(now_ms):
                self._resign(Cause.QUORUM_LOST)
            elif self._begin_due_ms <= now_ms:
                self._call_silent_voters()
        for kind, to in self._calls.take_due(now_ms):
            self._try_again(kind, to)
        self._orders += self._reads.expired(now_ms)

    def _on_timer(self) -> None:
        match self.role:
            case Role.OBSERVER:
                self._look_for_leader()
            case Role.RESIGNED if not self.votes:
                self._settle_membership()
            case Role.PROSPECTIVE:
                self._lose_election()
            case Role.CANDIDATE if not self._is_backing_off:
                self._lose_election()
            case _:
                self._seek_election()

    def _follow_up(self) -> None:
        """What any event may have made possible, from the log upwards."""
        self._ask_for_reads()
        leadership = self._leadership
        if leadership is not None and (end := leadership.commit_offset()) is not None:
            self.log.commit(end)
        self._apply()
        if leadership is not None:
            self._keep_promises(leadership)
        self._orders += self._reads.released(self.applied)
        self._fetch()
        self._ask_for_reads()
        if self._stop_due_ms is not None:
            self._try_to_stop(self._stop_due_ms)
        if (known := (self.epoch, self.known_leader)) != self._announced:
            self._announced = known
            self._orders.append(AnnounceLeader(*known))

    def _keep_promises(self, leadership: Leadership) -> None:
        if leadership.has_own_commit and self._began_leading != self.epoch:
            self._began_leading = self.epoch
            self._orders.append(BeginLeading(self.epoch))
        self._orders += leadership.settle(self.now_ms, self.applied)
        for read in leadership.confirmed_reads():
            if read.reader is None:
                self._reads.answered(read.request, read.offset)
            else:
                answer = ReadOffsetResponse(
                    read.request, Error.NONE, self.epoch, self.me.node, read.offset
                )
                self._send(read.reader, answer)
        if leadership.is_removed or leadership.transfer_ready():
            self._resign(Cause.RESIGNS)

    def _apply(self) -> None:
        if self.applied < self.log.start.end_offset:
            self._load(self.log.snapshot)
        if self.applied < self.log.high_watermark:
            entries = self.log.read(self.applied, self.log.high_watermark)
            self._orders.append(ApplyCommitted(tuple(entries)))
            self.applied = self.log.high_watermark

    def _load(self, snapshot: Snapshot) -> None:
        self._orders.append(LoadSnapshot(snapshot))
        self.applied = snapshot.end_offset

    # -- what only a leader answers ---------------------------------------------------------------

    def _leading(
        self, sender: NodeId, asked: FetchRequest | FetchSnapshotRequest | ReadOffsetRequest
    ) -> Leadership | None:
        """Our leadership if a request means it; else the request is refused here."""
        if asked.epoch < self.epoch:
            self._refuse(sender, asked, Error.FENCED_LEADER_EPOCH)
        elif asked.epoch > self.epoch:
            self._refuse(sender, asked, Error.UNKNOWN_LEADER_EPOCH)
            if self.role is Role.LEADER:
                # That replica will never take our entries.  Its epoch was once campaigned for
                # with a majority's pre-votes, so giving way to it once is not a disturbance.
                self._enter_epoch(asked.epoch, None)
        elif self._leadership is None:
            self._refuse(sender, asked, Error.NOT_LEADER_OR_FOLLOWER)
        return self._leadership if asked.epoch == self.epoch else None

    def _on_fetch(self, sender: NodeId, asked: FetchRequest) -> None:
        negative = min(asked.offset, asked.last_epoch, asked.wait_ms) < 0
        if negative or asked.last_epoch > asked.epoch:
            self._refuse(sender, asked, Error.INVALID_REQUEST)
        elif (leadership := self._leading(sender, asked)) is not None:
            self._orders += leadership.fetch(asked, sender, self.now_ms)

    def _on_fetch_snapshot(self, sender: NodeId, asked: FetchSnapshotRequest) -> None:
        leadership = self._leading(sender, asked)
        if leadership is None:
            return
        leadership.followers.heard(asked.replica, self.now_ms)
        known = (self.log.snapshot, self.log.start)
        snapshot = next((one for one in known if one.id == asked.snapshot), None)
        if snapshot is None or snapshot.end_offset == 0:
            self._refuse(sender, asked, Error.SNAPSHOT_NOT_FOUND)
        elif not 0 <= asked.position < snapshot.size:
            self._refuse(sender, asked, Error.POSITION_OUT_OF_RANGE)
        else:
            bytes_max = min(asked.bytes_max, self.settings.chunk_bytes_max)
            self._orders.append(
                SendSnapshotChunk(
                    sender, asked.request, self.epoch, snapshot, asked.position, bytes_max
                )
            )

    def _on_read_offset(self, sender: NodeId, asked: ReadOffsetRequest) -> None:
        if (leadership := self._leading(sender, asked)) is not None:
            self._note_read(leadership, sender, asked.request)

    def _note_read(self, leadership: Leadership, reader: NodeId | None, request: int) -> None:
        high_watermark = self.log.high_watermark if leadership.has_own_commit else None
        leadership.rounds.note(reader, request, high_watermark)

    # -- reading ----------------------------------------------------------------------------------

    def _ask_for_reads(self) -> None:
        """Send one ReadOffset for all reads that have arrived since the last one (KIP-650)."""
        if not self._reads.must_ask or (leader := self.known_leader) is None:
            return
        if (leadership := self._leadership) is not None:
            number = self._calls.number()
            self._reads.asked(number)
            self._note_read(leadership, None, number)
        elif not self._calls.is_open_to(ReadOffsetRequest, leader):
            due_ms = self.now_ms + self.settings.request_ms
            number = self._calls.open(ReadOffsetRequest, leader, due_ms)
            self._reads.asked(number)
            self._send(leader, ReadOffsetRequest(number, self.epoch))

    def _on_read_answer(self, sender: NodeId, answer: ReadOffsetResponse) -> None:
        if not self._calls.close(ReadOffsetRequest, sender, answer.request):
            return
        current = self._hear(answer.epoch, answer.leader)
        if current and answer.error is Error.NONE:
            self._reads.answered(answer.request, answer.offset)
        elif current:
            self._reads.ask_again()
            self._calls.pause(ReadOffsetRequest, sender, self.now_ms + self.settings.retry_ms)

    # -- the rest of the dispatch -----------------------------------------------------------------

    def _on(self, event: Event) -> None:
        match event:
            case MessageReceived():
                self._on_message(event)
            case TimePassed():
                pass  # `_on_time` has seen to it
            case LogFlushed():
                self.log.flushed(event.write)
            case Proposed():
                self._on_proposed(event)
            case ReadRequested():
                self._reads.add(event.read, event.offset, self.now_ms)
            case Started():
                self._on_started()
            case RequestFailed():
                self._on_request_failed(event)
            case VoterAddRequested() | VoterRemoveRequested() | TransferRequested():
                self._on_change(event)
            case ResignRequested():
                self._on_resign(event)
            case SnapshotTaken():
                self._on_snapshot_taken(event)
            case ShutdownRequested():
                self._on_shutdown()

    def _on_message(self, event: MessageReceived) -> None:
        message, sender = event.message, event.sender
        foreign = event.cluster not in {None, self.cluster}
        if isinstance(message, Request):
            if foreign:
                self._refuse(sender, message, Error.INCONSISTENT_CLUSTER_ID)
            else:
                self._on_request(sender, message)
        elif not foreign:
            self._on_answer(sender, message)

    def _on_request(self, sender: NodeId, asked: Request) -> None:
        match asked:
            case FetchRequest():
                self._on_fetch(sender, asked)
            case ReadOffsetRequest():
                self._on_read_offset(sender, asked)
            case VoteRequest():
                self._on_vote_request(sender, asked)
            case BeginQuorumEpochRequest():
                self._on_begin_quorum(sender, asked)
            case EndQuorumEpochRequest():
                self._on_end_quorum(sender, asked)
            case FetchSnapshotRequest():
                self._on_fetch_snapshot(sender, asked)

    def _on_answer(self, sender: NodeId, answer: Response) -> None:
        match answer:
            case FetchResponse():
                self._on_fetch_answer(sender, answer)
            case ReadOffsetResponse():
                self._on_read_answer(sender, answer)
            case VoteResponse():
                self._on_vote_answer(sender, answer)
            case QuorumEpochResponse():
                self._on_quorum_answer(sender, answer)
            case FetchSnapshotResponse():
                self._on_chunk(sender, answer)

    def _on_request_failed(self, event: RequestFailed) -> None:
        due_ms = self.now_ms + self.settings.retry_ms
        kind = self._calls.failed(event.to, event.request, due_ms)
        if kind in {FetchRequest, FetchSnapshotRequest}:
            if self.role is Role.FOLLOWER and event.to == self.leader and self._following.failed():
                self._timer_ms = self._lost_due_ms()
            self._fetch_failed(event.to)
        elif kind is ReadOffsetRequest:
            self._reads.ask_again()

    def _try_again(self, kind: Kind, to: NodeId) -> None:
        """A request was not answered in time, or its pause is over."""
        if kind is VoteRequest and self._tally is not None:
            voter = self._tally.voters.key_of(to)
            if voter is not None and voter in self._tally.open:
                self._send_vote_request(voter)
        elif kind is EndQuorumEpochRequest and self.role is Role.RESIGNED:
            self._send_end_quorum_to(to)
        elif kind is ReadOffsetRequest:
            self._reads.ask_again()
        elif kind is FetchRequest and self.role is Role.OBSERVER:
            self.leader = None

    def _on_proposed(self, event: Proposed) -> None:
        if self._leadership is not None:
            self._orders += self._leadership.propose(event)
        else:
            error = Error.NOT_LEADER_OR_FOLLOWER
            self._orders.append(AnswerProposal(event.proposal, error, None, self.known_leader))

    def _on_change(
        self, event: VoterAddRequested | VoterRemoveRequested | TransferRequested
    ) -> None:
        if self._leadership is None:
            error = Error.NOT_LEADER_OR_FOLLOWER
            self._orders.append(AnswerChange(event.change, error, self.known_leader))
        elif isinstance(event, TransferRequested):
            self._orders += self._leadership.transfer(event)
        else:
            self._orders += self._leadership.change_voters(event)

    def _on_resign(self, event: ResignRequested) -> None:
        if event.epoch < self.epoch:
            return  # it has been replaced since
        if event.epoch > self.epoch or self._leadership is None:
            msg = f"cannot resign from epoch {event.epoch} as {self.role} of {self.epoch}"
            raise ValueError(msg)
        self._resign(Cause.RESIGNS)

    def _on_snapshot_taken(self, event: SnapshotTaken) -> None:
        if event.id.end_offset <= self.log.snapshot.end_offset:
            return  # a newer one came from the leader meanwhile, or it is known already
        if (why := self.log.refuses_snapshot(*event.id)) is not None:
            msg = f"snapshot {event.id}: {why}"
            raise ValueError(msg)
        voters = self.log.voters_at(event.id.end_offset)
        self.log.keep_snapshot(Snapshot(*event.id, voters, event.size))
        self._orders.append(TrimLog(self.log.wrote(), self.log.start))

    def _on_shutdown(self) -> None:
        self._stop_due_ms = self.now_ms + self.settings.change_ms
        if self.role not in ASKING | LED or len(self.log.voters) == 1:
            self._orders.append(Stop(clean=True))
            self._stop_due_ms = None

    def _try_to_stop(self, due_ms: int) -> None:
        """End as soon as somebody else leads, so that nobody has to wait for our time-outs."""
        if self.role is Role.LEADER:
            self._resign(Cause.RESIGNS)
        if self.leader is not None or self.now_ms >= due_ms:
            self._orders.append(Stop(clean=self.leader is not None))
            self._stop_due_ms = None
