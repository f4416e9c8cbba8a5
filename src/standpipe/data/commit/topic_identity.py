"""Whether a topic is still the same one: Kafka gives each an id that it never reuses (KIP-516).

A topic that was deleted and recreated has the same name, and after a while offsets as high as
before. A process that trusts only names and offsets would commit, skip or serve the wrong records.
So a progress record names the topics that its offsets belong to (`Progress.topic_id`,
`source_topic_ids`), and both sides compare that with Kafka's answer: the writer before it writes
and before it commits (`changes`), a replica before it applies (`TopicChecker`).

A process may pause between the answer and the next record that it reads, and the topic may be
recreated meanwhile, so an answer is valid for HEARD_MS_MAX. If a topic is recreated and filled
within that time, a replica may read from it before it notices.

A broker's metadata may be briefly stale: an answer that a topic is absent, or is a different one,
counts only when it persists (`LASTED_MS`). For writers a different id counts at once: they stop,
which does no harm.

Not here: asking Kafka (`adapters/kafka/topic_ids.py`); how a query reacts
(`pipeline/commit/topic_check.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

#: metadata reaches every broker well within this time
LASTED_MS: Final = 3_000
#: Kafka is asked once a second; a replica without an answer for this long waits for one
HEARD_MS_MAX: Final = 3_000


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic as it is in Kafka now. `topic_id` "": brokers from before ids existed."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicKnown:
    """What is expected of a topic. `topic_id` "": no commit on it has named one; `partitions` 0:
    unknown."""

    topic_id: str
    partitions: int


class How(Enum):
    """What happened to a topic."""

    GONE = auto()  # a progress record names it, but it does not exist
    RECREATED = auto()  # another topic has its name
    PARTITIONS = auto()  # its number of partitions differs from the catalog's


@dataclass(frozen=True, slots=True)
class Change:
    """A topic that has changed."""

    topic: str
    how: How
    known: TopicKnown
    seen: TopicSeen | None

    def __str__(self) -> str:
        if self.seen is None:
            return f"topic {self.topic} was deleted"
        if self.how is How.RECREATED:
            ids = f"its id is {self.seen.topic_id}, not {self.known.topic_id}"
            return f"topic {self.topic} was deleted and recreated ({ids})"
        return (
            f"topic {self.topic} has {self.seen.partitions} partitions, "
            f"and the catalog says {self.known.partitions}"
        )


def changes(known: Mapping[str, TopicKnown], seen: Mapping[str, TopicSeen]) -> list[Change]:
    """Topics that have changed. An absent topic that no commit names has not changed: it may be
    about to be created."""
    found: list[Change] = []
    for topic, expected in known.items():
        now = seen.get(topic)
        if now is None:
            if expected.topic_id:
                found.append(Change(topic, How.GONE, expected, None))
        elif differ(expected.topic_id, now.topic_id):
            found.append(Change(topic, How.RECREATED, expected, now))
        elif expected.partitions and now.partitions != expected.partitions:
            found.append(Change(topic, How.PARTITIONS, expected, now))
    return found


def differ(known_id: str, seen_id: str) -> bool:
    """Whether these are two topics. Unknown, so False, if one has no id."""
    return bool(known_id) and bool(seen_id) and known_id != seen_id


class TopicChecker:
    """What a replica knows of its topic: the id that commits name, and the id from Kafka."""

    def __init__(self) -> None:
        self._named = ""
        self._heard: str | None = None
        self._odd_since_ms: int | None = None
        #: why its records are not those that were committed; "": no sign of that
        self.lost = ""

    @property
    def is_sure(self) -> bool:
        """Whether what is read may be applied. What was read before Kafka was asked comes from the
        topic that Kafka then reports: ids are never reused."""
        return not self._named or (self._heard is not None and not differ(self._named, self._heard))

    def named(self, topic_id: str) -> None:
        """A commit names the topic; an older release's commit names none."""
        self._named = topic_id or self._named

    def silent(self) -> None:
        """Kafka has not answered for HEARD_MS_MAX: later records may be from another topic."""
        self._heard = None

    def heard(self, topic_id: str, at_ms: int) -> None:
        """Kafka's answer to a request sent at `at_ms`."""
        self._heard = topic_id
        if not differ(self._named, topic_id):
            self._odd_since_ms = None
            return
        if self._odd_since_ms is None:
            self._odd_since_ms = at_ms
        if at_ms - self._odd_since_ms >= LASTED_MS:
            self.lost = (
                f"the topic was deleted and recreated: its id is {topic_id}, "
                f"and what was committed is of {self._named}"
            )
