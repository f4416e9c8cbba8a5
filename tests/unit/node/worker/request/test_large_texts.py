"""Large texts are planned while the event loop goes on, in turn, and only so many wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from itertools import pairwise

import pytest
from tests.samples import sample_table

from standpipe.errors import StatementError, TooManyRequests
from standpipe.node.worker.request.body import Lookup
from standpipe.node.worker.request.large_texts import (
    INLINE_CHARS_MAX,
    MEDIUM_CHARS_MAX,
    PENDING_MAX,
    LargeTexts,
)
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.sql.lookup.plan_cache import Compiled, PlanCache

USERS = sample_table(name="USERS", is_materialized=True)
SHORT = "SELECT * FROM USERS WHERE K = 'a';"


def large(keys: int = 200) -> str:
    listed = ", ".join(f"'key-{n}'" for n in range(keys))
    return f"SELECT * FROM USERS WHERE K IN ({listed});"


class Watched(PlanCache):
    """Notes which thread compiles, and waits there until it is let go."""

    def __init__(self) -> None:
        super().__init__({"USERS": USERS})
        self.threads: list[str] = []
        self.may_go = threading.Event()
        self.stops = INLINE_CHARS_MAX

    def compiled(self, text: str, properties: Mapping[str, str]) -> Compiled:
        self.threads.append(threading.current_thread().name)
        if len(text) > self.stops:
            assert self.may_go.wait(10)
        return super().compiled(text, properties)


def test_a_large_text_does_not_hold_up_a_short_one() -> None:
    async def story() -> None:
        plans, texts = Watched(), LargeTexts()
        planning = asyncio.create_task(texts.plan(plans, Lookup(large())))
        await asyncio.sleep(0)
        assert len((await texts.plan(plans, Lookup(SHORT))).keys) == 1
        assert not planning.done(), "it waits in its thread"
        plans.may_go.set()
        assert len((await planning).keys) == 200
        assert [name.partition("_")[0] for name in plans.threads] == [
            "medium-texts-of-clients",
            "MainThread",
        ]
        texts.close()

    asyncio.run(story())


def test_a_shape_that_is_known_needs_no_thread() -> None:
    async def story() -> None:
        plans, texts = Watched(), LargeTexts()
        plans.may_go.set()
        text = SHORT.replace("'a'", "'" + "a" * INLINE_CHARS_MAX + "'")
        plans.plan(SHORT, {})
        assert (await texts.plan(plans, Lookup(text))).keys == (("a" * INLINE_CHARS_MAX,),)
        assert len(plans.threads) == 1, "the short one alone was compiled"
        texts.close()

    asyncio.run(story())


def test_some_lines_do_not_wait_behind_some_pages() -> None:
    async def story() -> None:
        plans, texts = Watched(), LargeTexts()
        plans.stops = MEDIUM_CHARS_MAX
        planning = asyncio.create_task(texts.plan(plans, Lookup(large(900))))
        await asyncio.sleep(0)
        assert len((await texts.plan(plans, Lookup(large(100)))).keys) == 100
        assert not planning.done()
        plans.may_go.set()
        assert len((await planning).keys) == 900
        texts.close()

    asyncio.run(story())


def test_between_two_texts_that_are_planned_on_the_loop_it_turns() -> None:
    """Fifty clients with fifty new shapes held it up for all of them together."""

    async def story() -> list[int]:
        plans, texts = Watched(), LargeTexts()
        columns = ["K" + ", K" * number for number in range(20)]
        asked = [
            asyncio.create_task(
                texts.plan(plans, Lookup(f"SELECT {each} FROM USERS WHERE K = 'a';"))
            )
            for each in columns
        ]
        seen = [0]
        while not all(task.done() for task in asked):
            await asyncio.sleep(0)
            seen.append(len(plans.threads))
        texts.close()
        assert len(plans.threads) == len(columns)
        return [after - before for before, after in pairwise(seen)]

    assert max(asyncio.run(story())) == 1


def test_errors_are_those_of_a_short_text() -> None:
    async def story() -> None:
        plans, texts = Watched(), LargeTexts()
        plans.may_go.set()
        with pytest.raises(StatementError, match="1001 keys"):
            await texts.plan(plans, Lookup(large(1_001)))
        texts.close()

    asyncio.run(story())


def test_only_so_many_wait_also_when_their_clients_have_left() -> None:
    async def story() -> None:
        plans, texts = Watched(), LargeTexts()
        waiting = [
            asyncio.create_task(texts.plan(plans, Lookup(large()))) for _ in range(PENDING_MAX[0])
        ]
        await asyncio.sleep(0)
        waiting[0].cancel()
        with pytest.raises(TooManyRequests) as caught:
            await texts.plan(plans, Lookup(large()))
        assert (caught.value.status, caught.value.retry_after_s) == (429, 1)
        peer = ScanRequester(is_peer=True)
        forwarded = asyncio.create_task(texts.plan(plans, Lookup(large()), requester=peer))
        plans.may_go.set()
        assert len((await forwarded).keys) == 200, "peers have a lane of their own"
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert len((await texts.plan(plans, Lookup(large()))).keys) == 200
        texts.close()

    asyncio.run(story())
