"""Readers that pin pages, in processes of their own."""

from __future__ import annotations

from pathlib import Path

from tests.unit.adapters.store.test_writer import IDENTITY, Child, meta, pin

from standpipe.adapters.store.reader_watch import PinWatch
from standpipe.adapters.store.writer import StoreWriter


def test_readers_that_died_are_forgotten_and_those_that_pin_are_found(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = StoreWriter(path, IDENTITY)
    store.apply([(b"a", b"1")], [], meta(1))
    store.close()
    reader = Child(pin, path)
    reader.said()
    store = StoreWriter(path, IDENTITY)
    watch = PinWatch()
    assert watch.look([store], 0, 2000) == set(), "it reads the newest transaction"
    store.apply([(b"a", b"2")], [], meta(2))
    assert watch.look([store], 1000, 2000) == set()
    assert watch.look([store], 3000, 2000) == set(), "2 s: the boundary"
    assert watch.look([store], 3001, 2000) == {reader.pid}
    reader.kill()
    assert watch.look([store], 9000, 2000) == set()
    store.close()
