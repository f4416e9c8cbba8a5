"""A worker's page of turns: how often its event loop has turned, and which texts it executes.

    run/turns-<worker>    process id │ turns │ text on the loop │ texts in threads

One writer, the worker; the parent reads it ten times a second (`node.supervisor.worker_watch`). It
is shared memory, because a process that hangs cannot answer, and because a turn must cost almost
nothing. The file's blocks are allocated before it is mapped: on a full disk, a write to a page
without a block would kill the worker (SIGBUS).

A text is named by a digest, which reveals nothing of it. Those in threads count only if the loop
was executing none: a thread that does not give back the interpreter stops the loop too.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Final

DIGEST_BYTES: Final = 16
#: texts that threads of one worker may execute at a time; further ones are not named
THREADS_MAX: Final = 15

_HEAD: Final = struct.Struct("<QQ")
_NONE: Final = bytes(DIGEST_BYTES)
_PAGE_BYTES: Final = _HEAD.size + (1 + THREADS_MAX) * DIGEST_BYTES


def page_of(run: Path, worker: int) -> Path:
    """Where a worker's page lies below its node's `run/`."""
    return run / f"turns-{worker}"


def digest_of(text: str) -> bytes:
    """The name of a text on the page."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True)
class TurnsSeen:
    """What a page says at one instant."""

    pid: int
    #: since the worker began; 0: its loop does not run yet
    turns: int
    #: digests of the texts that it executes
    on_loop: bytes | None
    in_threads: tuple[bytes, ...]

    @property
    def suspects(self) -> tuple[bytes, ...]:
        """The texts that may have stopped the loop."""
        return self.in_threads if self.on_loop is None else (self.on_loop,)


class TurnWriter:
    """The page of this process."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the page cannot have its blocks."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(handle, bytes(_PAGE_BYTES), 0)  # reserves the blocks, or raises ENOSPC
            os.ftruncate(handle, _PAGE_BYTES)
            self._map = mmap.mmap(handle, _PAGE_BYTES)
        finally:
            os.close(handle)
        _HEAD.pack_into(self._map, 0, os.getpid(), 0)
        self._turns = 0
        self._free = list(range(1, 1 + THREADS_MAX))
        self._lock = Lock()

    def turn(self) -> None:
        """The loop has turned."""
        self._turns += 1
        _HEAD.pack_into(self._map, 0, os.getpid(), self._turns)

    @contextmanager
    def on_loop(self, digest: bytes) -> Generator[None]:
        """The loop executes a text. Nothing may be awaited inside."""
        self._map[_slot(0)] = digest
        try:
            yield
        finally:
            self._map[_slot(0)] = _NONE

    @contextmanager
    def in_thread(self, digest: bytes) -> Generator[None]:
        """A thread executes a text."""
        with self._lock:
            place = self._free.pop() if self._free else None
        if place is None:
            yield
            return
        self._map[_slot(place)] = digest
        try:
            yield
        finally:
            self._map[_slot(place)] = _NONE
            self._free.append(place)


def read_turns(path: Path) -> TurnsSeen | None:
    """What the page says; None where there is none."""
    try:
        page = path.read_bytes()
    except OSError:
        return None
    if len(page) != _PAGE_BYTES:
        return None
    pid, turns = _HEAD.unpack_from(page)
    on_loop, *in_threads = (page[_slot(place)] for place in range(1 + THREADS_MAX))
    named = tuple(dict.fromkeys(digest for digest in in_threads if digest != _NONE))
    return TurnsSeen(pid, turns, None if on_loop == _NONE else on_loop, named)


def _slot(place: int) -> slice:
    start = _HEAD.size + place * DIGEST_BYTES
    return slice(start, start + DIGEST_BYTES)
