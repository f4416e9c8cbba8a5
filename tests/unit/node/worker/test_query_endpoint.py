"""How answers leave: whole or in pieces, as fast as the client reads, and what is given back."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest

from standpipe.adapters.metrics import Metrics
from standpipe.errors import TooManyRequests
from standpipe.freshness import Freshness
from standpipe.node.worker import query_endpoint
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.response import PullResponse
from standpipe.node.worker.pull.slow_path import SlowPath
from standpipe.node.worker.query_endpoint import QueryEndpoint
from standpipe.node.worker.request.answer_budget import AnswerBudget
from standpipe.node.worker.request.scan_requester import ScanRequester

FRESH = Freshness(served_by="n", role="active", state="RUNNING")
SCOPE = {
    "path": "/query",
    "headers": [(b"content-length", b"2")],
    "client": ("10.0.0.7", 4711),
}
PIECES = 100


class Answers:
    """A slow path that has an answer. `made`: pieces so far."""

    def __init__(self, folder: Path, *, in_pieces: bool, error: Exception | None = None) -> None:
        self.metrics = Metrics(0, folder)
        self._in_pieces, self._error = in_pieces, error
        self.made = 0
        self.is_closed = False
        self.asker: ScanRequester | None = None

    async def answer(
        self, request_format: RequestFormat, body: bytes, requester: ScanRequester
    ) -> PullResponse:
        self.asker = requester
        requester.hold(1000)
        if self._error is not None:
            raise self._error
        return PullResponse(b"whole", FRESH, self._pieces() if self._in_pieces else None)

    async def _pieces(self) -> AsyncGenerator[bytes]:
        try:
            for number in range(PIECES):
                self.made += 1
                yield b"%d," % number
        finally:
            self.is_closed = True


class Client:
    """Reads as many messages as `reads` says, and then nothing until it is let go or leaves."""

    def __init__(self, reads: int = 10_000) -> None:
        self._left = reads
        self._body = [{"type": "http.request", "body": b"{}", "more_body": False}]
        self.may_go, self.leaves = asyncio.Event(), asyncio.Event()
        self.got: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if self._body:
            return self._body.pop()
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if not self._left:
            await self.may_go.wait()
        self._left -= bool(self._left)
        self.got.append(dict(message))

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got)

    def names(self) -> set[bytes]:
        return {name for name, _ in self.got[0]["headers"]}


def endpoint(answers: Answers, budget: AnswerBudget) -> QueryEndpoint:
    return QueryEndpoint(cast(SlowPath, answers), 1000, is_peer=False, answers=budget)


def test_a_small_answer_is_sent_whole(tmp_path: Path) -> None:
    async def story() -> None:
        answers, budget, client = Answers(tmp_path, in_pieces=False), AnswerBudget(), Client()
        await endpoint(answers, budget)(SCOPE, client.receive, client.send)
        assert (client.body, budget.held_bytes) == (b"whole", 0)
        assert b"content-length" in client.names()
        assert answers.asker is not None
        assert (answers.asker.address, answers.asker.is_peer) == ("10.0.0.7", False)

    asyncio.run(story())


def test_pieces_come_as_fast_as_the_client_reads(tmp_path: Path) -> None:
    async def story() -> None:
        answers, budget, client = Answers(tmp_path, in_pieces=True), AnswerBudget(), Client(reads=4)
        asked = asyncio.create_task(endpoint(answers, budget)(SCOPE, client.receive, client.send))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert answers.made == 4, "the head, three pieces, and one that waits for the client"
        assert budget.held_bytes == 1000, "its rows are still here"
        client.may_go.set()
        await asked
        assert client.body == b"".join(b"%d," % number for number in range(PIECES))
        assert client.got[-1].get("more_body", False) is False
        assert b"content-length" not in client.names()
        assert budget.held_bytes == 0

    asyncio.run(story())


@pytest.mark.parametrize(
    ("bytes_max", "status", "why"),
    [
        (10_000, 200, "it has no chunks, so the answer has a length"),
        (1_050, 400, "and what is collected for it has a limit"),
    ],
)
def test_http_1_0(tmp_path: Path, bytes_max: int, status: int, why: str) -> None:
    async def story() -> None:
        answers, client = Answers(tmp_path, in_pieces=True), Client()
        budget = AnswerBudget(bytes_max)
        scope = {**SCOPE, "type": "http", "http_version": "1.0"}
        await endpoint(answers, budget)(scope, client.receive, client.send)
        assert client.got[0]["status"] == status, why
        assert b"content-length" in client.names()
        whole = b"".join(b"%d," % number for number in range(PIECES))
        assert (client.body == whole) is (status == 200)
        assert (answers.is_closed, budget.held_bytes) == (True, 0)

    asyncio.run(story())


def test_a_client_that_takes_pieces_too_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte a minute kept the rows of a scan in memory, and other scans got 429, without end."""

    async def story() -> None:
        answers, budget, client = Answers(tmp_path, in_pieces=True), AnswerBudget(), Client(reads=4)
        async with asyncio.timeout(30):
            await endpoint(answers, budget)(SCOPE, client.receive, client.send)
        assert (answers.made, answers.is_closed) == (4, True)
        assert budget.held_bytes == 0, "others have the room"
        assert all(message.get("more_body", True) for message in client.got), "it is cut off"

    monkeypatch.setattr(query_endpoint, "PIECE_S_MAX", 0.01)
    asyncio.run(story())


@pytest.mark.parametrize("how", ["it leaves", "its worker ends it"])
def test_a_client_that_takes_no_more(tmp_path: Path, how: str) -> None:
    async def story() -> None:
        answers, budget, client = Answers(tmp_path, in_pieces=True), AnswerBudget(), Client(reads=4)
        asked = asyncio.create_task(endpoint(answers, budget)(SCOPE, client.receive, client.send))
        for _ in range(1000):
            await asyncio.sleep(0)
        if how == "it leaves":
            client.leaves.set()
            await asyncio.sleep(0.01)
            client.may_go.set()  # a server drops what is sent to nobody
        else:
            asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert answers.made < PIECES
        assert answers.is_closed
        assert budget.held_bytes == 0

    asyncio.run(story())


def test_an_error_gives_back_what_was_collected(tmp_path: Path) -> None:
    async def story() -> None:
        error = TooManyRequests("too many scans")
        answers, budget, client = (
            Answers(tmp_path, in_pieces=False, error=error),
            AnswerBudget(),
            Client(),
        )
        await endpoint(answers, budget)({**SCOPE, "type": "http"}, client.receive, client.send)
        assert client.got[0]["status"] == 429
        assert budget.held_bytes == 0

    asyncio.run(story())


class Plan:
    """What a request has in hand."""


def test_an_answered_error_keeps_nothing_in_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint's own frame names the error that it shows: whole plans waited for a collection
    of all garbage, which held the loop for 70 ms."""
    plans: list[weakref.ref[Plan]] = []

    async def failing(*_: object) -> PullResponse:
        plan = Plan()
        plans.append(weakref.ref(plan))
        try:
            raise KeyError(plan)
        except KeyError as error:
            raise TooManyRequests("too many scans") from error

    async def story() -> None:
        answers, client = Answers(tmp_path, in_pieces=False), Client()
        monkeypatch.setattr(answers, "answer", failing)
        asked = endpoint(answers, AnswerBudget())
        await asked({**SCOPE, "type": "http"}, client.receive, client.send)
        assert client.got[0]["status"] == 429

    gc.disable()
    try:
        asyncio.run(story())
        assert [plan() for plan in plans] == [None]
    finally:
        gc.enable()
