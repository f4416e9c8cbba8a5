"""What must be done in Kafka so that its topics are as the catalog says.

Statements are desired state. `topic_orders` compares it with what was observed and may be called at
any time, after any crash: carried-out orders are not ordered again. A topic is deleted only if a
statement said DELETE TOPIC, once (the catalog remembers the wish until TopicDeleted), and before
anything new may use its name.

Not here: the calls to Kafka (`adapters.kafka.admin`), who holds what
(`control.assignment.from_catalog`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from standpipe.control.metadata.catalog import Catalog
from standpipe.model import TopicSpec
from standpipe.topics import processing_log_topic, progress_topic

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

#: A repair of a shadowed record comes long before compaction can keep the wrong one.
COMPACTION_LAG_MS_MIN: Final = HOUR_MS
#: A replica that was away for less still sees every tombstone.
TOMBSTONE_RETENTION_MS_MIN: Final = 7 * DAY_MS

TABLE_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(COMPACTION_LAG_MS_MIN),
    "delete.retention.ms": str(TOMBSTONE_RETENTION_MS_MIN),
}
#: The pipeline deletes what has expired (`data/commit/expiry.py`), which Kafka allows only where
#: the policy says "delete". By itself it must delete nothing: it goes by when a record was written.
WINDOWED_TABLE_CONFIG: Final[Mapping[str, str]] = {
    **TABLE_CONFIG,
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
}
#: A segment that is written to is never compacted, and who restores reads the topic whole.
PROGRESS_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),
}
PROCESSING_LOG_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * DAY_MS),
}


@dataclass(frozen=True)
class ObservedTopic:
    """A topic as Kafka has it. `config` holds the keys that were looked up."""

    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True)
class CreateTopic:
    """Make a topic; that it exists already is success."""

    name: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True)
class ConfigureTopic:
    """Set these keys of an existing topic."""

    name: str
    config: Mapping[str, str]


@dataclass(frozen=True)
class DeleteTopic:
    """Delete a topic that is there; that it is absent by now is success."""

    name: str


@dataclass(frozen=True)
class ForgetTopic:
    """A doomed topic is gone: log TopicDeleted, so that a later namesake is safe."""

    name: str


@dataclass(frozen=True)
class ReportTopic:
    """Something is wrong with a topic that no order can mend. For the log of the node."""

    name: str
    why: str


#: What Kafka is asked for. The other orders are for the log and for people.
KafkaOrder = CreateTopic | ConfigureTopic | DeleteTopic
Order = KafkaOrder | ForgetTopic | ReportTopic


@dataclass(frozen=True)
class WantedTopic:
    """A topic that must exist, and what its configuration must say."""

    name: str
    partitions: int
    config: Mapping[str, str]


def wanted_topics(catalog: Catalog, service_id: str) -> list[WantedTopic]:
    """All topics that must exist: the cluster's own, then those of statements, in order."""
    own = [
        WantedTopic(progress_topic(service_id), 1, PROGRESS_CONFIG),
        WantedTopic(processing_log_topic(service_id), 1, PROCESSING_LOG_CONFIG),
    ]
    windowed = {
        each.topic for each in catalog.generations if each.window and each.window.retention_ms
    }
    return own + [
        WantedTopic(wish.name, wish.partitions, _config_of(wish, wish.name in windowed))
        for wish in catalog.topics.values()
    ]


def concerned_topics(catalog: Catalog, service_id: str) -> list[str]:
    """Names of the topics that `topic_orders` wants to have observed."""
    wanted = [topic.name for topic in wanted_topics(catalog, service_id)]
    return [*catalog.doomed_topics, *wanted]


def topic_orders(
    catalog: Catalog, observed: Mapping[str, ObservedTopic], service_id: str
) -> list[Order]:
    """Orders that bring Kafka to what the catalog wants; empty: it is there.

    Deletions come first. A name that is being deleted is created in a later round.
    """
    doomed = catalog.doomed_topics
    orders: list[Order] = [
        DeleteTopic(name) if name in observed else ForgetTopic(name) for name in doomed
    ]
    for wanted in wanted_topics(catalog, service_id):
        if wanted.name not in doomed:
            orders.extend(_orders_for(wanted, observed.get(wanted.name)))
    return orders


def still_stands(order: KafkaOrder, then: Catalog, now: Catalog) -> bool:
    """Whether an order that followed from one catalog follows from a newer one, too.

    To be asked before it is carried out: Kafka fences nobody, and a topic that was to be deleted
    may have been deleted by another leader since, and made anew for another statement.
    """
    is_doomed = order.name in now.doomed_topics
    if isinstance(order, DeleteTopic):
        return is_doomed
    return not is_doomed and now.topics.get(order.name) == then.topics.get(order.name)


def _config_of(wish: TopicSpec, is_windowed: bool) -> Mapping[str, str]:
    if wish.kind == "TABLE":
        return WINDOWED_TABLE_CONFIG if is_windowed else TABLE_CONFIG
    return {} if wish.retention_ms is None else {"retention.ms": str(wish.retention_ms)}


def _orders_for(wanted: WantedTopic, found: ObservedTopic | None) -> list[Order]:
    if found is None:
        return [CreateTopic(wanted.name, wanted.partitions, wanted.config)]
    orders: list[Order] = []
    if found.partitions != wanted.partitions:
        why = f"it has {found.partitions} partitions, the statement says {wanted.partitions}"
        orders.append(ReportTopic(wanted.name, why))
    wrong = {
        key: value
        for key, value in wanted.config.items()
        if key in found.config and not _suffices(key, found.config[key], value)
    }
    return [*orders, ConfigureTopic(wanted.name, wrong)] if wrong else orders


def _suffices(key: str, found: str, wanted: str) -> bool:
    """Time limits may be longer than we need (-1: for ever); everything else must be equal."""
    if key.endswith(".ms") and found.lstrip("-").isdigit():
        return int(found) == -1 or (wanted != "-1" and int(found) >= int(wanted))
    return sorted(found.split(",")) == sorted(wanted.split(","))
