"""Bodies that are read at the same time: together they are bounded, and the oldest gives way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.adapters.http.request_body import SMALL_BYTES_MAX, LargeBodies, read_body
from standpipe.adapters.http.server import Message
from standpipe.errors import BadRequest, BodyTooLarge, StandpipeError, TooManyRequests

#: of one body
BYTES_MAX = 300_000


class Upload:
    """A body that a client sends part by part."""

    def __init__(self, large: LargeBodies) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self.sent = 0
        self.reading = asyncio.create_task(
            read_body([], self._messages.get, BYTES_MAX, large), name="a body"
        )

    async def send(self, size: int, *, is_last: bool = False) -> None:
        self.sent += size
        body = {"type": "http.request", "body": b"x" * size, "more_body": not is_last}
        await self._put(body)

    async def leave(self) -> None:
        await self._put({"type": "http.disconnect"})

    async def _put(self, message: Message) -> None:
        self._messages.put_nowait(message)
        for _ in range(4):  # it is read, and who gives way has noticed
            await asyncio.sleep(0)

    async def ended(self) -> int | type[StandpipeError]:
        """Its length, or why it was not read."""
        try:
            return len(await self.reading)
        except StandpipeError as error:
            return type(error)


def run(story: Callable[[LargeBodies], Awaitable[None]], room: int) -> None:
    async def whole() -> None:
        large = LargeBodies(room)
        async with asyncio.timeout(30):
            await story(large)
        assert (large._bytes, large._begun) == (0, {}), "all was given back"

    asyncio.run(whole())


def test_the_oldest_of_the_large_bodies_gives_way() -> None:
    """Four hundred bodies of a megabyte that never ended took 400 MB of a worker."""

    async def story(large: LargeBodies) -> None:
        small, stalled, other = Upload(large), Upload(large), Upload(large)
        await small.send(SMALL_BYTES_MAX)
        await stalled.send(SMALL_BYTES_MAX + 60_000)
        await other.send(SMALL_BYTES_MAX + 40_000)
        assert not stalled.reading.done(), "there is room for exactly these"
        await other.send(1)
        assert await stalled.ended() is TooManyRequests
        await other.send(9, is_last=True)
        await small.send(9, is_last=True)
        assert await other.ended() == SMALL_BYTES_MAX + 40_010
        assert await small.ended() == SMALL_BYTES_MAX + 9, "small ones always have room"

    run(story, 100_000)


def test_one_alone_may_be_larger() -> None:
    async def story(large: LargeBodies) -> None:
        upload = Upload(large)
        await upload.send(BYTES_MAX - 1)
        await upload.send(1, is_last=True)
        assert await upload.ended() == BYTES_MAX

    run(story, 1000)


@pytest.mark.parametrize("size", [10, SMALL_BYTES_MAX + 10])
def test_what_a_client_sent_that_left_is_given_back(size: int) -> None:
    async def story(large: LargeBodies) -> None:
        upload, cancelled, too_large = Upload(large), Upload(large), Upload(large)
        await upload.send(size)
        await upload.leave()
        assert await upload.ended() is BadRequest
        await cancelled.send(size)
        cancelled.reading.cancel()
        await asyncio.wait([cancelled.reading])
        await too_large.send(BYTES_MAX - 1)
        await too_large.send(2)
        assert await too_large.ended() is BodyTooLarge

    run(story, 1_000_000)


@settings(max_examples=examples(50), deadline=None)
@example(steps=[(1, 91_073, 1), (0, 120_000, 1), (1, 120_000, 1)])  # the oldest grows
@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 120_000), st.integers(0, 3))))
def test_never_more_than_the_room(steps: Sequence[tuple[int, int, int]]) -> None:
    """Whoever sends what: the bodies fit, and each is read as it was sent, or refused."""

    async def story(large: LargeBodies) -> None:
        uploads: dict[int, Upload] = {}
        ended: list[Upload] = []
        for number, size, last in steps:
            upload = uploads.get(number) or Upload(large)
            uploads[number] = upload
            await upload.send(size, is_last=last == 0)
            open_ = [each for each in uploads.values() if not each.reading.done()]
            above = [max(0, each.sent - SMALL_BYTES_MAX) for each in open_]
            assert sum(above) <= 200_000 or len([each for each in above if each]) == 1
            if upload.reading.done():
                ended.append(uploads.pop(number))
        for upload in uploads.values():
            if not upload.reading.done():
                await upload.send(0, is_last=True)
            ended.append(upload)
        for upload in ended:
            assert await upload.ended() in (upload.sent, TooManyRequests, BodyTooLarge)

    run(story, 200_000)
