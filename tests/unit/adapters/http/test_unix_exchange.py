"""An exchange over a Unix socket: what is passed on, when, and how it ends. Real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from standpipe.adapters.http.server import Headers
from standpipe.adapters.http.unix_exchange import EndedEarly, NotReached, SocketFolder, exchange

REQUEST = b"POST /x HTTP/1.1\r\ncontent-length: 2\r\n\r\nab"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Client:
    """What was passed on."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.pieces: list[bytes] = []
        self.workings = 0
        self.may_take = asyncio.Event()
        self.may_take.set()

    async def begin(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers

    async def more(self, piece: bytes) -> None:
        await self.may_take.wait()
        self.pieces.append(piece)

    def working(self) -> None:
        self.workings += 1

    async def ask(self, folder: SocketFolder) -> None:
        reader, writer = await folder.connect("a.socket")
        await exchange(
            reader, writer, REQUEST, begin=self.begin, more=self.more, working=self.working
        )


async def served(
    path: Path, serve: Serve, asked: Callable[[SocketFolder], Awaitable[None]]
) -> None:
    folder = SocketFolder(path)
    connections: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        with suppress(ConnectionError):
            await serve(reader, writer)

    server = await asyncio.start_unix_server(connected, sock=folder.bind("a.socket"))
    async with server:
        await asked(folder)
        for writer in connections:
            writer.transport.abort()
        await asyncio.sleep(0.01)  # their transports notice it


def long(tmp_path: Path) -> Path:
    """A folder whose path is longer than the path of a socket may be."""
    made = tmp_path / ("long" * 30) / ("longer" * 30)
    made.mkdir(parents=True)
    return made


async def has_request(reader: asyncio.StreamReader) -> None:
    assert await reader.readexactly(len(REQUEST)) == REQUEST


def test_an_answer_in_chunks_after_signs_of_work(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await has_request(reader)
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 2)
        await writer.drain()
        writer.write(b"HTTP/1.1 200 OK\r\nA: 1\r\ntransfer-encoding: chunked\r\n\r\n")
        for piece in (b"one", b"two"):
            await asyncio.sleep(0)
            writer.write(b"3\r\n%b\r\n" % piece)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def asked(folder: SocketFolder) -> None:
        client = Client()
        await client.ask(folder)
        assert (client.status, client.workings) == (200, 2)
        assert (b"a", b"1") in client.headers
        assert b"".join(client.pieces) == b"onetwo"

    asyncio.run(served(long(tmp_path), serve, asked))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"SSH-2.0\r\n\r\n",
    ],
)
def test_half_an_answer_is_none(tmp_path: Path, sent: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await has_request(reader)
        writer.write(sent)
        await writer.drain()
        writer.close()

    async def asked(folder: SocketFolder) -> None:
        with pytest.raises(EndedEarly):
            await Client().ask(folder)

    asyncio.run(served(long(tmp_path), serve, asked))


def test_what_the_client_does_not_take_is_not_collected(tmp_path: Path) -> None:
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await has_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (1 << 30))
        for _ in range(1 << 10):
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            written += 1

    async def asked(folder: SocketFolder) -> None:
        client = Client()
        client.may_take.clear()
        asking = asyncio.create_task(client.ask(folder))
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.1)  # the other side writes as long as it can
        assert client.status == 200
        assert written < 8, "MiB"
        asking.cancel()
        await asyncio.wait([asking])

    asyncio.run(served(long(tmp_path), serve, asked))


def test_nobody_listens(tmp_path: Path) -> None:
    async def asked() -> None:
        folder = SocketFolder(tmp_path)
        with pytest.raises(NotReached):
            await folder.connect("a.socket")
        folder.bind("a.socket").close()  # its process has died: the file is left
        with pytest.raises(NotReached):
            await folder.connect("a.socket")
        folder.bind("a.socket").close()

    asyncio.run(asked())
