"""Scans in slices: turns for others, rows of one batch, and what ends them."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.data.query.test_pull import SortedStore
from tests.unit.data.rows import table

from standpipe.adapters.files.turn_page import DIGEST_BYTES, TurnWriter, read_turns
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query import scan
from standpipe.errors import BadRequest, TooManyRequests
from standpipe.node.worker.pull import scans
from standpipe.node.worker.pull.forward import TOO_SLOW, ForwardRefused
from standpipe.node.worker.pull.scans import (
    BEGINS_MAX,
    OUTRUN,
    ScanRequest,
    Scans,
)
from standpipe.node.worker.request.answer_budget import AnswerBudget
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.scan_order import PLACES
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.sql.plans import PullPlan

ROWS = 10
TABLE = table()
PLAN = PullPlan(
    source=TABLE,
    keys=(),
    schema="",
    column_names=tuple(column.name for column in TABLE.columns),
    column_types=tuple(column.type for column in TABLE.columns),
    is_scan=True,
)


class Instant(SortedStore):
    """All rows say which batch they are of."""

    def __init__(self, store: Store) -> None:
        self._store = store
        batch = store.batch
        keys = [store_key((chr(ord("a") + n),), ("STRING",)) for n in range(ROWS)]
        super().__init__({key: pack_row(b"[%d]" % batch, 5) for key in keys})
        self.label: bytes | None = b"%d" % batch
        self.is_over = False

    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        assert not self.is_over
        self._store.was_read()
        return super().scan(low, high, limit)

    def close(self) -> None:
        self.is_over = True


class Store:
    """A store at batch 1. `moves`: with which reads (the first is 1) a newer batch comes."""

    def __init__(self, moves: Callable[[int], bool] = lambda _: False) -> None:
        self.batch, self._reads, self._moves = 1, 0, moves
        self.instants: list[Instant] = []

    def instant(self) -> Instant:
        self.instants.append(Instant(self))
        return self.instants[-1]

    def was_read(self) -> None:
        self._reads += 1
        self.batch += self._moves(self._reads)


class Endless(Store):
    """Its rows have no end: a scan of it keeps its place."""

    def instant(self) -> Instant:
        instant = super().instant()
        numbers = itertools.count()
        instant.scan = lambda low, high, limit: [(b"%010d" % next(numbers), b"")]
        return instant


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is one step of one row."""
    monkeypatch.setattr(scan, "STEP_ROWS", 1)
    monkeypatch.setattr(scans, "SLICE_S", 0.0)


def rows_of(batch: int) -> list[bytes]:
    return [b'["%c",%d]' % (ord("a") + n, batch) for n in range(ROWS)]


async def read(
    store: Store,
    *,
    of: Scans | None = None,
    requester: ScanRequester | None = None,
    left_s: float = 3600,
) -> tuple[list[bytes], int]:
    """The rows, and the batch that the store was at when the scan began."""
    until_s = time.monotonic() + left_s
    request = ScanRequest(
        PLAN, lambda: (store.batch, store.instant()), requester or ScanRequester(), until_s
    )
    return await (of or Scans()).rows(request)


def waiting_plan(loop: asyncio.AbstractEventLoop) -> tuple[PullPlan, list[bool]]:
    """A plan of which each row waits until the loop has turned, and whether it did in time."""
    turned: list[bool] = []

    def cell(row: Sequence[Any]) -> Any:
        gate = threading.Event()
        loop.call_soon_threadsafe(gate.set)
        turned.append(gate.wait(20))
        return row[0]

    types = ("STRING",)
    costly = {
        "cells": (cell,),
        "column_names": ("X",),
        "column_types": types,
        "has_costly_rows": True,
    }
    return msgspec.structs.replace(PLAN, **costly), turned


def test_the_loop_turns_while_a_costly_row_is_computed() -> None:
    """Nothing is held of the store meanwhile: the tailer would kill the worker for its pages."""

    async def run() -> tuple[list[bytes], list[bool]]:
        plan, turned = waiting_plan(asyncio.get_running_loop())
        store = Store()
        request = ScanRequest(
            plan, lambda: (store.batch, store.instant()), ScanRequester(), time.monotonic() + 3600
        )
        rows, _ = await Scans().rows(request)
        assert all(instant.is_over for instant in store.instants)
        return rows, turned

    rows, turned = asyncio.run(run())
    assert turned == [True] * ROWS
    assert rows == [b'["%c"]' % (ord("a") + n) for n in range(ROWS)]


