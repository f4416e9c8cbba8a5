"""Large stores are opened beside the tailer's loop: real stores, the real thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.node.tailer.test_main import IDENTITY, TABLE, FakeClock

from standpipe.adapters.store.environment import CLEAN, DATA_FILE
from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.replica.holdings import Holding
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import NotReady
from standpipe.model import Offset
from standpipe.node.configuration import NodePaths
from standpipe.node.tailer import store_opener
from standpipe.node.tailer.replica import World
from standpipe.node.tailer.store_opener import StoreOpenings

HOLDING = Holding(replica_id=IDENTITY.replica_id, source=TABLE)
POSITION = 7


class Gate:
    """Openings wait before it; `begun` tells that one does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.is_open = threading.Event(), threading.Event()
        self.threads: list[str] = []
        really = store_opener.open_store

        def slowly(holding: Holding, world: World) -> StoreWriter:
            self.threads.append(threading.current_thread().name)
            self.begun.set()
            assert self.is_open.wait(60)
            return really(holding, world)

        monkeypatch.setattr(store_opener, "open_store", slowly)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setattr(store_opener, "AT_ONCE_BYTES_MAX", 0)
    return Gate(monkeypatch)


@pytest.fixture
def world(tmp_path: Path) -> World:
    paths = NodePaths(tmp_path)
    paths.make()
    clock: Any = FakeClock()
    reader: Any = None  # nothing is read here
    return World(paths, clock, reader, 1 << 20)


@pytest.fixture
def openings(world: World) -> Iterator[StoreOpenings]:
    made(world, IDENTITY)
    one = StoreOpenings(world)
    yield one
    one.close()


def made(world: World, identity: StoreIdentity) -> Path:
    """A store with a row, closed in order."""
    path = store_path(world.paths.state, identity.replica_id)
    store = StoreWriter(path, identity)
    meta = StoreMeta(identity=identity, position=Offset(POSITION))
    store.apply([(b"k", pack_row(b"[1]", 1))], [], meta)
    store.close()
    return path


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(6000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise AssertionError("not within a minute")


def test_a_large_store_is_opened_while_the_caller_goes_on(
    openings: StoreOpenings, gate: Gate
) -> None:
    assert openings.take(HOLDING) is None
    assert gate.begun.wait(60)
    assert openings.take(HOLDING) is None, "asked again, and not begun again"
    assert not openings.is_over(IDENTITY.replica_id)
    gate.is_open.set()
    until(lambda: openings.is_over(IDENTITY.replica_id))
    store = openings.take(HOLDING)
    assert store is not None
    assert store.meta().position == POSITION
    assert len(openings) == 0
    store.close()
    assert len(gate.threads) == 1
    assert gate.threads[0] != threading.current_thread().name


def test_a_small_store_is_opened_at_once(openings: StoreOpenings) -> None:
    store = openings.take(HOLDING)
    assert store is not None
    store.close()


def test_what_is_wrong_with_it_is_raised_where_it_is_taken(
    world: World, openings: StoreOpenings, gate: Gate
) -> None:
    gate.is_open.set()
    data = store_path(world.paths.state, IDENTITY.replica_id) / DATA_FILE
    data.write_bytes(data.read_bytes()[:4096] + b"\xff" * 4096)
    assert openings.take(HOLDING) is None
    until(lambda: openings.is_over(IDENTITY.replica_id))
    with pytest.raises(NotReady, match="is rebuilt"):
        openings.take(HOLDING)
    assert not data.exists(), "moved aside"
    assert len(openings) == 0, "the next call begins anew"


def test_a_store_that_was_taken_away_meanwhile_is_not_handed_over(
    openings: StoreOpenings, gate: Gate
) -> None:
    """Its directory may have been moved aside: rows would go where nobody finds them."""
    openings.take(HOLDING)
    assert gate.begun.wait(60)
    openings.keep_only(set())  # the map moved it elsewhere
    openings.keep_only({IDENTITY.replica_id})  # and back
    gate.is_open.set()
    until(lambda: openings._under_way[IDENTITY.replica_id].done())
    assert not openings.is_over(IDENTITY.replica_id)
    assert openings.take(HOLDING) is None
    openings.keep_only({IDENTITY.replica_id})
    assert len(openings) == 0, "closed"
    assert openings.take(HOLDING) is None
    until(lambda: openings.is_over(IDENTITY.replica_id))
    store = openings.take(HOLDING)
    assert store is not None, "opened anew"
    store.close()


def test_the_end_waits_for_the_one_that_is_opened_and_begins_no_other(
    world: World, openings: StoreOpenings, gate: Gate
) -> None:
    """A store that was open and not closed in order is copied anew after a power loss."""
    second = StoreIdentity(table_id="t", generation=1, partition=1)
    other = made(world, second)
    openings.take(HOLDING)
    openings.take(Holding(replica_id=second.replica_id, source=TABLE))
    assert gate.begun.wait(60)
    threading.Timer(0.2, gate.is_open.set).start()
    openings.close()
    assert (store_path(world.paths.state, IDENTITY.replica_id) / CLEAN).exists()
    assert (other / CLEAN).exists()
    assert len(openings) == 0
