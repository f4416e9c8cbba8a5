"""The position of a replica: its state, its lags, its status page, and its store's meta.

States and lags are defined in docs/glossary.md. `next_state` is the only way a state changes;
docs/states.md is drawn from NEXT. A status page is one ReplicaStatus at a fixed layout, so that a
worker reads it from a memory map (`adapters/store/status_page.py`).

Not here: what makes a batch whole (`data/replica/machine.py`), which replica may be read
(`control/routing/route.py`).
"""

from __future__ import annotations

import struct
from enum import Enum, auto
from typing import Final
from zlib import crc32

import msgspec

from standpipe.model import (
    NO_BATCH,
    BatchId,
    LeaseEpoch,
    Offset,
    Record,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
)

STORE_FORMAT: Final = 1


def store_directory(replica_id: ReplicaId) -> str:
    """Directory of a replica's store, relative to the node's `state/`."""
    return f"{replica_id.table_id}-{replica_id.generation}/{replica_id.partition}"


class StoreIdentity(Record, frozen=True, kw_only=True):
    """Whose rows a store holds, and in which format. A store that names another is refused."""

    table_id: str
    generation: int
    partition: int
    format: int = STORE_FORMAT

    @classmethod
    def of(cls, replica_id: ReplicaId) -> StoreIdentity:
        """The identity of a store of this replica, in today's format."""
        return cls(**replica_id._asdict())

    @property
    def replica_id(self) -> ReplicaId:
        """The replica whose rows the store holds."""
        return ReplicaId(self.table_id, self.generation, self.partition)


class StoreMeta(Record, frozen=True, kw_only=True):
    """Metadata that is written in the same transaction as the rows that it describes."""

    identity: StoreIdentity
    position: Offset = Offset(0)
    #: offset at which the rows are a whole batch again (compaction); <= position: they are now
    whole_at: Offset = Offset(0)
    batch: BatchId = NO_BATCH
    lease_epoch: LeaseEpoch = LeaseEpoch(0)
    source_instant_ms: int = 0
    watermark_ms: int = 0
    last_applied_ms: int = 0  # Unix ms
    #: Unix ms of the last transaction that left it at the committed end; before the first such, of
    #: its first transaction. Tombstones of records below `position` are only guaranteed to last
    #: from here on; 0: the store predates this field
    current_ms: int = 0
    boot_id: str = ""  # boot of the machine during which it was written
    #: the instant of `current_ms` on the boot clock of `boot_id`, < 0: before that boot; None: the
    #: store predates this field, or has no rows
    current_boot_ms: int | None = None
    foreign_records: int = 0
    mismatched_records: int = 0  # committed, but in the partition of another key
    unreadable_records: int = 0  # committed, but key or value cannot be read
    superseded_records: int = 0  # of a direct table: below the version of their key's row
    topic_id: str = ""  # Kafka's id of the topic of a direct table; "": not known yet
    digest: int | None = (
        None  # of all rows (data/encoding/stored_rows.py); None: the store predates this field
    )


# ------------------------------------------------------------------------------------- states


class ReplicaEvent(Enum):
    """What can happen to a replica, as far as its state is concerned."""

    OPENED_EMPTY = auto()  # no batch was applied to this store yet
    OPENED_WHOLE = auto()  # its rows are those of one batch, which may be an old one
    OPENED_TORN = auto()  # stopped between two batches of a compacted range
    GAP_APPLIED = auto()  # rows of a compacted range: no batch is whole until its end
    ORDER_APPLIED = auto()  # as GAP_APPLIED; a foreign record may be among the rows
    BATCH_APPLIED = auto()  # whole, and more is committed
    END_REACHED = auto()  # whole, and nothing more is committed
    DATA_LOST = auto()  # the topic lacks records that it applied, or needs
    STORE_FAILED = auto()  # the store could not be read or written
    REBUILT = auto()  # a new, empty store took its place
    CLOSED = auto()  # this node stopped to follow the partition


_S, _E = ReplicaState, ReplicaEvent