def test_the_text_is_in_hand_while_a_costly_row_is_computed(tmp_path: Path) -> None:
    """If the worker stops turning all the same, its parent has to know over what."""
    page, seen = tmp_path / "turns", set[tuple[bytes, ...]]()
    digest = b"d" * DIGEST_BYTES

    def cell(row: Sequence[Any]) -> Any:
        turns = read_turns(page)
        assert turns is not None
        seen.add(turns.suspects)
        return row[0]

    async def run() -> None:
        store = Store()
        plan = msgspec.structs.replace(
            PLAN, cells=(cell,), column_names=("X",), column_types=("STRING",), has_costly_rows=True
        )
        begin = lambda: (store.batch, store.instant())  # noqa: E731
        request = ScanRequest(plan, begin, ScanRequester(), time.monotonic() + 3600, digest)
        await Scans(in_hand=TextsInHand(TurnWriter(page))).rows(request)

    asyncio.run(run())
    assert seen == {(digest,)}


def test_what_a_costly_row_takes_is_charged() -> None:
    async def run() -> None:
        plan, _ = waiting_plan(asyncio.get_running_loop())
        store, budget = Store(), AnswerBudget(bytes_max=100)
        requester = ScanRequester(budget=budget)
        request = ScanRequest(
            plan, lambda: (store.batch, store.instant()), requester, time.monotonic() + 3600
        )
        with pytest.raises(BadRequest, match="more than 100 bytes"):
            await Scans().rows(request)
        requester.release()
        assert budget.held_bytes == 0

    asyncio.run(run())


def test_a_reader_may_go_while_its_costly_row_is_computed() -> None:
    async def run() -> None:
        scans_, begun, gate = Scans(), asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def cell(row: Sequence[Any]) -> Any:
            loop.call_soon_threadsafe(begun.set)
            gate.wait(20)
            return row[0]

        plan = msgspec.structs.replace(
            PLAN, cells=(cell,), column_names=("X",), column_types=("STRING",), has_costly_rows=True
        )
        store = Store()
        request = ScanRequest(
            plan, lambda: (store.batch, store.instant()), ScanRequester(), time.monotonic() + 3600
        )
        reader = asyncio.create_task(scans_.rows(request))
        await begun.wait()
        reader.cancel()
        await asyncio.wait([reader])
        gate.set()
        assert await read(Store(), of=scans_) == (rows_of(1), 1), "others are served"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("held_s_max", "moves", "batch", "why"),
    [
        (3600.0, lambda _: False, 1, "nothing comes"),
        (3600.0, lambda read: read > 1, 1, "batches come with every read, and are not seen"),
        (0.0, lambda _: False, 1, "held for too long: it goes on where it was, in the same batch"),
        (0.0, lambda read: read == 5, 2, "another batch: it begins anew"),
        (0.0, lambda read: read in (5, 9, 19), 4, "and again"),
        (0.0, lambda read: read == ROWS, 2, "all rows were read, but not yet that they are all"),
        (0.0, lambda read: read == ROWS + 1, 1, "all is known"),
    ],
)
def test_rows_are_of_one_batch(
    monkeypatch: pytest.MonkeyPatch,
    held_s_max: float,
    moves: Callable[[int], bool],
    batch: int,
    why: str,
) -> None:
    monkeypatch.setattr(scans, "HELD_S_MAX", held_s_max)
    store = Store(moves)
    rows, begun = asyncio.run(read(store))
    assert rows == rows_of(begun), why
    assert all(instant.is_over for instant in store.instants), "none is left open"
    assert begun == batch, why


def test_batches_that_outrun_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "HELD_S_MAX", 0.0)
    store = Store(lambda _: True)
    with pytest.raises(ForwardRefused) as caught:
        asyncio.run(read(store))
    assert caught.value.why == OUTRUN
    assert len(store.instants) == BEGINS_MAX + 1
    assert all(instant.is_over for instant in store.instants)


def test_an_instant_that_ended_by_itself_is_replaced() -> None:
    """The map grew, or the store was rebuilt."""

    class Growing(Store):
        def was_read(self) -> None:
            super().was_read()
            if self._reads == 4:
                self.batch += 1
                self.instants[-1].close()

    store = Growing()
    assert asyncio.run(read(store)) == (rows_of(2), 2)


def test_others_have_turns() -> None:
    async def story() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await read(Store())
        task.cancel()
        return turns

    assert asyncio.run(story()) >= ROWS


