"""The metadata log on disk: append, sync, acknowledge; and small files replaced whole.

A record is    length u32 | index u64 | CRC-32 of payload u32 | CRC-32 of these 16 bytes u32
               payload | END                                           (big-endian, END = 0xA5).

The header has its own checksum so that a length can be trusted. At the end of the file there is one
question: was the last write torn (it was not acknowledged: cut it off), or was an acknowledged
record damaged (refuse, and name it: a log that silently loses a command splits the cluster
permanently; NATS 2.12.1 under Jepsen)? An incomplete write leaves a file that is too short, or
zeros where the file grew before its bytes arrived; it never leaves END. So: short or zeros up to
the end of the file = torn; anything else = damaged.

`append` returns after fsync. An error of write or fsync is final: the kernel may have dropped the
dirty pages and report success next time, so the object refuses everything after it (DiskFailed) and
the process has to end; the next start reads what is really there. One error is not: a write that
found no room is cut off and tried again with room from the reserve (`reserve.Reserve`).

`LogFile` blocks: it runs in its own thread (`DiskThread`), away from the loop that answers peers.
What the quorum keeps in such files: `adapters.raft.disk`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

from standpipe.adapters.files.fsync import replace_durably, write_all
from standpipe.adapters.raft.reserve import Reserve
from standpipe.errors import DataDirectoryRefused, ServerError

MAGIC: Final = b"STANDPIPE LOG 1\n"
PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024
END: Final = b"\xa5"

_HEADER: Final = struct.Struct(">IQI")
_CRC: Final = struct.Struct(">I")
_HEADER_BYTES: Final = _HEADER.size + _CRC.size

P = ParamSpec("P")
R = TypeVar("R")


class DiskFailed(ServerError):
    """The disk refused a write or a sync. The process must end; nothing after it is durable."""


@dataclass(frozen=True)
class DiskRecord:
    """One record of the log. The payload is opaque here."""

    index: int
    payload: bytes


class OpenedLog(NamedTuple):
    """A log that was opened: what it holds, and how many bytes of a torn tail were cut."""

    log: LogFile
    records: list[DiskRecord]
    cut_bytes: int


class LogFile:
    """An append-only file of records with consecutive indexes. One process at a time."""

    def __init__(
        self, path: Path, descriptor: int, records: Sequence[DiskRecord], reserve: Reserve
    ) -> None:
        self.path = path
        self._descriptor = descriptor
        self._reserve = reserve
        #: index of the first record; the next one's if there is none
        self._first_index = records[0].index if records else 1
        #: where each record ends in the file
        self._ends = _ends_of(records)
        self._failure: OSError | None = None
        self.is_closed = False

    @property
    def last_index(self) -> int:
        """Index of the last durable record; one below the first where there is none."""
        return self._first_index + len(self._ends) - 1

    @classmethod
    def open(cls, path: Path, reserve: Reserve) -> OpenedLog:
        """Open or create a log, check every record and cut a torn tail.

        Raises DataDirectoryRefused that names file, offset and index of a damaged record, or if
        another process has the log open.
        """
        if not path.exists():
            replace_durably(path, MAGIC)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            _lock(descriptor, path)
            data = path.read_bytes()
            records, end = scan(data, path)
            if end < len(data):
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return OpenedLog(cls(path, descriptor, records, reserve), records, len(data) - end)

    @classmethod
    def create(cls, path: Path, records: Sequence[DiskRecord], reserve: Reserve) -> LogFile:
        """Replace whatever is there with a log of exactly these records, atomically.

        Raises DiskFailed; this process may have lost the old file then.
        """
        try:
            reserve.with_room(lambda: cls.write(path, records))
        except OSError as error:
            raise DiskFailed(f"{path} could not be replaced: {error}") from error
        return cls.of(path, records, reserve)

    @staticmethod
    def write(path: Path, records: Sequence[DiskRecord]) -> None:
        """Replace the file by these records. Raises OSError; then the old one is still there."""
        replace_durably(path, sealed(records))

    @classmethod
    def of(cls, path: Path, records: Sequence[DiskRecord], reserve: Reserve) -> LogFile:
        """The log that `write` left. Raises DiskFailed."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            _lock(descriptor, path)
        except OSError as error:
            raise DiskFailed(f"{path} could not be replaced: {error}") from error
        return cls(path, descriptor, records, reserve)

    def append(self, records: Sequence[DiskRecord]) -> None:
        """Write records and return when they are durable: one fsync for all of them.

        Raises DiskFailed, now and at every later call.
        """
        self._check()
        if records and not self._ends:
            self._first_index = records[0].index
        for expected, record in enumerate(records, self.last_index + 1):
            if record.index != expected:
                raise ValueError(f"index {record.index} after {expected - 1}")
        frames = [_frame(record) for record in records]
        data = b"".join(frames)
        with self._final():
            self._reserve.with_room(lambda: self._write(data))
            os.fsync(self._descriptor)
        for frame in frames:
            self._ends.append((self._ends[-1] if self._ends else len(MAGIC)) + len(frame))

    def _write(self, data: bytes) -> None:
        """Append all of it, or nothing. Raises OSError."""
        try:
            write_all(self._descriptor, data)
        except OSError:
            os.ftruncate(self._descriptor, self._ends[-1] if self._ends else len(MAGIC))
            raise

    def truncate(self, last_index: int) -> None:
        """Cut away every record above an index and return when that is durable. Raises DiskFailed.

        Must precede the next append: otherwise a crash in between could leave a new record behind
        an old one that should be gone.
        """
        self._check()
        if last_index >= self.last_index:
            return
        kept = max(0, last_index - self._first_index + 1)
        with self._final():
            os.ftruncate(self._descriptor, self._ends[kept - 1] if kept else len(MAGIC))
            os.fsync(self._descriptor)
        del self._ends[kept:]

    def close(self) -> None:
        """Release the file and its lock; further calls do nothing."""
        if not self.is_closed:
            self.is_closed = True
            os.close(self._descriptor)

    @contextlib.contextmanager
    def _final(self) -> Generator[None]:
        """An error in this block is final: every later write fails too."""
        try:
            yield
        except OSError as error:
            self._failure = error
            self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise DiskFailed(
                f"{self.path} could not be written: {self._failure}"
            ) from self._failure


