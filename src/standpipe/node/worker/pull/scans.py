"""Scans of a worker: in slices, between which the worker does everything else.

    slice of SLICE_S ─► a turn of the event loop: lookups, probes, forwards ─► another slice …

A scan of a million rows takes seconds. A worker that served nothing else for so long would fail
every other read, its peers would open their breakers, and the tailer would kill it for the pages
that it pins. So a scan works in slices, and between two slices of any scans the loop turns once:
fifty scans hold up a lookup for no longer than one does. While lookups come, a slice that decodes
is followed by a rest that is no shorter; one that copies is not, since its view must not be held
long. Which scan is next: `node.worker.request.scan_order`.

A later slice must not show another batch: an answer never mixes two batches of a partition. All
rows are copied out of one view of the store, which is held for at most HELD_S_MAX; a million rows
take half of that, and decoding comes later and holds nothing. If that is not enough (a busy worker,
large rows), the scan continues after its last row as long as the store shows the same batch. If it
shows a newer one, the scan begins again, at most BEGINS_MAX times; then it is refused with the
reason.

Rows that may each take long, since they depend on the sizes of texts and lists, are computed in a
thread beside the loop (`row_thread.RowThread`), for a slice of SLICE_BESIDE_S.

Not here: what a slice does (`data/query/scan.py`), which replica is scanned
(`node/worker/pull/slow_path.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from traceback import clear_frames
from typing import Any, Final, Generic, Protocol, TypeVar

from standpipe.adapters.files.turn_page import DIGEST_BYTES
from standpipe.data.query.scan import COPIED_BYTES_MAX, Ranged, Scan
from standpipe.node.worker.pull.forward import TOO_SLOW, ForwardRefused
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.row_thread import RowThread
from standpipe.node.worker.request.scan_order import QueuedScan, ScanOrder
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.sql.plans import PullPlan

#: a slice ends with the step in which this passes, about 0.1 ms later
SLICE_S: Final = 0.000_5
#: a slice in the thread: it competes with the loop, and each change of threads costs 0.1 ms
SLICE_BESIDE_S: Final = 0.02
#: between two slices, while lookups come
REST_S: Final = 0.001
#: half of `node.tailer.main.PIN_MS_MAX`, after which the tailer kills the worker
HELD_S_MAX: Final = 1.0
#: how often a scan may begin: at once, after it waited for its place, and for newer batches
BEGINS_MAX: Final = 5
#: between two checks of the requesters whose scans wait
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


@dataclass(frozen=True)
class ScanRequest(Generic[Begun]):
    """A scan of one partition's store."""

    plan: PullPlan
    #: opens a view of the newest rows, for the scan to close; and what the scan returns if it
    #: begins with that view
    begin: Callable[[], tuple[Begun, OpenView]]
    requester: ScanRequester
    #: by the monotonic clock
    until_s: float
    #: names the text (`node.worker.request.in_hand`)
    digest: bytes = bytes(DIGEST_BYTES)
    #: as of `data.query.scan.Scan`
    ranges: Sequence[tuple[bytes, bytes]] | None = None


class Scans:
    """All scans of one worker.

    `lookups`: how many reads the worker has answered. While that grows, a slice is followed by a
    rest: lookups have at least half of the loop, and of the processor. `may_begin` raises
    TooManyRequests if the worker cannot take another scan now.
    """

    def __init__(
        self,
        lookups: Callable[[], int] = lambda: 0,
        may_begin: Callable[[], None] = lambda: None,
        in_hand: TextsInHand | None = None,
        beside: RowThread | None = None,
    ) -> None:
        """`beside`: where rows that may take long are computed."""
        self._lookups, self._may_begin = lookups, may_begin
        self._in_hand = in_hand or TextsInHand()
        self.beside = beside or RowThread(lookups)
        self._order: ScanOrder[_Running] = ScanOrder()
        self._pump: asyncio.Task[None] | None = None

    async def rows(self, scan: ScanRequest[Begun]) -> tuple[list[bytes], Begun]:
        """The rows of one partition, all of one batch, and what `begin` returned with their view.

        Raises ForwardRefused when the time is over or batches come too fast, BadRequest when there
        are too many rows or the requester is gone, TooManyRequests when too many scans wait, and
        what `begin` raises.
        """
        self._may_begin()
        work = _Work(scan)
        running = _Running(scan, work, asyncio.get_running_loop().create_future())
        asker = scan.requester
        queued = QueuedScan(running, id(asker), asker.is_peer, asker.address)
        self._order.arrive(queued)
        try:
            if self._pump is None:  # no scan runs or waits: its first slice is now
                self._pump = asyncio.create_task(self._slices())
                self._slice(self._order.next() or queued)
            await running.over
            return work.outcome()
        finally:
            running.abandon()
            self._order.leave(queued)
            work.close()

    async def _slices(self) -> None:
        """One slice in each turn of the loop, as long as there is a scan."""
        looked_s = time.monotonic()
        try:
            while True:
                before = self._lookups()
                await asyncio.sleep(0)
                is_copying = any(queued.is_copying for queued in self._order.placed)
                if self._lookups() != before and not is_copying:
                    await asyncio.sleep(REST_S)
                now_s = time.monotonic()
                if now_s - looked_s >= LOOK_S:
                    looked_s = now_s
                    self._look_after_the_waiting()
                queued = self._order.next()
                if queued is None:
                    return
                is_beside = queued.work.work.is_beside
                await self._slice_beside(queued) if is_beside else self._slice(queued)
        finally:
            self._pump = None

    def _slice(self, queued: QueuedScan[_Running]) -> None:
        running = queued.work
        if running.over.done():  # its reader was told, and leaves with its next turn
            return
        try:
            if queued.has_place:
                running.look()
            with self._in_hand.on_loop(running.scan.digest):
                running.work.next_slice()
        except Exception as error:
            running.fail(error)
            return
        self._sliced(queued)

    async def _slice_beside(self, queued: QueuedScan[_Running]) -> None:
        """A slice of rows that may each take long, in a thread: meanwhile, the loop turns."""
        running = queued.work
        if running.over.done():
            return
        try:
            if queued.has_place:
                running.look()
            running.work.release()
            await self.beside.run(partial(self._slice_in_thread, running))
        except Exception as error:
            running.fail(error)
            return
        if not running.over.done():
            self._sliced(queued)

    def _slice_in_thread(self, running: _Running) -> None:
        with self._in_hand.in_thread(running.scan.digest):
            running.work.slice_beside()

    def _sliced(self, queued: QueuedScan[_Running]) -> None:
        running = queued.work
        try:
            running.work.charge()
        except Exception as error:
            running.fail(error)
            return
        if running.work.is_over:
            running.over.set_result(None)
            return
        queued.is_copying = queued.has_place and running.work.is_copying
        if not queued.has_place:
            running.work.release()
        self._order.sliced(queued)

    def _look_after_the_waiting(self) -> None:
        for queued in (*self._order.fresh, *self._order.waiting):
            try:
                queued.work.look()
            except Exception as error:  # whatever it is, the other scans go on
                queued.work.fail(error)


