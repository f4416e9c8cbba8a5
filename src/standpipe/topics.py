"""Names of the cluster's own topics in Kafka, which topics a statement may name, and how long table
topics keep tombstones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

#: tombstones stay 7 days (`control/metadata/topic_reconciler.py` configures that); one hour less,
#: to allow for clock differences
TOMBSTONES_MS: Final = (7 * 24 - 1) * 3_600_000
#: those of a topic that another program configures: half of Kafka's default
DIRECT_TOMBSTONES_MS: Final = 12 * 3_600_000

#: Topics of other services on the same Kafka, as far as a name tells: progress topics (of service
#: ids that end as `default_` does) and processing logs of Standpipe and ksqlDB, Confluent's own, a
#: schema registry's.
OTHERS_INTERNAL: Final = "*__progress,*ksql_processing_log,_confluent*,_schemas"
#: the changelog of a CREATE SOURCE TABLE, of a table's later generation or of a transient query
#: (`sql`, `control.ddl`)
_CHANGELOG: Final = re.compile(r"(?:CTAS|CSAS|CST|transient)_.*_\d+-changelog", re.DOTALL)


def progress_topic(service_id: str) -> str:
    """Name of the topic that commits batches."""
    return f"{service_id}_progress"


def processing_log_topic(service_id: str) -> str:
    """Name of the topic for samples of bad records."""
    return f"{service_id}ksql_processing_log"


def is_never_written(topic: str, service_id: str) -> bool:
    """Whether no query may write this topic, whatever an older release let a statement say: its
    rows would be taken for commits of batches."""
    own = (progress_topic(service_id), processing_log_topic(service_id))
    return topic in own or topic.startswith("__")


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Which topics the clauses of statements may name.

    A record in the wrong topic can stop a table: a forged fence in the progress topic looks like a
    newer writer. So an internal topic is refused wherever a statement names a topic.
    """

    service_id: str = ""
    #: shell patterns of further internal topics (`standpipe.topics.internal`)
    internal: tuple[str, ...] = tuple(OTHERS_INTERNAL.split(","))
    #: what names must begin with (`standpipe.topics.prefixes`); empty: any other topic is allowed
    prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, service_id: str, internal: str, prefixes: str) -> TopicRules:
        """From the texts of the keys, whose entries are separated by commas."""
        return cls(service_id, _entries(internal), _entries(prefixes))

    def refusal(self, topic: str) -> str:
        """Why no statement may name this topic; "": it may."""
        if why := self._internal(topic):
            return f"Topic '{topic}' is internal: {why}. Name another topic."
        if self.prefixes and not topic.startswith(self.prefixes):
            allowed = ", ".join(f"'{prefix}'" for prefix in self.prefixes)
            return (
                f"Topic '{topic}' is not allowed here: standpipe.topics.prefixes lets statements"
                f" name topics that begin with {allowed}."
            )
        return ""

    def is_internal(self, topic: str) -> bool:
        """Whether a cluster or Kafka itself owns the topic, by its name."""
        return bool(self._internal(topic))

    def _internal(self, topic: str) -> str:
        if self.service_id and topic == progress_topic(self.service_id):
            return "this cluster commits its batches in it"
        if self.service_id and topic == processing_log_topic(self.service_id):
            return "it is this cluster's processing log"
        if topic.startswith("__"):
            return "names that begin with __ are Kafka's own"
        if _CHANGELOG.fullmatch(topic):
            return "a table's replicas follow it"
        for pattern in self.internal:
            if fnmatchcase(topic, pattern):
                return f"standpipe.topics.internal has '{pattern}'"
        return ""


def _entries(text: str) -> tuple[str, ...]:
    return tuple(entry for part in text.split(",") if (entry := part.strip()))