def _ends_of(records: Sequence[DiskRecord]) -> list[int]:
    sizes = (_frame_bytes(len(record.payload)) for record in records)
    return list(accumulate(sizes, initial=len(MAGIC)))[1:]


def scan(data: bytes, path: Path) -> tuple[list[DiskRecord], int]:
    """Records of a log file's bytes, and the offset after the last whole one.

    Raises DataDirectoryRefused for anything that a torn last write cannot explain.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise _damaged(path, 0, "it does not start with this program's log header")
    records: list[DiskRecord] = []
    offset = len(MAGIC)
    while offset < len(data):
        record = _record_at(data, offset)
        expected = records[-1].index + 1 if records else None
        if record is None:
            if _is_torn(data, offset):
                return records, offset
            raise _damaged(path, offset, f"record {expected or 'one'} fails its checksum")
        if expected is not None and record.index != expected:
            raise _damaged(path, offset, f"found index {record.index}, expected {expected}")
        records.append(record)
        offset += _frame_bytes(len(record.payload))
    return records, offset


def _record_at(data: bytes, offset: int) -> DiskRecord | None:
    header = _header_at(data, offset)
    if header is None:
        return None
    length, index, payload_crc = header
    start = offset + _HEADER_BYTES
    payload = data[start : start + length]
    if len(payload) != length or zlib.crc32(payload) != payload_crc:
        return None
    return DiskRecord(index, payload) if data[start + length : start + length + 1] == END else None


def _header_at(data: bytes, offset: int) -> tuple[int, int, int] | None:
    """Length, index and CRC of the payload; None if the header is cut off or fails its CRC."""
    header = data[offset : offset + _HEADER.size]
    crc = data[offset + _HEADER.size : offset + _HEADER_BYTES]
    if len(crc) < _CRC.size or zlib.crc32(header) != _CRC.unpack(crc)[0]:
        return None
    return _HEADER.unpack(header)


def _is_torn(data: bytes, offset: int) -> bool:
    """The bad record at `offset` is a write that was cut off: see the module's head."""
    left = len(data) - offset
    header = _header_at(data, offset)
    whole = _frame_bytes(header[0]) if header else _HEADER_BYTES
    if left < whole:
        return True
    if data[-1] != 0 or (header and data[offset + whole - 1 : offset + whole] == END):
        return False
    # Zeros at the end: torn, unless a whole record follows the bad one.
    return not any(_record_at(data, later) for later in range(offset + 1, len(data)))


def sealed(records: Sequence[DiskRecord]) -> bytes:
    """A whole small file of records, for `replace_durably`; `unsealed` reads it."""
    return MAGIC + b"".join(_frame(record) for record in records)


def unsealed(data: bytes, path: Path) -> list[DiskRecord]:
    """Records of a file that was replaced whole, so a bad byte cannot be a torn write.

    Raises DataDirectoryRefused.
    """
    records, end = scan(data, path)
    if end < len(data) or not records:
        raise _damaged(path, end, "a part of it is missing")
    return records


def _frame(record: DiskRecord) -> bytes:
    if len(record.payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a record of {len(record.payload)} bytes is too large for the log")
    header = _HEADER.pack(len(record.payload), record.index, zlib.crc32(record.payload))
    return b"".join((header, _CRC.pack(zlib.crc32(header)), record.payload, END))


def _frame_bytes(payload_bytes: int) -> int:
    return _HEADER_BYTES + payload_bytes + len(END)


def _damaged(path: Path, offset: int, why: str) -> DataDirectoryRefused:
    return DataDirectoryRefused(
        f"{path} is damaged at byte {offset}: {why}",
        next_step="nothing was changed. Where a majority of the voters is well: `standpipe quorum "
        "remove-voter` this one, move its log/ away, start it, `add-voter` it again. Else: "
        "`standpipe quorum restore` a backup",
    )


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DataDirectoryRefused(
            f"{path} is open in another process", next_step="stop the other process of this node"
        ) from error


class DiskThread:
    """One thread for all blocking calls to a disk, in the order in which they were made."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Result of a call in the thread. The call is not cancelled with its caller."""
        future = self._pool.submit(call, *args, **kwargs)
        return await asyncio.shield(asyncio.wrap_future(future))

    def close(self) -> None:
        """End the thread once all calls are done."""
        self._pool.shutdown(wait=True)