def test_what_is_over_at_once_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "SLICE_S", 3600.0)

    async def story() -> None:
        until_s = time.monotonic() + 3600
        request = ScanRequest(PLAN, lambda: (None, Store().instant()), ScanRequester(), until_s)
        with pytest.raises(StopIteration) as done:  # it never gave up its turn
            Scans().rows(request).send(None)
        assert done.value.value[0] == rows_of(1)

    asyncio.run(story())


def test_what_is_over_in_one_slice_does_not_wait_for_a_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many scans hold the places and wait for them."""
    monkeypatch.setattr(scan, "STEP_ROWS", 2 * ROWS)

    async def story() -> None:
        of = Scans()
        before = [asyncio.create_task(read(Endless(), of=of)) for _ in range(3 * PLACES)]
        limited = msgspec.structs.replace(PLAN, limit=0)
        until_s = time.monotonic() + 3600
        request = ScanRequest(limited, lambda: (None, Store().instant()), ScanRequester(), until_s)
        assert (await of.rows(request))[0] == []
        assert not any(task.done() for task in before)
        for task in before:
            task.cancel()
        await asyncio.gather(*before, return_exceptions=True)

    asyncio.run(story())


def test_between_two_slices_of_any_scans_the_loop_turns() -> None:
    """Fifty scans that arrive together hold it up for one slice, not for fifty."""

    async def story() -> list[int]:
        of, slices = Scans(), 0

        class Counted(Store):
            def was_read(self) -> None:
                nonlocal slices
                slices += 1
                super().was_read()

        reads = [asyncio.create_task(read(Counted(), of=of)) for _ in range(50)]
        seen = [0]
        while not all(task.done() for task in reads):
            await asyncio.sleep(0)
            seen.append(slices)
        return [after - before for before, after in pairwise(seen)]

    assert max(asyncio.run(story())) == 1


def test_lookups_that_come_have_the_loop_for_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, rests = itertools.count(), list[float]()
    slept = asyncio.sleep

    async def sleep(delay: float) -> None:
        if delay:
            rests.append(delay)
        await slept(0)

    async def story() -> None:
        monkeypatch.setattr(asyncio, "sleep", sleep)
        await read(Store(), of=Scans(lookups=lambda: next(answered)))
        busy = len(rests)
        assert busy >= ROWS
        await slept(0)  # the last turn of that one's pump
        rests.clear()
        await read(Store(), of=Scans(lookups=lambda: 7))
        assert rests == [], "nobody asks: no rest"

    asyncio.run(story())


def test_a_scan_is_charged_for_its_rows() -> None:
    async def story() -> None:
        budget = AnswerBudget(bytes_max=10_000)
        requester = ScanRequester(budget=budget)
        rows, _ = await read(Store(), requester=requester)
        assert budget.held_bytes == sum(map(len, rows)) + scan.ROW_BYTES * ROWS
        requester.release()
        assert budget.held_bytes == 0

    asyncio.run(story())


@pytest.mark.parametrize(
    ("others_bytes", "rows_ahead", "why"),
    [
        (0, ROWS, "all rows are copied before the first one is decoded"),
        (9_000, 1, "little room is left, and it is for rows: each is decoded before the next"),
    ],
)
def test_a_scan_is_charged_for_what_it_has_copied(
    others_bytes: int, rows_ahead: int, why: str
) -> None:
    """Two scans of 128 MB each were charged to nobody, and a worker grew by 201 MB."""
    lent = [0]

    class Watched(AnswerBudget):
        def lend(self, more_bytes: int) -> None:
            super().lend(more_bytes)
            lent.append(lent[-1] + more_bytes)

    async def story() -> None:
        budget = Watched(bytes_max=10_000, held_bytes=others_bytes)
        requester = ScanRequester(budget=budget)
        rows, _ = await read(Store(), requester=requester)
        assert rows == rows_of(1)
        pairs = Instant(Store()).scan(b"", b"\xff", ROWS)
        assert max(lent) == sum(len(scan._pack([pair])) for pair in pairs[:rows_ahead]), why
        assert lent[-1] == 0, "all are decoded"
        requester.release()
        assert budget.held_bytes == others_bytes

    asyncio.run(story())


@pytest.mark.parametrize(
    ("held_bytes", "error", "why"),
    [
        (0, BadRequest, "this answer alone is too large"),
        (150, TooManyRequests, "others hold what it needs, and will be sent"),
    ],
)
def test_an_answer_that_does_not_fit_ends_its_scan(
    held_bytes: int, error: type[Exception], why: str
) -> None:
    async def story() -> None:
        budget = AnswerBudget(bytes_max=200, held_bytes=held_bytes)
        requester = ScanRequester(budget=budget)
        with pytest.raises(error):
            await read(Store(), requester=requester)
        assert requester._copied_bytes == 0, "what it had copied is gone with it"
        requester.release()
        assert budget.held_bytes == held_bytes, why

    asyncio.run(story())


def test_a_worker_that_is_short_of_memory_begins_no_scan() -> None:
    def full() -> None:
        raise TooManyRequests("short of memory")

    store = Store()
    with pytest.raises(TooManyRequests):
        asyncio.run(read(store, of=Scans(may_begin=full)))
    assert store.instants == []


def test_only_some_go_on_at_a_time() -> None:
    async def story() -> list[int]:
        of, stores = Scans(), [Store() for _ in range(3 * PLACES)]
        seen = [0]

        async def watch() -> None:
            while True:
                held = [one for store in stores for one in store.instants if not one.is_over]
                assert len(held) <= 1, "one copies at a time, and is done the sooner"
                seen.append(len(of._order.placed))
                await asyncio.sleep(0)

        task = asyncio.create_task(watch())
        found = await asyncio.gather(*(read(store, of=of) for store in stores))
        assert not task.done(), task.result()
        task.cancel()
        assert [rows for rows, _ in found] == [rows_of(1)] * len(stores)
        assert (await read(Store(), of=of))[0] == rows_of(1), "every place is free again"
        return seen

    assert max(asyncio.run(story())) == PLACES


@pytest.mark.parametrize("is_waiting", [False, True], ids=["goes on", "waits for its place"])
@pytest.mark.parametrize("how", ["late", "gone", "cancelled"])
def test_what_ends_a_scan(how: str, is_waiting: bool) -> None:
    """Its places and instants are free afterwards."""

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def story() -> None:
        of, store = Scans(), Store()
        before = [asyncio.create_task(read(Endless(), of=of)) for _ in range(PLACES)]
        for _ in range(10 if is_waiting else 0):  # they have the places
            await asyncio.sleep(0)
        for task in before[: 0 if is_waiting else None]:
            task.cancel()
        requester = ScanRequester(gone) if how == "gone" else ScanRequester()
        task = asyncio.create_task(
            read(store, of=of, requester=requester, left_s=0 if how == "late" else 3600)
        )
        if how == "cancelled":
            for _ in range(5):  # it has begun
                await asyncio.sleep(0)
            task.cancel()
        wanted = {"late": ForwardRefused, "gone": BadRequest, "cancelled": asyncio.CancelledError}[
            how
        ]
        with pytest.raises(wanted) as caught:
            await task
        assert how != "late" or str(caught.value) == TOO_SLOW
        assert all(instant.is_over for instant in store.instants)
        for task in before:
            task.cancel()
        await asyncio.gather(*before, return_exceptions=True)
        order = of._order
        assert [*order.placed, *order.waiting, *order.fresh] == [], "no place is taken"
        assert not order._queries
        requester.close()

    asyncio.run(story())


def test_a_peer_hears_that_there_is_work() -> None:
    said: list[int] = []
    asyncio.run(read(Store(), requester=ScanRequester(say=lambda: said.append(1), every_ms=0)))
    assert len(said) >= ROWS
    said.clear()
    asyncio.run(read(Store(), requester=ScanRequester(say=lambda: said.append(1))))
    assert said == [], "one that did not ask for it would take it for the answer"


def test_a_limit_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    limited = msgspec.structs.replace(PLAN, limit=2)
    until_s = time.monotonic() + 3600
    request = ScanRequest(limited, lambda: (None, store.instant()), ScanRequester(), until_s)
    rows, _ = asyncio.run(Scans().rows(request))
    assert rows == rows_of(1)[:2]
    assert store._reads == 2


def test_what_ends_after_the_answer_is_out_is_charged_to_nobody() -> None:
    """The loser of a hedge is not cancelled: what it holds would never be given back."""
    budget = AnswerBudget(bytes_max=100)
    requester = ScanRequester(budget=budget)
    requester.hold(60)
    requester.release()
    requester.hold(80)
    assert budget.held_bytes == 0
    budget.take(0, 100)
