"""What lookups that share a connection get: each its own answer, or none, whatever the node does.

The node is a scripted server at a real socket: it reads requests, and each key says what becomes of
its own. `tests/e2e/test_client.py` has real nodes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httptools
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples

from standpipe.client.aio import AsyncDriver
from standpipe.client.aio_links import SHARED_MAX, Link
from standpipe.client.core.exchange import HttpAnswer, HttpRequest, NoAnswer, Outcome

LOOPS = [asyncio.run, uvloop.run]


@dataclass
class ScriptedNode:
    """`reads`: of each read, the keys of its requests. `script`: what becomes of a key's request,
    each time but the last one; without an entry it is answered."""

    script: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    chunk_bytes: int = 1 << 20
    reads: list[list[str]] = field(default_factory=list[list[str]])
    connections: int = 0
    address: str = ""
    #: requests came, since `warm`
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        parser = httptools.HttpRequestParser(self)
        try:
            while data := await reader.read(1 << 16):
                self._keys: list[str] = []
                parser.feed_data(data)
                self.reads.append(keys := self._keys)
                self.arrived.set()
                for key in keys:
                    if not await self._answer(key, writer):
                        return
        except ConnectionError:
            pass
        finally:
            writer.close()

    def on_body(self, body: bytes) -> None:
        self._keys.append(json.loads(body)["sql"])

    async def _answer(self, key: str, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        left = self.script.get(key, [])
        what = left.pop(0) if left else "answer"
        body = f"[{json.dumps(key)}]\n".encode()
        close = b"connection: close\r\n" if what in {"last", "says so"} else b""
        whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%b\r\n%b" % (len(body), close, body)
        if what == "wait":
            await self.release.wait()
        if what == "close":
            return False
        if what == "half":
            whole = whole[: len(whole) // 2]
        if what == "garbage":
            whole = b"what?\r\n\r\n" * 3
        if what == "twice":
            whole *= 2
        if what == "more":
            whole += b"HTTP/1.1 2"
        for start in range(0, len(whole), self.chunk_bytes):
            writer.write(whole[start : start + self.chunk_bytes])
            await writer.drain()
            if self.chunk_bytes < len(whole):
                await asyncio.sleep(0)
        if what == "says so":  # and does not do it
            await self.release.wait()
        return what not in {"half", "last"}


@asynccontextmanager
async def running(node: ScriptedNode) -> AsyncIterator[AsyncDriver]:
    server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
    node.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    driver = AsyncDriver(None)
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    try:
        yield driver
        assert faults == []
    finally:
        node.release.set()
        driver.close()
        server.close()
        for _ in range(20):  # the ends of both sides
            await asyncio.sleep(0)


def request_of(node: ScriptedNode, key: str, timeout_s: float = 20.0) -> HttpRequest:
    body = json.dumps({"sql": key}).encode()
    return HttpRequest(node.address, "/query-stream", timeout_s, body)


async def warm(node: ScriptedNode, driver: AsyncDriver, *keys: str) -> None:
    """One idle connection, on which these requests' heads are known."""
    for key in keys:
        await driver.lookup(request_of(node, key))
    node.reads.clear()
    node.arrived.clear()


def key_in(outcome: Outcome) -> str:
    assert isinstance(outcome, HttpAnswer), outcome
    return json.loads(outcome.body)[0]


async def together(
    node: ScriptedNode, driver: AsyncDriver, keys: list[str], timeout_s: float = 20.0
) -> list[Outcome]:
    return await asyncio.gather(*(driver.lookup(request_of(node, key, timeout_s)) for key in keys))


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    return request.param


Run = Callable[[Awaitable[None]], None]


def test_those_of_one_turn_share_a_write(run: Run) -> None:
    async def story() -> None:
        async with running(node := ScriptedNode()) as driver:
            await warm(node, driver, "k0", "k0")
            keys = [f"k{number}" for number in range(SHARED_MAX)]
            assert [key_in(each) for each in await together(node, driver, keys)] == keys
            assert node.reads == [keys]
            assert node.connections == 1

    run(story())


