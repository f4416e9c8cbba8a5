"""How answers without an end begin and end, with clients that lag or go away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from standpipe.adapters.metrics import Metrics
from standpipe.errors import NodeLeaving, ServerError, StandpipeError, TooManyPushQueries
from standpipe.node.push_registry import PushRegistry
from standpipe.node.worker.push import stream_loop
from standpipe.node.worker.push.stream_loop import Ending, LiveAnswers

Message = dict[str, Any]


class Rows:
    """A `Live` that always has a next row; `gate`: what its opening waits for."""

    headers = ((b"content-type", b"text/plain"),)
    is_over = False
    is_costly = False

    def __init__(self, gate: threading.Event | None = None) -> None:
        self._gate = gate
        self._taken = 0
        self.opened = 0
        self.closed = threading.Event()

    def open(self) -> None:
        self.opened += 1
        if self._gate is not None:
            self._gate.wait()

    def head(self) -> bytes:
        return b"head\n"

    def step(self) -> bytes | None:
        self._taken += 1
        return b"row %d\n" % self._taken

    def last(self, ending: Ending) -> bytes:
        return b"token %d\n" % self._taken

    def failed(self, error: StandpipeError) -> bytes:
        return error.message.encode()

    def close(self) -> None:
        self.closed.set()


class Client:
    """Makes room for `room` messages of the body; for one more whenever `read` is called, and when
    a message was given up: too late for it."""

    def __init__(self, room: int) -> None:
        self._room = asyncio.Semaphore(room)
        self._gone = asyncio.Event()
        self.lags = asyncio.Event()
        self.got: list[bytes] = []
        self.is_ended = False

    async def send(self, message: Message) -> None:
        """As uvicorn has it: it waits for room first, and then writes."""
        if message["type"] == "http.response.start":
            return
        if self._room.locked():
            self.lags.set()
        try:
            await self._room.acquire()
        except asyncio.CancelledError:
            self.read()
            raise
        self.got.append(message["body"])
        self.is_ended = not message["more_body"]

    async def receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def read(self) -> None:
        self._room.release()

    def go_away(self) -> None:
        self._gone.set()


def answers(tmp_path: Path, queries_max: int = 9) -> LiveAnswers:
    def as_standpipe_error(error: Exception) -> StandpipeError:
        return ServerError(str(error))

    return LiveAnswers(
        PushRegistry(tmp_path / "push", 0, queries_max),
        Metrics(0, tmp_path / "metrics"),
        as_standpipe_error,
    )


async def lagging(
    all_: LiveAnswers, client: Client, then: Callable[[], None]
) -> tuple[list[bytes], bool]:
    """What a client got that lags when the node leaves, and whether it was told the end."""
    answer = asyncio.create_task(all_.answer("q", Rows(), client.receive, client.send))
    await client.lags.wait()
    all_.leave()
    await asyncio.sleep(0)
    then()
    await answer
    return client.got, client.is_ended


@pytest.mark.parametrize("room", [0, 1, 3])
def test_no_token_past_rows_that_were_not_sent(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk that the client has no room for is taken already: the answer is cut off."""
    monkeypatch.setattr(stream_loop, "FINAL_CHUNK_S", 0.01)

    async def run() -> tuple[list[bytes], bool]:
        return await lagging(answers(tmp_path), Client(room), lambda: None)

    got, is_ended = asyncio.run(run())
    assert got == [b"head\n", b"row 1\n", b"row 2\n"][:room]
    assert not is_ended


def test_a_client_that_catches_up_gets_its_token(tmp_path: Path) -> None:
    async def run() -> tuple[list[bytes], bool]:
        client = Client(2)

        def catch_up() -> None:
            client.read()
            client.read()

        return await lagging(answers(tmp_path), client, catch_up)

    assert asyncio.run(run()) == ([b"head\n", b"row 1\n", b"row 2\n", b"token 2\n"], True)


def test_the_loop_turns_while_a_costly_step_is_made(tmp_path: Path) -> None:
    class Costly(Rows):
        is_costly = True

        def step(self) -> bytes | None:
            gate = threading.Event()
            loop.call_soon_threadsafe(gate.set)
            turned.append(gate.wait(20))
            return super().step()

    turned: list[bool] = []
    loop = asyncio.new_event_loop()

    async def run() -> None:
        client = Client(3)
        all_ = answers(tmp_path)
        answer = asyncio.create_task(all_.answer("q", Costly(), client.receive, client.send))
        await until(lambda: client.got == [b"head\n", b"row 1\n", b"row 2\n"])
        client.go_away()
        await answer

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())
    assert set(turned) == {True}