NEXT: Final = {
    (_S.ABSENT, _E.OPENED_EMPTY): _S.BOOTSTRAP,
    (_S.ABSENT, _E.OPENED_TORN): _S.BOOTSTRAP,  # it may have been torn for a long time
    (_S.ABSENT, _E.OPENED_WHOLE): _S.CATCHING_UP,
    (_S.BOOTSTRAP, _E.GAP_APPLIED): _S.BOOTSTRAP,
    (_S.BOOTSTRAP, _E.ORDER_APPLIED): _S.BOOTSTRAP,
    (_S.BOOTSTRAP, _E.BATCH_APPLIED): _S.CATCHING_UP,
    (_S.BOOTSTRAP, _E.END_REACHED): _S.RUNNING,
    (_S.CATCHING_UP, _E.GAP_APPLIED): _S.CATCHING_UP,  # answers without a batch label
    (_S.CATCHING_UP, _E.ORDER_APPLIED): _S.BOOTSTRAP,
    (_S.CATCHING_UP, _E.BATCH_APPLIED): _S.CATCHING_UP,
    (_S.CATCHING_UP, _E.END_REACHED): _S.RUNNING,
    (_S.RUNNING, _E.GAP_APPLIED): _S.CATCHING_UP,
    (_S.RUNNING, _E.ORDER_APPLIED): _S.BOOTSTRAP,
    (_S.RUNNING, _E.BATCH_APPLIED): _S.RUNNING,  # its lag says how far it is behind (KIP-535)
    (_S.RUNNING, _E.END_REACHED): _S.RUNNING,
    (_S.DATA_LOSS, _E.REBUILT): _S.BOOTSTRAP,
    (_S.FAILED, _E.REBUILT): _S.BOOTSTRAP,
    **{
        (state, event): end
        for state in (_S.BOOTSTRAP, _S.CATCHING_UP, _S.RUNNING)
        for event, end in (
            (_E.DATA_LOST, _S.DATA_LOSS),
            (_E.STORE_FAILED, _S.FAILED),
            (_E.REBUILT, _S.BOOTSTRAP),
        )
    },
    (_S.ABSENT, _E.STORE_FAILED): _S.FAILED,  # it could not even be opened
    **{(state, _E.CLOSED): _S.ABSENT for state in _S},
}


def next_state(state: ReplicaState, event: ReplicaEvent) -> ReplicaState:
    """The only transition function. DATA_LOSS and FAILED ignore events without a transition."""
    if state in (_S.DATA_LOSS, _S.FAILED):
        return NEXT.get((state, event), state)
    return NEXT[(state, event)]


def opened(meta: StoreMeta) -> ReplicaEvent:
    """The event of opening a store with this meta."""
    if meta.whole_at > meta.position:
        return _E.OPENED_TORN
    return _E.OPENED_EMPTY if meta.batch == NO_BATCH else _E.OPENED_WHOLE


class Now(Record, frozen=True, kw_only=True):
    """One instant on the clocks with which a store can be dated."""

    wall_ms: int  # Unix ms
    boot_ms: int
    boot_id: str


def must_rebuild(
    meta: StoreMeta, now: Now, *, closed_cleanly: bool, tombstones_ms: int
) -> str | None:
    """Why a store cannot be resumed, or None.

    `tombstones_ms`: for how long the topic keeps tombstones; a store that was idle for longer may
    have missed one and would show a deleted row permanently.
    """
    if meta.boot_id not in ("", now.boot_id) and not closed_cleanly:
        return "the machine went down while it was open, and writes are not synced"
    if meta.whole_at > meta.position:
        return "it was stopped while it was being made, and what was suspect then is forgotten"
    if unread_ms(meta, now) > tombstones_ms:
        return "it is older than the tombstones of its topic"
    return None


def unread_ms(meta: StoreMeta, now: Now) -> int:
    """For how long the topic has not been read to its end into this store; 0: it has no rows yet.

    The longer of what two clocks say. A wall clock that was set back hides time; the boot clock, if
    it is still the same boot, hides time in which a hypervisor paused the machine.

    A restart does not reset it: if a replica is opened while its partition has no leader, the
    silence still counts from the instant in the meta.
    """
    since_ms = meta.current_ms or meta.last_applied_ms
    by_wall_ms = max(0, now.wall_ms - since_ms) if since_ms else 0
    # two unknown boot ids ("") do not mean the same boot
    is_same_boot = bool(now.boot_id) and meta.boot_id == now.boot_id
    if meta.current_boot_ms is None or not is_same_boot:
        return by_wall_ms
    return max(by_wall_ms, now.boot_ms - meta.current_boot_ms)


