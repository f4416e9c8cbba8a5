"""Rows as a store keeps them, and the digest with which replicas compare their rows.

A row is CRC-32, flags, ROWTIME, the full key if the store's had to be shortened, and the columns
as a JSON array; docs/INTERFACES.md ("Bytes") has the format. The columns stay JSON text from Spark
to the client (`data/encoding/row_values.py` turns an object into an array, `data/query/pull.py`
splices it). The flags also say how many it has of the columns that were added to its table in place
(`sql/declarations/added_columns.py`), so no reader has to count them.

The digest is a sum over all rows of a hash of (key, stored row): equal rows give equal digests in
whatever order they arrived, and a batch changes it by what it removes and adds. It finds replicas
that differ by accident (a lost record, a wrong order, a damaged page), not by forgery: 32 bits of
CRC for each row, summed in 64 bits, at a fifth of what a cryptographic hash would cost a restore
(bench/restore.py).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import HEADER_ROWTIME, rowtime_header
from standpipe.errors import ServerError

ROWTIME_BYTES: Final = 8
_ROW: Final = struct.Struct(">IBq")  # crc-32 of everything after it, flags, rowtime in ms
_unpack_head: Final = _ROW.unpack_from
_HEAD_BYTES: Final = _ROW.size
_FLAGS_AT: Final = 4
_AFTER_CRC: Final = slice(_FLAGS_AT, None)
_AFTER_HEAD: Final = slice(_HEAD_BYTES, None)
_packed_crc: Final = struct.Struct(">I").pack
_COUNT: Final = struct.Struct(">I")
_FLAG_FULL_KEY: Final = 1
#: of the flags, the bits above that one are a number: of the added columns
_ADDED_SHIFT: Final = 1
_BYTES: Final = [bytes((number,)) for number in range(256)]

#: digest of a store without rows
EMPTY_DIGEST: Final = 0
_crc_of: Final = struct.Struct(">I").unpack_from
_BITS: Final = 0xFFFF_FFFF_FFFF_FFFF

_encode = msgspec.json.Encoder().encode
_decode_cells = msgspec.json.Decoder(list[msgspec.Raw]).decode


class DamagedRow(ServerError):
    """A stored row whose CRC-32 does not match: the store must be rebuilt."""


class StoredRow(NamedTuple):
    """A stored row. `full_key` is set if the store's key had to be shortened. `added`: how many it
    has of the columns that were added to the table in place."""

    value_json: bytes  # JSON array of the value columns that its writer knew
    rowtime_ms: int
    full_key: bytes
    added: int = 0


def pack_row(value_json: bytes, rowtime_ms: int, full_key: bytes = b"", added: int = 0) -> bytes:
    """A stored value: crc-32, flags, ROWTIME, the full key if it is not the store's, the columns.

    LMDB's pages carry no checksum, so each row does.
    """
    return pack_row_at(value_json, rowtime_header(rowtime_ms), full_key, added)


def pack_row_at(value_json: bytes, rowtime: bytes, full_key: bytes = b"", added: int = 0) -> bytes:
    """`pack_row` with ROWTIME as in its header. Raises ValueError if that is not 8 bytes long."""
    if len(rowtime) != ROWTIME_BYTES:
        raise ValueError(f"{HEADER_ROWTIME} has {len(rowtime)} bytes, not {ROWTIME_BYTES}")
    flags = added << _ADDED_SHIFT
    if full_key:
        head = _BYTES[flags | _FLAG_FULL_KEY]
        body = b"%b%b%b%b%b" % (head, rowtime, _COUNT.pack(len(full_key)), full_key, value_json)
    else:
        body = _BYTES[flags] + rowtime + value_json
    return crc32(body).to_bytes(4, "big") + body


def pack_rows_at(values_json: Sequence[bytes], rowtimes: Sequence[bytes]) -> list[bytes]:
    """`pack_row_at` for many rows without a shortened key: takes two thirds of the time.

    Raises ValueError if a ROWTIME is not 8 bytes long, or the two differ in length.
    """
    if {*map(len, rowtimes)} - {ROWTIME_BYTES}:
        raise ValueError(f"a {HEADER_ROWTIME} has not {ROWTIME_BYTES} bytes")
    bodies = [
        b"\0" + rowtime + value_json
        for rowtime, value_json in zip(rowtimes, values_json, strict=True)
    ]
    return [
        crc + body for crc, body in zip(map(_packed_crc, map(crc32, bodies)), bodies, strict=True)
    ]


def unpack_row(data: bytes) -> StoredRow:
    """Raises DamagedRow if the bytes are not those that were packed."""
    if len(data) < _HEAD_BYTES:
        raise DamagedRow(f"a stored row of {len(data)} bytes")
    crc, flags, rowtime_ms = _unpack_head(data)
    if crc32(data[_AFTER_CRC]) != crc:
        raise DamagedRow("the checksum of a stored row does not fit")
    if not flags:
        return StoredRow(data[_AFTER_HEAD], rowtime_ms, b"")
    added = flags >> _ADDED_SHIFT
    if not flags & _FLAG_FULL_KEY:
        return StoredRow(data[_AFTER_HEAD], rowtime_ms, b"", added)
    (length,) = _COUNT.unpack_from(data, _HEAD_BYTES)
    begin = _HEAD_BYTES + _COUNT.size
    end = begin + length
    return StoredRow(data[end:], rowtime_ms, data[begin:end], added)


def bare_value(data: bytes) -> bytes | None:
    """`value_json` of a row that has neither its key nor added columns, as most; None: of others.
    For lookups without C: it takes two thirds of `unpack_row`. Raises DamagedRow."""
    if len(data) < _HEAD_BYTES or data[_FLAGS_AT]:
        return None
    if crc32(data[_AFTER_CRC]) != int.from_bytes(data[:_FLAGS_AT]):
        raise DamagedRow("the checksum of a stored row does not fit")
    return data[_AFTER_HEAD]


def fitted(row: StoredRow, added: int) -> bytes:
    """The array of a row for a reader that knows so many added columns. One that the writer did not
    know is null; one that the reader has not heard of yet is left out."""
    missing = added - row.added
    if missing < 0:
        return _encode(_decode_cells(row.value_json)[:missing])
    if not missing:
        return row.value_json
    nulls = b",".join([b"null"] * missing)
    head = row.value_json[:-1]
    return b"%b%b%b]" % (head, b"" if head == b"[" else b",", nulls)


# ---------------------------------------------------------------------------------- the digest


def rows_digest(rows: Iterable[tuple[bytes, bytes]]) -> int:
    """Digest of (store key, stored row) pairs; keys occur once. 0 <= digest < 2**64.

    A stored row begins with the CRC-32 of the rest of it (`pack_row`), so hashing the key on top of
    that covers both.
    """
    return sum(crc32(key, int.from_bytes(row[:4], "big")) for key, row in rows) & _BITS


def sound_digest(rows: Iterable[tuple[bytes, bytes]]) -> int | None:
    """`rows_digest`, or None if a row does not match its own CRC-32."""
    total = 0
    for key, row in rows:
        crc = int.from_bytes(row[:4], "big")
        if crc32(memoryview(row)[4:]) != crc:
            return None
        total += crc32(key, crc)
    return total & _BITS


def digest_after(
    digest: int,
    replaced: Collection[tuple[bytes, bytes]],
    deleted: Collection[tuple[bytes, bytes]],
    puts: Collection[tuple[bytes, bytes]],
) -> int:
    """The digest of a store after a transaction, from the digest before it.

    `replaced`, `deleted`: the previous rows of keys that are put or deleted now. Each key occurs
    once in `puts`.
    """
    return (digest - _digest_of(replaced) - _digest_of(deleted) + _digest_of(puts)) & _BITS


def _digest_of(rows: Collection[tuple[bytes, bytes]]) -> int:
    """`rows_digest` in half the time, or a tenth if compiled: it runs for each restored row."""
    if (found := native.digest(rows)) is not None:
        return found
    try:
        return sum(crc32(key, _crc_of(row)[0]) for key, row in rows) & _BITS
    except struct.error:  # a row too short for a CRC, which we never pack
        return rows_digest(rows)
