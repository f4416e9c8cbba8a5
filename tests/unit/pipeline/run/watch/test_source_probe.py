"""The probe of a pipeline's sources. On real Kafka: tests/e2e/test_source_instant.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from standpipe.errors import KafkaUnavailable
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.run.watch.source_probe import SourceProbe


class Kafka:
    """Topics `a` and `b` exist; `asked` counts the requests for ends."""

    def __init__(self) -> None:
        self.is_down = False
        self.asked = threading.Semaphore(0)

    def partition_count(self, topic: str) -> int:
        return 2 if topic in ("a", "b") else 0

    def ends_of(self, counts: dict[str, int]) -> dict[str, dict[int, int]]:
        self.asked.release()
        if self.is_down:
            raise KafkaUnavailable("no broker")
        return {topic: dict.fromkeys(range(count), 5) for topic, count in counts.items()}

    def wait(self) -> None:
        """Until what was asked before this call has been noted."""
        for _ in range(2):
            assert self.asked.acquire(timeout=30)


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def probe(kafka: Kafka) -> Iterator[SourceProbe]:
    made = SourceProbe(log=cast(ProgressLog, kafka))
    yield made
    made.stop()


def test_a_batch_that_covers_what_was_there_has_an_instant(
    probe: SourceProbe, kafka: Kafka
) -> None:
    probe.follow("Q", ["a", "b"], 7)
    probe.follow("R", ["b", "gone"], 7)
    kafka.wait()
    all_of_it = {"a": {0: 5, 1: 5}, "b": {0: 5, 1: 5}}
    assert probe.covered("Q", {**all_of_it, "b": {0: 5, 1: 4}}) == 7, "a record is missing"
    assert probe.covered("Q", all_of_it) > 7
    assert probe.covered("R", all_of_it) == 7, "nothing is known of one of its topics"
    probe.leave("Q")
    assert probe.covered("Q", all_of_it) == 0


def test_while_kafka_is_down_no_instant_is_new(probe: SourceProbe, kafka: Kafka) -> None:
    kafka.is_down = True
    probe.follow("Q", ["a"], 7)
    kafka.wait()
    assert probe.covered("Q", {"a": {0: 9, 1: 9}}) == 7
    kafka.is_down = False
    kafka.wait()
    kafka.wait()
    assert probe.covered("Q", {"a": {0: 9, 1: 9}}) > 7, "and the thread still runs"
