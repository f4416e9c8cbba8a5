"""Lanes of statements: who waits behind whom, and how many wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from standpipe.errors import TooManyRequests
from standpipe.node.worker.statements.lanes import StatementLane, StatementLanes, lane_of

SMALL, KAFKA, LARGE = StatementLane


@pytest.mark.parametrize(
    ("text", "lane"),
    [
        ("SHOW TABLES;", SMALL),
        ("describe t extended;", SMALL),
        ("SHOW TABLES;" * 84, LARGE),
        ("create stream s (k STRING KEY) WITH (kafka_topic='s', value_format='JSON');", KAFKA),
        ("SHOW TABLES; DROP TABLE T;", KAFKA),
        ("ASSERT TOPIC t;", KAFKA),
        ("EXPLAIN CREATED_AT;", SMALL),
        ("INSERT INTO S (K) VALUES ('" + "x" * 1000 + "');", LARGE),
    ],
)
def test_lane_of(text: str, lane: StatementLane) -> None:
    assert lane_of(text) is lane


@pytest.mark.parametrize("dear", [LARGE, KAFKA], ids=["long texts", "Kafka does not answer"])
def test_a_cheap_statement_does_not_wait_behind_dear_ones(dear: StatementLane) -> None:
    """Six threads for all: six statements that waited for Kafka held up SHOW TABLES."""

    async def story() -> None:
        lanes, may_go = StatementLanes(), threading.Event()
        held = [asyncio.create_task(lanes.run(dear, may_go.wait)) for _ in range(12)]
        await asyncio.sleep(0)
        assert await lanes.run(SMALL, lambda: "at once") == "at once"
        assert not any(task.done() for task in held)
        may_go.set()
        assert all(await asyncio.gather(*held))
        lanes.close()

    asyncio.run(story())


def test_a_lane_that_is_full_refuses() -> None:
    async def story() -> None:
        lanes, may_go = StatementLanes(), threading.Event()
        room = LARGE.threads + LARGE.waiting_max
        held = [asyncio.create_task(lanes.run(LARGE, may_go.wait)) for _ in range(room)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests, match="too many statements"):
            await lanes.run(LARGE, may_go.wait)
        assert await lanes.run(KAFKA, lambda: 1) == 1, "the others have room"
        held[-1].cancel()  # its client left: its work still waits for a thread
        may_go.set()
        await asyncio.gather(*held, return_exceptions=True)
        while lanes._lanes[LARGE].pending:  # noqa: ASYNC110 no event tells it
            await asyncio.sleep(0.001)
        assert await lanes.run(LARGE, lambda: 2) == 2
        lanes.close()

    asyncio.run(story())


def test_an_error_of_the_work_is_the_callers() -> None:
    def fail() -> None:
        raise ValueError("the statement's own")

    async def story() -> None:
        lanes = StatementLanes()
        with pytest.raises(ValueError, match="the statement's own"):
            await lanes.run(SMALL, fail)
        lanes.close()

    asyncio.run(story())
