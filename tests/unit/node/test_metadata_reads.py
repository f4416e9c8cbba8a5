"""What a request may ask for. The reads themselves are in tests/e2e/test_control_node.py."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from standpipe.adapters.peer_client import PathFailed, PeerClient, Response
from standpipe.errors import BadRequest, LogUnavailable
from standpipe.node.metadata_reads import ReadIndexes, is_linearizable


@pytest.mark.parametrize(
    ("properties", "is_asked"),
    [
        ({}, False),
        ({"standpipe.consistency": "local"}, False),
        ({"standpipe.consistency": "linearizable"}, True),
        ({"standpipe.consistency": "Linearizable"}, True),
    ],
)
def test_which_is_asked_for(properties: dict[str, str], is_asked: bool) -> None:
    assert is_linearizable(properties) is is_asked


def test_nothing_else_is_guessed() -> None:
    with pytest.raises(BadRequest, match="local or linearizable, not 'strong'"):
        is_linearizable({"standpipe.consistency": "strong"})


class Control:
    """Answers a question with its number, once it is let to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Semaphore(0)
        self.fails = False

    async def request(self, *_: Any, **__: Any) -> Response:
        self.asked += 1
        number = self.asked
        await self.answers.acquire()
        if self.fails:
            raise PathFailed("refused")
        return Response(200, {}, b'{"log_index": %d}' % number)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_reads_share_a_question_but_never_one_that_was_asked_before_them() -> None:
    async def story() -> None:
        control = Control()
        reads = ReadIndexes(cast("PeerClient", control), "a:1")
        early = [asyncio.create_task(reads.newest()) for _ in range(3)]
        await settle()
        assert control.asked == 1, "all three share it"
        late = [asyncio.create_task(reads.newest()) for _ in range(4)]
        await settle()
        assert control.asked == 1, "one at a time"
        late[0].cancel()
        control.answers.release()
        assert [await one for one in early] == [1, 1, 1]
        await settle()
        assert control.asked == 2
        control.answers.release()
        assert [await one for one in late[1:]] == [2, 2, 2], "the first one did not cover them"

    asyncio.run(story())


def test_a_question_that_fails_fails_its_reads_alone() -> None:
    async def story() -> None:
        control = Control()
        reads = ReadIndexes(cast("PeerClient", control), "a:1")
        control.fails = True
        control.answers.release()
        with pytest.raises(LogUnavailable, match="refused"):
            await reads.newest()
        control.fails = False
        control.answers.release()
        assert await reads.newest() == 2

    asyncio.run(story())
