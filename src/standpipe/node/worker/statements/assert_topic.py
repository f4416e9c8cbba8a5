"""ASSERT TOPIC: poll Kafka until the topic is as the statement wants it, or the time is up.

Source: ksqlDB's AssertTopicExecutor; errors are 417 with code 41700.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from standpipe.errors import AssertionRefused
from standpipe.node.worker.statements.show import Entity
from standpipe.sql.plans import AssertTopicPlan

ASK_EVERY_S: Final = 0.1
#: topic -> for each partition, how many replicas Kafka keeps of it
ReplicaCounts = Mapping[str, Sequence[int]]


async def assert_topic(
    plan: AssertTopicPlan, ask: Callable[[], Awaitable[ReplicaCounts]], text: str
) -> Entity:
    """The statement's entity once it holds. Raises AssertionRefused when the time is
    up, and what `ask` raises."""
    until = time.monotonic() + plan.timeout_ms / 1000
    while why := refusal_of(plan, await ask()):
        if time.monotonic() >= until:
            raise AssertionRefused(why)
        await asyncio.sleep(ASK_EVERY_S)
    return {
        "@type": "assert_topic",
        "statementText": text,
        "topicName": plan.topic,
        "exists": plan.exists,
        "warnings": list[object](),
    }


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
