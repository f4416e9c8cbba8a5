"""The input and output of the core: facts and orders.

**The contract of orders.**  The lists that `Raft.handle` returns form one sequence, and within each
list the disk's orders come first, the election file's before all others.  A driver executes the
sequence from front to back:

1. `PersistElection` is a barrier: nothing after it may leave the node, or reach a client, before it
   is durable (written, fsynced, renamed, directory fsynced).
2. `AppendLog`, `TruncateLog`, `TrimLog` and `InstallSnapshot` reach the disk in their order, but
   nothing waits for them: the driver reports `LogFlushed(write=n)` when all writes up to *n* are
   durable, and the core itself holds back whatever depends on that.
3. `ApplyCommitted` and `LoadSnapshot` are complete before the next order begins, so that a later
   `AnswerRead` or `AnswerProposal` reflects the new state of the state machine.
4. `Send` may fail in every way: messages may be lost, late, duplicated or reordered.
5. An order that fails on disk ends the process: a failed fsync cannot be trusted later.
"""

from dataclasses import dataclass
from typing import Final, get_args

from standpipe.control.raft.log import Entry, SnapshotId, SnapshotInfo
from standpipe.control.raft.majority import (
    NO_EPOCH,
    NO_OFFSET,
    Incarnation,
    LeaderEpoch,
    LogOffset,
    ReplicaKey,
)
from standpipe.control.raft.messages import Error, Message
from standpipe.model import NodeId


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What a replica must remember about an epoch: one small file, replaced atomically."""

    epoch: LeaderEpoch = NO_EPOCH
    leader: NodeId | None = None
    """The leader of this epoch, once known; permanently, even after it has resigned."""
    voted: ReplicaKey | None = None
    """Who got this replica's only vote of this epoch."""


#: Means "a vote that we may have given and do not remember"; it equals no real candidate.
FORGOTTEN_VOTE = ReplicaKey(NodeId("?"), Incarnation("?"))


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a replica found on its disk."""

    election: ElectionState | None
    """None: there is no such file."""
    start: SnapshotInfo
    """The log's boundary; `SnapshotInfo(0, 0, voters)` for a log that begins with the cluster."""
    snapshot: SnapshotInfo
    """The newest snapshot that is whole; equal to `start` if there is none above it."""
    entries: tuple[Entry, ...] = ()
    """Every whole, checked entry from `start` on."""
    committed: LogOffset = NO_OFFSET
    """Everything below was committed, as an earlier run noted; 0: unknown."""


class ElectionStateLost(Exception):
    """There is a log but no election file, so the replica may have forgotten a vote.

    It must not start under this incarnation; once wiped, it returns as another one (KIP-853).
    """


# -- facts --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fact:
    """Base of all events; `at_ms` is the node's boot clock (monotonic, counts while suspended)."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Started(Fact):
    """The process is up and has read `Recovered`; the first event, exactly once."""


@dataclass(frozen=True, slots=True)
class TimePassed(Fact):
    """`Raft.deadline_ms` was reached (an earlier or later event is harmless)."""


@dataclass(frozen=True, slots=True)
class MessageReceived(Fact):
    """A peer's message arrived, authenticated as coming from `sender`."""

    sender: NodeId
    message: Message
    cluster: str | None = None
    """The cluster that the sender believes in; None says nothing."""


@dataclass(frozen=True, slots=True)
class RequestFailed(Fact):
    """A request will certainly get no answer: connection refused, reset, or unknown address."""

    to: NodeId
    request: int


@dataclass(frozen=True, slots=True)
class LogFlushed(Fact):
    """All disk orders up to this write number are durable."""

    write: int


@dataclass(frozen=True, slots=True)
class Proposed(Fact):
    """A client wants a command appended; answered by `AnswerProposal` with the same number."""

    proposal: int
    data: bytes
    epoch: LeaderEpoch | None = None
    """If given, the only epoch in which it may be appended."""


@dataclass(frozen=True, slots=True)
class ReadRequested(Fact):
    """A client wants to read here; answered by `AnswerRead` with the same number."""

    read: int
    offset: LogOffset | None = None
    """None: linearizable.  Else a position token: wait until this much is applied."""


