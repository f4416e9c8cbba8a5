"""The probe of a pipeline's sources. On real Kafka: tests/e2e/test_source_instant.py."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Iterator
from typing import cast

import pytest

from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.errors import KafkaUnavailable
from standpipe.pipeline.io.arrivals import Arrivals, NewRecord, Offsets
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.run.watch import source_probe
from standpipe.pipeline.run.watch.source_probe import SourceProbe


class Kafka:
    """Topics `a` and `b` exist; `asked` counts the requests for ends."""

    def __init__(self) -> None:
        self.is_down = False
        self.end = 5
        self.silent: set[str] = set()
        self.asked = threading.Semaphore(0)

    def ask_each(
        self, topics: Collection[str], _wait_s: float
    ) -> tuple[dict[str, TopicSeen], set[str]]:
        there = {t: TopicSeen(t, 2) for t in ("a", "b") if t in topics and t not in self.silent}
        return there, self.silent & {*topics}

    def ends_of(self, counts: dict[str, int]) -> dict[str, dict[int, int]]:
        self.asked.release()
        if self.is_down:
            raise KafkaUnavailable("no broker")
        return {topic: dict.fromkeys(range(count), self.end) for topic, count in counts.items()}

    def wait(self) -> None:
        """Until what was asked before this call has been noted."""
        for _ in range(2):
            assert self.asked.acquire(timeout=30)


class Records:
    """Stands for `Arrivals`: `come` has records that have come, `watched` the newest ends."""

    def __init__(self) -> None:
        self.come: queue.SimpleQueue[NewRecord] = queue.SimpleQueue()
        self.watched: Offsets = {}
        self.is_closed = threading.Event()

    def watch(self, ends: Offsets) -> None:
        self.watched = ends

    def wait(self, wait_s: float) -> list[NewRecord]:
        try:
            return [self.come.get(timeout=wait_s)]
        except queue.Empty:
            return []

    def close(self) -> None:
        self.is_closed.set()


class Sleepers:
    """A probe with two queries, and which of them it wakes."""

    def __init__(self, kafka: Kafka) -> None:
        self.records, self.woken = Records(), queue.SimpleQueue[list[str]]()
        self.probe = SourceProbe(
            log=cast(ProgressLog, kafka),
            arrivals=cast(Arrivals, self.records),
            wake=lambda names: self.woken.put(sorted(names)),
        )

    def next(self) -> list[str]:
        return self.woken.get(timeout=30)


@pytest.fixture
def sleepers(kafka: Kafka) -> Iterator[Sleepers]:
    made = Sleepers(kafka)
    made.probe.follow("Q", ["a"], 0)
    assert made.next() == ["Q"]
    made.probe.follow("R", ["a", "b"], 0)
    assert made.next() == ["R"], "topic b is seen first"
    yield made
    made.probe.stop()


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


def test_a_record_that_comes_wakes_the_queries_of_its_topic(sleepers: Sleepers) -> None:
    sleepers.records.come.put(NewRecord("b", 1, 5))
    assert sleepers.next() == ["R"]
    sleepers.records.come.put(NewRecord("a", 0, 5))
    assert sleepers.next() == ["Q", "R"]


def test_topics_that_have_grown_wake_although_no_record_was_heard_of(
    sleepers: Sleepers, kafka: Kafka
) -> None:
    kafka.end = 6
    assert sleepers.next() == ["Q", "R"]
    assert sleepers.records.watched == {t: {0: 6, 1: 6} for t in ("a", "b")}, "before the waking"


def test_what_came_while_kafka_did_not_answer_wakes_afterwards(
    sleepers: Sleepers, kafka: Kafka
) -> None:
    kafka.is_down, kafka.end = True, 9
    kafka.wait()
    kafka.wait()
    assert sleepers.woken.empty()
    assert sleepers.probe.ends("a") != {0: 9, 1: 9}
    kafka.is_down = False
    assert sleepers.next() == ["Q", "R"]
    assert sleepers.probe.ends("a") == {0: 9, 1: 9}


def test_a_topic_that_we_may_not_see_hides_no_other(
    sleepers: Sleepers, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_probe, "COUNT_EVERY_S", 0.0)
    kafka.silent = {"denied", "b"}
    sleepers.probe.follow("S", ["denied"], 0)
    kafka.wait()
    kafka.end = 6
    assert sleepers.next() == ["Q", "R"], "topic b has the partitions that it had"


def test_who_has_left_is_not_woken(sleepers: Sleepers) -> None:
    sleepers.probe.leave("R")
    sleepers.records.come.put(NewRecord("b", 1, 5))
    sleepers.records.come.put(NewRecord("a", 0, 5))
    assert sleepers.next() == ["Q"]
    sleepers.probe.stop()
    assert sleepers.records.is_closed.wait(30)


def test_a_thread_that_fails_is_noticed(
    sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver then ends, to be restarted (`run/driver.py`); queries go on by themselves."""
    failed: queue.SimpleQueue[threading.ExceptHookArgs] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", failed.put)

    def broken(_names: Collection[str]) -> None:
        raise RuntimeError("no JVM")

    sleepers.probe.wake = broken
    sleepers.records.come.put(NewRecord("b", 1, 5))
    found = failed.get(timeout=30)
    assert (found.thread and found.thread.name, str(found.exc_value)) == ("sources", "no JVM")
