"""A store goes from one node to another: a real store, a real listener, a real thread."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.sealed_http import accepted

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.http import internal
from standpipe.adapters.http.internal import Call, InternalApp, Reply
from standpipe.adapters.http.sealed_socket import SealedSocket
from standpipe.adapters.sealed.handshake import PeerIdentity
from standpipe.adapters.store.environment import DATA_FILE
from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.opening import open_verified
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.replica.holdings import Holding
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import NotReady
from standpipe.local.cluster.ports import any_port
from standpipe.model import BatchId, Health, NodeId, NodeInfo, Offset, ReplicaId, Snapshot
from standpipe.model_liveness import Liveness, PeerLiveness
from standpipe.node.configuration import NodePaths
from standpipe.node.liveness.peer_state import VERDICTS_AGE_MS_MAX
from standpipe.node.store_transfer import donor, receiver
from standpipe.node.store_transfer.donor import StoreCopies
from standpipe.node.store_transfer.receiver import Fetch, Restores

IDENTITY = StoreIdentity(table_id="T", generation=1, partition=3)
SECRET = "a secret"
WAIT_S_MAX = 120


def row(number: int) -> tuple[bytes, bytes]:
    key = store_key((f"k{number:06}",), ("STRING",))
    return key, pack_row(b'[%d,"%b"]' % (number, b"x" * 200), 1)


def make_store(paths: NodePaths, rows: int) -> StoreWriter:
    paths.make()
    writer = StoreWriter(store_path(paths.state, IDENTITY.replica_id), IDENTITY)
    meta = StoreMeta(identity=IDENTITY, position=Offset(rows), batch=BatchId(7))
    writer.apply([row(number) for number in range(rows)], [], meta)
    return writer


@contextmanager
def serving(paths: NodePaths) -> Iterator[NodeInfo]:
    """The giving node's internal listener, in a thread of its own."""
    address = f"127.0.0.1:{any_port()}"
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    bound = internal.bind_alone(address)  # it listens from here on

    async def serve() -> None:
        app = InternalApp(StoreCopies(paths).routes(), body_bytes_max=10_000)
        await internal.serve(bound, app, stop, 0.1, identity=PeerIdentity(SECRET, NodeId("giver")))

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
        replica_id=IDENTITY.replica_id,
        target=store_path(paths.state, IDENTITY.replica_id),
        incoming=paths.incoming / "T-1-3",
        peers=peers,
        identity=PeerIdentity(SECRET, NodeId("taker")),
        rate_bytes=1 << 40,
    )


def gone(port: int) -> NodeInfo:
    return NodeInfo(
        node_id=NodeId("gone"), public="", internal=f"127.0.0.1:{port}", peer="", incarnation="x"
    )


def rows_of(paths: NodePaths) -> tuple[int, StoreMeta, bool]:
    store = open_verified(store_path(paths.state, IDENTITY.replica_id), IDENTITY, 1 << 26, 1)
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
    monkeypatch.setattr(donor, "PIECE_BYTES", 64 * 1024)
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    with serving(giver) as peer:
        make_store(giver, 5_000).close()
        first = fetch_into(taker, peer)
        break_off_after(first, pieces=3)
        half = (taker.incoming / "T-1-3" / DATA_FILE).stat().st_size
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
        offsets.append(int(arguments[1].rpartition("=")[2]))
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
            return piece[:-1] + b"?" if piece else piece

        object.__setattr__(fetch, "_ask", lying)
        run(fetch)
    assert not store_path(taker.state, IDENTITY.replica_id).exists(), "replayed instead"


def test_a_copy_for_which_there_is_no_room_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    with serving(giver) as peer:
        make_store(giver, 2_000).close()
        fetch = fetch_into(taker, peer)
        asked = noting_offsets(fetch)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
        run(fetch)
    assert asked == []
    assert not fetch.incoming.exists(), "the changelog needs the room"


