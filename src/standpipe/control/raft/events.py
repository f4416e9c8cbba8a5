"""What goes into the core and what comes out: facts and orders.

**The contract of orders.**  The lists that `Raft.handle` returns form one sequence, and within each
list the disk's orders come first, the election file's before all.  A driver carries the sequence
out from front to back:

1. `PersistElection` is a barrier: nothing that stands after it may leave the node, or reach a
   client, before it is durable (written, fsynced, renamed, directory fsynced).
2. `AppendLog`, `TruncateLog`, `TrimLog` and `InstallSnapshot` reach the disk in their order, but
   nothing waits for them: the driver reports `LogFlushed(write=n)` when all writes up to *n* are
   durable, and the core holds back by itself whatever depends on that.
3. `ApplyCommitted` and `LoadSnapshot` are done when the next order is begun, so that an
   `AnswerRead` or `AnswerProposal` below them speaks of a state machine that has moved.
4. `Send` may fail in every way: lost, late, twice, out of order.
5. An order that the disk refuses ends the process: a failed fsync cannot be trusted later.
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
    """What a replica must remember of an epoch: one small file, replaced atomically."""

    epoch: LeaderEpoch = NO_EPOCH
    leader: NodeId | None = None
    """The leader of this epoch, once known; permanently, even after it has resigned."""
    voted: ReplicaKey | None = None
    """Who got this replica's only vote of this epoch."""


#: Stands for "a vote that we may have given and do not remember": it equals no real candidate.
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
    """There is a log but no election file, so a vote may have been given and forgotten.

    The replica must not start under this incarnation; wiped, it comes back as another (KIP-853).
    """


# -- facts --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fact:
    """Base of all events; `at_ms` is the node's boot clock (monotonic, counts while suspended)."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Started(Fact):
    """The process is up and `Recovered` was read; the first event, exactly once."""


@dataclass(frozen=True, slots=True)
class TimePassed(Fact):
    """`Raft.deadline_ms` was reached (or any time later or earlier: harmless)."""


@dataclass(frozen=True, slots=True)
class MessageReceived(Fact):
    """A peer's message arrived, authenticated as `sender`'s."""

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
    """An operator wants an observer to vote; answered by `AnswerChange`."""

    change: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class VoterRemoveRequested(Fact):
    """An operator wants a voter out; answered by `AnswerChange`."""

    change: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class TransferRequested(Fact):
    """An operator wants this voter to lead next; answered by `AnswerChange`."""

    change: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class ResignRequested(Fact):
    """The state machine cannot lead on in this epoch."""

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
    """Freeze the downloaded snapshot under its name, atomically; then empty the log to its end."""

    write: int
    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Put bytes into the partial file of a download; position 0 begins it again."""

    snapshot: SnapshotId
    position: int
    data: bytes


DiskOrder = (
    PersistElection | AppendLog | TruncateLog | TrimLog | InstallSnapshot | WriteSnapshotChunk
)

# -- orders to peers, state machine and clients ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Give a message to the transport."""

    to: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class SendSnapshotChunk:
    """Read a piece of a snapshot and send it as a `FetchSnapshotResponse`; it was checked."""

    to: NodeId
    request: int
    epoch: LeaderEpoch
    snapshot: SnapshotInfo
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Replace the state machine's state by this snapshot's."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class ApplyCommitted:
    """Apply these entries, in order; control records count as offsets and change nothing."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class AnnounceLeader:
    """The leader that this node knows has changed; None while it knows none."""

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
    """Outcome of a change of voters or a transfer; `REQUEST_TIMED_OUT` may still come true."""

    change: int
    error: Error
    leader: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The process may end; `clean` if no replica waits for a leader because of it."""

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
    """Sort key of orders: those for the disk first, each half in the order in which it arose."""
    return type(order) not in _DISK_ORDERS
