"""Connections of both drivers: silent streams, and what a fork makes of them.

No process gets what another one asked for.

The node is a small server in threads of the parent; each child ends in bounded time.
"""

from __future__ import annotations

import asyncio
import errno
import json
import multiprocessing
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import uvloop

from standpipe.client import AsyncClient, Client, connect, connect_async
from standpipe.client.core.exchange import SILENT, NoAnswer
from standpipe.client.core.push import TOKEN_INTERVAL_HEADER
from standpipe.client.sockets import unread

# Python 3.12 warns of any fork beside threads: here the child's first act is the test
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

ENOUGH_S = 10.0
LATENCY_S = 0.001
LOOKUPS = 100
Run = Callable[[Awaitable[Any]], Any]

TABLE = [
    {
        "sourceDescription": {
            "name": "T",
            "fields": [
                {"name": "K", "schema": {"type": "STRING"}, "type": "KEY"},
                {"name": "V", "schema": {"type": "STRING"}},
            ],
            "windowType": None,
            "keyFormat": "KAFKA",
        }
    }
]
HEAD = b'{"queryId":"q","columnNames":["K","V"],"columnTypes":["STRING","STRING"]}\n'
STREAM_HEAD = b'[{"header":{"queryId":"q","schema":"`K` STRING KEY, `V` STRING"}},\n'


class OneTableNode(ThreadingHTTPServer):
    """A node with one table, whose rows have their keys as values. A push query gets k1; a later
    one, and this one when `release` is set, gets k2."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.address = f"127.0.0.1:{self.server_port}"
        self.release = threading.Event()
        self.news = threading.Condition()
        self.open_count = 0
        #: what it says of its push queries; it does not keep to it
        self.token_interval_ms: int | None = None

    def count(self, change: int) -> None:
        with self.news:
            self.open_count += change
            self.news.notify_all()

    def is_left(self) -> bool:
        """Whether all connections end in time."""
        with self.news:
            return self.news.wait_for(lambda: self.open_count == 0, ENOUGH_S)


class Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def node(self) -> OneTableNode:
        assert isinstance(self.server, OneTableNode)
        return self.server

    def setup(self) -> None:
        super().setup()
        self.node.count(1)

    def finish(self) -> None:
        super().finish()
        self.node.count(-1)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 of the base class
        """Nothing is logged."""

    def do_GET(self) -> None:
        address = self.node.address
        if self.path == "/clusterStatus":
            self.answer({"clusterStatus": {address: {"standpipe": {"nodeId": "n1"}}}})
        else:
            holders = {"partition": 0, "activeHost": address, "standbyHosts": []}
            self.answer({"partitions": [holders]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/ksql":
            self.answer(TABLE)
        elif self.path == "/query":
            self.push(is_first=b'"k1"' not in body)
        else:
            (key,) = re.findall(rb"= '(\w+)'", body)
            time.sleep(LATENCY_S)
            self.answer(HEAD + b'["%b","%b"]\n' % (key, key))

    def push(self, *, is_first: bool) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        if self.node.token_interval_ms is not None:
            self.send_header(TOKEN_INTERVAL_HEADER, str(self.node.token_interval_ms))
        self.end_headers()
        if is_first:
            self.chunk(STREAM_HEAD + pushed("k1"))
            self.node.release.wait()
            self.chunk(pushed("k2"))
        else:
            self.chunk(STREAM_HEAD + pushed("k2"))
        self.rfile.read(1)  # until the client leaves

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def answer(self, what: object) -> None:
        body = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.send_header("standpipe-served-by", "n1")
        self.end_headers()
        self.wfile.write(body)


def pushed(key: str) -> bytes:
    """A row, and the token after it."""
    token = json.dumps({"continuationToken": {"continuationToken": key}})
    return b'{"row":{"columns":["%b","v"]}},\n%b,\n' % (key.encode(), token.encode())


@pytest.fixture
def node() -> Iterator[OneTableNode]:
    with OneTableNode() as node:
        serving = threading.Thread(target=node.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield node
        finally:
            node.release.set()
            node.shutdown()
            serving.join()


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


@contextmanager
def forked(work: Callable[[], object]) -> Iterator[BaseProcess]:
    """A fork of this process, which ends with 0 if `work` returns."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()


def status_of(child: BaseProcess) -> int | None:
    """None: it has not ended in time."""
    child.join(ENOUGH_S)
    return child.exitcode


def look_up(client: Client, name: str) -> None:
    """Ends the process with the number of wrong rows, if any is."""
    keys = [f"{name}{number}" for number in range(LOOKUPS)]
    rows = [client.get("T", k=key, timeout_s=5.0) for key in keys]
    sys.exit(count_wrong(keys, rows))


async def look_up_async(client: AsyncClient, name: str) -> int:
    keys = [f"{name}{number}" for number in range(LOOKUPS)]
    async with client:
        return count_wrong(keys, [await client.get("T", k=key, timeout_s=5.0) for key in keys])


