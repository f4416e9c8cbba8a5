"""What the asynchronous driver leaves open, and when streams end, at a scripted node.

`test_aio_links.py` has lookups; `tests/e2e/test_client.py` has real nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import uvloop

from standpipe.client import AsyncClient, connect_async

Run = Callable[[Awaitable[None]], None]
QUERY = "SELECT * FROM T EMIT CHANGES;"
ITEMS = (
    b'[{"header":{"queryId":"q","schema":"`K` STRING KEY, `N` INTEGER"}},\n'
    b'{"row":{"columns":["k",1]}},\n'
    b'{"continuationToken":{"continuationToken":"t"}},\n'
)
#: one row, and its token; the answer has no end
ONE_ROW = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(ITEMS), ITEMS)
ENOUGH_S = 10.0


@dataclass
class StreamNode:
    """Takes push queries and answers with `answer`. `open_count`: connections that it has."""

    answer: bytes = b""
    open_count: int = 0
    requests: int = 0
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_count += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer)
            await self._tell(requests=1)
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        finally:
            writer.close()
            await self._tell(open_count=-1)

    async def _tell(self, requests: int = 0, open_count: int = 0) -> None:
        async with self.news:
            self.requests += requests
            self.open_count += open_count
            self.news.notify_all()

    async def has(self, requests: int, open_count: int) -> None:
        """Wait for that. Raises TimeoutError."""
        async with asyncio.timeout(ENOUGH_S), self.news:
            await self.news.wait_for(
                lambda: (self.requests, self.open_count) == (requests, open_count)
            )


@asynccontextmanager
async def asking(node: StreamNode) -> AsyncIterator[AsyncClient]:
    server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
    async with server, connect_async(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        yield client


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


def test_a_stream_that_is_cancelled_while_it_opens_leaves_no_connection(run: Run) -> None:
    async def story() -> None:
        node = StreamNode()
        async with asking(node) as client:
            opening = asyncio.create_task(anext(client.stream(QUERY)))
            await node.has(requests=1, open_count=1)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await node.has(requests=1, open_count=0)

    run(story())


def test_a_client_that_closes_ends_its_streams(run: Run) -> None:
    """They do not go on at another node."""

    async def story() -> None:
        node, found = StreamNode(ONE_ROW), list[str]()
        async with asking(node) as client:
            read = asyncio.Event()

            async def reads() -> None:
                async for row in client.stream(QUERY):
                    found.append(row["K"])
                    read.set()

            reading = asyncio.create_task(reads())
            left = client.stream(QUERY)
            assert (await anext(left))["K"] == "k"
            await asyncio.wait_for(read.wait(), ENOUGH_S)
            await client.aclose()
            await asyncio.wait_for(reading, ENOUGH_S)
            await node.has(requests=2, open_count=0)
            with pytest.raises(StopAsyncIteration):
                await anext(left)
        assert found == ["k"]
        assert node.requests == 2

    run(story())
