"""Records of a table topic that wait for their commit, packed: what a sweep needs of each.

A batch may write millions of rows before its progress record says which of them count. As Kafka's
client gives them they take over 500 bytes each; here 22, and the key's own.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from standpipe.data.encoding.store_keys import HEADER_COMMIT

#: records of a block, which is freed as a whole
BLOCK_RECORDS: Final = 4096
assert BLOCK_RECORDS <= 1 << 16, "a record's commit is numbered by two bytes"
_NO_KEY: Final = -1
Headers = Sequence[tuple[str, bytes | None]] | None
#: the values of a record's commit headers; most records have one
Commits = tuple[bytes | None, ...]


class WrittenRecord(Protocol):
    """What is packed of a record."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def written_ms(self) -> int: ...


class PackedRecord(NamedTuple):
    """A record as it comes out again."""

    offset: int
    key: bytes | None
    written_ms: int
    commits: Commits


class PackedRecords:
    """Records in the order of their offsets: added at the end, taken from the beginning."""

    def __init__(self) -> None:
        self._blocks: deque[_Block] = deque()

    def extend(self, records: Sequence[WrittenRecord]) -> None:
        """Add records; offsets ascend."""
        done = 0
        while done < len(records):
            if not self._blocks or self._blocks[-1].room_records == 0:
                self._blocks.append(_Block())
            block = self._blocks[-1]
            some = records[done : done + block.room_records]
            block.extend(some)
            done += len(some)

    def skip_below(self, end: int, commit: bytes) -> int:
        """Remove records below an offset, as long as they are of this commit: those of whole
        blocks, which need not be unpacked for that. Returns how many."""
        count = 0
        while self._blocks and self._blocks[0].is_all_below(end, commit):
            count += self._blocks.popleft().left_records
        return count

    def take_below(self, end: int) -> Iterator[PackedRecord]:
        """The records below an offset. They are removed when the iterator passes them."""
        while self._blocks:
            block = self._blocks[0]
            yield from block.take_below(end)
            if block.left_records:
                return
            self._blocks.popleft()

    def __iter__(self) -> Iterator[PackedRecord]:
        for block in self._blocks:
            yield from (record for record, _ in block.rest())


class _Block:
    """Columns. The keys stand one behind another."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._written_ms = array("q")
        self._keys = bytearray()
        self._key_lengths = array("i")
        #: of each record: which of `_commits` it has
        self._commit_numbers = array("H")
        self._commits: list[Commits] = []
        #: how many records were taken, and the bytes of their keys
        self._taken = self._key_bytes_taken = 0

    @property
    def room_records(self) -> int:
        return BLOCK_RECORDS - len(self._offsets)

    @property
    def left_records(self) -> int:
        return len(self._offsets) - self._taken

    def extend(self, records: Sequence[WrittenRecord]) -> None:
        keys = [record.key for record in records]
        self._offsets.extend([record.offset for record in records])
        self._written_ms.extend([record.written_ms for record in records])
        self._keys += b"".join([key for key in keys if key is not None])
        self._key_lengths.extend([_NO_KEY if key is None else len(key) for key in keys])
        self._commit_numbers.extend(self._numbered([record.headers for record in records]))

    def _numbered(self, of_records: Sequence[Headers]) -> Iterator[int]:
        known = {commits: number for number, commits in enumerate(self._commits)}
        for headers in of_records:
            commits = tuple([value for name, value in headers or () if name == HEADER_COMMIT])
            number = known.get(commits)
            if number is None:
                number = known[commits] = len(self._commits)
                self._commits.append(commits)
            yield number

    def is_all_below(self, end: int, commit: bytes) -> bool:
        return self._offsets[-1] < end and all(commit in commits for commits in self._commits)

    def take_below(self, end: int) -> Iterator[PackedRecord]:
        for record, keys_end in self.rest():
            if record.offset >= end:
                return
            self._taken, self._key_bytes_taken = self._taken + 1, keys_end
            yield record

    def rest(self) -> Iterator[tuple[PackedRecord, int]]:
        """The records that were not taken, each with where its key ends."""
        keys_end = self._key_bytes_taken
        for place in range(self._taken, len(self._offsets)):
            key, length = None, self._key_lengths[place]
            if length != _NO_KEY:
                key = bytes(self._keys[keys_end : keys_end + length])
                keys_end += length
            commits = self._commits[self._commit_numbers[place]]
            yield (
                PackedRecord(self._offsets[place], key, self._written_ms[place], commits),
                keys_end,
            )
