"""Status pages: one writer (the tailer), any number of readers (workers), no lock.

Two slots in a memory map and a sequence number in front, which says which one is current. The
writer fills the other slot, then raises the number; so a writer that is paused, starved or killed
half-way leaves the last status readable. (A single slot under a seqlock did not: on a busy machine
a tailer that lost its core in the middle of a page made its replica look ABSENT, and a read
failed.) The checksum of a page catches what another machine's memory ordering might let through.
The file is never replaced while it is in use, so a map stays valid.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Final

from standpipe.adapters.files.named_paths import folder_below
from standpipe.data.replica.positions import STATUS_BYTES, pack_status, unpack_status
from standpipe.model import ReplicaId, ReplicaState, ReplicaStatus

_SEQUENCE: Final = struct.Struct("<Q")
#: where it lies in the file
_FRONT: Final = slice(0, _SEQUENCE.size)
_SLOTS: Final = 2
_FILE_BYTES: Final = _SEQUENCE.size + _SLOTS * STATUS_BYTES
_TRIES: Final = 100


def _slot(sequence: int) -> slice:
    """Where the page of a sequence number lies in the file."""
    start = _SEQUENCE.size + sequence % _SLOTS * STATUS_BYTES
    return slice(start, start + STATUS_BYTES)


def page_path(run: Path, replica_id: ReplicaId) -> Path:
    """Where the page of one replica lies below a node's `run/`. Raises UnsafePath."""
    return folder_below(run / "status", str(replica_id))


class StatusWriter:
    """The only writer of one page. Takes over a page that an earlier process left."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the page cannot have its blocks."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # the same bytes again, and none is a checksum that fits: it reserves the blocks, or
            # raises ENOSPC, which a write to the map would turn into SIGBUS
            old = os.pread(handle, _FILE_BYTES, 0)
            os.pwrite(handle, old.ljust(_FILE_BYTES, b"\0"), 0)
            os.ftruncate(handle, _FILE_BYTES)
            self._map = mmap.mmap(handle, _FILE_BYTES)
        finally:
            os.close(handle)
        (self._sequence,) = _SEQUENCE.unpack_from(self._map)

    def write(self, status: ReplicaStatus) -> None:
        """Publish a status: readers see the one before it or this one."""
        sequence = self._sequence + 1
        self._map[_slot(sequence)] = pack_status(status)
        _SEQUENCE.pack_into(self._map, 0, sequence)  # from here on readers see it
        self._sequence = sequence

    def close(self, *, unlink: bool) -> None:
        """`unlink`: the replica left this node. Its last status must have been ABSENT."""
        self._map.close()
        if unlink:
            self._path.unlink(missing_ok=True)


class StatusReader:
    """A reader of one page. Copes with a page that appears later or was removed and recreated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self._sequence = -1
        self._status: ReplicaStatus | None = None
        #: the bytes in front of the map for which `_status` is the answer; empty: none are
        self._settled = b""

    def read(self) -> ReplicaStatus | None:
        """The status, or None where there is none. 0.1 us while it has not changed."""
        pages = self._map
        if pages is not None and pages[_FRONT] == self._settled:
            return self._status
        return self._read()

    def settled(self) -> tuple[mmap.mmap, bytes] | None:
        """The page, and what it begins with as long as `read` returns what it has just returned.
        None: `read` has to be called."""
        pages = self._map
        return None if pages is None or not self._settled else (pages, self._settled)

    def _read(self) -> ReplicaStatus | None:
        if self._map is None and not self._open():
            return None
        assert self._map is not None
        (sequence,) = _SEQUENCE.unpack_from(self._map)
        if sequence != self._sequence:
            self._refresh(self._map)
        if self._status is None or self._status.state is ReplicaState.ABSENT:
            status, self._status = self._status, None
            self.close()  # its file may be gone: look for another one next time
            return status
        self._settled = _SEQUENCE.pack(self._sequence)
        return self._status

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
        self._map, self._sequence, self._settled = None, -1, b""

    def _open(self) -> bool:
        try:
            handle = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            if os.fstat(handle).st_size != _FILE_BYTES:
                return False
            self._map = mmap.mmap(handle, _FILE_BYTES, prot=mmap.PROT_READ)
        finally:
            os.close(handle)
        return True

    def _refresh(self, pages: mmap.mmap) -> None:
        """Read the newest page. A try fails only if the writer publishes during it."""
        for _ in range(_TRIES):
            (before,) = _SEQUENCE.unpack_from(pages)
            page = pages[_slot(before)]
            (after,) = _SEQUENCE.unpack_from(pages)
            if before == after:
                self._sequence, self._status = before, unpack_status(page)
                return
