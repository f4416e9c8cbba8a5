"""A replica's state in the quorum: its epoch, its vote, its leader, its role.

Every change of role, epoch or vote goes through `QuorumState`, as in Kafka's class of that name;
`move` is the only writer of `role`, and `remember` the only writer of `election`.  The state of a
role is in an object that ends with it: `Following`, `Candidacy`, `Leadership`.

Not here: messages, and what is sent when (`core`); which change is allowed (`roles`).
"""

from standpipe.control.raft.elections import Candidacy
from standpipe.control.raft.events import FORGOTTEN_VOTE, ElectionState, Order
from standpipe.control.raft.follower import Following
from standpipe.control.raft.inflight import Calls
from standpipe.control.raft.leader import Leadership
from standpipe.control.raft.log import LogView
from standpipe.control.raft.majority import LeaderEpoch, ReplicaKey
from standpipe.control.raft.messages import ProtocolViolation, VoteRequest
from standpipe.control.raft.reads import ReadQueue
from standpipe.control.raft.roles import FETCHING, LED, Cause, Role, next_role
from standpipe.control.raft.timeouts import RaftSettings, Timeouts
from standpipe.control.raft.votes import Ballot, Voter, ballot
from standpipe.model import NodeId


class QuorumState:
    """The identity of a replica, what it remembers, and its role."""

    def __init__(
        self,
        me: ReplicaKey,
        log: LogView,
        election: ElectionState,
        settings: RaftSettings,
        *,
        timeouts: Timeouts,
        calls: Calls,
        reads: ReadQueue,
        orders: list[Order],
    ) -> None:
        """When a role ends, `calls` are dropped and `reads` ask again; when a leadership ends, it
        appends its last answers to `orders`."""
        self.me = me
        self.log = log
        self.election = election
        self.role = Role.UNATTACHED
        #: the leader of this epoch while it may still lead: we follow it, or may do so again
        self.leader: NodeId | None = None
        self.now_ms = 0
        #: the role's time-out; None for a leader, whose timers are in `Leadership`
        self.timer_ms: int | None = None
        self.following = Following(me, log, settings)
        self.candidacy: Candidacy | None = None
        self.leadership: Leadership | None = None
        #: whether a candidate lost and waits before it asks again
        self.is_backing_off = False
        self._losses = 0  # elections in a row, for the back-off
        #: the newest epoch whose leader resigned: no message may make us follow it again
        self._ended_epoch = LeaderEpoch(-1)
        self._settings = settings
        self._timeouts = timeouts
        self._calls = calls
        self._reads = reads
        self._orders = orders

    # -- what others may know ---------------------------------------------------------------------

    @property
    def epoch(self) -> LeaderEpoch:
        """The newest leader epoch that this replica knows."""
        return self.election.epoch

    @property
    def votes(self) -> bool:
        """Whether this replica takes a voter's roles (`LogView.may_be_candidate`)."""
        return self.log.may_be_candidate(self.me)

    @property
    def known_leader(self) -> NodeId | None:
        """Where a proposal should go; None while no leader is known."""
        if self.role is Role.LEADER:
            return self.me.node
        return self.leader if self.role in FETCHING else None

    @property
    def vouched_leader(self) -> NodeId | None:
        """The leader that this replica names to others: itself, or one that has answered it.

        A follower that has not fetched yet only repeats what a message said; two such followers
        would keep sending each other back to a dead leader (KIP-996's ping-pong).
        """
        if self.role in LED:
            return self.me.node
        if self.role in FETCHING and self.following.has_fetched:
            return self.leader
        return None

    # -- the two writers --------------------------------------------------------------------------

    def remember(self, state: ElectionState) -> None:
        """The only writer of `election`; the core persists it before anything else."""
        assert state.epoch >= self.election.epoch, "an epoch never goes back"
        self.election = state

    def move(self, cause: Cause) -> None:
        """The only place where a role changes; everything that belonged to the old one ends.

        Raises IllegalTransition.
        """
        self.role = next_role(self.role, cause)
        self._drop_calls()
        self.candidacy = None
        self.is_backing_off = False
        if (leadership := self.leadership) is not None:
            self.leadership = None
            self._orders += leadership.end(self.epoch, self.known_leader)

    def _drop_calls(self) -> None:
        self._calls.drop()
        self._reads.ask_again()

    # -- epochs and leaders -----------------------------------------------------------------------

    def resume(self) -> None:
        """Take the role that an earlier run's election file allows (KIP-595)."""
        if self.election.epoch < self.log.last_epoch:
            # The file is older than the log: it may lack a vote in this epoch, so give none.
            self.remember(ElectionState(self.log.last_epoch, None, FORGOTTEN_VOTE))
        was = self.election
        if not self.votes:
            self.role = Role.OBSERVER
            self.leader = was.leader if was.leader != self.me.node else None
        elif was.leader == self.me.node:
            # It may have appended entries that its disk lost: it must not lead this epoch again.
            self.role = Role.RESIGNED
        elif was.voted == self.me:
            self.role = Role.CANDIDATE
            return  # its timer begins with the candidacy
        elif was.leader is not None:
            self.role = Role.FOLLOWER
            self.leader = was.leader
        self._begin_timer(is_fetching=self.role in FETCHING)

    def enter_epoch(self, epoch: LeaderEpoch, leader: NodeId | None) -> None:
        """Learn of a higher epoch, with its leader if the message named one."""
        assert epoch > self.epoch
        if leader is not None and leader != self.me.node:
            self.remember(ElectionState(epoch, leader))
            self.follow(leader)
            return
        was = self.role
        self.remember(ElectionState(epoch))
        self.leader = None
        self.move(Cause.HIGHER_EPOCH)
        self._begin_following()
        if was in LED or self.timer_ms is None:
            self._begin_timer(is_fetching=False)
        # Else the timer keeps running: new epochs must not postpone an election indefinitely.
        self.settle_membership()

    def follow(self, leader: NodeId) -> None:
        """Fetch from the leader of this epoch."""
        self.remember(ElectionState(self.epoch, leader, self.election.voted))
        self.leader = leader
        self.move(Cause.LEADER_FOUND)
        self._begin_following()
        self._begin_timer(is_fetching=True)
        self._losses = 0
        self.settle_membership()

    def look_for_leader(self) -> None:
        """No leader answered this observer: ask the voters for one (KIP-595 discovery)."""
        self.leader = None
        self.move(Cause.TIMED_OUT)
        self._begin_following()
        self._begin_timer(is_fetching=True)

    def settle_membership(self) -> None:
        """Become a voter, or stop being one, as the voter set in force says (KIP-853)."""
        if self.votes and self.role is Role.OBSERVER and self.leader is not None:
            self.move(Cause.JOINED)
        elif not self.votes and self.role in {Role.FOLLOWER, Role.UNATTACHED, Role.RESIGNED}:
            self.move(Cause.REMOVED)
            self._begin_timer(is_fetching=True)

    def hear(self, epoch: LeaderEpoch, leader: NodeId | None) -> bool:
        """Adopt the epoch and leader of any answer; returns whether the rest of it still counts.

        Raises ProtocolViolation for a second leader of one epoch.
        """
        if epoch < self.epoch:
            return False
        if epoch > self.epoch:
            self.enter_epoch(epoch, leader)
            return False
        if leader is None:
            return True
        if leader == self.me.node:
            return self.role in LED  # else invalid, or stale, from before we were removed
        if self.election.leader not in {None, leader}:
            msg = f"epoch {epoch} has two leaders: {self.election.leader} and {leader}"
            raise ProtocolViolation(msg)
        if self.role not in LED and self._ended_epoch != epoch and self.known_leader != leader:
            self.follow(leader)
            return False
        return True

    def fetched(self) -> None:
        """A fetch succeeded: the leader is alive, and may have changed the voters."""
        self._begin_timer(is_fetching=True)
        self.settle_membership()

    def fetch_failed(self) -> None:
        """A fetch certainly got no answer; after two in a row, the leader's process is gone."""
        if self.following.failed():
            self.timer_ms = self._timeouts.lost_due_ms(self.now_ms, self.timer_ms)

    # -- elections --------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """A prospective replica becomes a candidate: the only place where a new epoch begins."""
        self.remember(ElectionState(LeaderEpoch(self.epoch + 1), None, self.me))
        self.leader = None
        self.move(Cause.MAJORITY)

    def begin_candidacy(self) -> Candidacy:
        """Ask for votes, or for pre-votes, in the current epoch."""
        is_pre_vote = self.role is Role.PROSPECTIVE
        self.candidacy = Candidacy(self.me, self.epoch, self.log, is_pre_vote=is_pre_vote)
        self._begin_timer(is_fetching=False)
        return self.candidacy

    def lose_election(self) -> None:
        """A majority refused, or did not answer in time."""
        if self.role is Role.CANDIDATE:
            self._drop_calls()
            self.timer_ms = self._timeouts.backoff_due_ms(self.now_ms, self._losses)
            self._losses += 1
            self.is_backing_off = True
        elif self.leader is not None:
            self.follow(self.leader)  # it may still lead; pre-votes do not disturb it (KIP-996)
        else:
            self.move(Cause.LOST)
            self._begin_timer(is_fetching=False)

    def vote(self, asked: VoteRequest) -> Ballot:
        """Judge a request of our own epoch; remember a real vote that is granted."""
        hears_leader = (
            self.role in FETCHING and self.leader is not None and self.following.has_fetched
        )
        me = Voter(self.role, self.election, self.log.last_epoch, self.log.end, hears_leader)
        vote = ballot(me, asked)
        if vote.granted and not asked.pre:
            self.remember(ElectionState(self.epoch, None, asked.candidate))
            self.move(Cause.GRANTED)
            self._begin_timer(is_fetching=False)
        return vote

    # -- leading ----------------------------------------------------------------------------------

    def lead(self) -> Leadership:
        """The candidacy succeeded: lead this epoch."""
        self.remember(ElectionState(self.epoch, self.me.node, self.me))
        self.move(Cause.MAJORITY)
        self.timer_ms = None
        self._losses = 0
        leadership = Leadership(self.me, self.epoch, self.log, self._settings, now_ms=self.now_ms)
        self.leadership = leadership
        return leadership

    def resign(self, cause: Cause) -> tuple[ReplicaKey, ...]:
        """Stop leading in this epoch permanently; returns the successors, best first."""
        assert self.leadership is not None
        successors = self.leadership.successors()
        self.move(cause)
        self._begin_timer(is_fetching=False)
        return successors

    def leader_resigned(self, leader: NodeId, successors: tuple[ReplicaKey, ...]) -> bool:
        """The leader of this epoch resigned; returns whether it named us as first successor."""
        self._ended_epoch = self.epoch
        self.remember(ElectionState(self.epoch, leader, self.election.voted))
        self.leader = None
        self.move(Cause.LEADER_RESIGNED)
        self._begin_following()
        if not self.votes:
            self._begin_timer(is_fetching=True)
            return False
        if successors[:1] == (self.me,):
            return True
        rank = successors.index(self.me) if self.me in successors else len(successors)
        self.timer_ms = self._timeouts.backoff_due_ms(self.now_ms, rank)
        return False

    # -- helpers ----------------------------------------------------------------------------------

    def _begin_following(self) -> None:
        self.following = Following(self.me, self.log, self._settings)

    def _begin_timer(self, *, is_fetching: bool) -> None:
        """Restart the timer with the fetch time-out or the election time-out."""
        draw = self._timeouts.fetch_due_ms if is_fetching else self._timeouts.election_due_ms
        self.timer_ms = draw(self.now_ms)