def opened_at(meta: StoreMeta, now: Now) -> StoreMeta:
    """The meta of a store that now belongs to this boot; its age by either clock is kept."""
    if not (meta.current_ms or meta.last_applied_ms):
        return msgspec.structs.replace(meta, boot_id=now.boot_id, current_boot_ms=None)
    old_ms = unread_ms(meta, now)
    return msgspec.structs.replace(
        meta,
        boot_id=now.boot_id,
        current_ms=now.wall_ms - old_ms,
        current_boot_ms=now.boot_ms - old_ms,
    )


def applied_at(meta: StoreMeta, before: StoreMeta, now: Now, *, is_caught_up: bool) -> StoreMeta:
    """`meta` after a transaction at `now`. `before`: the meta before it, in this boot;
    `is_caught_up`: the transaction leaves the store at the committed end."""
    is_current = is_caught_up or not before.current_ms
    return msgspec.structs.replace(
        meta,
        boot_id=now.boot_id,
        last_applied_ms=now.wall_ms,
        current_ms=now.wall_ms if is_current else before.current_ms,
        current_boot_ms=now.boot_ms if is_current else before.current_boot_ms,
    )


def must_note_current(current_ms: int, now_ms: int, tombstones_ms: int) -> bool:
    """Whether a store at the committed end should record that although no batch arrives: after a
    quiet week it would look stale, and be refused when it is opened or copied.

    Also if its `current_ms` is in the future, because the clock was set back: it would count as
    current until then, however long it was idle.
    """
    return abs(now_ms - current_ms) > tombstones_ms // 20


def must_restart(silent_ms: int, compaction_lag_ms: int) -> bool:
    """Whether a tailer must reopen its stores and read the progress topic again before any record:
    it was stopped, or cut off from Kafka. `silent_ms`: time since it knew all progress.

    A replica that met a gap waits for everything that was in the log then (`data/replica/gaps.py`).
    If compaction removes some of that too while this tailer is away, the next record that it gets
    lies beyond, and suggests that nothing else was there. For that, a record must outlive the
    compaction lag unseen; a tailer that knew all progress within half that time knows the target
    after it.
    """
    return silent_ms > compaction_lag_ms // 2


def must_reopen(silent_ms: int, tombstones_ms: int) -> bool:
    """Whether a replica must be reopened before it takes more records: its partition could not be
    read to its end for so long (`silent_ms`) that tombstones may have come and gone.

    Its tailer kept running and followed progress meanwhile. `must_rebuild` then judges the store.
    """
    return silent_ms > tombstones_ms


def may_judge(status: ReplicaStatus, rows: StoreMeta) -> bool:
    """Whether a page that was read before the rows may decide about them. `rows`: the meta in their
    transaction.

    The tailer writes the page after the transaction, so the rows may be newer, and satisfy what
    older ones would. Not so if a gap has just put them between two batches: then only the page of
    the same transaction knows whether they may be read. And they are older than the page if the
    store was replaced, for as long as the old file is open.
    """
    if rows.batch == NO_BATCH:
        return status.batch == NO_BATCH and status.position == rows.position
    return status.position <= rows.position


# --------------------------------------------------------------------------------------- lags


#: A page may be read an instant after the clock was.
_AHEAD_MS_MAX: Final = 1000


def replica_lag_ms(status: ReplicaStatus, now_boot_ms: int) -> int | None:
    """now - confirmed, >= 0; None: never confirmed on this boot.

    An instant in the future is from the previous boot: a page outlives the machine's restart.
    """
    if status.confirmed_boot_ms == 0 or status.confirmed_boot_ms > now_boot_ms + _AHEAD_MS_MAX:
        return None
    return max(0, now_boot_ms - status.confirmed_boot_ms)


