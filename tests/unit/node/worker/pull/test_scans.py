"""Scans in slices: turns for others, rows of one batch, and what ends them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.data.query.test_pull import SortedStore
from tests.unit.data.rows import table

from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query import scan
from standpipe.errors import BadRequest
from standpipe.node.worker.pull import scans
from standpipe.node.worker.pull.forward import TOO_SLOW, ForwardRefused
from standpipe.node.worker.pull.scans import (
    BEGINS_MAX,
    OUTRUN,
    PLACES,
    ScanRequest,
    ScanRequester,
    Scans,
)
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
    request = ScanRequest(PLAN, store, lambda: store.batch, requester or ScanRequester(), until_s)
    return await (of or Scans()).rows(request)


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

    def begin() -> None: ...

    work = Scans().rows(ScanRequest(PLAN, Store(), begin, ScanRequester(), 0.0))
    with pytest.raises(StopIteration) as done:  # it never gave up its turn
        work.send(None)
    assert done.value.value[0] == rows_of(1)


def test_only_some_go_on_at_a_time() -> None:
    async def story() -> list[int]:
        of, stores = Scans(), [Store() for _ in range(3 * PLACES)]
        seen: list[int] = []

        async def watch() -> None:
            while True:
                held = [one for store in stores for one in store.instants if not one.is_over]
                seen.append(len(held))
                await asyncio.sleep(0)

        task = asyncio.create_task(watch())
        found = await asyncio.gather(*(read(store, of=of) for store in stores))
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
        for _ in range(PLACES if is_waiting else 0):
            await of._places.acquire()
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
        for _ in range(PLACES if is_waiting else 0):
            of._places.release()
        assert of._places._value == PLACES
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
    request = ScanRequest(limited, store, lambda: None, ScanRequester(), until_s)
    rows, _ = asyncio.run(Scans().rows(request))
    assert rows == rows_of(1)[:2]
    assert store._reads == 2
