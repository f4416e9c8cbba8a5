"""ASSERT TOPIC: poll Kafka until the topic is as the statement wants it, or the time is up.

All that wait at a worker share one question to Kafka (`TopicAsserts.replica_counts`), and only
WAITING_MAX may wait: clients choose how long, and each holds a connection.

Source: ksqlDB's AssertTopicExecutor; errors are 417 with code 41700.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from standpipe.errors import AssertionRefused, TooManyRequests
from standpipe.node.batched import Shared
from standpipe.node.worker.statements.show import Entity
from standpipe.sql.plans import AssertTopicPlan

ASK_EVERY_S: Final = 0.1
#: statements of one worker
WAITING_MAX: Final = 64
#: topic -> for each partition, how many replicas Kafka keeps of it
ReplicaCounts = Mapping[str, Sequence[int]]


class TopicAsserts:
    """The ASSERT TOPIC statements of one worker. `ask` asks Kafka about all topics."""

    def __init__(self, ask: Callable[[], Awaitable[ReplicaCounts]]) -> None:
        self._counts = Shared(ask, every_s=ASK_EVERY_S)
        self._waiting = 0

    async def replica_counts(self) -> ReplicaCounts:
        """Kafka's topics, by a question that is sent after this call. Raises what `ask` raises."""
        return await self._counts.answer()

    async def carry_out(self, plan: AssertTopicPlan, text: str) -> Entity:
        """The statement's entity once it holds. Raises AssertionRefused when the time is up,
        TooManyRequests, and what `ask` raises."""
        if self._waiting >= WAITING_MAX:
            raise TooManyRequests("too many ASSERT TOPIC wait at this worker: retry in a second")
        self._waiting += 1
        try:
            await self._hold(plan)
        finally:
            self._waiting -= 1
        return {
            "@type": "assert_topic",
            "statementText": text,
            "topicName": plan.topic,
            "exists": plan.exists,
            "warnings": list[object](),
        }

    async def _hold(self, plan: AssertTopicPlan) -> None:
        until = time.monotonic() + plan.timeout_ms / 1000
        while why := refusal_of(plan, await self.replica_counts()):
            if time.monotonic() >= until:
                raise AssertionRefused(why)
            await asyncio.sleep(ASK_EVERY_S)


def refusal_of(plan: AssertTopicPlan, topics: ReplicaCounts) -> str:
    """How Kafka's topics differ from the statement; "" if they do not."""
    found = topics.get(plan.topic)
    if not plan.exists:
        return "" if found is None else f"Topic {plan.topic} exists"
    if found is None:
        return f"Topic {plan.topic} does not exist"
    for name, wanted, given in (
        ("partitions", plan.partitions, len(found)),
        ("replicas", plan.replicas, min(found, default=0)),
    ):
        if wanted is not None and wanted != given:
            return (
                f"Mismatched configuration for topic {plan.topic}: For config {name}, expected"
                f" {wanted} got {given}"
            )
    return ""