@dataclass(frozen=True, slots=True)
class VoterAddRequested(Fact):
    """An operator wants an observer to become a voter; answered by `AnswerChange`."""

    change: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class VoterRemoveRequested(Fact):
    """An operator wants to remove a voter; answered by `AnswerChange`."""

    change: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class TransferRequested(Fact):
    """An operator wants this voter to lead next; answered by `AnswerChange`."""

    change: int
    voter: ReplicaKey


#: what an operator may ask of the quorum, each answered by `AnswerChange`
ChangeRequested = VoterAddRequested | VoterRemoveRequested | TransferRequested


@dataclass(frozen=True, slots=True)
class ResignRequested(Fact):
    """The state machine cannot continue to lead in this epoch."""

    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class SnapshotTaken(Fact):
    """The state machine's snapshot at an applied offset is durable under its final name."""

    id: SnapshotId
    size: int


@dataclass(frozen=True, slots=True)
class ShutdownRequested(Fact):
    """The process wants to end; answered by `Stop`."""


Event = (
    Started
    | TimePassed
    | MessageReceived
    | RequestFailed
    | LogFlushed
    | Proposed
    | ReadRequested
    | VoterAddRequested
    | VoterRemoveRequested
    | TransferRequested
    | ResignRequested
    | SnapshotTaken
    | ShutdownRequested
)

# -- orders to the disk -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Replace the election file; a barrier for everything after it (rule 1)."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class AppendLog:
    """Append entries at the end of the log file."""

    write: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Cut the log file so that it ends at this offset."""

    write: int
    end_offset: LogOffset


@dataclass(frozen=True, slots=True)
class TrimLog:
    """Entries below this snapshot, and older snapshots, may be deleted."""

    write: int
    start: SnapshotInfo


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Atomically give the downloaded snapshot its name; then restart the log at its end."""

    write: int
    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Write bytes into the partial file of a download; position 0 restarts it."""

    snapshot: SnapshotId
    position: int
    data: bytes


DiskOrder = (
    PersistElection | AppendLog | TruncateLog | TrimLog | InstallSnapshot | WriteSnapshotChunk
)

# -- orders to peers, state machine and clients ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Pass a message to the transport."""

    to: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class SendSnapshotChunk:
    """Read a piece of a snapshot and send it as a `FetchSnapshotResponse`; already validated."""

    to: NodeId
    request: int
    epoch: LeaderEpoch
    snapshot: SnapshotInfo
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Replace the state machine's state with this snapshot's."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class ApplyCommitted:
    """Apply these entries, in order; control records take up offsets but change nothing."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class AnnounceLeader:
    """The leader known to this node has changed; None while it knows none."""

    epoch: LeaderEpoch
    leader: NodeId | None


@dataclass(frozen=True, slots=True)
class BeginLeading:
    """We lead, and the state machine has applied everything of earlier epochs."""

    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class AnswerProposal:
    """`NONE`: committed and applied at `offset`.  `NOT_LEADER_OR_FOLLOWER` with an offset: the
    outcome is unknown; without one: it was not appended here.
    """

    proposal: int
    error: Error
    offset: LogOffset | None = None
    leader: NodeId | None = None


@dataclass(frozen=True, slots=True)
class AnswerRead:
    """`NONE`: read the state machine now; it has applied everything below `offset`."""

    read: int
    error: Error
    offset: LogOffset | None = None


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """Outcome of a voter change or transfer; after `REQUEST_TIMED_OUT` it may still succeed."""

    change: int
    error: Error
    leader: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The process may end; `clean` if no replica has to wait for a new leader because of it."""

    clean: bool


Order = (
    DiskOrder
    | Send
    | SendSnapshotChunk
    | LoadSnapshot
    | ApplyCommitted
    | AnnounceLeader
    | BeginLeading
    | AnswerProposal
    | AnswerRead
    | AnswerChange
    | Stop
)

_DISK_ORDERS: Final = frozenset(get_args(DiskOrder))


def is_not_for_disk(order: Order) -> bool:
    """Sort key of orders: disk orders first; a stable sort keeps the order within each half."""
    return type(order) not in _DISK_ORDERS
