"""Whether a topic is still the one it was: Kafka gives each an id that never comes again (KIP-516).

A topic that was deleted and recreated has the same name, and after a while offsets as high as
before. A process that goes by names and offsets alone commits, skips or serves other records than
it believes. So a progress record says of which topics its offsets are (`Progress.topic_id`,
`source_topic_ids`), and both sides compare that with what Kafka says: the writer before it writes
and before it commits (`changes`), a replica before it applies (`TopicDoubt`).

A process may stand still between the answer and the next record that it reads, and topics be
recreated meanwhile: an answer holds for HEARD_MS_MAX. A topic that is recreated and filled within
that time is not noticed before a replica has read of it.

A broker may be behind in what it knows of topics, for a moment: an answer that a topic is absent,
or is another one, counts when it has lasted (`LASTED_MS`). For writers an id that differs counts at
once: they stop, which does no harm.

Not here: asking Kafka (`adapters/kafka/topic_ids.py`); what a query does then
(`pipeline/commit/topic_check.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

#: metadata reach every broker well within it
LASTED_MS: Final = 3_000
#: Kafka is asked once a second; a replica that has no answer for so long waits for one
HEARD_MS_MAX: Final = 3_000


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic as Kafka has it now. `topic_id` "": brokers from before there were ids."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicKnown:
    """What is expected of a topic. `topic_id` "": nothing was committed of it that named one;
    `partitions` 0: unknown."""

    topic_id: str
    partitions: int


class How(Enum):
    """What happened to a topic."""

    GONE = auto()  # a committed record names it, and it is not there
    RECREATED = auto()  # another topic has its name
    PARTITIONS = auto()  # it has another number of them than the catalog says


@dataclass(frozen=True, slots=True)
class Change:
    """A topic that is not what it was."""

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
    """Topics that are not what they were. One that is absent and was never committed of is none of
    them: it may be about to be made."""
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
    """Whether these are two topics. Unknown, so False, where one has no id."""
    return bool(known_id) and bool(seen_id) and known_id != seen_id


class TopicDoubt:
    """What a replica knows of its topic: which one commits name, and which one Kafka says it is."""

    def __init__(self) -> None:
        self._named = ""
        self._heard: str | None = None
        self._odd_since_ms: int | None = None
        #: why its records are not those that were committed; "": nothing says so
        self.lost = ""

    @property
    def is_sure(self) -> bool:
        """Whether what is read may be applied. What was read before Kafka was asked is of the same
        topic as what is there then: an id never comes again."""
        return not self._named or (self._heard is not None and not differ(self._named, self._heard))

    def named(self, topic_id: str) -> None:
        """A commit names it; an older release's names none."""
        self._named = topic_id or self._named

    def silent(self) -> None:
        """Kafka has said nothing for HEARD_MS_MAX: what is read from here on may be of another."""
        self._heard = None

    def heard(self, topic_id: str, at_ms: int) -> None:
        """Kafka's answer to a question of `at_ms`."""
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
