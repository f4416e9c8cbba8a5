"""Rows as a store keeps them: CRC-32, flags, ROWTIME, the full key where it is not the store's, the
columns as a JSON array.

docs/INTERFACES.md ("Bytes") has the format. The columns stay JSON text from Spark to the client
(`data/encoding/row_values.py` makes an array of an object, `data/query/pull.py` splices it).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

from standpipe.data.encoding.store_keys import HEADER_ROWTIME, rowtime_header
from standpipe.errors import ServerError

ROWTIME_BYTES: Final = 8
_ROW: Final = struct.Struct(">IBq")  # crc-32 of all that follows, flags, rowtime in ms
_packed_crc: Final = struct.Struct(">I").pack
_COUNT: Final = struct.Struct(">I")
_FLAG_FULL_KEY: Final = 1
_FULL: Final = bytes((_FLAG_FULL_KEY,))


class DamagedRow(ServerError):
    """A stored row whose CRC-32 does not fit: the store must be rebuilt."""


class Row(NamedTuple):
    """A stored row. `full_key` is set where the store's key had to be shortened."""

    value_json: bytes  # JSON array of the value columns
    rowtime_ms: int
    full_key: bytes


def pack_row(value_json: bytes, rowtime_ms: int, full_key: bytes = b"") -> bytes:
    """A stored value: crc-32, flags, ROWTIME, the full key if it is not the store's, the columns.

    LMDB's pages carry no checksum, so each row does.
    """
    return pack_row_at(value_json, rowtime_header(rowtime_ms), full_key)


def pack_row_at(value_json: bytes, rowtime: bytes, full_key: bytes = b"") -> bytes:
    """`pack_row` with ROWTIME as its header has it. Raises ValueError when that is not 8 bytes."""
    if len(rowtime) != ROWTIME_BYTES:
        raise ValueError(f"{HEADER_ROWTIME} has {len(rowtime)} bytes, not {ROWTIME_BYTES}")
    if full_key:
        body = b"%b%b%b%b%b" % (_FULL, rowtime, _COUNT.pack(len(full_key)), full_key, value_json)
    else:
        body = b"\0" + rowtime + value_json
    return crc32(body).to_bytes(4, "big") + body


def pack_rows_at(values_json: Sequence[bytes], rowtimes: Sequence[bytes]) -> list[bytes]:
    """`pack_row_at` of many, each with its whole key in the store's: two thirds of the time.

    Raises ValueError when one ROWTIME has not 8 bytes, or the two are not equally many.
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


def unpack_row(data: bytes) -> Row:
    """Raises DamagedRow when the bytes are not those that were packed."""
    if len(data) < _ROW.size:
        raise DamagedRow(f"a stored row of {len(data)} bytes")
    crc, flags, rowtime_ms = _ROW.unpack_from(data)
    if crc32(data[4:]) != crc:
        raise DamagedRow("the checksum of a stored row does not fit")
    if not flags & _FLAG_FULL_KEY:
        return Row(data[13:], rowtime_ms, b"")
    (length,) = _COUNT.unpack_from(data, 13)
    return Row(data[17 + length :], rowtime_ms, data[17 : 17 + length])