def test_nothing_is_copied_of_a_peer_without_a_store(tmp_path: Path) -> None:
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    giver.make()
    with serving(giver) as peer:
        run(fetch_into(taker, peer))
    assert not store_path(taker.state, IDENTITY.replica_id).exists()


@contextmanager
def silent(*, proves: bool = False) -> Iterator[tuple[NodeInfo, list[SealedSocket]]]:
    """A peer whose control was stopped: its kernel takes connections, and nobody answers.

    `proves`: it was stopped after it had proved itself.
    """
    lines: list[SealedSocket] = []
    me = PeerIdentity(SECRET, NodeId("silent"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = msgspec.structs.replace(gone(listener.getsockname()[1]), node_id=NodeId("silent"))

        def accept() -> None:
            with suppress(OSError):  # the listener is shut down
                while True:
                    raw = listener.accept()[0]
                    line = accepted(raw, me) if proves else cast("SealedSocket", raw)
                    lines.append(line)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield peer, lines
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for line in lines:
                line.close()


def impatient_with(name: str, fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one peer only: the others may be slow where the machine is busy."""
    copy_from = fetch._copy_from

    def impatient(peer: NodeInfo) -> None:
        patience_s = 0.2 if peer.node_id == name else 60.0
        monkeypatch.setattr(receiver, "SILENCE_S_MAX", patience_s)
        copy_from(peer)

    object.__setattr__(fetch, "_copy_from", impatient)


@pytest.mark.parametrize(
    ("is_down", "why"),
    [(False, "silence alone"), (True, "its heartbeats ceased: nobody waits as long")],
)
def test_a_silent_donor_is_left_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_down: bool, why: str
) -> None:
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    with serving(giver) as peer, silent() as (stopped, lines):
        make_store(giver, 100).close()
        fetch = fetch_into(taker, stopped, peer)
        if is_down:
            monkeypatch.setattr(receiver, "SILENCE_S_MAX", 1e6)
            monkeypatch.setattr(receiver, "QUIET_S_MAX", 0.2)
            fetch.is_down = lambda node: node == "silent"
        else:
            impatient_with("silent", fetch, monkeypatch)
        run(fetch)
        assert len(lines) == 1, "silent once is silent: no second try"
    assert rows_of(taker)[0] == 100, why


def test_a_donor_that_falls_silent_midway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the answer came, then nothing: as when a cable is cut."""
    monkeypatch.setattr(receiver, "QUIET_S_MAX", 0.0)
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    with serving(giver) as peer, silent(proves=True) as (stopped, lines):
        make_store(giver, 100).close()
        fetch = fetch_into(taker, stopped, peer)
        impatient_with("silent", fetch, monkeypatch)
        said: list[NodeId] = []

        def half_an_answer(node: NodeId) -> bool:
            """Called while the answer is waited for."""
            if node == "silent" and not said:
                said.append(node)
                lines[0].sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
            return False

        fetch.is_down = half_an_answer
        run(fetch)
    assert said == ["silent"]
    assert rows_of(taker)[0] == 100


def test_a_copy_that_takes_long_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The donor says that it is at it whenever it is asked; one copy is made for all of that."""
    monkeypatch.setattr(receiver, "MAKE_WAIT_MS", 1)
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    asked, begun, may_end = [0], [0], asyncio.Event()
    make, copy = StoreCopies._make, StoreCopies._copy

    async def counted(self: StoreCopies, call: Call) -> Reply:
        asked[0] += 1
        if asked[0] == 5:
            may_end.set()
        return await make(self, call)

    async def slow(self: StoreCopies, replica_id: ReplicaId) -> object:
        begun[0] += 1
        await may_end.wait()
        return await copy(self, replica_id)

    monkeypatch.setattr(StoreCopies, "_make", counted)
    monkeypatch.setattr(StoreCopies, "_copy", slow)
    with serving(giver) as peer:
        make_store(giver, 100).close()
        run(fetch_into(taker, peer))
    assert asked[0] >= 5
    assert begun == [1]
    assert rows_of(taker)[0] == 100


def test_a_copy_that_cannot_be_made_is_said_once_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not begun again with every question while nobody hears why."""
    monkeypatch.setattr(receiver, "MAKE_WAIT_MS", 0)
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    begun = [0]

    async def failing(self: StoreCopies, replica_id: ReplicaId) -> object:
        begun[0] += 1
        await asyncio.sleep(0)
        raise NotReady("the store is incomplete")

    monkeypatch.setattr(StoreCopies, "_copy", failing)
    with serving(giver) as peer:
        run(fetch_into(taker, peer))
    assert begun == [1]
    assert not store_path(taker.state, IDENTITY.replica_id).exists()


def test_a_store_that_was_too_old_twice_is_not_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that cannot read on either gave the same store for ever."""
    paths, replica_id = NodePaths(tmp_path), IDENTITY.replica_id
    paths.make()
    restores = Restores(paths, PeerIdentity(SECRET), Clock(), 1)
    monkeypatch.setattr(restores, "_begin", lambda *_: True)
    holding, snapshot = cast(Holding, SimpleNamespace(replica_id=replica_id)), cast(Snapshot, None)
    for is_ready in (False, True, True):
        restores.outgrown[replica_id] += 1
        assert restores.ready(holding, snapshot) is is_ready


@pytest.mark.parametrize("is_opened", [True, False], ids=["replayed", "held no longer"])
def test_a_copy_that_was_given_up_takes_no_room(tmp_path: Path, is_opened: bool) -> None:
    """It stayed for good, even where the disk was full of it."""
    paths, replica_id = NodePaths(tmp_path), IDENTITY.replica_id
    paths.make()
    restores = Restores(paths, PeerIdentity(SECRET), Clock(), 1)
    incoming = paths.incoming / str(replica_id)
    incoming.mkdir(parents=True)
    (incoming / DATA_FILE).write_bytes(b"x" * 4096)
    fetch = fetch_into(paths)
    restores._fetches[replica_id] = fetch
    restores.keep_only({})
    assert incoming.exists(), "it is still being fetched"
    run(fetch)
    if is_opened:
        restores.opened(replica_id)
    else:
        restores.keep_only({})
    assert not incoming.exists()
    assert not restores._fetches, "it is fetched again if it comes back"


def test_a_damaged_part_is_begun_anew_at_the_same_donor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(donor, "PIECE_BYTES", 64 * 1024)
    giver, taker = NodePaths(tmp_path / "a"), NodePaths(tmp_path / "b")
    with serving(giver) as peer:
        make_store(giver, 5_000).close()
        break_off_after(fetch_into(taker, peer), pieces=3)
        part = taker.incoming / "T-1-3" / DATA_FILE
        part.write_bytes(bytes(part.stat().st_size))
        second = fetch_into(taker, peer)
        asked = noting_offsets(second)
        run(second)
    assert asked.count(0) == 1, "the second time from its first byte"
    assert rows_of(taker)[0] == 5_000, "it is the only donor"


@pytest.mark.parametrize(
    ("health", "age_ms", "is_down", "why"),
    [
        (Health.DOWN, 0, True, "control says so"),
        (Health.ALIVE, 0, False, "it beats"),
        (Health.DOWN, VERDICTS_AGE_MS_MAX + 1, False, "control stopped: nobody knows"),
        (None, 0, False, "nothing was told"),
    ],
)
def test_a_donor_that_is_down(
    tmp_path: Path, health: Health | None, age_ms: int, is_down: bool, why: str
) -> None:
    clock, paths = Clock(), NodePaths(tmp_path)
    paths.make()
    if health is not None:
        peers = (PeerLiveness(node_id=NodeId("giver"), health=health),)
        told = Liveness(published_boot_ms=clock.boot_ms() - age_ms, peers=peers)
        published.write(paths.liveness, told)
    assert Restores(paths, PeerIdentity(SECRET), clock, 1)._down()(NodeId("giver")) is is_down, why
