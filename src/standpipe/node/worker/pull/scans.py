"""Scans of a worker: in slices, between which the worker does everything else.

    slice ≤ 2 ms ─► a turn of the event loop (lookups, probes, beats of others) ─► slice …

A scan of a million rows takes seconds. A worker that was away for so long would fail every read
beside it, its peers would open their breakers, and the tailer would kill it for the pages that it
pins. So a scan works in slices, and what is over within the first one waits for nothing. Only some
scans go on at a time: each holds what it has copied in memory.

A slice more must not mean another batch (promise 5). All rows are copied out of
one instant of the store, which is held for HELD_S_MAX at the most; a million rows take half of
that, decoding comes later and holds nothing. Where that is not enough (a crowded worker, rows of
many bytes) the scan goes on behind its last row as long as the store shows the same batch, and
begins anew on the newer one where it does not: BEGINS_MAX times, then it is refused with the
reason.

Not here: what a slice does (`data/query/scan.py`), which replica is scanned
(`node/worker/pull/query.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Generic, Protocol, TypeVar

from standpipe.adapters.http.server import Receive
from standpipe.data.query.scan import Ranged, Scan
from standpipe.errors import BadRequest
from standpipe.node.worker.pull.forward import TOO_SLOW, Refused
from standpipe.sql.plans import PullPlan

SLICE_S: Final = 0.002
#: half of `node.tailer.main.PIN_MS_MAX`, which kills
HELD_S_MAX: Final = 1.0
#: how often a scan may begin: at once, after it waited for its place, and for newer batches
BEGINS_MAX: Final = 5
#: scans that go on at a time; each has copied up to `data.query.scan.COPIED_BYTES_MAX`
PLACES: Final = 2
#: between two looks at who asked, while a scan waits for its place
LOOK_S: Final = 0.05

OUTRUN: Final = (
    f"Each of {BEGINS_MAX} tries to scan met a newer batch before all rows were read: name keys, "
    "a range or a LIMIT, or ask again when batches come less often."
)

Begun = TypeVar("Begun")


class Held(Ranged, Protocol):
    """`adapters.store.reader.HeldView`."""

    @property
    def label(self) -> bytes | None: ...
    @property
    def is_over(self) -> bool: ...
    def close(self) -> None: ...


class Holdable(Protocol):
    """`adapters.store.reader.StoreReader`, as far as a scan needs it."""

    def instant(self) -> Held: ...


class Asker:
    """Who waits for an answer. It may go away; and a peer wants to hear that there is work, or it
    takes the silence for a path that failed."""

    def __init__(
        self,
        receive: Receive | None = None,
        say: Callable[[], None] | None = None,
        every_ms: int | None = None,
    ) -> None:
        """`say` is called every `every_ms`; None: nobody wants to hear it."""
        self._receive, self._say = receive, say
        self._every_s = None if every_ms is None else every_ms / 1000
        self._said_s = 0.0
        self._leaving: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Tell that there is work, if it is time. Raises BadRequest when the asker is gone."""
        now_s = time.monotonic()
        if self._say and self._every_s is not None and now_s - self._said_s >= self._every_s:
            self._said_s = now_s
            self._say()
        if self._leaving is None and self._receive is not None:
            self._leaving = asyncio.create_task(_left(self._receive))
        if self._leaving is not None and self._leaving.done():
            raise BadRequest("the client went away before its answer")

    def close(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Scans:
    """All scans of one worker."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PLACES)

    async def rows(
        self,
        plan: PullPlan,
        store: Holdable,
        begin: Callable[[], Begun],
        asker: Asker,
        until_s: float,
    ) -> tuple[list[bytes], Begun]:
        """The rows of one partition, all of one batch.

        `begin` is called before each look at the store from which the scan begins; what it
        returned of the last one comes with the rows. `until_s`: by the monotonic clock. Raises
        Refused when that has passed or batches come too fast, BadRequest when there are too many
        rows or the asker is gone, and what `begin` raises.
        """
        work = _Work(plan, store, begin)
        try:
            if work.go_on():
                return work.outcome()
            work.let_go()
            async with self._place(asker, until_s):
                while not work.go_on():
                    _look(asker, until_s)
                    await asyncio.sleep(0)
                return work.outcome()
        finally:
            work.let_go()

    @asynccontextmanager
    async def _place(self, asker: Asker, until_s: float) -> AsyncGenerator[None]:
        waiting = asyncio.ensure_future(self._places.acquire())
        try:
            while not waiting.done():
                _look(asker, until_s)
                await asyncio.wait({waiting}, timeout=LOOK_S)
            yield
        finally:
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                if await waiting:
                    self._places.release()


def _look(asker: Asker, until_s: float) -> None:
    asker.look()
    if time.monotonic() >= until_s:
        raise Refused(TOO_SLOW)


class _Work(Generic[Begun]):
    """One scan, and the instant of the store that it holds."""

    def __init__(self, plan: PullPlan, store: Holdable, begin: Callable[[], Begun]) -> None:
        self._plan, self._store, self._begin = plan, store, begin
        self._scan = Scan(plan)
        self._held: Held | None = None
        self._held_since_s = 0.0
        #: what `begin` returned, and the label of what it was said of; None: not begun
        self._begun: tuple[Begun, bytes | None] | None = None
        self._begins = 0

    def go_on(self) -> bool:
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

    def let_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _view(self) -> Ranged:
        """The instant that the scan is of. It may have to begin anew."""
        if self._scan.is_copied and self._begun is not None:
            self.let_go()
            return _NOTHING
        now_s = time.monotonic()
        held = self._held
        if held is not None and not held.is_over and now_s - self._held_since_s < HELD_S_MAX:
            return held
        self.let_go()
        begun = self._begin()  # before the store: what is said must not be newer than its rows
        held = self._held = self._store.instant()
        self._held_since_s = now_s
        if self._begun is None or self._begun[1] != held.label:
            self._begins += 1
            if self._begins > BEGINS_MAX:
                raise Refused(OUTRUN)
            self._scan, self._begun = Scan(self._plan), (begun, held.label)
        return held


class _Nothing:
    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        raise AssertionError("all rows were copied")


_NOTHING: Final = _Nothing()
