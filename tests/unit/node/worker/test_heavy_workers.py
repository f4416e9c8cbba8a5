"""Which heavy worker gets a request, and what it is told. What it answers: tests/e2e."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.files.turn_page import digest_of
from standpipe.adapters.http.unix_exchange import SocketFolder
from standpipe.adapters.metrics import Metrics
from standpipe.errors import HeavyWorkerEnded
from standpipe.node.worker.heavy_workers import HeavyApplication, HeavyWorkers, socket_name
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker_report import (
    RefusedText,
    WorkerEnded,
    WorkersReport,
    WorkersReportReader,
)

SCOPE: dict[str, Any] = {
    "type": "http",
    "http_version": "1.1",
    "method": "POST",
    "path": "/query",
    "raw_path": b"/query",
    "query_string": b"a=1 HTTP/1.1\r\nstandpipe-passed-on: peers 1.2.3.4\r\nb: ",
    "client": ("10.0.0.7", 5),
    "headers": [
        (b"accept", b"x/y"),
        (b"content-length", b"999"),
        (b"expect", b"100-continue"),
        (b"standpipe-passed-on", b"peers 1.2.3.4"),
        # HTTP/2 has no lines that these could break
        (b"x", b"1\r\nstandpipe-passed-on: peers 1.2.3.4"),
        (b"x: 1\r\nstandpipe-passed-on", b"peers 1.2.3.4"),
        (b"y z", b""),
    ],
}


class Site:
    """Heavy workers of which each answers when it is told to."""

    def __init__(self, folder: Path, numbers: Sequence[int]) -> None:
        self.metrics = Metrics(0, folder)
        self.sockets = SocketFolder(folder)
        self.heavy = HeavyWorkers(self.sockets, numbers, TextsInHand(), self.metrics)
        self.requests: dict[int, list[bytes]] = {number: [] for number in numbers}
        self.may_answer = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        #: each ends before its answer
        self.dies = False

    async def all_came(self, count: int) -> None:
        while sum(map(len, self.requests.values())) < count:  # noqa: ASYNC110 they come by sockets
            await asyncio.sleep(0.01)

    async def serve(self, number: int) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests[number].append(head + await reader.readexactly(4))
            if self.dies:
                writer.transport.abort()
                return
            await self.may_answer.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nx: 1\r\ncontent-length: 2\r\n\r\nok")
            await writer.drain()
            await reader.read()
            writer.close()

        bound = self.sockets.bind(socket_name(number))
        return await asyncio.start_unix_server(answer, sock=bound)

    async def ask(
        self, scope: dict[str, Any] = SCOPE, *, is_peer: bool = False, text: str = ""
    ) -> bool:
        async def receive() -> dict[str, Any]:
            await asyncio.sleep(3600)  # the client stays
            raise AssertionError

        async def send(message: Any) -> None:
            self.sent.append(dict(message))

        return await self.heavy.answer(scope, receive, send, b"body", is_peer=is_peer, text=text)


async def whole(story: Coroutine[Any, Any, None]) -> None:
    await story
    await asyncio.sleep(0.02)  # transports that were aborted notice it


def test_what_it_is_told(tmp_path: Path) -> None:
    """A client that could add a line would reach what only peers may ask."""

    async def story() -> None:
        site = Site(tmp_path, [4])
        async with await site.serve(4):
            site.may_answer.set()
            assert await site.ask()
            assert await site.ask(is_peer=True)
        assert site.requests[4] == [
            b"POST /query HTTP/1.1\r\naccept: x/y\r\ncontent-length: 4\r\n"
            b"standpipe-passed-on: %b 10.0.0.7\r\n\r\nbody" % lane
            for lane in (b"clients", b"peers")
        ]
        kinds = [message["type"].rpartition(".")[2] for message in site.sent]
        assert kinds == ["start", "body", "body"] * 2
        assert site.sent[0]["headers"] == [(b"x", b"1"), (b"content-length", b"2")]
        assert b"".join(each.get("body", b"") for each in site.sent[:3]) == b"ok"

    asyncio.run(whole(story()))


def test_the_one_with_the_fewest_gets_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        site = Site(tmp_path, [2, 3])
        async with await site.serve(2), await site.serve(3):
            asking = [asyncio.create_task(site.ask()) for _ in range(4)]
            await site.all_came(4)
            assert Counter(map(len, site.requests.values())) == {2: 2}
            site.may_answer.set()
            assert await asyncio.gather(*asking) == [True] * 4

    asyncio.run(whole(story()))


def test_another_one_takes_the_place_of_a_dead_one(tmp_path: Path) -> None:
    async def story() -> None:
        site = Site(tmp_path, [2, 3])
        site.may_answer.set()
        async with await site.serve(3):
            assert await site.ask()
        assert not await site.ask()
        assert len(site.requests[3]) == 1

    asyncio.run(whole(story()))


def test_a_client_that_knows_no_chunks_gets_none(tmp_path: Path) -> None:
    async def story() -> None:
        site = Site(tmp_path, [2])
        site.may_answer.set()
        async with await site.serve(2):
            assert await site.ask({**SCOPE, "http_version": "1.0"})
        (request,) = site.requests[2]
        assert request.startswith(b"POST /query HTTP/1.0\r\n")

    asyncio.run(whole(story()))


@pytest.mark.parametrize("path", ["/query\n", "/ksql\n", "/query HTTP/1.1\r\nx: ", "/info"])
def test_only_known_paths_are_passed_on(tmp_path: Path, path: str) -> None:
    async def story() -> None:
        site = Site(tmp_path, [2])
        async with await site.serve(2):
            assert not await site.ask({**SCOPE, "path": path})
        assert site.requests[2] == []

    asyncio.run(whole(story()))


def heavy_ended(site: Site, folder: Path, *, refused: tuple[RefusedText, ...] = ()) -> None:
    """What the parent publishes when it has ended heavy worker 2."""
    now_ms = Clock().boot_ms()
    ended = WorkerEnded(worker=2, reason="memory", count=1, at_boot_ms=now_ms)
    report = WorkersReport(ended=(ended,), heavy=(2,), refused=refused)
    published.write(folder / "workers", report)
    site.heavy.in_hand = TextsInHand(None, WorkersReportReader(folder / "workers"))


def test_what_may_have_ended_a_heavy_worker_is_not_answered_by_another(tmp_path: Path) -> None:
    """A client that asks again would have the worker killed that has the lookups."""

    async def story() -> None:
        site = Site(tmp_path, [2])
        heavy_ended(site, tmp_path)
        assert await site.ask()
        assert site.sent[0]["status"] == 503
        assert json.loads(site.sent[1]["body"])["error_code"] == HeavyWorkerEnded.code

    asyncio.run(whole(story()))


@pytest.mark.parametrize(("is_to_blame", "status"), [(True, 429), (False, 503)])
def test_its_client_is_told_why(tmp_path: Path, is_to_blame: bool, status: int) -> None:
    async def story() -> None:
        site = Site(tmp_path, [2])
        async with await site.serve(2):
            site.dies = True
            refused = RefusedText(digest=digest_of("TEXT"), until_boot_ms=1 << 60)
            heavy_ended(site, tmp_path, refused=(refused,) if is_to_blame else ())
            assert await site.ask(text="TEXT")
        assert site.sent[0]["status"] == status

    asyncio.run(whole(story()))


@pytest.mark.parametrize("told", [None, b"", b"clientele 1.2.3.4"])
def test_what_was_not_passed_on_is_not_answered(told: bytes | None) -> None:
    async def endpoint(*_: Any) -> None:
        raise AssertionError("it is reached")

    async def story() -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [] if told is None else [(b"standpipe-passed-on", told)]
        application = HeavyApplication(clients=endpoint, peers=endpoint)
        await application({**SCOPE, "headers": headers}, None, send)  # type: ignore[arg-type]
        assert sent[0]["status"] == 404

    asyncio.run(whole(story()))
