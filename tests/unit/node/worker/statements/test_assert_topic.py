"""ASSERT TOPIC against what Kafka says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from standpipe.errors import AssertionRefused, TooManyRequests
from standpipe.node.worker.statements.assert_topic import (
    WAITING_MAX,
    ReplicaCounts,
    TopicAsserts,
    refusal_of,
)
from standpipe.sql.plans import AssertTopicPlan

TOPICS = {"there": [3, 3]}


def wanted(topic: str, *, exists: bool = True, **more: int) -> AssertTopicPlan:
    return AssertTopicPlan(topic=topic, exists=exists, timeout_ms=0, **more)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (wanted("there"), ""),
        (wanted("there", partitions=2, replicas=3), ""),
        (wanted("there", partitions=1), "For config partitions, expected 1 got 2"),
        (wanted("there", replicas=1), "For config replicas, expected 1 got 3"),
        (wanted("away"), "Topic away does not exist"),
        (wanted("away", exists=False), ""),
        (wanted("there", exists=False), "Topic there exists"),
    ],
)
def test_refusals(plan: AssertTopicPlan, why: str) -> None:
    assert refusal_of(plan, TOPICS).endswith(why)
    assert bool(refusal_of(plan, TOPICS)) == bool(why)


def test_it_asks_until_its_time_is_over() -> None:
    answers: Iterator[dict[str, list[int]]] = iter([{}, {"late": [1]}])
    plan = AssertTopicPlan(topic="late", exists=True, timeout_ms=10_000)

    async def ask() -> dict[str, list[int]]:
        return next(answers, {})

    async def both() -> None:
        asserts = TopicAsserts(ask)
        entity = await asserts.carry_out(plan, "ASSERT …;")
        assert (entity["topicName"], entity["exists"]) == ("late", True)
        with pytest.raises(AssertionRefused, match="does not exist"):
            await asserts.carry_out(wanted("away"), "ASSERT …;")

    asyncio.run(both())


def test_those_that_wait_share_one_question_and_are_few() -> None:
    """Each asked in a lane of four threads, ten times a second, for as long as it liked."""

    async def fill() -> None:
        asked, may_answer = 0, asyncio.Event()

        async def ask() -> ReplicaCounts:
            nonlocal asked
            asked += 1
            await may_answer.wait()
            return TOPICS

        asserts = TopicAsserts(ask)
        waiting = [
            asyncio.create_task(asserts.carry_out(wanted("there"), "")) for _ in range(WAITING_MAX)
        ]
        await asyncio.sleep(0)  # all have begun
        with pytest.raises(TooManyRequests):
            await asserts.carry_out(wanted("there"), "")
        waiting.pop().cancel()  # its client has gone: its place is free
        await asyncio.sleep(0)
        waiting.append(asyncio.create_task(asserts.carry_out(wanted("there"), "")))
        may_answer.set()
        await asyncio.gather(*waiting)
        assert asked <= 2

    asyncio.run(fill())
