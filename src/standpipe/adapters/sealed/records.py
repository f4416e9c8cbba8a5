"""One direction of a proved connection: numbered, tagged records. Bytes in, bytes out.

    record = u32 length, tag, data          tag = HMAC-SHA256(key, u64 number + data), 16 bytes

The number is not sent: both ends count. So a record that is lost, repeated, reordered or changed,
or that comes from another connection or the other direction, fails its check, and the connection
must end. What the records carry can be read by anyone on the path: they are sealed, not encrypted.

Used by HTTP between nodes (`adapters.http`), and by the quorum's wire (`adapters.raft.wire`) for
its own frames. Not here: where the keys come from (`handshake.py`).
"""

from __future__ import annotations

import hmac
import struct
from typing import Final

#: Data of one record. A larger write is sent as several, so a receiver never holds more than this
#: before it has checked it.
RECORD_BYTES_MAX: Final = 128 << 10
TAG_BYTES: Final = 16

_LENGTH: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
_HEAD_BYTES: Final = _LENGTH.size + TAG_BYTES


class SealBroken(ConnectionError):
    """What arrived is not what the other end sent next. The connection must end."""


class Tags:
    """Tags of the records of one direction, in their order."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")  # its copy is cheaper than `hmac.digest`
        self._number = 0

    def next(self, data: bytes) -> bytes:
        """The tag of the next record."""
        self._number += 1
        digest = self._keyed.copy()
        digest.update(_NUMBER.pack(self._number))
        digest.update(data)
        return digest.digest()[:TAG_BYTES]


class Sealer:
    """The sending end of a direction."""

    def __init__(self, key: bytes) -> None:
        self._tags = Tags(key)

    def seal(self, data: bytes) -> bytes:
        """The records that carry `data`."""
        if len(data) <= RECORD_BYTES_MAX:
            return _LENGTH.pack(len(data)) + self._tags.next(data) + data
        pieces = range(0, len(data), RECORD_BYTES_MAX)
        return b"".join(self.seal(data[at : at + RECORD_BYTES_MAX]) for at in pieces)


class Opener:
    """The receiving end of a direction."""

    def __init__(self, key: bytes) -> None:
        self._tags = Tags(key)
        self._rest = b""

    def open(self, received: bytes) -> bytes:
        """The data of all records that are complete now. Raises SealBroken."""
        buffer = self._rest + received if self._rest else received
        size, at = len(buffer), 0
        opened: list[bytes] = []
        while size - at >= _HEAD_BYTES:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > RECORD_BYTES_MAX:
                raise SealBroken(f"a record of {length} bytes")
            begin = at + _HEAD_BYTES
            end = begin + length
            if end > size:
                break
            data = buffer[begin:end]
            if not hmac.compare_digest(buffer[at + _LENGTH.size : begin], self._tags.next(data)):
                raise SealBroken("a record fails its check")
            opened.append(data)
            at = end
        self._rest = buffer[at:] if at else buffer
        return opened[0] if len(opened) == 1 else b"".join(opened)
