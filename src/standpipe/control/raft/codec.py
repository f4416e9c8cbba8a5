"""The quorum's bytes: entries and snapshots on disk and on the wire, messages on the wire.

An entry is  msgpack (offset, epoch, kind, body)  in both places, so what a leader read from its
disk is what a follower writes to its own. A message is one byte that names its kind and a msgpack
map. A reader skips unknown fields; a missing field has a default or is an error (Unreadable), and
an unknown kind is an error that says so.

Not here: checksums (`adapters.raft.log_file`), which peer may say what (`adapters.raft.wire`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from standpipe.control.raft.events import ElectionState
from standpipe.control.raft.log import Entry, EpochEnd, LeaderChange, Payload, SnapshotInfo
from standpipe.control.raft.majority import LeaderEpoch, LogOffset, ReplicaKey, Round, VoterSet
from standpipe.control.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Message,
    QuorumEpochResponse,
    ReadOffsetRequest,
    ReadOffsetResponse,
    VoteRequest,
    VoteResponse,
)
from standpipe.errors import ServerError
from standpipe.model import NodeId


class Unreadable(ServerError):
    """Bytes that are no entry, snapshot or message of a version that this program knows."""


_COMMAND: Final = 0
_LEADER_CHANGE: Final = 1
_VOTERS: Final = 2

_encoder = msgspec.msgpack.Encoder()
_entry_decoder = msgspec.msgpack.Decoder(tuple[int, int, int, bytes])


class _Fetched(msgspec.Struct, array_like=False, kw_only=True):
    """A FetchResponse whose entries are bytes, as on disk."""

    request: int
    error: Error
    epoch: LeaderEpoch
    leader: NodeId | None
    high_watermark: LogOffset
    round: Round
    entries: list[bytes]
    diverging: EpochEnd | None = None
    snapshot: SnapshotInfo | None = None


#: byte on the wire -> message. Only appended to.
_KINDS: Final[tuple[type[Any], ...]] = (
    VoteRequest,
    VoteResponse,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    QuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ReadOffsetRequest,
    ReadOffsetResponse,
)
_BYTE: Final = {kind: bytes((number,)) for number, kind in enumerate(_KINDS)}
_DECODERS: Final[tuple[msgspec.msgpack.Decoder[Any], ...]] = tuple(
    msgspec.msgpack.Decoder(_Fetched if kind is FetchResponse else kind) for kind in _KINDS
)
_voters_decoder = msgspec.msgpack.Decoder(VoterSet)
_change_decoder = msgspec.msgpack.Decoder(LeaderChange)
_snapshot_decoder = msgspec.msgpack.Decoder(SnapshotInfo)
_election_decoder = msgspec.msgpack.Decoder(ElectionState | None)


# ------------------------------------------------------------------------------------- entries


def encode_entry(entry: Entry) -> bytes:
    """An entry with its offset and epoch."""
    kind, body = _encode_payload(entry.payload)
    return _encoder.encode((entry.offset, entry.epoch, kind, body))


def _encode_payload(payload: Payload) -> tuple[int, bytes]:
    match payload:
        case bytes():
            return _COMMAND, payload
        case LeaderChange():
            return _LEADER_CHANGE, _encoder.encode(payload)
        case VoterSet():
            return _VOTERS, _encoder.encode(payload)


def decode_entry(data: bytes) -> Entry:
    """Inverse of `encode_entry`. Raises Unreadable."""
    try:
        offset, epoch, kind, body = _entry_decoder.decode(data)
        return Entry(LogOffset(offset), LeaderEpoch(epoch), _decode_payload(kind, body))
    except (msgspec.MsgspecError, AssertionError) as error:
        raise Unreadable(f"an entry of the quorum's log cannot be read: {error}") from error


def _decode_payload(kind: int, body: bytes) -> Payload:
    match kind:
        case 0:  # _COMMAND
            return body
        case 1:  # _LEADER_CHANGE
            return _change_decoder.decode(body)
        case 2:  # _VOTERS
            return _voters_decoder.decode(body)
        case _:
            raise Unreadable(
                f"the quorum's log holds a record of kind {kind}, which this program does not "
                "know: upgrade it"
            )


# ------------------------------------------------------------------------ snapshots, election


def encode_snapshot(snapshot: SnapshotInfo) -> bytes:
    """A snapshot's metadata, without its state."""
    return _encoder.encode(snapshot)


def decode_snapshot(data: bytes) -> SnapshotInfo:
    """Inverse of `encode_snapshot`. Raises Unreadable."""
    try:
        return _snapshot_decoder.decode(data)
    except (msgspec.MsgspecError, AssertionError) as error:
        raise Unreadable(f"a snapshot's header cannot be read: {error}") from error


def encode_election(state: ElectionState | None) -> bytes:
    """What a replica must remember about its epoch; None before the first one."""
    return _encoder.encode(state)


def decode_election(data: bytes) -> ElectionState | None:
    """Inverse of `encode_election`. Raises Unreadable."""
    try:
        return _election_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"the election state cannot be read: {error}") from error


# ------------------------------------------------------------------------------------ messages


def encode_message(message: Message) -> bytes:
    """A message as sent over the wire."""
    body: Any = message
    if isinstance(message, FetchResponse):
        body = _Fetched(
            request=message.request,
            error=message.error,
            epoch=message.epoch,
            leader=message.leader,
            high_watermark=message.high_watermark,
            round=message.round,
            entries=[encode_entry(entry) for entry in message.entries],
            diverging=message.diverging,
            snapshot=message.snapshot,
        )
    return _BYTE[type(message)] + _encoder.encode(body)


def decode_message(data: bytes | memoryview) -> Message:
    """Inverse of `encode_message`. Raises Unreadable."""
    view = memoryview(data)
    try:
        decoded = _DECODERS[view[0]].decode(view[1:])
    except IndexError:
        named = f"of kind {view[0]}" if view else "without a kind"
        raise Unreadable(f"a message {named} is not known to this program") from None
    except (msgspec.MsgspecError, AssertionError) as error:
        raise Unreadable(f"cannot read a peer's message: {error}") from error
    return _fetch_response(decoded) if isinstance(decoded, _Fetched) else decoded


def _fetch_response(found: _Fetched) -> FetchResponse:
    return FetchResponse(
        found.request,
        found.error,
        found.epoch,
        found.leader,
        high_watermark=found.high_watermark,
        round=found.round,
        entries=tuple(decode_entry(entry) for entry in found.entries),
        diverging=found.diverging,
        snapshot=found.snapshot,
    )


def speaker(message: Message) -> ReplicaKey | NodeId | None:
    """The sender that a message claims; None: it claims none.

    The receiver compares this with the authenticated peer.
    """
    match message:
        case FetchRequest() | FetchSnapshotRequest():
            return message.replica
        case VoteRequest():
            return message.candidate
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            return message.leader
        case _:
            return None
