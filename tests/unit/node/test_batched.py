"""Who shares an answer with whom."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.node.worker.pull.test_hedging import timeless

from standpipe.node.batched import Shared


class Oracle:
    """Answers a question with its number, once it is let to."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Semaphore(0)
        self.fails = False

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        await self.may_answer.acquire()
        if self.fails:
            raise ConnectionError("nobody there")
        return number


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_an_answer_never_serves_who_came_after_its_question() -> None:
    async def story() -> None:
        oracle = Oracle()
        shared = Shared(oracle.ask)
        early = [asyncio.create_task(shared.answer()) for _ in range(3)]
        await settle()
        assert oracle.asked == 1, "all three share it"
        late = [asyncio.create_task(shared.answer()) for _ in range(4)]
        await settle()
        assert oracle.asked == 1, "one at a time"
        late[0].cancel()
        oracle.may_answer.release()
        assert [await one for one in early] == [1, 1, 1]
        await settle()
        assert oracle.asked == 2
        oracle.may_answer.release()
        assert [await one for one in late[1:]] == [2, 2, 2], "the first one did not cover them"
        again = asyncio.create_task(shared.answer())
        oracle.may_answer.release()
        assert await again == 3

    asyncio.run(story())


def test_questions_keep_their_distance_and_serve_all_who_came_by_then() -> None:
    async def story() -> None:
        oracle = Oracle()
        shared = Shared(oracle.ask, 0.05)
        loop = asyncio.get_running_loop()
        for _ in range(3):
            oracle.may_answer.release()
        began_s = loop.time()
        assert await shared.answer() == 1, "the first one at once"
        waiting = [asyncio.create_task(shared.answer()) for _ in range(2)]
        await asyncio.sleep(0.01)
        waiting.append(asyncio.create_task(shared.answer()))
        assert oracle.asked == 1
        assert [await one for one in waiting] == [2, 2, 2]
        assert loop.time() - began_s >= 0.05

    timeless(story())


def test_a_question_that_fails_fails_its_askers_alone() -> None:
    async def story() -> None:
        oracle = Oracle()
        shared = Shared(oracle.ask)
        oracle.fails = True
        oracle.may_answer.release()
        with pytest.raises(ConnectionError, match="nobody there"):
            await shared.answer()
        oracle.fails = False
        oracle.may_answer.release()
        assert await shared.answer() == 2

    asyncio.run(story())


def test_an_error_that_nobody_waits_for_any_more_warns_nobody() -> None:
    told: list[object] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        oracle = Oracle()
        oracle.fails = True
        shared = Shared(oracle.ask)
        waiting = asyncio.create_task(shared.answer())
        await settle()
        waiting.cancel()
        oracle.may_answer.release()
        await settle()
        del shared, waiting
        await settle()

    asyncio.run(story())
    assert told == []