def test_no_more_than_so_many_share_one(run: Run) -> None:
    async def story() -> None:
        async with running(node := ScriptedNode()) as driver:
            await warm(node, driver, "k00", "k00")
            keys = [f"k{number:02}" for number in range(2 * SHARED_MAX + 1)]
            assert [key_in(each) for each in await together(node, driver, keys)] == keys
            assert max(map(len, node.reads)) == SHARED_MAX
            assert node.connections > 1

    run(story())


def test_a_head_that_is_new_to_the_node_goes_alone(run: Run) -> None:
    """The node learns a head from a read of its own; see `adapters/http/server.py`."""

    async def story() -> None:
        async with running(node := ScriptedNode()) as driver:
            await warm(node, driver, "k0", "k0")
            await together(node, driver, ["k1", "longer", "k2"])
            assert ["longer"] in node.reads

    run(story())


def test_one_that_begins_later_waits_for_none_before_it(run: Run) -> None:
    async def story() -> None:
        async with running(node := ScriptedNode({"slow": ["wait"]})) as driver:
            await warm(node, driver, "fast", "fast")
            slow = asyncio.create_task(driver.lookup(request_of(node, "slow")))
            await node.arrived.wait()
            assert key_in(await driver.lookup(request_of(node, "fast"))) == "fast"
            assert not slow.done()
            node.release.set()
            assert key_in(await slow) == "slow"

    run(story())


def test_one_that_is_cancelled_leaves_its_answer_to_nobody(run: Run) -> None:
    async def story() -> None:
        async with running(node := ScriptedNode({"k1": ["wait"]})) as driver:
            await warm(node, driver, "k0", "k0")
            tasks = [
                asyncio.create_task(driver.lookup(request_of(node, key)))
                for key in ("k0", "k1", "k2")
            ]
            await node.arrived.wait()
            tasks[1].cancel()
            await asyncio.sleep(0)
            node.release.set()
            assert [key_in(await tasks[0]), key_in(await tasks[2])] == ["k0", "k2"]
            assert tasks[1].cancelled()
            assert key_in(await driver.lookup(request_of(node, "k3"))) == "k3"
            assert node.connections == 1

    run(story())


@pytest.mark.parametrize(
    ("what", "first", "why"),
    [
        ("last", "k1", "the node leaves: it answers one more, and closes"),
        ("says so", "k1", "it will not answer on this connection"),
        ("close", "k1", "no byte of an answer came: it is asked again"),
        ("half", None, "the node took it and may have failed of it"),
    ],
)
def test_what_becomes_of_the_others(run: Run, what: str, first: str | None, why: str) -> None:
    async def story() -> None:
        async with running(node := ScriptedNode({"k1": [what]})) as driver:
            await warm(node, driver, "k0", "k0")
            found = await together(node, driver, ["k0", "k1", "k2", "k3"])
            others = [key_in(found[place]) for place in (0, 2, 3)]
            assert others == ["k0", "k2", "k3"], "each has its own"
            if first is None:
                assert isinstance(found[1], NoAnswer), why
                assert found[1].was_sent
            else:
                assert key_in(found[1]) == first, why

    run(story())


@pytest.mark.parametrize("what", ["twice", "more"])
def test_an_answer_that_nobody_asked_for_ends_the_connection(run: Run, what: str) -> None:
    async def story() -> None:
        async with running(node := ScriptedNode({"k1": [what]})) as driver:
            await warm(node, driver, "k0", "k0")
            found = [await driver.lookup(request_of(node, key)) for key in ("k1", "k2", "k3")]
            assert [key_in(each) for each in found[1:]] == ["k2", "k3"], "none has another's"
            assert node.connections == 2

    run(story())


