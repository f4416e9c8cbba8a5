"""Lookups of one frame that go to a node together, and their answers: the bytes of both. Pure.

    request     2 bytes: length of the body up to its literal; 2 bytes: length from there on; both
                of a lookup, in order: 4 bytes partition, 2 bytes length of the literal, the literal
    response    of a lookup, in order: `content-length: <n>`, freshness headers, an empty line, and
                n bytes: what a forward of its own would get behind its status line. One that the
                target has left, without a header but the length: 0.

Numbers in a request are big-endian. A target answers a lookup as it answers the whole body with its
literal in it (`Pack.body`): it relies on no frame of the node that asks.

Not here: who sends them (`node.worker.pull.known.packed_forwards`), who answers
(`node.worker.pull.fast_path`).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from standpipe.errors import BadRequest

#: Lookups of a pack: it is answered in one turn of the loop.
PACKED_MAX: Final = 64
#: Of a pack. PACKED_MAX of the longest keys, in the longest frame that is forwarded, have half.
ASKED_BYTES_MAX: Final = 64 * 1024
#: of its answers; the target leaves what is beyond that
PACK_BYTES_MAX: Final = 1024 * 1024
#: The answer to one lookup: freshness headers, each closed by CRLF, and the body. Without headers:
#: it was left.
PackedPart = tuple[bytes, bytes]
_head: Final = Struct(">HH")
_lookup: Final = Struct(">IH")
_LENGTH: Final = b"content-length: "
_LINE: Final = b"\r\n"
_END: Final = b"\r\n\r\n"
LEFT: Final = _LENGTH + b"0" + _END


@dataclass(frozen=True, slots=True)
class Pack:
    """Bodies that differ in their literal. `lookups`: (partition, literal)."""

    before: bytes
    after: bytes
    lookups: list[tuple[int, bytes]]

    def body(self, literal: bytes) -> bytes:
        """A whole one."""
        return self.before + literal + self.after

    @classmethod
    def parse(cls, data: bytes) -> Pack:
        """Raises BadRequest."""
        size = len(data)
        if size < _head.size:
            raise BadRequest("a pack of lookups is cut off")
        before, after = _head.unpack_from(data)
        begin = _head.size + before
        at = begin + after
        pack, lookups = cls(data[_head.size : begin], data[begin:at], []), list[tuple[int, bytes]]()
        while at < size:
            if at + _lookup.size > size:
                break
            partition, length = _lookup.unpack_from(data, at)
            at += _lookup.size + length
            lookups.append((partition, data[at - length : at]))
        if at != size or len(lookups) > PACKED_MAX:
            raise BadRequest("a pack of lookups is cut off, or has too many")
        pack.lookups.extend(lookups)
        return pack


def pack_front(before: bytes, after: bytes) -> bytes:
    """The begin of a pack, up to its first lookup."""
    return _head.pack(len(before), len(after)) + before + after


def pack_lookup(partition: int, literal: bytes) -> bytes:
    """One lookup of a pack."""
    return _lookup.pack(partition, len(literal)) + literal


def body_in(front: bytes, literal: bytes) -> bytes:
    """The whole body of a lookup; `front`: of its pack."""
    before, _ = _head.unpack_from(front)
    begin = _head.size + before
    return front[_head.size : begin] + literal + front[begin:]


def parts_of(data: bytes) -> list[PackedPart]:
    """The answers to a pack. Raises ValueError where they are malformed."""
    parts, index, at, size = list[PackedPart](), data.index, 0, len(data)
    while at < size:
        digits = at + len(_LENGTH)
        line_end = index(_LINE, digits)
        head_end = index(_END, line_end)
        length = int(data[digits:line_end])
        begin = head_end + len(_END)
        at = begin + length
        if at > size or length < 0:
            raise ValueError("an answer is cut off")
        parts.append((data[line_end + 2 : head_end + 2], data[begin:at]))
    return parts
