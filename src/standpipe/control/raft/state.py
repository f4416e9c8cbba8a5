"""What a replica is at one instant, and how it passes from epoch to epoch and from role to role.

The lowest layer of the core: `raft_elections` asks for votes on top of it, `raft` joins both with
fetching, reading and the dispatch of events.  Everything that changes a role or an epoch goes
through `_move` and `_remember`; they are the only writers of `role` and `election`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from standpipe.control.raft.events import ElectionState, Order, Recovered, Send
from standpipe.control.raft.follower import Following
from standpipe.control.raft.inflight import Calls
from standpipe.control.raft.leader import Leadership
from standpipe.control.raft.log import LogView
from standpipe.control.raft.majority import LeaderEpoch, LogOffset, ReplicaKey, Tally
from standpipe.control.raft.messages import Error, Request, refusal
from standpipe.control.raft.reads import ReadQueue
from standpipe.control.raft.roles import Cause, Role, next_role
from standpipe.control.raft.timeouts import RaftSettings
from standpipe.model import NodeId

FETCHING: Final = frozenset({Role.FOLLOWER, Role.OBSERVER})
ASKING: Final = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})
LED: Final = frozenset({Role.LEADER, Role.RESIGNED})
#: of the back-off before pre-votes for a lost leader: as wide as a vote and its fsync take, twice
LOST_DOUBLINGS: Final = 2


class ProtocolViolation(Exception):
    """A peer said what no correct replica says, such as a second leader of one epoch.

    The process must end: going on could lose what was acknowledged.
    """


class ElectionStateLost(Exception):
    """There is a log but no election file, so a vote may have been given and forgotten.

    The replica must not start under this incarnation; wiped, it comes back as another (KIP-853).
    """


class Replica:
    """One replica's state: who it is, what it remembers, which role it plays."""

    def __init__(
        self,
        me: ReplicaKey,
        recovered: Recovered,
        settings: RaftSettings,
        *,
        cluster: str,
        draw: Callable[[], float],
        first_request: int,
        bootstrap: Sequence[NodeId] = (),
    ) -> None:
        """`draw` gives numbers in [0, 1); `first_request` is above all that earlier lives used.

        `bootstrap`: nodes that an observer asks while its log names no voters.
        Raises ElectionStateLost.
        """
        if recovered.election is None and (recovered.entries or recovered.snapshot.end_offset):
            raise ElectionStateLost
        self.me = me
        self.settings = settings
        self.cluster = cluster
        self.bootstrap = tuple(bootstrap)
        self.log = LogView(recovered.start, recovered.snapshot, recovered.entries)
        self.log.commit(recovered.committed)
        self.election = recovered.election or ElectionState()
        self.role = Role.UNATTACHED
        #: the leader of this epoch while it may still lead: followed, or to be followed again
        self.leader: NodeId | None = None
        #: everything below it was given to the state machine
        self.applied = LogOffset(0)
        self.now_ms = 0
        self._draw = draw
        self._calls = Calls(first_request)
        self._reads = ReadQueue(settings.read_ms)
        self._leadership: Leadership | None = None
        self._following = Following(me, self.log, settings)
        self._tally: Tally | None = None
        self._successors: tuple[ReplicaKey, ...] = ()
        #: the role's own time-out; None for a leader, whose timers are its leadership's
        self._timer_ms: int | None = None
        self._begin_due_ms = 0
        self._stop_due_ms: int | None = None
        #: elections lost in a row, for the back-off
        self._losses = 0
        self._is_backing_off = False
        #: the newest epoch whose leader said that it gave up: nobody may send us back to it
        self._ended_epoch = LeaderEpoch(-1)
        self._discovery_turn = 0
        self._announced: tuple[LeaderEpoch, NodeId | None] = (LeaderEpoch(-1), None)
        self._began_leading = LeaderEpoch(-1)
        self._orders: list[Order] = []

    @property
    def epoch(self) -> LeaderEpoch:
        """The newest leader epoch that this replica has heard of."""
        return self.election.epoch

    @property
    def votes(self) -> bool:
        """Whether this replica plays a voter's roles (`LogView.may_stand`)."""
        return self.log.may_stand(self.me)

    @property
    def known_leader(self) -> NodeId | None:
        """Where a proposal should go; None while nobody is known to lead."""
        if self.role is Role.LEADER:
            return self.me.node
        return self.leader if self.role in FETCHING else None

    # -- small words ------------------------------------------------------------------------------

    def _send(self, to: NodeId, message: Any) -> None:
        self._orders.append(Send(to, message))

    def _refuse(self, to: NodeId, request: Request, error: Error) -> None:
        self._send(to, refusal(request, error, self.epoch, self._vouched_leader()))

    def _vouched_leader(self) -> NodeId | None:
        """The leader that this replica names to others: itself, or one that it knows to answer.

        A follower that has not fetched yet repeats hearsay; two such followers would send each
        other back to a dead leader for ever (KIP-996's ping-pong).
        """
        if self.role in LED:
            return self.me.node
        if self.role in FETCHING and self._following.has_fetched:
            return self.leader
        return None

    def _remember(self, state: ElectionState) -> None:
        """The only writer of `election`; `handle` has it persisted before anything else."""
        assert state.epoch >= self.election.epoch, "an epoch never goes back"
        self.election = state

    def _election_due_ms(self) -> int:
        return (
            self.now_ms + self.settings.election_ms + int(self._draw() * self.settings.election_ms)
        )

    def _fetch_due_ms(self) -> int:
        """A quarter of chance on top: followers whose parked fetches were answered together would
        else give up together, ask together, and split the vote (Kafka has no jitter here).
        """
        return self.now_ms + self.settings.fetch_ms + int(self._draw() * self.settings.fetch_ms / 4)

    def _lost_due_ms(self) -> int:
        """When to ask for pre-votes after the leader's process was found gone: soon, apart from the
        other followers, who found it at the same time; never later than the fetch time-out.

        Kafka waits for the fetch time-out. Who is alone in not reaching the leader is refused by
        those who do, and has cost nobody anything (KIP-650).
        """
        due_ms = self._backoff_due_ms(LOST_DOUBLINGS)
        return due_ms if self._timer_ms is None else min(due_ms, self._timer_ms)

    def _backoff_due_ms(self, doublings: int) -> int:
        """Random, exponential, bounded; at least half, so that ranks stay apart (KIP-595)."""
        settings = self.settings
        bound = min(settings.backoff_ms_max, settings.backoff_ms_min << min(doublings, 16))
        return self.now_ms + bound // 2 + int(self._draw() * bound / 2)

    # -- roles and epochs -------------------------------------------------------------------------

    def _move(self, cause: Cause) -> None:
        """The only place where a role changes; everything that belonged to the old one ends."""
        was = self.role
        self.role = next_role(was, cause)
        self._drop_calls()
        self._tally = None
        self._is_backing_off = False
        if (leadership := self._leadership) is not None:
            self._leadership = None
            self._orders += leadership.end(self.epoch, self.known_leader)

    def _drop_calls(self) -> None:
        self._calls.drop()
        self._reads.ask_again()

    def _enter_epoch(self, epoch: LeaderEpoch, leader: NodeId | None) -> None:
        """Learn of a higher epoch, with its leader if somebody named one."""
        assert epoch > self.epoch
        if leader is not None and leader != self.me.node:
            self._remember(ElectionState(epoch, leader))
            self._follow(leader)
            return
        was = self.role
        self._remember(ElectionState(epoch))
        self.leader = None
        self._move(Cause.HIGHER_EPOCH)
        self._following = Following(self.me, self.log, self.settings)
        if was in LED or self._timer_ms is None:
            self._timer_ms = self._election_due_ms()
        # Else the time that runs goes on: learning epochs must not postpone an election for ever.
        self._settle_membership()

    def _follow(self, leader: NodeId) -> None:
        self._remember(ElectionState(self.epoch, leader, self.election.voted))
        self.leader = leader
        self._move(Cause.LEADER_FOUND)
        self._following = Following(self.me, self.log, self.settings)
        self._timer_ms = self._fetch_due_ms()
        self._losses = 0
        self._settle_membership()

    def _settle_membership(self) -> None:
        """Vote, or stop voting, as the voter set in force says (KIP-853)."""
        if self.votes and self.role is Role.OBSERVER and self.leader is not None:
            self._move(Cause.JOINED)
        elif not self.votes and self.role in {Role.FOLLOWER, Role.UNATTACHED, Role.RESIGNED}:
            self._move(Cause.REMOVED)
            self._timer_ms = self._fetch_due_ms()

    def _look_for_leader(self) -> None:
        """An observer heard nothing: any voter may know more (KIP-595 discovery)."""
        self.leader = None
        self._move(Cause.TIMED_OUT)
        self._following = Following(self.me, self.log, self.settings)
        self._timer_ms = self._fetch_due_ms()

    def _hear(self, epoch: LeaderEpoch, leader: NodeId | None) -> bool:
        """Take in what any answer says of epoch and leader; whether the rest of it still counts.

        Raises ProtocolViolation for a second leader of one epoch.
        """
        if epoch < self.epoch:
            return False
        if epoch > self.epoch:
            self._enter_epoch(epoch, leader)
            return False
        if leader is None:
            return True
        if leader == self.me.node:
            return self.role in LED  # else nonsense, or an echo from before we were removed
        if self.election.leader not in {None, leader}:
            msg = f"epoch {epoch} has two leaders: {self.election.leader} and {leader}"
            raise ProtocolViolation(msg)
        if self.role not in LED and self._ended_epoch != epoch and self.known_leader != leader:
            self._follow(leader)
            return False
        return True
