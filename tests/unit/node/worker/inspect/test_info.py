"""What health says of Kafka."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.node.workers import page

from standpipe.model import ReplicaStatus
from standpipe.node.worker.inspect.info import KAFKA_SILENT_MS_MAX, _kafka

NOW_MS = 1_000_000


def known_at(boot_ms: int) -> ReplicaStatus:
    return replace(page(), confirmed_boot_ms=0, known_boot_ms=boot_ms)


LATE_MS = NOW_MS - KAFKA_SILENT_MS_MAX


@pytest.mark.parametrize(
    ("statuses", "failed", "is_healthy", "age_ms", "why"),
    [
        ([], [], True, None, "a node without replicas asks Kafka for nothing"),
        ([None, known_at(0)], [], True, None, "it starts, and knows no end yet"),
        ([known_at(NOW_MS - 700)], [], True, 700, "Kafka answers"),
        ([known_at(LATE_MS)], [], True, KAFKA_SILENT_MS_MAX, "just in time"),
        ([known_at(LATE_MS - 1)], [], False, KAFKA_SILENT_MS_MAX + 1, "Kafka is silent"),
        ([known_at(LATE_MS - 9), known_at(NOW_MS)], [], True, 0, "one is known: Kafka is there"),
        ([known_at(NOW_MS)], ["T1-1-0"], False, 0, "a replica has failed"),
    ],
)
def test_kafka_is_as_healthy_as_its_last_answer(
    statuses: list[ReplicaStatus | None],
    failed: list[str],
    is_healthy: bool,
    age_ms: int | None,
    why: str,
) -> None:
    found = _kafka(statuses, failed, NOW_MS)
    assert found["isHealthy"] is is_healthy, why
    assert found.get("answeredMsAgo") == age_ms, why
    assert found.get("failedReplicas", []) == failed
