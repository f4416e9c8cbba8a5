"""A candidacy: one round of votes, or of pre-votes, that a replica asks for.

    time-out ─► pre-votes ─► a majority would elect us ─► epoch + 1, real votes ─► lead
                    └ refused: nothing has changed, no leader was disturbed (KIP-650)

A candidacy ends with the role that began it.  Not here: whether to grant a vote (`votes`), what
follows from the outcome (`core`).
"""

from standpipe.control.raft.log import LogView
from standpipe.control.raft.majority import LeaderEpoch, ReplicaKey, Tally, VoteOutcome
from standpipe.control.raft.messages import Error, VoteRequest, VoteResponse
from standpipe.model import NodeId


class Candidacy:
    """The voters that were asked for a vote in one epoch, and those that granted it."""

    def __init__(
        self, me: ReplicaKey, epoch: LeaderEpoch, log: LogView, *, is_pre_vote: bool
    ) -> None:
        """Begins with our own vote, if we have one. The log's present voter set stays in use."""
        self._me = me
        self._epoch = epoch
        self._log = log
        self._is_pre_vote = is_pre_vote
        self._tally = Tally(log.voters)
        if me in self._tally.voters:
            self._tally.count(me, granted=True)

    @property
    def outcome(self) -> VoteOutcome:
        """Whether a majority has granted, can no longer grant, or is still undecided."""
        return self._tally.outcome

    @property
    def granted(self) -> tuple[ReplicaKey, ...]:
        """The voters that granted."""
        return tuple(self._tally.granted)

    @property
    def open(self) -> tuple[ReplicaKey, ...]:
        """The voters that have not answered."""
        return self._tally.open

    def awaited(self, node: NodeId) -> ReplicaKey | None:
        """The voter on this node if its answer is still awaited."""
        voter = self._tally.voters.key_of(node)
        return voter if voter in self._tally.open else None

    def request(self, number: int, voter: ReplicaKey) -> VoteRequest:
        """The request to one voter, which compares our log with its own."""
        return VoteRequest(
            number,
            self._epoch,
            candidate=self._me,
            voter=voter,
            last_epoch=self._log.last_epoch,
            end_offset=self._log.end,
            pre=self._is_pre_vote,
        )

    def count(self, sender: NodeId, answer: VoteResponse) -> bool:
        """Count an answer of our epoch.  False: it is a transient error, so ask again.

        INVALID_VOTER_KEY is permanent: that node now has another incarnation, and the voter that we
        asked will never answer.
        """
        voter = self._tally.voters.key_of(sender)
        if voter is None or answer.error not in {Error.NONE, Error.INVALID_VOTER_KEY}:
            return False
        self._tally.count(voter, granted=answer.granted and answer.error is Error.NONE)
        return True
