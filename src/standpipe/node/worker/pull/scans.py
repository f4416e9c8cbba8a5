"""Scans of a worker: in slices, between which the worker does everything else.

    slice ≤ 2 ms ─► a turn of the event loop (lookups, probes, forwards) ─► slice …

A scan of a million rows takes seconds. A worker that served nothing else for so long would fail
every other read, its peers would open their breakers, and the tailer would kill it for the pages
that it pins. So a scan works in slices; one that ends within its first slice waits for nothing.
Only PLACES scans run at a time: each holds what it has copied in memory.

A later slice must not show another batch: an answer never mixes two batches of a partition. All
rows are copied out of one view of the store, which is held for at most HELD_S_MAX; a million rows
take half of that, and decoding comes later and holds nothing. If that is not enough (a busy worker,
large rows), the scan continues after its last row as long as the store shows the same batch. If it
shows a newer one, the scan begins again, at most BEGINS_MAX times; then it is refused with the
reason.

Not here: what a slice does (`data/query/scan.py`), which replica is scanned
(`node/worker/pull/slow_path.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from standpipe.adapters.http.server import Receive
from standpipe.data.query.scan import Ranged, Scan
from standpipe.errors import BadRequest
from standpipe.node.worker.pull.forward import TOO_SLOW, ForwardRefused
from standpipe.sql.plans import PullPlan

SLICE_S: Final = 0.002
#: half of `node.tailer.main.PIN_MS_MAX`, after which the tailer kills the worker
HELD_S_MAX: Final = 1.0
#: how often a scan may begin: at once, after it waited for its place, and for newer batches
BEGINS_MAX: Final = 5
#: scans that run at a time; each has copied up to `data.query.scan.COPIED_BYTES_MAX`
PLACES: Final = 2
#: between two checks of the requester, while a scan waits for its place
LOOK_S: Final = 0.05

OUTRUN: Final = (
    f"Each of {BEGINS_MAX} tries to scan met a newer batch before all rows were read: name keys, "
    "a range or a LIMIT, or ask again when batches come less often."
)

Begun = TypeVar("Begun")


class OpenView(Ranged, Protocol):
    """`adapters.store.reader.HeldView`."""

    @property
    def label(self) -> bytes | None:
        """Names the batch that the view shows; None: no batch yet."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the store has ended the view."""
        ...

    def close(self) -> None:
        """Unpin its pages."""
        ...


class Holdable(Protocol):
    """`adapters.store.reader.StoreReader`, as far as a scan needs it."""

    def instant(self) -> OpenView:
        """A view of the newest transaction, for the caller to close."""
        ...


class ScanRequester:
    """The client or peer that waits for a scan.

    It may go away. A peer needs a sign of work now and then, or it takes the silence for a failed
    path.
    """

    def __init__(
        self,
        receive: Receive | None = None,
        say: Callable[[], None] | None = None,
        every_ms: int | None = None,
    ) -> None:
        """`say` is called every `every_ms`; None: the requester wants no sign of work."""
        self._receive, self._say = receive, say
        self._every_s = None if every_ms is None else every_ms / 1000
        self._said_s = 0.0
        self._leaving: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Send a sign of work, if one is due. Raises BadRequest when the requester is gone."""
        now_s = time.monotonic()
        if self._say and self._every_s is not None and now_s - self._said_s >= self._every_s:
            self._said_s = now_s
            self._say()
        if self._leaving is None and self._receive is not None:
            self._leaving = asyncio.create_task(_left(self._receive))
        if self._leaving is not None and self._leaving.done():
            raise BadRequest("the client disconnected before its answer")

    def close(self) -> None:
        """Stop watching whether the requester is there."""
        if self._leaving is not None:
            self._leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True)
class ScanRequest(Generic[Begun]):
    """A scan of one partition's store."""

    plan: PullPlan
    store: Holdable
    #: called before each view from which the scan may begin
    begin: Callable[[], Begun]
    requester: ScanRequester
    #: by the monotonic clock
    until_s: float


class Scans:
    """All scans of one worker."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PLACES)

    async def rows(self, scan: ScanRequest[Begun]) -> tuple[list[bytes], Begun]:
        """The rows of one partition, all of one batch, and what `begin` returned before them.

        Raises ForwardRefused when the time is over or batches come too fast, BadRequest when there
        are too many rows or the requester is gone, and what `begin` raises.
        """
        requester, until_s = scan.requester, scan.until_s
        work = _Work(scan)
        try:
            if work.next_slice():
                return work.outcome()
            work.release()
            async with self._place(requester, until_s):
                while not work.next_slice():
                    _look(requester, until_s)
                    await asyncio.sleep(0)
                return work.outcome()
        finally:
            work.release()

    @asynccontextmanager
    async def _place(self, requester: ScanRequester, until_s: float) -> AsyncGenerator[None]:
        waiting = asyncio.ensure_future(self._places.acquire())
        try:
            while not waiting.done():
                _look(requester, until_s)
                await asyncio.wait({waiting}, timeout=LOOK_S)
            yield
        finally:
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                if await waiting:
                    self._places.release()


def _look(requester: ScanRequester, until_s: float) -> None:
    requester.look()
    if time.monotonic() >= until_s:
        raise ForwardRefused(TOO_SLOW)


class _Work(Generic[Begun]):
    """One scan, and the view of the store that it holds."""

    def __init__(self, request: ScanRequest[Begun]) -> None:
        self._plan, self._store, self._begin = request.plan, request.store, request.begin
        self._scan = Scan(request.plan)
        self._held: OpenView | None = None
        self._held_since_s = 0.0
        #: what `begin` returned, and the label of the view after it; None: not begun
        self._begun: tuple[Begun, bytes | None] | None = None
        self._begins = 0

    def next_slice(self) -> bool:
        """One slice. True: it was the last one."""
        until_s = time.monotonic() + SLICE_S
        while True:
            view = self._view()
            if self._scan.is_over:
                return True
            self._scan.step(view)
            if time.monotonic() >= until_s:
                return self._scan.is_over

    def outcome(self) -> tuple[list[bytes], Begun]:
        assert self._begun is not None
        return self._scan.rows(), self._begun[0]

    def release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _view(self) -> Ranged:
        """The view that the scan reads. The scan may have to begin again."""
        if self._scan.is_copied and self._begun is not None:
            self.release()
            return _NOTHING
        now_s = time.monotonic()
        held = self._held
        if held is not None and not held.is_over and now_s - self._held_since_s < HELD_S_MAX:
            return held
        self.release()
        begun = self._begin()  # before the view: what it returns must not be newer than the rows
        held = self._held = self._store.instant()
        self._held_since_s = now_s
        if self._begun is None or self._begun[1] != held.label:
            self._begins += 1
            if self._begins > BEGINS_MAX:
                raise ForwardRefused(OUTRUN)
            self._scan, self._begun = Scan(self._plan), (begun, held.label)
        return held


class _Nothing:
    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        raise AssertionError("all rows were copied")


_NOTHING: Final = _Nothing()