@dataclass(frozen=True)
class _Running:
    """A scan between its arrival and its end. `over`: the end, for who waits for it."""

    scan: ScanRequest[Any]
    work: _Work[Any]
    over: asyncio.Future[None]

    def look(self) -> None:
        """Raises BadRequest when the requester is gone, ForwardRefused when the time is over."""
        self.scan.requester.look()
        if time.monotonic() >= self.scan.until_s:
            raise ForwardRefused(TOO_SLOW)

    def fail(self, error: Exception) -> None:
        """It ends with an error, whose frames have lists and texts of a row that they computed: its
        traceback must not keep them, as this object is in one of them."""
        clear_frames(error.__traceback__)
        if not self.over.done():
            self.over.set_exception(error)

    def abandon(self) -> None:
        """Nobody waits for it any longer."""
        if not self.over.cancel() and not self.over.cancelled():
            self.over.exception()  # retrieved, so that asyncio does not log it


class _Work(Generic[Begun]):
    """One scan, and the view of the store that it holds."""

    def __init__(self, request: ScanRequest[Begun]) -> None:
        self._plan, self._begin = request.plan, request.begin
        self._ranges = request.ranges
        self._scan = Scan(request.plan, request.ranges)
        self._held: OpenView | None = None
        self._held_since_s = 0.0
        #: what `begin` returned, and the label of the view after it; None: not begun
        self._begun: tuple[Begun, bytes | None] | None = None
        self._begins = 0
        self._requester = request.requester
        #: of the rows, and of what is not decoded yet, as charged to the requester
        self._held_bytes = self._copied_bytes = 0

    def next_slice(self) -> None:
        """One slice on the loop. It ends where `is_beside` becomes true."""
        until_s = time.monotonic() + SLICE_S
        while True:
            view = self._view()
            if not self._scan.is_over and not self.is_beside:
                self._scan.step(view)
            if self.is_over or self.is_beside or time.monotonic() >= until_s:
                return

    def slice_beside(self) -> None:
        """One slice in a thread: rows that were copied."""
        until_s = time.monotonic() + SLICE_BESIDE_S

        def is_due() -> bool:
            return time.monotonic() >= until_s

        while self.is_beside:
            self._scan.step(_NOTHING, is_due)
            if is_due():
                return

    def charge(self) -> None:
        """Charge the requester for the rows of the newest slice, and for what it has copied. Raises
        BadRequest and TooManyRequests if the rows take too much memory."""
        self._charge_copied(self._scan.copied_bytes)
        room_bytes = self._copied_bytes + self._requester.room_bytes
        self._scan.copied_bytes_max = min(COPIED_BYTES_MAX, room_bytes)
        kept_bytes = self._scan.kept_bytes
        self._requester.hold(kept_bytes - self._held_bytes)
        self._held_bytes = kept_bytes

    def _charge_copied(self, copied_bytes: int) -> None:
        self._requester.copied(copied_bytes - self._copied_bytes)
        self._copied_bytes = copied_bytes

    @property
    def is_over(self) -> bool:
        """Whether the last slice was done."""
        return self._begun is not None and self._scan.is_over

    @property
    def is_beside(self) -> bool:
        """Whether the next rows are computed in a thread."""
        return self._plan.has_costly_rows and not self._scan.is_copying and not self._scan.is_over

    @property
    def is_copying(self) -> bool:
        """Whether the next slice reads the view."""
        return self._scan.is_copying

    def outcome(self) -> tuple[list[bytes], Begun]:
        assert self._begun is not None
        return self._scan.rows(), self._begun[0]

    def release(self) -> None:
        """Close the view that it holds."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def close(self) -> None:
        """It is over. An error refers to it by its traceback: it must not keep the rows, which may
        be many, until the next collection of garbage."""
        self.release()
        self._charge_copied(0)
        self._scan = Scan(self._plan, self._ranges)

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
        begun, held = self._begin()
        self._held = held
        self._held_since_s = now_s
        if self._begun is None or self._begun[1] != held.label:
            self._begins += 1
            if self._begins > BEGINS_MAX:
                raise ForwardRefused(OUTRUN)
            self._scan = Scan(self._plan, self._ranges)
            self._begun = (begun, held.label)
        return held


class _Nothing:
    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        raise AssertionError("all rows were copied")


_NOTHING: Final = _Nothing()