def count_wrong(keys: list[str], rows: list[Any]) -> int:
    return sum(row is None or row["K"] != key for key, row in zip(keys, rows, strict=True))


def test_each_process_of_a_fork_has_the_rows_of_its_own_keys(node: OneTableNode) -> None:
    with connect(node.address) as client:
        assert client.get("T", k="warm") is not None
        with (
            forked(lambda: look_up(client, "a")) as first,
            forked(lambda: look_up(client, "b")) as second,
        ):
            keys = [f"c{number}" for number in range(LOOKUPS)]
            assert count_wrong(keys, [client.get("T", k=key) for key in keys]) == 0
            assert [status_of(first), status_of(second)] == [0, 0]


def test_each_event_loop_of_a_fork_has_the_rows_of_its_own_keys(
    node: OneTableNode, run: Run
) -> None:
    async def story() -> None:
        async with connect_async(node.address) as client:
            assert await client.get("T", k="warm") is not None
            with (
                forked(lambda: sys.exit(run(look_up_async(client, "a")))) as first,
                forked(lambda: sys.exit(run(look_up_async(client, "b")))) as second,
            ):
                assert await look_up_async(client, "c") == 0
                for child in (first, second):
                    assert await asyncio.to_thread(status_of, child) == 0

    run(story())


def test_a_stream_goes_on_in_both_processes_of_a_fork(node: OneTableNode) -> None:
    """The child begins behind what the parent had, over a connection of its own."""
    with connect(node.address) as client:
        stream = client.stream("SELECT * FROM T EMIT CHANGES;")
        assert next(stream)["K"] == "k1"
        with forked(lambda: sys.exit(next(stream)["K"] != "k2")) as child:
            assert status_of(child) == 0
        node.release.set()
        assert next(stream)["K"] == "k2"
        stream.close()


def test_a_stream_goes_on_in_both_event_loops_of_a_fork(node: OneTableNode, run: Run) -> None:
    async def story() -> None:
        async with connect_async(node.address) as client:
            stream = client.stream("SELECT * FROM T EMIT CHANGES;")

            async def next_and_last() -> str:
                async with asyncio.timeout(ENOUGH_S), client:
                    return (await anext(stream))["K"]

            assert (await anext(stream))["K"] == "k1"
            with forked(lambda: sys.exit(run(next_and_last()) != "k2")) as child:
                assert await asyncio.to_thread(status_of, child) == 0
            node.release.set()
            assert await next_and_last() == "k2"

    run(story())


def test_a_stream_that_is_silent_too_long_is_continued(node: OneTableNode) -> None:
    """The node never sends the second row over the first connection."""
    node.token_interval_ms = 25
    with connect(node.address) as client:
        stream = client.stream("SELECT * FROM T EMIT CHANGES;")
        assert [next(stream)["K"], next(stream)["K"]] == ["k1", "k2"]
        stream.close()


def test_so_is_one_of_an_event_loop(node: OneTableNode, run: Run) -> None:
    node.token_interval_ms = 25

    async def story() -> None:
        async with asyncio.timeout(ENOUGH_S), connect_async(node.address) as client:
            stream = client.stream("SELECT * FROM T EMIT CHANGES;")
            assert [(await anext(stream))["K"], (await anext(stream))["K"]] == ["k1", "k2"]
            await stream.aclose()

    run(story())


@pytest.mark.parametrize(
    ("error", "fact"),
    [
        (TimeoutError(), SILENT),
        (TimeoutError("timed out"), SILENT),
        (
            TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
            NoAnswer("Connection timed out", was_sent=True),
        ),
        (ValueError("not an HTTP answer"), NoAnswer("not an HTTP answer", was_sent=True)),
    ],
)
def test_what_the_kernel_says_of_the_other_host_is_no_silence(
    error: Exception, fact: NoAnswer
) -> None:
    assert (unread(error) is SILENT) == (fact is SILENT)
    assert unread(error) == fact


def test_a_child_holds_no_connection_that_its_parent_closes(node: OneTableNode) -> None:
    """The node would not notice."""
    may_end = multiprocessing.get_context("fork").Event()
    with connect(node.address) as client:
        stream = client.stream("SELECT * FROM T EMIT CHANGES;")
        next(stream)
        client.get("T", k="warm")
        with forked(lambda: may_end.wait(ENOUGH_S)) as child:
            node.release.set()
            stream.close()
            client.close()
            assert node.is_left()
            assert child.is_alive()
            may_end.set()


def test_a_child_holds_no_connection_of_its_parents_event_loop(
    node: OneTableNode, run: Run
) -> None:
    may_end = multiprocessing.get_context("fork").Event()

    async def story() -> None:
        async with connect_async(node.address) as client:
            stream = client.stream("SELECT * FROM T EMIT CHANGES;")
            await anext(stream)
            await client.get("T", k="warm")
            with forked(lambda: may_end.wait(ENOUGH_S)) as child:
                node.release.set()
                await client.aclose()
                assert await asyncio.to_thread(node.is_left)
                assert child.is_alive()
                may_end.set()

    run(story())
