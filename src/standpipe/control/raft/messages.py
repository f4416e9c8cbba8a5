"""What replicas say to each other: requests, their answers, and the reasons for a refusal.

The shapes are Kafka's (KIP-595, KIP-630, KIP-853) without topics, partitions and sentinels, plus
KIP-650's pre-vote flag and `ReadOffset`, and the round that fetches echo for it.  Every request
carries a number that its answer repeats.  The numbers of one process never recur after its restart
(`core.Raft(first_request=…)`), so an answer to an earlier run is recognized and dropped.

Not here: encoding, authentication, addresses (the transport's).
"""

from dataclasses import dataclass
from enum import StrEnum

from standpipe.control.raft.log import Entry, EpochEnd, SnapshotId, SnapshotInfo
from standpipe.control.raft.majority import (
    NO_OFFSET,
    NO_ROUND,
    LeaderEpoch,
    LogOffset,
    ReplicaKey,
    Round,
)
from standpipe.model import NodeId


class ProtocolViolation(Exception):
    """A peer sent what no correct replica sends, such as a second leader of one epoch.

    The process must end: continuing could lose acknowledged commands.
    """


class Error(StrEnum):
    """Why a request was refused; the names are Kafka's, `NONE` is success."""

    NONE = "NONE"
    FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
    UNKNOWN_LEADER_EPOCH = "UNKNOWN_LEADER_EPOCH"
    NOT_LEADER_OR_FOLLOWER = "NOT_LEADER_OR_FOLLOWER"
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_VOTER_KEY = "INVALID_VOTER_KEY"
    INCONSISTENT_CLUSTER_ID = "INCONSISTENT_CLUSTER_ID"
    SNAPSHOT_NOT_FOUND = "SNAPSHOT_NOT_FOUND"
    POSITION_OUT_OF_RANGE = "POSITION_OUT_OF_RANGE"
    DUPLICATE_VOTER = "DUPLICATE_VOTER"
    VOTER_NOT_FOUND = "VOTER_NOT_FOUND"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    REQUEST_TIMED_OUT = "REQUEST_TIMED_OUT"


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Asks for a vote or, with `pre`, whether one would be granted (KIP-650)."""

    request: int
    epoch: LeaderEpoch
    """The candidate's epoch; for a pre-vote its *current* one, which is not raised (KIP-996)."""
    candidate: ReplicaKey
    voter: ReplicaKey
    """Who is asked: a node whose disk was replaced is not that voter any more (KIP-853)."""
    last_epoch: LeaderEpoch
    end_offset: LogOffset
    pre: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """Grants or refuses; only a replica that can vouch for the leader names it in `leader`."""

    request: int
    error: Error
    epoch: LeaderEpoch
    leader: NodeId | None
    granted: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """A leader announces itself to a voter that has not fetched from it."""

    request: int
    epoch: LeaderEpoch
    leader: NodeId
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """A leader resigns and names its successors, best first."""

    request: int
    epoch: LeaderEpoch
    leader: NodeId
    successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class QuorumEpochResponse:
    """Answers both `BeginQuorumEpochRequest` and `EndQuorumEpochRequest`."""

    request: int
    error: Error
    epoch: LeaderEpoch
    leader: NodeId | None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Asks for entries; its offset says what is *flushed* at the sender (KIP-595)."""

    request: int
    epoch: LeaderEpoch
    replica: ReplicaKey
    offset: LogOffset
    """End of the sender's log."""
    last_epoch: LeaderEpoch
    """Epoch of the last entry below it."""
    high_watermark: LogOffset
    """The sender's; the leader answers at once when its own is higher (KIP-1166)."""
    round: Round
    """The newest round that the sender has from this leader (KIP-650; `reads`)."""
    wait_ms: int
    """How long the leader may keep the request when it has nothing to say."""


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Entries, or where to truncate, or which snapshot to load; always the leader's watermark."""

    request: int
    error: Error
    epoch: LeaderEpoch
    leader: NodeId | None
    high_watermark: LogOffset = NO_OFFSET
    round: Round = NO_ROUND
    entries: tuple[Entry, ...] = ()
    diverging: EpochEnd | None = None
    snapshot: SnapshotInfo | None = None


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """Asks for the next bytes of a snapshot (KIP-630)."""

    request: int
    epoch: LeaderEpoch
    replica: ReplicaKey
    snapshot: SnapshotId
    position: int
    """Unit: bytes from the snapshot's begin."""
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """Bytes of a snapshot from `position` on, and its total size in bytes."""

    request: int
    error: Error
    epoch: LeaderEpoch
    leader: NodeId | None
    snapshot: SnapshotId
    position: int = 0
    size: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ReadOffsetRequest:
    """Asks which offset a linearizable read must have applied (KIP-650)."""

    request: int
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class ReadOffsetResponse:
    """An end offset that covers every write acknowledged before the request arrived."""

    request: int
    error: Error
    epoch: LeaderEpoch
    leader: NodeId | None
    offset: LogOffset = NO_OFFSET


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | ReadOffsetRequest
)
Response = (
    VoteResponse | QuorumEpochResponse | FetchResponse | FetchSnapshotResponse | ReadOffsetResponse
)
Message = Request | Response


def refusal(request: Request, error: Error, epoch: LeaderEpoch, leader: NodeId | None) -> Response:
    """The answer that refuses a request and says what epoch and leader this replica knows."""
    number = request.request
    match request:
        case VoteRequest():
            return VoteResponse(number, error, epoch, leader, granted=False)
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            return QuorumEpochResponse(number, error, epoch, leader)
        case FetchRequest():
            return FetchResponse(number, error, epoch, leader)
        case FetchSnapshotRequest():
            return FetchSnapshotResponse(number, error, epoch, leader, request.snapshot)
        case ReadOffsetRequest():
            return ReadOffsetResponse(number, error, epoch, leader)
