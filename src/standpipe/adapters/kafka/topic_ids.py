"""Kafka's ids of topics, and how many partitions they have.

`ask` sends the request and returns a function that collects the answer, so that a batch can send it
beside its other request. `TopicProbe` polls without blocking, for the tailer's loop.
`TopicIds` asks one question at a time, for workers. What the answers mean:
`data/commit/topic_identity.py`. None of them makes a broker create a topic.
"""

from __future__ import annotations

import asyncio
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
        fault = answer.exception(timeout_s * 2)
    except TimeoutError as error:
        raise KafkaUnavailable("Kafka does not answer") from error
    # not raised here, nor is a local raised: an error that has a frame which has the error is a
    # cycle, and a tailer collects none
    if fault is not None and isinstance(fault, _kafka.KafkaException):
        if fault.args[0].code() in _ABSENT:
            return None
        raise refused(kafka, fault, "Describe", topic) or KafkaUnavailable(
            f"Kafka: {fault}"
        ) from fault
    found = answer.result()
    has_id = (
        found.topic_id.get_most_significant_bits() | found.topic_id.get_least_significant_bits()
    )
    return TopicSeen(str(found.topic_id) if has_id else "", len(found.partitions))


def topics_now(kafka: Kafka, topics: Collection[str]) -> dict[str, TopicSeen]:
    """Those of the topics that exist, asked by a separate client. Raises KafkaUnavailable."""
    client = _admin.AdminClient({**connection_of(kafka).librdkafka(), "log_level": 0})
    return ask(client, topics, TIMEOUT_S, kafka)()


class TopicIds:
    """Kafka's ids of topics that were written just now, for one event loop.

    The question is asked after the call, so after Kafka has acknowledged the caller's rows: an
    older answer may be of a topic that was deleted since. One is asked at a time, and all who come
    meanwhile share the next one.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._client: Any = None
        self._turn = asyncio.Lock()
        #: the question that is not asked yet, and about which topics
        self._next: asyncio.Task[dict[str, str]] | None = None
        self._wanted = set[str]()

    async def of(self, topics: Collection[str]) -> dict[str, str]:
        """The ids. A topic is left out if it does not exist, or Kafka gives no answer about it."""
        self._wanted.update(topics)
        if self._next is None:
            self._next = asyncio.create_task(self._ask())
        found = await asyncio.shield(self._next)
        return {topic: found[topic] for topic in topics if topic in found}

    async def _ask(self) -> dict[str, str]:
        async with self._turn:
            wanted, self._wanted, self._next = self._wanted, set[str](), None
            return await asyncio.to_thread(self._ids, wanted)

    def _ids(self, topics: Collection[str]) -> dict[str, str]:
        try:
            if self._client is None:
                options = {**connection_of(self._kafka).librdkafka(), "log_level": 0}
                self._client = _admin.AdminClient(options)
            seen, _ = ask_each(self._client, topics, TIMEOUT_S, self._kafka)
        except _kafka.KafkaException:
            return {}
        return {topic: each.topic_id for topic, each in seen.items()}


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
