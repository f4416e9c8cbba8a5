"""What a forward hears of its peer: an answer, work, or silence."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from standpipe.adapters.http.peer_client import (
    ConnectFailed,
    PathFailed,
    PeerClient,
    StillWorking,
)
from standpipe.adapters.sealed.handshake import PeerIdentity

WORKING = b"HTTP/1.1 102 Processing\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
LONG_S = 3600.0
SHORT_S = 0.3


async def asked(said: bytes, **seconds: float) -> tuple[int, bytes]:
    """Of a peer that says this and nothing more."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
        over.set()

    over = asyncio.Event()
    client = PeerClient({})
    async with await asyncio.start_server(peer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        try:
            response = await client.request(f"{host}:{port}", "/x", **seconds)
        finally:
            client.close()
            await over.wait()
    return response.status, response.body


@pytest.mark.parametrize(
    ("said", "silence_s", "why"),
    [
        (ANSWER, None, "a lookup"),
        (ANSWER, LONG_S, "a scan that was over at once"),
        (WORKING + ANSWER, LONG_S, "there was work"),
        (WORKING * 3 + ANSWER, LONG_S, ""),
    ],
)
def test_an_answer(said: bytes, silence_s: float | None, why: str) -> None:
    seconds: dict[str, Any] = {"timeout_s": LONG_S, "silence_s": silence_s}
    assert asyncio.run(asked(said, **seconds)) == (200, b"ok"), why


@pytest.mark.parametrize(
    ("said", "timeout_s", "silence_s", "failure", "why"),
    [
        (b"", SHORT_S, None, PathFailed, "a lookup"),
        (b"", LONG_S, SHORT_S, PathFailed, "a scan that nobody works at"),
        (b"", SHORT_S, SHORT_S, PathFailed, "the time is over, but nothing was heard"),
        (WORKING, LONG_S, SHORT_S, PathFailed, "there was work, and then nothing more"),
        (WORKING, SHORT_S, LONG_S, StillWorking, "the time is over, and there is work"),
        (WORKING, SHORT_S, None, PathFailed, "nobody asked for such signs"),
    ],
)
def test_no_answer(
    said: bytes, timeout_s: float, silence_s: float | None, failure: type[Exception], why: str
) -> None:
    seconds: dict[str, Any] = {"timeout_s": timeout_s, "silence_s": silence_s}
    with pytest.raises(failure) as caught:
        asyncio.run(asked(said, **seconds))
    assert failure is StillWorking or "no answer within 300 ms" in str(caught.value), why


def test_a_peer_that_never_proves_itself_was_sent_nothing() -> None:
    """A costly read may then be tried elsewhere as if the connection had been refused."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()  # until the client goes
        writer.close()
        over.set()

    async def story() -> None:
        client = PeerClient(identity=PeerIdentity("a secret"))
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            with pytest.raises(ConnectFailed, match="no answer within 300 ms"):
                await client.request(f"{host}:{port}", "/", timeout_s=SHORT_S)
            client.close()
            await over.wait()

    over = asyncio.Event()
    asyncio.run(story())


BODY_BYTES = 200_000


def plain() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop()


@pytest.mark.parametrize("loop", [plain, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_request_that_was_given_up_does_not_arrive_later(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The peer takes nothing at first, so the request waits in the kernel, as in a partition."""

    async def story() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            listener.settimeout(60)
            host, port = listener.getsockname()
            client = PeerClient({})
            body = b"x" * BODY_BYTES
            with pytest.raises(PathFailed, match="no answer within 300 ms"):
                await client.request(f"{host}:{port}", "/", timeout_s=SHORT_S, body=body)
            return await asyncio.to_thread(taken, listener)

    def taken(listener: socket.socket) -> bytes:
        connected, _ = listener.accept()
        with connected, contextlib.suppress(ConnectionResetError):
            return b"".join(iter(lambda: connected.recv(65536), b""))
        return b""

    with asyncio.Runner(loop_factory=loop) as runner:
        assert len(runner.run(story())) < BODY_BYTES


def test_a_kept_connection_keeps_no_answer() -> None:
    """Each held its last answer twice, until it was used again: in parts, and as a whole."""
    size = 8 * 1024 * 1024

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
                writer.write(bytes(size))
                await writer.drain()
        writer.close()

    async def story() -> None:
        client = PeerClient({})
        async with await asyncio.start_server(peer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            tracemalloc.start()
            answers = await asyncio.gather(
                *(client.request(f"{host}:{port}", "/x", timeout_s=LONG_S) for _ in range(3))
            )
            assert [len(each.body) for each in answers] == [size] * 3
            answers.clear()
            await asyncio.sleep(0)  # the step that received them has ended
            gc.collect()
            kept_bytes, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert sum(map(len, client._idle.values())) == 3, "they are kept"
            client.close()
            await asyncio.sleep(0.05)  # the server sees their ends
        assert kept_bytes < size

    asyncio.run(story())


class Enough(Exception):
    """Raised by who takes the pieces."""


@pytest.mark.parametrize("status", [200, 503])
def test_a_body_is_taken_as_it_arrives(status: int) -> None:
    """Only rows are; an error is collected as ever."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
                writer.write(b"HTTP/1.1 %d Said\r\ntransfer-encoding: chunked\r\n\r\n" % status)
                for number in range(3):
                    writer.write(b"1\r\n%d\r\n" % number)
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
        writer.close()

    async def story() -> None:
        client = PeerClient({})
        taken: list[bytes] = []
        limit = 2

        def take(piece: bytes) -> None:
            if len(taken) == limit:
                raise Enough
            taken.append(piece)

        async with await asyncio.start_server(peer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            where = f"{host}:{port}"
            if status == 200:
                with pytest.raises(Enough):
                    await client.request(where, "/x", timeout_s=LONG_S, take=take)
                assert not any(client._idle.values()), "the rest of the answer may still come"
                limit = 5
            answer = await client.request(where, "/x", timeout_s=LONG_S, take=take)
            expected = ([b"0", b"1", b"0", b"1", b"2"], b"") if status == 200 else ([], b"012")
            assert (taken, answer.body) == expected
            answer = await client.request(where, "/x", timeout_s=LONG_S)
            assert answer.body == b"012", "the kept connection takes nothing for another request"
            client.close()
            await asyncio.sleep(0.05)  # the server sees their ends

    asyncio.run(story())
