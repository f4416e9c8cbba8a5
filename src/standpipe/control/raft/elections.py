"""Elections: asking for votes, giving them, beginning and ending a leadership.

    time-out ─► pre-votes ─► a majority would elect us ─► epoch + 1, real votes ─► lead
                    └ refused: nothing has changed, nobody was disturbed (KIP-650)

Not here: whether to grant (`raft_votes`), what a leader does (`raft_leader`).
"""

from standpipe.control.raft.events import ElectionState
from standpipe.control.raft.follower import Following
from standpipe.control.raft.leader import Leadership
from standpipe.control.raft.majority import LeaderEpoch, Outcome, ReplicaKey, Tally
from standpipe.control.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    QuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from standpipe.control.raft.roles import Cause, Role
from standpipe.control.raft.state import FETCHING, LED, Replica
from standpipe.control.raft.votes import Voter, ballot, is_malformed
from standpipe.model import NodeId


class Elections(Replica):
    """A replica that can be elected, and helps others to be."""

    # -- elections: asking ------------------------------------------------------------------------

    def _seek_election(self) -> None:
        """Ask whether we would be elected.  No epoch grows, nothing is stored (KIP-650)."""
        self._move(Cause.TIMED_OUT)
        self._ask_for_votes()

    def _campaign(self) -> None:
        """Ask to be elected: the only place where an epoch is invented."""
        self._remember(ElectionState(LeaderEpoch(self.epoch + 1), None, self.me))
        self.leader = None
        self._move(Cause.MAJORITY)
        self._ask_for_votes()

    def _ask_for_votes(self) -> None:
        self._tally = Tally(self.log.voters)
        if self.me in self._tally.voters:
            self._tally.count(self.me, granted=True)
        self._timer_ms = self._election_due_ms()
        if not self._count_votes():
            for key in self._tally.open:
                self._send_vote_request(key)

    def _send_vote_request(self, voter: ReplicaKey) -> None:
        due_ms = self.now_ms + self.settings.request_ms
        number = self._calls.open(VoteRequest, voter.node, due_ms)
        message = VoteRequest(
            number,
            self.epoch,
            candidate=self.me,
            voter=voter,
            last_epoch=self.log.last_epoch,
            end_offset=self.log.end,
            pre=self.role is Role.PROSPECTIVE,
        )
        self._send(voter.node, message)

    def _on_vote_answer(self, sender: NodeId, answer: VoteResponse) -> None:
        if not self._calls.close(VoteRequest, sender, answer.request):
            return
        if not self._hear(answer.epoch, answer.leader) or self._tally is None:
            return
        voter = self._tally.voters.key_of(sender)
        if voter is None or answer.error not in {Error.NONE, Error.INVALID_VOTER_KEY}:
            self._calls.pause(VoteRequest, sender, self.now_ms + self.settings.request_ms)
            return
        # INVALID_VOTER_KEY: that node lives on under another incarnation; this voter never answers.
        self._tally.count(voter, granted=answer.granted and answer.error is Error.NONE)
        self._count_votes()

    def _count_votes(self) -> bool:
        """Act on a vote that is decided; whether it is."""
        assert self._tally is not None
        outcome = self._tally.outcome
        if outcome is Outcome.LOST:
            self._lose_election()
        elif outcome is Outcome.WON:
            if self.role is Role.PROSPECTIVE:
                self._campaign()
            else:
                self._lead(tuple(self._tally.granted))
        return outcome is not Outcome.OPEN

    def _lose_election(self) -> None:
        if self.role is Role.CANDIDATE:
            self._drop_calls()
            self._timer_ms = self._backoff_due_ms(self._losses)
            self._losses += 1
            self._is_backing_off = True
        elif self.leader is not None:
            self._follow(self.leader)  # it may still lead; pre-votes cost it nothing (KIP-996)
        else:
            self._move(Cause.LOST)
            self._timer_ms = self._election_due_ms()

    # -- elections: answering ---------------------------------------------------------------------

    def _on_vote_request(self, sender: NodeId, asked: VoteRequest) -> None:
        # All refusals come before the epoch is believed: a misdirected or broken request must not
        # move anyone (Kafka moves first and checks then).
        if asked.voter != self.me:
            self._refuse(sender, asked, Error.INVALID_VOTER_KEY)
        elif is_malformed(asked):
            self._refuse(sender, asked, Error.INVALID_REQUEST)
        elif asked.epoch < self.epoch:
            self._refuse(sender, asked, Error.FENCED_LEADER_EPOCH)
        else:
            if asked.epoch > self.epoch:
                self._enter_epoch(asked.epoch, None)  # learned: somebody did campaign for it
            self._answer_vote(sender, asked)

    def _answer_vote(self, sender: NodeId, asked: VoteRequest) -> None:
        hears_leader = (
            self.role in FETCHING and self.leader is not None and self._following.has_fetched
        )
        me = Voter(self.role, self.election, self.log.last_epoch, self.log.end, hears_leader)
        vote = ballot(me, asked)
        if vote.granted and not asked.pre:
            self._remember(ElectionState(self.epoch, None, asked.candidate))
            self._move(Cause.GRANTED)
            self._timer_ms = self._election_due_ms()
        leader = self._vouched_leader()
        answer = VoteResponse(asked.request, Error.NONE, self.epoch, leader, vote.granted)
        self._send(sender, answer)

    # -- leading ----------------------------------------------------------------------------------

    def _lead(self, granted: tuple[ReplicaKey, ...]) -> None:
        self._remember(ElectionState(self.epoch, self.me.node, self.me))
        self._move(Cause.MAJORITY)
        self._timer_ms = None
        self._losses = 0
        self._leadership = Leadership(
            self.me, self.epoch, self.log, self.settings, now_ms=self.now_ms
        )
        self._orders.append(self._leadership.begin(granted))
        self._call_silent_voters()

    def _call_silent_voters(self) -> None:
        assert self._leadership is not None
        self._begin_due_ms = self.now_ms + self.settings.begin_ms
        for voter in self._leadership.followers.silent_voters(self.now_ms):
            due_ms = self.now_ms + self.settings.request_ms
            number = self._calls.open(BeginQuorumEpochRequest, voter.node, due_ms)
            request = BeginQuorumEpochRequest(number, self.epoch, self.me.node, voter)
            self._send(voter.node, request)

    def _resign(self, cause: Cause) -> None:
        """Stop leading in this epoch for good, and say so to those who may follow."""
        assert self._leadership is not None
        self._successors = self._leadership.successors()
        self._move(cause)
        self._timer_ms = self._election_due_ms()
        self._send_end_quorum()

    def _send_end_quorum(self) -> None:
        for voter in self.log.voters.others(self.me):
            self._send_end_quorum_to(voter.node)

    def _send_end_quorum_to(self, node: NodeId) -> None:
        due_ms = self.now_ms + self.settings.request_ms
        number = self._calls.open(EndQuorumEpochRequest, node, due_ms)
        message = EndQuorumEpochRequest(number, self.epoch, self.me.node, self._successors)
        self._send(node, message)

    def _on_quorum_answer(self, sender: NodeId, answer: QuorumEpochResponse) -> None:
        kind = BeginQuorumEpochRequest if self.role is Role.LEADER else EndQuorumEpochRequest
        if self._calls.close(kind, sender, answer.request):
            self._hear(answer.epoch, answer.leader)

    def _on_begin_quorum(self, sender: NodeId, asked: BeginQuorumEpochRequest) -> None:
        if asked.epoch < self.epoch:
            self._refuse(sender, asked, Error.FENCED_LEADER_EPOCH)
            return
        if asked.leader == self.me.node:
            self._refuse(sender, asked, Error.INVALID_REQUEST)
            return
        self._hear(asked.epoch, asked.leader)
        # The leader is real even if it means a disk that this node no longer has (KIP-853).
        error = Error.NONE if asked.voter == self.me else Error.INVALID_VOTER_KEY
        self._send(sender, QuorumEpochResponse(asked.request, error, self.epoch, asked.leader))

    def _on_end_quorum(self, sender: NodeId, asked: EndQuorumEpochRequest) -> None:
        if asked.epoch < self.epoch:
            self._refuse(sender, asked, Error.FENCED_LEADER_EPOCH)
            return
        if asked.epoch > self.epoch:
            self._enter_epoch(asked.epoch, None)
        if self.role not in LED and self.role is not Role.CANDIDATE:
            self._leader_resigned(asked)
        self._send(sender, QuorumEpochResponse(asked.request, Error.NONE, self.epoch, None))

    def _leader_resigned(self, asked: EndQuorumEpochRequest) -> None:
        self._ended_epoch = self.epoch
        self._remember(ElectionState(self.epoch, asked.leader, self.election.voted))
        self.leader = None
        self._move(Cause.LEADER_RESIGNED)
        self._following = Following(self.me, self.log, self.settings)
        if not self.votes:
            self._timer_ms = self._fetch_due_ms()
        elif asked.successors[:1] == (self.me,):
            # The leader's own word is worth more than pre-votes, which those who have not heard
            # it yet would refuse (KIP-595 EndQuorumEpoch; Raft dissertation 3.10).
            self._move(Cause.TIMED_OUT)
            self._campaign()
        else:
            later = len(asked.successors) if self.me not in asked.successors else None
            rank = asked.successors.index(self.me) if later is None else later
            self._timer_ms = self._backoff_due_ms(rank)
