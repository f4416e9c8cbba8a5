"""The metadata quorum's core: pull-based Raft with pre-vote and linearizable reads, sans I/O.

    facts ─► handle(event) ─► orders, in the order that `events` defines: disk first

One `Raft` is one replica.  It has no clock (each event says when it happened), no randomness
(jitter comes from a function passed to the constructor), no disk and no network (orders).  Its
driver, a node's controller or the simulation, is a loop without decisions.

Read from the top: the interface, the steps that end every event, the dispatch, then the handling of
each message and each request of this node.  `state.QuorumState` changes roles and epochs.  State of
a role: `follower.Following`, `elections.Candidacy`, `leader.Leadership`.  Reads: `reads`.

Sources: KIP-595 (pull-based Raft), KIP-630 (snapshots), KIP-650 (pre-vote, ReadOffset), KIP-853
(voters, incarnations), KIP-996 (the pre-vote's epoch and its witnesses).
"""

from collections.abc import Callable, Sequence

from standpipe.control.raft import events, messages
from standpipe.control.raft.elections import Candidacy
from standpipe.control.raft.events import ElectionState, ElectionStateLost, Order, Send
from standpipe.control.raft.followers import QuorumDescription
from standpipe.control.raft.inflight import Calls, Kind
from standpipe.control.raft.leader import Leadership, is_malformed_fetch
from standpipe.control.raft.log import LogView, SnapshotInfo
from standpipe.control.raft.majority import LeaderEpoch, LogOffset, ReplicaKey, VoteOutcome
from standpipe.control.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchSnapshotRequest,
    QuorumEpochResponse,
    ReadOffsetRequest,
    ReadOffsetResponse,
    VoteRequest,
    VoteResponse,
)
from standpipe.control.raft.reads import ReadQueue
from standpipe.control.raft.roles import ASKING, FETCHING, LED, Cause, Role
from standpipe.control.raft.state import QuorumState
from standpipe.control.raft.timeouts import RaftSettings, Timeouts
from standpipe.control.raft.votes import inadmissible
from standpipe.model import NodeId