def test_a_costly_answer_is_closed_after_its_last_step(tmp_path: Path) -> None:
    """Kafka's consumer must not be closed in one thread while another one polls it."""

    class Slow(Rows):
        is_costly = True
        is_stepping = False
        was_closed_early = False

        def step(self) -> bytes | None:
            self.is_stepping = True
            loop.call_soon_threadsafe(stepping.set)
            gate.wait(20)
            self.is_stepping = False
            return None

        def close(self) -> None:
            self.was_closed_early = self.is_stepping
            super().close()

    gate, stepping = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> Slow:
        client, rows, all_ = Client(9), Slow(), answers(tmp_path)
        answer = asyncio.create_task(all_.answer("q", rows, client.receive, client.send))
        await stepping.wait()
        answer.cancel()
        await asyncio.wait([answer])
        await asyncio.sleep(0.1)  # an early close has its chance
        gate.set()
        await until(rows.closed.is_set)
        return rows

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert not runner.run(run()).was_closed_early


def test_a_client_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """Nobody reads a last message, so none is made."""

    class Quiet(Rows):
        def step(self) -> bytes | None:
            return None

        def last(self, ending: Ending) -> bytes:
            raise AssertionError(f"asked for the last message of {ending}")

        def failed(self, error: StandpipeError) -> bytes:
            errors.append(error)
            return b""

    errors: list[StandpipeError] = []

    async def run() -> Client:
        client, rows = Client(9), Quiet()
        all_ = answers(tmp_path)
        answer = asyncio.create_task(all_.answer("q", rows, client.receive, client.send))
        await until(lambda: client.got == [b"head\n"])
        client.go_away()
        await answer
        await until(rows.closed.is_set)
        return client

    client = asyncio.run(run())
    assert errors == []
    assert client.got == [b"head\n"]


async def begun(all_: LiveAnswers, query_id: str, rows: Rows, client: Client) -> asyncio.Task[None]:
    """An answer that waits for its opening."""
    answer = asyncio.create_task(all_.answer(query_id, rows, client.receive, client.send))
    await asyncio.sleep(0)
    return answer


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - threads and files tell no event
        await asyncio.sleep(0.001)


def test_clients_that_come_and_go_open_no_more_than_there_are_places(tmp_path: Path) -> None:
    """The place of one that is gone is free when its opening is done; what is opened is closed."""

    async def run() -> None:
        gate = threading.Event()
        all_ = answers(tmp_path, queries_max=stream_loop.OPENERS + 1)
        opening = [Rows(gate) for _ in range(stream_loop.OPENERS)]
        queued, client = Rows(gate), Client(0)
        tasks = [
            await begun(all_, f"q{number}", rows, client)
            for number, rows in enumerate([*opening, queued])
        ]
        await until(lambda: all(rows.opened for rows in opening))
        client.go_away()
        await asyncio.gather(*tasks)
        with pytest.raises(TooManyPushQueries):
            await all_.answer("more", Rows(), client.receive, client.send)
        gate.set()
        await until(lambda: not any((tmp_path / "push").glob("*/*")))
        await until(lambda: all(rows.closed.is_set() for rows in opening))
        assert queued.opened == 0, "its turn came after its end"

    asyncio.run(run())


def test_an_answer_that_is_ended_while_it_opens_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        gate = threading.Event()
        all_, client = answers(tmp_path), Client(0)
        rows = Rows(gate)
        answer = await begun(all_, "q", rows, client)
        all_.leave()
        with pytest.raises(NodeLeaving):
            await answer
        gate.set()
        await until(lambda: not any((tmp_path / "push").glob("*/*")))

    asyncio.run(run())


def test_between_two_steps_of_any_answers_the_loop_turns(tmp_path: Path) -> None:
    """A hundred streams with rows to show would hold up a lookup for a hundred steps."""
    steps = 0

    class Counted(Rows):
        def step(self) -> bytes | None:
            nonlocal steps
            steps += 1
            return super().step()

    async def run() -> list[int]:
        all_ = answers(tmp_path, queries_max=50)
        clients = [Client(10_000) for _ in range(50)]
        asked = [
            asyncio.create_task(all_.answer(f"q{n}", Counted(), each.receive, each.send))
            for n, each in enumerate(clients)
        ]
        seen = [0]
        while not all(len(each.got) > 3 for each in clients):
            await asyncio.sleep(0)
            seen.append(steps)
        for each in clients:
            each.go_away()
        await asyncio.gather(*asked)
        all_.close()
        return [after - before for before, after in pairwise(seen)]

    assert max(asyncio.run(run())) == 1
