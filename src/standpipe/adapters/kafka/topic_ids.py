"""Kafka's ids of topics, and how many partitions they have.

`ask` sends the request and returns a function that collects the answer, so that a batch can send it
beside its other request. `TopicProbe` polls without blocking, for the tailer's loop.
`RecentTopicIds` asks at most once in a while, for workers. What the answers mean:
`data/commit/topic_identity.py`. None of them makes a broker create a topic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin
from confluent_kafka import KafkaError

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.reader import CLIENT_OPTIONS, throttled_error_logger
from standpipe.adapters.kafka.refusals import refused
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.errors import KafkaUnavailable

#: hints of confluent_kafka are partial; what leaves this module is typed
_kafka: Any = confluent_kafka
_admin: Any = confluent_kafka.admin

PROBE_MS: Final = 1000  # between two requests of a tailer
NEWS_MS: Final = 100  # when there are topics that it has not asked about
TIMEOUT_S: Final = 2.0
RECENT_S: Final = 3.0  # a topic that was created again may be taken for the old one for so long
_ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})


def ask(
    client: Any, topics: Collection[str], timeout_s: float, kafka: Kafka
) -> Callable[[], dict[str, TopicSeen]]:
    """Ask for `topics` -> a function that waits for those that exist. Raises KafkaUnavailable.
    `kafka`: what the client was made from, for errors."""
    try:
        answers: Mapping[str, Future[Any]] = (
            client.describe_topics(
                _kafka.TopicCollection([*topics]),
                request_timeout=timeout_s,
            )
            if topics
            else {}
        )
    except _kafka.KafkaException as error:
        raise KafkaUnavailable(f"Kafka: {error}") from error
    return lambda: {
        topic: seen
        for topic, answer in answers.items()
        if (seen := _seen(topic, answer, timeout_s, kafka))
    }


def ask_each(
    client: Any, topics: Collection[str], timeout_s: float, kafka: Kafka
) -> tuple[dict[str, TopicSeen], dict[str, str]]:
    """Those of `topics` that exist; and by topic, why Kafka gave no answer about it. Blocks."""
    if not topics:
        return {}, {}
    answers: Mapping[str, Future[Any]] = client.describe_topics(
        _kafka.TopicCollection([*topics]), request_timeout=timeout_s
    )
    found: dict[str, TopicSeen] = {}
    faults: dict[str, str] = {}
    for topic, answer in answers.items():
        try:
            if seen := _seen(topic, answer, timeout_s, kafka):
                found[topic] = seen
        except KafkaUnavailable as error:
            faults[topic] = error.message
    return found, faults


def _seen(topic: str, answer: Future[Any], timeout_s: float, kafka: Kafka) -> TopicSeen | None:
    try:
        found = answer.result(timeout_s * 2)
    except _kafka.KafkaException as error:
        if error.args[0].code() in _ABSENT:
            return None
        denied = refused(kafka, error, "Describe", topic)
        raise denied or KafkaUnavailable(f"Kafka: {error}") from error
    except TimeoutError as error:
        raise KafkaUnavailable("Kafka does not answer") from error
    has_id = (
        found.topic_id.get_most_significant_bits() | found.topic_id.get_least_significant_bits()
    )
    return TopicSeen(str(found.topic_id) if has_id else "", len(found.partitions))


def topics_now(kafka: Kafka, topics: Collection[str]) -> dict[str, TopicSeen]:
    """Those of the topics that exist, asked by a separate client. Raises KafkaUnavailable."""
    client = _admin.AdminClient({**connection_of(kafka).librdkafka(), "log_level": 0})
    return ask(client, topics, TIMEOUT_S, kafka)()


class RecentTopicIds:
    """Kafka's ids of topics that are written again and again. Threads may share it."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._client: Any = None
        self._lock = threading.Lock()
        #: {topic: (until when it counts, by the monotonic clock; its id)}
        self._known: dict[str, tuple[float, str]] = {}

    def of(self, topics: Collection[str]) -> dict[str, str]:
        """The ids, at most RECENT_S old. A topic is left out if it does not exist, or Kafka gives
        no answer about it. Blocks."""
        with self._lock:
            now_s = time.monotonic()
            self._known = {t: known for t, known in self._known.items() if known[0] > now_s}
            missing = [topic for topic in topics if topic not in self._known]
            if missing:
                if self._client is None:
                    options = {**connection_of(self._kafka).librdkafka(), "log_level": 0}
                    self._client = _admin.AdminClient(options)
                seen, _ = ask_each(self._client, missing, TIMEOUT_S, self._kafka)
                told = {t: (now_s + RECENT_S, each.topic_id) for t, each in seen.items()}
                self._known.update(told)
            return {topic: self._known[topic][1] for topic in topics if topic in self._known}


class TopicProbe:
    """Asks which topics have these names, one request at a time, and never waits."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._client = _admin.AdminClient(
            {
                **CLIENT_OPTIONS,
                **connection_of(kafka).librdkafka(),
                "error_cb": throttled_error_logger(),
            }
        )
        self._answers: Mapping[str, Future[Any]] = {}
        self._asked: frozenset[str] = frozenset()
        self._asked_ms = -PROBE_MS

    def tick(self, now_ms: int, topics: frozenset[str]) -> tuple[int, dict[str, TopicSeen]] | None:
        """(instant of the request, what Kafka said of each topic) when answers have arrived since
        the last call. Topics that are absent, or for which it gave no answer, are left out."""
        heard: tuple[int, dict[str, TopicSeen]] | None = None
        if self._answers and all(answer.done() for answer in self._answers.values()):
            heard = self._asked_ms, dict(_seen_now(self._answers, self._kafka))
            self._answers = dict[str, Future[Any]]()
        if not self._answers and topics:
            is_news = not topics <= self._asked
            if now_ms - self._asked_ms >= (NEWS_MS if is_news else PROBE_MS):
                self._asked, self._asked_ms = topics, now_ms
                self._answers = self._client.describe_topics(
                    _kafka.TopicCollection([*topics]), request_timeout=TIMEOUT_S
                )
                self._client.poll(0)  # serves error_cb
        return heard


def _seen_now(answers: Mapping[str, Future[Any]], kafka: Kafka) -> list[tuple[str, TopicSeen]]:
    found: list[tuple[str, TopicSeen]] = []
    for topic, answer in answers.items():
        try:
            seen = _seen(topic, answer, 0, kafka)
        except KafkaUnavailable:
            continue
        if seen is not None:
            found.append((topic, seen))
    return found