class Raft:
    """One replica of the quorum: the whole core behind `handle`."""

    def __init__(
        self,
        me: ReplicaKey,
        recovered: events.Recovered,
        settings: RaftSettings,
        *,
        cluster: str,
        draw: Callable[[], float],
        first_request: int,
        bootstrap: Sequence[NodeId] = (),
    ) -> None:
        """`draw` returns numbers in [0, 1); `first_request` is above all that earlier runs used.

        `bootstrap`: nodes that an observer asks while its log names no voters.
        Raises ElectionStateLost.
        """
        if recovered.election is None and (recovered.entries or recovered.snapshot.end_offset):
            raise ElectionStateLost
        self.settings = settings
        self.cluster = cluster
        self.bootstrap = tuple(bootstrap)
        self.log = LogView(recovered.start, recovered.snapshot, recovered.entries)
        self.log.commit(recovered.committed)
        #: everything below it was passed to the state machine
        self.applied = LogOffset(0)
        self._orders: list[Order] = []
        self._calls = Calls(first_request)
        self._reads = ReadQueue(settings.read_ms)
        self.state = QuorumState(
            me,
            self.log,
            recovered.election or ElectionState(),
            settings,
            timeouts=Timeouts(settings, draw),
            calls=self._calls,
            reads=self._reads,
            orders=self._orders,
        )
        self._begin_due_ms = 0
        self._stop_due_ms: int | None = None
        self._successors: tuple[ReplicaKey, ...] = ()
        self._discovery_turn = 0
        self._announced: tuple[LeaderEpoch, NodeId | None] = (LeaderEpoch(-1), None)
        self._began_leading = LeaderEpoch(-1)

    @property
    def me(self) -> ReplicaKey:
        """Which replica this is."""
        return self.state.me

    @property
    def epoch(self) -> LeaderEpoch:
        """The newest leader epoch that this replica knows."""
        return self.state.epoch

    @property
    def role(self) -> Role:
        """What this replica does in its epoch."""
        return self.state.role

    @property
    def known_leader(self) -> NodeId | None:
        """Where a proposal should go; None while no leader is known."""
        return self.state.known_leader

    @property
    def now_ms(self) -> int:
        """The newest instant that an event named."""
        return self.state.now_ms

    # -- the interface ----------------------------------------------------------------------------

    def handle(self, event: events.Event) -> list[Order]:
        """Handle one fact; returns the orders that follow from it (contract: `events`).

        Raises ProtocolViolation, LogViolation or IllegalTransition if continuing would be unsafe.
        """
        self.state.now_ms = max(self.now_ms, event.at_ms)
        self._orders.clear()
        remembered = self.state.election
        if not isinstance(event, events.Started):
            # Before the event itself: a process that was stopped must not act on stale beliefs, and
            # its clock is the first to show that it was stopped (KIP-595 check-quorum).
            self._on_time()
        self._on(event)
        self._follow_up()
        self._orders.sort(key=events.is_not_for_disk)
        if self.state.election != remembered:
            self._orders.insert(0, events.PersistElection(self.state.election))
        return [*self._orders]

    def deadline_ms(self) -> int | None:
        """The next instant at which time alone changes something: then send TimePassed."""
        dues = [self.state.timer_ms, self._stop_due_ms]
        dues += [self._calls.deadline_ms(), self._reads.deadline_ms()]
        if (leadership := self.state.leadership) is not None:
            dues += [leadership.deadline_ms(), leadership.followers.check_due_ms]
            dues.append(self._begin_due_ms)
        return min((due for due in dues if due is not None), default=None)

    def describe(self) -> QuorumDescription | None:
        """The quorum as its leader sees it; None at any other replica (ask `known_leader`)."""
        leadership = self.state.leadership
        return None if leadership is None else leadership.describe(self.now_ms)

    # -- time, and what every event ends with -----------------------------------------------------

    def _on_time(self) -> None:
        now_ms = self.now_ms
        if self.state.timer_ms is not None and self.state.timer_ms <= now_ms:
            self._on_timer()
        if (leadership := self.state.leadership) is not None:
            if leadership.followers.has_lost_quorum(now_ms):
                self._resign(Cause.QUORUM_LOST)
            elif self._begin_due_ms <= now_ms:
                self._call_silent_voters(leadership)
        for kind, to in self._calls.take_due(now_ms):
            self._try_again(kind, to)
        self._orders += self._reads.expired(now_ms)

    def _on_timer(self) -> None:
        match self.role:
            case Role.OBSERVER:
                self.state.look_for_leader()
            case Role.RESIGNED if not self.state.votes:
                self.state.settle_membership()
            case Role.PROSPECTIVE:
                self.state.lose_election()
            case Role.CANDIDATE if not self.state.is_backing_off:
                self.state.lose_election()
            case _:
                self._seek_election()

    def _follow_up(self) -> None:
        """Whatever the event may have made possible, from the log upwards."""
        self._ask_for_reads()
        leadership = self.state.leadership
        if leadership is not None and (end := leadership.commit_offset()) is not None:
            self.log.commit(end)
        self._apply()
        if leadership is not None:
            self._complete_pending(leadership)
        self._orders += self._reads.released(self.applied)
        self._fetch()
        self._ask_for_reads()
        if self._stop_due_ms is not None:
            self._try_to_stop(self._stop_due_ms)
        if (known := (self.epoch, self.known_leader)) != self._announced:
            self._announced = known
            self._orders.append(events.AnnounceLeader(*known))

    def _complete_pending(self, leadership: Leadership) -> None:
        """Answer what the leader can answer now: proposals, changes, reads, parked fetches."""
        if leadership.has_own_commit and self._began_leading != self.epoch:
            self._began_leading = self.epoch
            self._orders.append(events.BeginLeading(self.epoch))
        self._orders += leadership.settle(self.now_ms, self.applied)
        for read in leadership.confirmed_reads():
            if read.reader is None:
                self._reads.answered(read.request, read.offset)
            else:
                self._send(read.reader, leadership.read_answer(read))
        if leadership.is_removed or leadership.transfer_ready():
            self._resign(Cause.RESIGNS)

    def _apply(self) -> None:
        if self.applied < self.log.start.end_offset:
            self._load(self.log.snapshot)
        if self.applied < self.log.high_watermark:
            entries = self.log.read(self.applied, self.log.high_watermark)
            self._orders.append(events.ApplyCommitted(tuple(entries)))
            self.applied = self.log.high_watermark

    def _load(self, snapshot: SnapshotInfo) -> None:
        self._orders.append(events.LoadSnapshot(snapshot))
        self.applied = snapshot.end_offset

    # -- dispatch ---------------------------------------------------------------------------------

    def _on(self, event: events.Event) -> None:
        match event:
            case events.MessageReceived():
                self._on_message(event)
            case events.TimePassed():
                pass  # `_on_time` has handled it
            case events.LogFlushed():
                self.log.flushed(event.write)
            case events.Proposed():
                self._on_proposed(event)
            case events.ReadRequested():
                self._reads.add(event.read, event.offset, self.now_ms)
            case events.Started():
                self._on_started()
            case events.RequestFailed():
                self._on_request_failed(event)
            case events.VoterAddRequested() | events.VoterRemoveRequested():
                self._on_change(event)
            case events.TransferRequested():
                self._on_change(event)
            case events.ResignRequested():
                self._on_resign(event)
            case events.SnapshotTaken():
                self._on_snapshot_taken(event)
            case events.ShutdownRequested():
                self._on_shutdown()

    def _on_message(self, event: events.MessageReceived) -> None:
        message, sender = event.message, event.sender
        if event.cluster not in {None, self.cluster}:
            if isinstance(message, messages.Request):
                self._refuse(sender, message, Error.INCONSISTENT_CLUSTER_ID)
            return
        match message:
            case FetchRequest() | FetchSnapshotRequest() | ReadOffsetRequest():
                self._on_leader_request(sender, message)
            case messages.FetchResponse():
                self._on_fetch_answer(sender, message)
            case ReadOffsetResponse():
                self._on_read_answer(sender, message)
            case VoteRequest():
                self._on_vote_request(sender, message)
            case VoteResponse():
                self._on_vote_answer(sender, message)
            case BeginQuorumEpochRequest():
                self._on_begin_quorum(sender, message)
            case EndQuorumEpochRequest():
                self._on_end_quorum(sender, message)
            case QuorumEpochResponse():
                self._on_quorum_answer(sender, message)
            case messages.FetchSnapshotResponse():
                self._on_chunk(sender, message)

    # -- requests: sent, refused, failed ----------------------------------------------------------

    def _send(self, to: NodeId, message: messages.Message) -> None:
        self._orders.append(Send(to, message))

    def _open(self, kind: Kind, to: NodeId) -> int:
        """Begin a request that must be answered within `request_ms`; its number."""
        return self._calls.open(kind, to, self.now_ms + self.settings.request_ms)

    def _refuse(self, to: NodeId, request: messages.Request, error: Error) -> None:
        self._send(to, messages.refusal(request, error, self.epoch, self.state.vouched_leader))

    def _on_request_failed(self, event: events.RequestFailed) -> None:
        due_ms = self.now_ms + self.settings.retry_ms
        kind = self._calls.failed(event.to, event.request, due_ms)
        if kind in {FetchRequest, FetchSnapshotRequest}:
            if self.role is Role.FOLLOWER and event.to == self.state.leader:
                self.state.fetch_failed()
            self._fetch_failed(event.to)
        elif kind is ReadOffsetRequest:
            self._reads.ask_again()

    def _try_again(self, kind: Kind, to: NodeId) -> None:
        """Retry a request that was not answered in time, or whose pause is over."""
        if kind is VoteRequest and self.state.candidacy is not None:
            if (voter := self.state.candidacy.awaited(to)) is not None:
                self._send_vote_request(self.state.candidacy, voter)
        elif kind is EndQuorumEpochRequest and self.role is Role.RESIGNED:
            self._send_end_quorum_to(to)
        elif kind is ReadOffsetRequest:
            self._reads.ask_again()
        elif kind is FetchRequest and self.role is Role.OBSERVER:
            self.state.leader = None

    # -- start ------------------------------------------------------------------------------------

    def _on_started(self) -> None:
        if self.log.snapshot.end_offset > 0:
            self._load(self.log.snapshot)
        self.state.resume()
        if self.role is Role.RESIGNED:
            self._send_end_quorum()
        elif self.role is Role.CANDIDATE:
            self._ask_for_votes()
        if self.log.voters.keys == (self.me,) and self.role is not Role.LEADER:
            self._seek_election()

    # -- fetching: followers and observers --------------------------------------------------------

    def _fetch(self) -> None:
        """Send the next fetch, if one is due and all that it acknowledges is flushed."""
        if self.role not in FETCHING or not self.log.is_flushed:
            return
        if self._calls.is_open(FetchRequest) or self._calls.is_open(FetchSnapshotRequest):
            return
        to = self.state.leader or self._next_peer()
        if to is None:
            return
        # Without a leader there is nothing to download: a plain fetch asks which node leads.
        request = self.state.following.next_request(self._calls.number(), self.epoch)
        due_ms = self.now_ms + self.settings.wait_ms + self.settings.request_ms
        self._calls.await_answer(type(request), to, request.request, due_ms)
        self._send(to, request)

    def _next_peer(self) -> NodeId | None:
        peers = {*self.bootstrap, *(key.node for key in self.log.voters.keys)} - {self.me.node}
        self._discovery_turn += 1
        return sorted(peers)[self._discovery_turn % len(peers)] if peers else None

    def _fetch_failed(self, to: NodeId) -> None:
        """Retry after a pause; an observer elsewhere, as its leader may be gone (KIP-595)."""
        if self.role is Role.OBSERVER:
            self.state.leader = None
        self._calls.pause(FetchRequest, to, self.now_ms + self.settings.retry_ms)

    def _takes(
        self,
        kind: Kind,
        sender: NodeId,
        answer: messages.FetchResponse | messages.FetchSnapshotResponse,
    ) -> bool:
        """Whether this is the awaited answer of the leader we follow, and not a refusal."""
        if not self._calls.close(kind, sender, answer.request):
            return False
        was = self.state.following
        current = self.state.hear(answer.epoch, answer.leader)
        if current and answer.error is Error.NONE and sender == self.state.leader:
            return True
        if answer.error in {Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE}:
            self.state.following.drop_download()
        if self.state.following is was:
            self._fetch_failed(sender)
        return False

    def _on_fetch_answer(self, sender: NodeId, answer: messages.FetchResponse) -> None:
        if self._takes(FetchRequest, sender, answer):
            self._progressed(sender, self.state.following.fetched(answer))

    def _on_chunk(self, sender: NodeId, answer: messages.FetchSnapshotResponse) -> None:
        if self._takes(FetchSnapshotRequest, sender, answer):
            self._progressed(sender, self.state.following.loaded(answer))

    def _progressed(self, sender: NodeId, orders: Sequence[Order] | None) -> None:
        if orders is None:
            self._fetch_failed(sender)  # and the fetch timer keeps running
            return
        self._orders += orders
        self.state.fetched()

    # -- elections: asking for votes --------------------------------------------------------------

    def _seek_election(self) -> None:
        """Ask whether we would be elected.  No epoch grows and nothing is stored (KIP-650)."""
        self.state.move(Cause.TIMED_OUT)
        self._ask_for_votes()

    def _campaign(self) -> None:
        """Ask to be elected, in a new epoch."""
        self.state.begin_epoch()
        self._ask_for_votes()

    def _ask_for_votes(self) -> None:
        candidacy = self.state.begin_candidacy()
        if not self._count_votes(candidacy):
            for voter in candidacy.open:
                self._send_vote_request(candidacy, voter)

    def _send_vote_request(self, candidacy: Candidacy, voter: ReplicaKey) -> None:
        number = self._open(VoteRequest, voter.node)
        self._send(voter.node, candidacy.request(number, voter))

    def _on_vote_answer(self, sender: NodeId, answer: VoteResponse) -> None:
        if not self._calls.close(VoteRequest, sender, answer.request):
            return
        if not self.state.hear(answer.epoch, answer.leader) or self.state.candidacy is None:
            return
        if self.state.candidacy.count(sender, answer):
            self._count_votes(self.state.candidacy)
        else:
            self._calls.pause(VoteRequest, sender, self.now_ms + self.settings.request_ms)

    def _count_votes(self, candidacy: Candidacy) -> bool:
        """Act on the vote if it is decided; returns whether it is."""
        outcome = candidacy.outcome
        if outcome is VoteOutcome.LOST:
            self.state.lose_election()
        elif outcome is VoteOutcome.WON:
            if self.role is Role.PROSPECTIVE:
                self._campaign()
            else:
                self._lead(candidacy.granted)
        return outcome is not VoteOutcome.OPEN

    # -- elections: giving votes ------------------------------------------------------------------

    def _on_vote_request(self, sender: NodeId, asked: VoteRequest) -> None:
        # All checks come before the epoch is adopted: a misdirected or malformed request must not
        # change any replica's epoch (Kafka adopts it first and then checks).
        if (error := inadmissible(asked, self.me, self.epoch)) is not Error.NONE:
            self._refuse(sender, asked, error)
            return
        if asked.epoch > self.epoch:
            self.state.enter_epoch(asked.epoch, None)  # adopted: a replica did campaign for it
        granted = self.state.vote(asked).granted
        leader = self.state.vouched_leader
        self._send(sender, VoteResponse(asked.request, Error.NONE, self.epoch, leader, granted))

    def _on_begin_quorum(self, sender: NodeId, asked: BeginQuorumEpochRequest) -> None:
        if asked.epoch < self.epoch:
            self._refuse(sender, asked, Error.FENCED_LEADER_EPOCH)
        elif asked.leader == self.me.node:
            self._refuse(sender, asked, Error.INVALID_REQUEST)
        else:
            self.state.hear(asked.epoch, asked.leader)
            # The leader is real even if it addresses a disk that this node no longer has (KIP-853).
            error = Error.NONE if asked.voter == self.me else Error.INVALID_VOTER_KEY
            self._send(sender, QuorumEpochResponse(asked.request, error, self.epoch, asked.leader))

    def _on_end_quorum(self, sender: NodeId, asked: EndQuorumEpochRequest) -> None:
        if asked.epoch < self.epoch:
            self._refuse(sender, asked, Error.FENCED_LEADER_EPOCH)
            return
        if asked.epoch > self.epoch:
            self.state.enter_epoch(asked.epoch, None)
        follows = self.role not in LED and self.role is not Role.CANDIDATE
        if follows and self.state.leader_resigned(asked.leader, asked.successors):
            # The leader resigned, so no pre-vote is needed.  Replicas that do not know that yet
            # would refuse one (KIP-595 EndQuorumEpoch; Raft dissertation 3.10).
            self.state.move(Cause.TIMED_OUT)
            self._campaign()
        self._send(sender, QuorumEpochResponse(asked.request, Error.NONE, self.epoch, None))

    # -- leading ----------------------------------------------------------------------------------

    def _lead(self, granted: tuple[ReplicaKey, ...]) -> None:
        leadership = self.state.lead()
        self._orders.append(leadership.begin(granted))
        self._call_silent_voters(leadership)

    def _call_silent_voters(self, leadership: Leadership) -> None:
        self._begin_due_ms = self.now_ms + self.settings.begin_ms
        for voter in leadership.followers.silent_voters(self.now_ms):
            number = self._open(BeginQuorumEpochRequest, voter.node)
            request = BeginQuorumEpochRequest(number, self.epoch, self.me.node, voter)
            self._send(voter.node, request)

    def _resign(self, cause: Cause) -> None:
        """Stop leading in this epoch permanently, and tell the other voters."""
        self._successors = self.state.resign(cause)
        self._send_end_quorum()

    def _send_end_quorum(self) -> None:
        for voter in self.log.voters.others(self.me):
            self._send_end_quorum_to(voter.node)

    def _send_end_quorum_to(self, node: NodeId) -> None:
        number = self._open(EndQuorumEpochRequest, node)
        message = EndQuorumEpochRequest(number, self.epoch, self.me.node, self._successors)
        self._send(node, message)

    def _on_quorum_answer(self, sender: NodeId, answer: QuorumEpochResponse) -> None:
        kind = BeginQuorumEpochRequest if self.role is Role.LEADER else EndQuorumEpochRequest
        if self._calls.close(kind, sender, answer.request):
            self.state.hear(answer.epoch, answer.leader)

    def _on_leader_request(
        self, sender: NodeId, asked: FetchRequest | FetchSnapshotRequest | ReadOffsetRequest
    ) -> None:
        """Answer as the leader that the request addresses, or refuse it."""
        leadership = self.state.leadership
        if isinstance(asked, FetchRequest) and is_malformed_fetch(asked):
            self._refuse(sender, asked, Error.INVALID_REQUEST)
        elif asked.epoch < self.epoch:
            self._refuse(sender, asked, Error.FENCED_LEADER_EPOCH)
        elif asked.epoch > self.epoch:
            self._refuse(sender, asked, Error.UNKNOWN_LEADER_EPOCH)
            if self.role is Role.LEADER:
                # That replica will never accept our entries.  A candidate with a majority's
                # pre-votes began its epoch, so stepping down once is not a disturbance.
                self.state.enter_epoch(asked.epoch, None)
        elif leadership is None:
            self._refuse(sender, asked, Error.NOT_LEADER_OR_FOLLOWER)
        elif isinstance(asked, ReadOffsetRequest):
            leadership.note_read(sender, asked.request)
        elif isinstance(asked, FetchRequest):
            self._orders += leadership.fetch(asked, sender, self.now_ms)
        else:
            self._orders.append(leadership.chunk(asked, sender, self.now_ms))

    # -- reads ------------------------------------------------------------------------------------

    def _ask_for_reads(self) -> None:
        """Send one ReadOffset for all reads that have arrived since the last one (KIP-650)."""
        if not self._reads.must_ask or (leader := self.known_leader) is None:
            return
        if (leadership := self.state.leadership) is not None:
            number = self._calls.number()
            self._reads.asked(number)
            leadership.note_read(None, number)
        elif not self._calls.is_open_to(ReadOffsetRequest, leader):
            number = self._open(ReadOffsetRequest, leader)
            self._reads.asked(number)
            self._send(leader, ReadOffsetRequest(number, self.epoch))

    def _on_read_answer(self, sender: NodeId, answer: ReadOffsetResponse) -> None:
        if not self._calls.close(ReadOffsetRequest, sender, answer.request):
            return
        current = self.state.hear(answer.epoch, answer.leader)
        if current and answer.error is Error.NONE:
            self._reads.answered(answer.request, answer.offset)
        elif current:
            self._reads.ask_again()
            self._calls.pause(ReadOffsetRequest, sender, self.now_ms + self.settings.retry_ms)

    # -- what this node asks of its replica -------------------------------------------------------

    def _on_proposed(self, event: events.Proposed) -> None:
        if self.state.leadership is not None:
            self._orders += self.state.leadership.propose(event)
            return
        error = Error.NOT_LEADER_OR_FOLLOWER
        self._orders.append(events.AnswerProposal(event.proposal, error, None, self.known_leader))

    def _on_change(self, event: events.ChangeRequested) -> None:
        if self.state.leadership is None:
            error = Error.NOT_LEADER_OR_FOLLOWER
            self._orders.append(events.AnswerChange(event.change, error, self.known_leader))
        elif isinstance(event, events.TransferRequested):
            self._orders += self.state.leadership.transfer(event)
        else:
            self._orders += self.state.leadership.change_voters(event)

    def _on_resign(self, event: events.ResignRequested) -> None:
        if event.epoch < self.epoch:
            return  # that epoch is over
        if event.epoch > self.epoch or self.state.leadership is None:
            msg = f"cannot resign from epoch {event.epoch} as {self.role} of {self.epoch}"
            raise ValueError(msg)
        self._resign(Cause.RESIGNS)

    def _on_snapshot_taken(self, event: events.SnapshotTaken) -> None:
        if event.id.end_offset <= self.log.snapshot.end_offset:
            return  # a newer one came from the leader meanwhile, or it is already known
        self.log.snapshot_taken(event.id, event.size)
        self._orders.append(events.TrimLog(self.log.wrote(), self.log.start))

    def _on_shutdown(self) -> None:
        self._stop_due_ms = self.now_ms + self.settings.change_ms
        if self.role not in ASKING | LED or len(self.log.voters) == 1:
            self._orders.append(events.Stop(clean=True))
            self._stop_due_ms = None

    def _try_to_stop(self, due_ms: int) -> None:
        """Stop as soon as another replica leads, so that no client waits for our time-outs."""
        if self.role is Role.LEADER:
            self._resign(Cause.RESIGNS)
        if self.state.leader is not None or self.now_ms >= due_ms:
            self._orders.append(events.Stop(clean=self.state.leader is not None))
            self._stop_due_ms = None
