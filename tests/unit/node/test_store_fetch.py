"""A store goes from one node to another: a real store, a real listener, a real thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from standpipe.adapters import http_client
from standpipe.adapters.http_client import InternalApp
from standpipe.adapters.lmdb_store import StoreWriter, store_path
from standpipe.adapters.store_copy import DATA
from standpipe.adapters.store_opening import open_verified
from standpipe.data.positions import StoreIdentity, StoreMeta
from standpipe.data.records import store_key
from standpipe.data.rows import pack_row
from standpipe.local.ports import any_port
from standpipe.model import BatchId, NodeId, NodeInfo, Offset
from standpipe.node import store_copies
from standpipe.node.node_config import NodePaths
from standpipe.node.store_copies import StoreCopies
from standpipe.node.store_fetch import Fetch

IDENTITY = StoreIdentity(table_id="T", generation=1, partition=3)
SECRET = "a secret"
WAIT_S_MAX = 120


def row(number: int) -> tuple[bytes, bytes]:
    key = store_key((f"k{number:06}",), ("STRING",))
    return key, pack_row(b'[%d,"%b"]' % (number, b"x" * 200), 1)


def make_store(paths: NodePaths, rows: int) -> StoreWriter:
    paths.make()
    writer = StoreWriter(store_path(paths.state, IDENTITY), IDENTITY)
    meta = StoreMeta(identity=IDENTITY, position=Offset(rows), batch=BatchId(7))
    writer.apply([row(number) for number in range(rows)], [], meta)
    return writer


@contextmanager
def serving(paths: NodePaths) -> Iterator[NodeInfo]:
    """The giving node's internal listener, in a thread of its own."""
    address = f"127.0.0.1:{any_port()}"
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        app = InternalApp(SECRET, StoreCopies(paths).routes(), body_bytes_max=10_000)
        await http_client.serve(http_client.bind_alone(address), app, stop, 0.1)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        yield NodeInfo(
            node_id=NodeId("giver"), public="", internal=address, peer="", incarnation="x"
        )
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def fetch_into(paths: NodePaths, *peers: NodeInfo) -> Fetch:
    paths.make()
    return Fetch(
        identity=IDENTITY,
        target=store_path(paths.state, IDENTITY),
        incoming=paths.incoming / "T-1-3",
        peers=peers,
        secret=SECRET,
        rate_bytes=1 << 40,
    )


def gone(port: int) -> NodeInfo:
    return NodeInfo(
        node_id=NodeId("gone"), public="", internal=f"127.0.0.1:{port}", peer="", incarnation="x"
    )


def rows_of(paths: NodePaths) -> tuple[int, StoreMeta, bool]:
    store = open_verified(store_path(paths.state, IDENTITY), IDENTITY, 1 << 26, 1)
    try:
        return store.rows(), store.meta(), store.was_closed_cleanly
    finally:
        store.abandon()


def run(fetch: Fetch) -> None:
    fetch._run()  # in this thread: the test waits for its end anyway
    assert fetch.is_over


def test_a_store_is_copied_while_its_writer_goes_on(tmp_path: Path) -> None:
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    with serving(giver) as peer:
        writer = make_store(giver, 20_000)
        run(fetch_into(taker, gone(any_port()), peer))
        writer.apply([row(20_001)], [], StoreMeta(identity=IDENTITY, position=Offset(20_001)))
    rows, meta, is_clean = rows_of(taker)
    assert (rows, meta.position, meta.batch) == (20_000, 20_000, 7), "one instant of it, all of it"
    assert is_clean, "it may be resumed on another machine, after another boot"
    assert not list(taker.incoming.iterdir())
    writer.close()


def test_an_interrupted_copy_goes_on_behind_its_last_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copies, "PIECE_BYTES", 64 * 1024)
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    with serving(giver) as peer:
        make_store(giver, 5_000).close()
        first = fetch_into(taker, peer)
        break_off_after(first, pieces=3)
        half = (taker.incoming / "T-1-3" / DATA).stat().st_size
        assert 0 < half < first.total_bytes
        second = fetch_into(taker, peer)
        asked = noting_offsets(second)
        run(second)
    assert min(asked) == half, "nothing was sent twice"
    assert rows_of(taker)[0] == 5_000


def break_off_after(fetch: Fetch, pieces: int) -> None:
    """As if the tailer had been killed in the middle."""
    count, ask = [0], fetch._ask

    def counting(*arguments: object) -> bytes | None:
        if arguments[1] == "GET":
            count[0] += 1
            if count[0] > pieces:
                raise KeyboardInterrupt
        return ask(*arguments)  # pyright: ignore[reportArgumentType]

    object.__setattr__(fetch, "_ask", counting)
    with pytest.raises(KeyboardInterrupt):
        fetch._take_from(fetch.peers[0])


def noting_offsets(fetch: Fetch) -> list[int]:
    offsets: list[int] = []
    ask: Callable[..., bytes | None] = fetch._ask

    def noting(*arguments: str) -> bytes | None:
        if "offset=" in arguments[2]:
            offsets.append(int(arguments[2].rpartition("=")[2]))
        return ask(*arguments)

    object.__setattr__(fetch, "_ask", noting)
    return offsets


def test_a_damaged_copy_is_thrown_away(tmp_path: Path) -> None:
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    with serving(giver) as peer:
        make_store(giver, 2_000).close()
        fetch = fetch_into(taker, peer)
        ask: Callable[..., bytes | None] = fetch._ask

        def lying(*arguments: str) -> bytes | None:
            piece = ask(*arguments)
            return piece[:-1] + b"?" if piece and arguments[1] == "GET" else piece

        object.__setattr__(fetch, "_ask", lying)
        run(fetch)
    assert not store_path(taker.state, IDENTITY).exists(), "the changelog is replayed instead"


def test_nothing_is_copied_of_a_peer_without_a_store(tmp_path: Path) -> None:
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    giver.make()
    with serving(giver) as peer:
        run(fetch_into(taker, peer))
    assert not store_path(taker.state, IDENTITY).exists()