def slow_to_connect(driver: AsyncDriver, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    connected = driver._connected

    async def slowly(address: str, make: Any) -> Any:
        await asyncio.sleep(seconds)
        return await connected(address, make)

    monkeypatch.setattr(driver, "_connected", slowly)


def test_a_slow_connection_takes_from_the_time_of_its_request(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_s: list[float] = []
    ask = Link.ask

    async def noted(link: Link, request: HttpRequest) -> Any:
        left_s.append(request.timeout_s)
        return await ask(link, request)

    async def story() -> None:
        node = ScriptedNode()
        async with running(node) as driver:
            slow_to_connect(driver, 0.05, monkeypatch)
            monkeypatch.setattr(Link, "ask", noted)
            for _ in range(2):
                assert key_in(await driver._exchange(request_of(node, "k", 20.0))) == "k"

    run(story())
    assert left_s[0] <= 19.95
    assert left_s[1] == 20.0, "a kept connection takes none"


def test_a_connection_has_its_own_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        node = ScriptedNode()
        async with running(node) as driver:
            slow_to_connect(driver, 5.0, monkeypatch)
            request = replace(request_of(node, "k"), is_repeatable=False, connect_max_s=0.05)
            outcome = await driver._exchange(request)
            assert outcome == NoAnswer("no answer within 50 ms", was_sent=False)
            assert node.reads == []

    run(story())


def test_one_that_is_out_of_time_and_those_that_are_not(run: Run) -> None:
    """Its connection is closed; the others, with more time, are asked again and have answers."""

    async def story() -> None:
        async with running(node := ScriptedNode({"k1": ["wait"]})) as driver:
            await warm(node, driver, "k0", "k0")
            found = await asyncio.gather(
                driver.lookup(request_of(node, "k0")),
                driver.lookup(request_of(node, "k1", 0.05)),
                driver.lookup(request_of(node, "k2", 30)),
            )
            assert found[1] == NoAnswer("no answer within 50 ms", was_sent=True)
            assert [key_in(found[0]), key_in(found[2])] == ["k0", "k2"]
            assert node.connections == 2

    run(story())


@given(
    script=st.dictionaries(
        st.sampled_from([f"k{number}" for number in range(10)]),
        st.lists(st.sampled_from(["close", "half", "last", "garbage"]), max_size=2),
        max_size=4,
    ),
    chunk_bytes=st.sampled_from([1 << 20, 7, 40, 100]),
    rounds=st.lists(st.integers(1, 10), min_size=1, max_size=3),
)
@settings(max_examples=examples(40), deadline=None)
def test_nobody_has_the_answer_of_another(
    script: dict[str, list[str]], chunk_bytes: int, rounds: list[int]
) -> None:
    async def story() -> None:
        node = ScriptedNode({key: [*left] for key, left in script.items()}, chunk_bytes)
        # what comes in one read with it is lost, too: its lookups ask another node
        is_garbled = any("garbage" in left for left in script.values())
        async with running(node) as driver:
            await driver.lookup(request_of(node, "w0"))
            for count in rounds:
                keys = [f"k{number}" for number in range(count)]
                for key, outcome in zip(keys, await together(node, driver, keys), strict=True):
                    if isinstance(outcome, NoAnswer):
                        assert script.get(key) or is_garbled, "the node answers it"
                    else:
                        assert key_in(outcome) == key

    asyncio.run(story())


@pytest.mark.parametrize("run", LOOPS)
@pytest.mark.parametrize("is_repeatable", [True, False])
def test_a_node_that_answers_twice_is_not_asked_again_and_again(
    run: Callable[[Awaitable[None]], None], is_repeatable: bool
) -> None:
    """An INSERT was sent 300 times in a third of a second."""

    async def story() -> None:
        node = ScriptedNode({"insert": ["twice"] * 50})
        async with running(node) as driver:
            request = HttpRequest(
                node.address, "/ksql", 20.0, b'{"sql":"insert"}', is_repeatable=is_repeatable
            )
            outcome = await driver._exchange(request)
            assert outcome == NoAnswer("the connection ended", was_sent=True)
            assert len(node.reads) == 1

    run(story())


@pytest.mark.parametrize("run", LOOPS)
def test_a_cancelled_lookup_leaves_no_connection_behind_a_closed_client(
    run: Callable[[Awaitable[None]], None],
) -> None:
    async def story() -> None:
        node = ScriptedNode({"slow": ["wait"]})
        async with running(node) as driver:
            await driver.lookup(request_of(node, "a"))
            slow = asyncio.create_task(driver.lookup(request_of(node, "slow")))
            await asyncio.sleep(0.01)
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            links = list(driver._links)
            driver.close()
            assert links
            assert not any(link.is_open for link in links)

    run(story())