def end_age_ms(status: ReplicaStatus, now_boot_ms: int) -> int | None:
    """How long ago Kafka confirmed the committed end, whether the replica was there or not, >= 0;
    None: never on this boot. A lag in records is worth no more than this."""
    known_ms = max(status.known_boot_ms, status.confirmed_boot_ms)
    if known_ms == 0 or known_ms > now_boot_ms + _AHEAD_MS_MAX:
        return None
    return max(0, now_boot_ms - known_ms)


def tailer_silent_ms(status: ReplicaStatus, now_boot_ms: int) -> int | None:
    """How long ago the tailer wrote the page, >= 0; None: it does not say. A tailer that lives
    writes it many times a second, even while Kafka is silent; a page outlives its tailer."""
    if status.beat_boot_ms == 0:
        return None
    if status.beat_boot_ms > now_boot_ms + _AHEAD_MS_MAX:  # of the previous boot
        return now_boot_ms
    return max(0, now_boot_ms - status.beat_boot_ms)


def source_lag_ms(
    status: ReplicaStatus, instant_ms: int, *, now_ms: int, now_boot_ms: int
) -> int | None:
    """now - the instant up to which all source records are in the rows, >= 0; None: unknown.

    The tailer finds that instant on this node's own clock (`data/commit/query_instants.py`), and
    goes on finding newer ones while nothing is written. Until it has, the batch of the rows says it
    (`instant_ms`, Unix ms by the pipeline's clock).
    """
    if 0 < status.source_boot_ms <= now_boot_ms + _AHEAD_MS_MAX:
        return max(0, now_boot_ms - status.source_boot_ms)
    return max(0, now_ms - instant_ms) if instant_ms else None


def blank_status(state: ReplicaState) -> ReplicaStatus:
    """The page of a replica of which only the state is known."""
    return ReplicaStatus(
        state=state,
        position=Offset(0),
        committed_end=Offset(-1),
        log_end=Offset(-1),
        batch=NO_BATCH,
        lease_epoch=LeaseEpoch(0),
        confirmed_boot_ms=0,
        source_instant_ms=0,
        foreign_records=0,
        rows=0,
        watermark_ms=0,
    )


# ------------------------------------------------------------------------------- status pages

#: crc-32, state, then the integers of ReplicaStatus in the order of _FIELDS; the id of a topic
_PAGE: Final = struct.Struct("<Iixxxx14q24s")
#: Kafka's ids are 22 characters long: a longer one would not be told apart from others
_TOPIC_ID_BYTES_MAX: Final = 24
_CRC: Final = struct.Struct("<I")
_FIELDS: Final = (
    "position",
    "committed_end",
    "log_end",
    "batch",
    "lease_epoch",
    "confirmed_boot_ms",
    "source_instant_ms",
    "foreign_records",
    "rows",
    "watermark_ms",
    "known_boot_ms",
    "beat_boot_ms",
    "source_boot_ms",
    "progress_end",
)
STATUS_BYTES: Final = _PAGE.size


def pack_status(status: ReplicaStatus) -> bytes:
    """STATUS_BYTES bytes."""
    topic_id = status.progress_topic_id.encode()
    if len(topic_id) > _TOPIC_ID_BYTES_MAX:
        topic_id = b""
    numbers = (getattr(status, field) for field in _FIELDS)
    page = bytearray(_PAGE.pack(0, status.state, *numbers, topic_id))
    _CRC.pack_into(page, 0, crc32(page[4:]))
    return bytes(page)


def unpack_status(page: bytes) -> ReplicaStatus | None:
    """None if the page is torn, was never written, or has another length."""
    if len(page) != _PAGE.size:
        return None
    crc, state, *numbers, topic_id = _PAGE.unpack(page)
    if crc != crc32(page[4:]):
        return None
    fields = dict(zip(_FIELDS, numbers, strict=True))
    progress_topic_id = topic_id.rstrip(b"\0").decode()
    return ReplicaStatus(
        state=ReplicaState(state),
        progress_topic_id=progress_topic_id,
        **fields,  # pyright: ignore[reportArgumentType]
    )
