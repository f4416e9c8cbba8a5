"""Partition counts and ids of topics: from known sources, else from Kafka, asked only where
necessary.

Not here: what an unknown topic means to a statement (`sql.ddl.create`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from standpipe.control.metadata.topic_reconciler import ObservedTopic
from standpipe.errors import KafkaUnavailable

#: how long before a topic counts as absent: its creation is confirmed before every broker knows it
ABSENT_S: Final = 1.0
LOOK_PAUSE_S: Final = 0.05
#: how long Kafka counts as silent once it was, and how long it took to be found so
SILENT_S: Final = 1.0

#: partition counts by topic; blocks, raises KafkaUnavailable
AskTopics = Callable[[], Mapping[str, int]]


class KafkaSilence:
    """Kafka's silence, kept for SILENT_S: the requests after the one that waited for Kafka fail at
    once. A refusal that came quickly is not kept: asking again costs nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failure: KafkaUnavailable | None = None
        self._until_s = 0.0

    def unless_silent(self, ask: AskTopics) -> AskTopics:
        """`ask`, which is not called while the silence lasts. Not for two threads at once."""

        def asked() -> Mapping[str, int]:
            began_s = self._clock()
            if self._failure is not None and began_s < self._until_s:
                raise self._failure.with_traceback(None)
            self._failure = None
            try:
                return ask()
            except KafkaUnavailable as failure:
                now_s = self._clock()
                if now_s - began_s >= SILENT_S:
                    self._failure, self._until_s = failure, now_s + SILENT_S
                raise

        return asked


class KafkaTopics:
    """Kafka's answer about all topics, kept for a request; so is its failure, as each try takes
    seconds while Kafka is silent.

    `ask` blocks; it raises KafkaUnavailable, as does every look if it is None.
    """

    def __init__(self, ask: AskTopics | None) -> None:
        self._ask = ask
        self._counts: Mapping[str, int] | None = None
        self._failure: KafkaUnavailable | None = None

    def look(self) -> Mapping[str, int]:
        """Partition counts by topic, as they were when they were first looked up."""
        return self._counts if self._counts is not None else self.look_again()

    def look_again(self) -> Mapping[str, int]:
        """Partition counts by topic as of now, kept for `look`. Raises KafkaUnavailable."""
        if self._ask is None:
            raise KafkaUnavailable("no Kafka is configured: node.json names no bootstrap servers")
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        try:
            self._counts = self._ask()
        except KafkaUnavailable as failure:
            self._failure = failure
            raise
        return self._counts


class TopicPartitions(Mapping[str, int]):
    """Partition counts by topic. Raises KafkaUnavailable from every access that asks Kafka.

    Subscripting is for a topic that should exist: one that Kafka does not know is looked up again
    for ABSENT_S, so it must not run on an event loop. `get` and `in` look once.
    """

    def __init__(self, kafka: KafkaTopics, known: Mapping[str, int] | None = None) -> None:
        self._kafka = kafka
        self._known = known or {}

    def __getitem__(self, name: str) -> int:
        if name in self._known:
            return self._known[name]
        counts = self._kafka.look()
        deadline = time.monotonic() + ABSENT_S
        while name not in counts and time.monotonic() < deadline:
            time.sleep(LOOK_PAUSE_S)
            counts = self._kafka.look_again()
        return counts[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Partition count of a topic, looked up once."""
        return self._known[name] if name in self._known else self._kafka.look().get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._kafka.look()

    def __iter__(self) -> Iterator[str]:
        return iter({**self._kafka.look(), **self._known})

    def __len__(self) -> int:
        return len({**self._kafka.look(), **self._known})


def topic_id_of(ask: Callable[[list[str]], Mapping[str, ObservedTopic]], name: str) -> str:
    """Kafka's id of a topic that exists; "": it gives none. `ask` blocks. Raises KafkaUnavailable
    from it, and if Kafka does not say."""
    deadline = time.monotonic() + ABSENT_S
    while (seen := ask([name]).get(name)) is None or seen.topic_id is None:
        if time.monotonic() >= deadline:
            why = "it is gone" if seen is None else seen.fault
            raise KafkaUnavailable(f"Kafka does not say which topic {name} is: {why}")
        time.sleep(LOOK_PAUSE_S)
    return seen.topic_id
