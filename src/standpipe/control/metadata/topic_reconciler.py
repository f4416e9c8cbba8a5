"""The orders that bring Kafka's topics in line with the catalog.

Statements are desired state. `topic_orders` compares it with the observed topics and may be called
at any time, after any crash: completed orders are not repeated. A topic is deleted only if the
catalog has doomed it: a statement said DELETE TOPIC, or it was our own, of a replaced table or a
transient query. It is deleted once (the catalog keeps it in `doomed_topics` until TopicDeleted),
and before a new topic may use its name. While Kafka is down, the orders wait.

Only a topic that this cluster made is deleted. A name says nothing about who made the topic, so the
catalog records Kafka's id of it (KIP-516):

    absent ─► RecordTopic "" ─► CreateTopic ─► RecordTopic id ─► DeleteTopic, if it still has the id

The record "" comes before the topic, so that a crash in between leaves no topic that nobody may
delete. A topic that was there before has no record.

Not here: the calls to Kafka (`adapters.kafka.admin`), when a failed order is tried again
(`order_retries`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.feature_levels import TOPIC_IDS
from standpipe.model import TopicSpec
from standpipe.topics import processing_log_topic, progress_topic

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

#: Repair ends a shadow long before compaction could drop the committed row.
COMPACTION_LAG_MS_MIN: Final = HOUR_MS
#: A replica that was down for less than this still sees every tombstone.
TOMBSTONE_RETENTION_MS_MIN: Final = 7 * DAY_MS

TABLE_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(COMPACTION_LAG_MS_MIN),
    "delete.retention.ms": str(TOMBSTONE_RETENTION_MS_MIN),
}
#: The pipeline deletes what has expired (`data/commit/expiry.py`), which Kafka allows only if the
#: policy has "delete". Kafka itself must delete nothing: it would go by when a record was written.
WINDOWED_TABLE_CONFIG: Final[Mapping[str, str]] = {
    **TABLE_CONFIG,
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
}
#: How much longer a copy of a table with windows keeps a row than the table's retention: the table
#: goes by the time of its events, which may be behind. Kafka Streams adds as much to changelogs.
COPY_RETENTION_MS_EXTRA: Final = DAY_MS
#: Kafka never compacts an open segment, and a restore reads the whole topic: so segments are small.
PROGRESS_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),
}
PROCESSING_LOG_CONFIG: Final[Mapping[str, str]] = {"cleanup.policy": "delete"}
LOG_RETENTION_MS: Final = 7 * DAY_MS


@dataclass(frozen=True)
class ObservedTopic:
    """A topic as it is in Kafka. `config` holds the keys that were looked up."""

    partitions: int
    config: Mapping[str, str]
    #: Kafka's id; "": Kafka gives none, None: it did not say
    topic_id: str | None = ""
    #: why its configuration or id could not be looked up; "": they were
    fault: str = ""


@dataclass(frozen=True)
class CreateTopic:
    """Create a topic; success if it already exists."""

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
    """Delete an existing topic; success if it is gone by now."""

    name: str


@dataclass(frozen=True)
class RecordTopic:
    """Log Kafka's id of a topic; "": it is absent, and will be created once that is logged."""

    name: str
    topic_id: str


@dataclass(frozen=True)
class ForgetTopic:
    """A doomed topic is gone: log TopicDeleted, so that a later topic of that name is kept.

    `left`: it is not gone, and why it stays: it is not this cluster's.
    """

    name: str
    left: str = ""


@dataclass(frozen=True)
class AwaitTopic:
    """Look again: brokers disagree whether the topic exists, as they do while it is deleted."""

    name: str


@dataclass(frozen=True)
class ReportTopic:
    """A topic differs in a way that no order can fix. For the node's log."""

    name: str
    why: str


#: Orders for Kafka. The others are for the metadata log and the node's log.
KafkaOrder = CreateTopic | ConfigureTopic | DeleteTopic
Order = KafkaOrder | RecordTopic | ForgetTopic | AwaitTopic | ReportTopic


@dataclass(frozen=True)
class WantedTopic:
    """A topic that must exist, with its configuration."""

    name: str
    partitions: int
    config: Mapping[str, str]
    #: it is made with the configuration, and never changed: other programs write it, and it may
    #: have been there before
    is_others: bool = False


def wanted_topics(
    catalog: Catalog, service_id: str, *, log_retention_ms: int = LOG_RETENTION_MS
) -> list[WantedTopic]:
    """All topics that must exist: the cluster's own, then those of statements, in order.

    Each name once. The cluster's own stay as they are, even if an old statement names one.
    `log_retention_ms`: of the processing log.
    """
    own = _own_topics(service_id, log_retention_ms)
    names = {topic.name for topic in own}
    windowed = {
        each.topic for each in catalog.generations if each.window and each.window.retention_ms
    }
    copies = {
        each.public_topic: _config_of_copy(each.window.retention_ms)
        for each in catalog.generations
        if each.window and each.window.retention_ms and each.public_formats
    }
    others = _written_by_others(catalog)
    return own + [
        WantedTopic(
            spec.name,
            spec.partitions,
            _config_of(spec, spec.name in windowed) | copies.get(spec.name, {}),
            is_others=spec.name in others,
        )
        for spec in catalog.topics.values()
        if spec.name not in names
    ]


def _config_of_copy(retention_ms: int) -> dict[str, str]:
    """Nobody deletes from a copy what has expired, as the pipeline does from a table's own topic.
    Kafka does, by when a row was written."""
    kept_ms = min(retention_ms + COPY_RETENTION_MS_EXTRA, 2**63 - 1)
    return {**WINDOWED_TABLE_CONFIG, "retention.ms": str(kept_ms)}


def _written_by_others(catalog: Catalog) -> set[str]:
    """Topics of declared sources that no query of ours writes."""
    queries = [each for each in catalog.generations if each.query_id is not None]
    ours = {each.stored_form().topic for each in queries} | {each.public_topic for each in queries}
    return {each.topic for each in catalog.generations} - ours


def _own_topics(service_id: str, log_retention_ms: int) -> list[WantedTopic]:
    log_config = {**PROCESSING_LOG_CONFIG, "retention.ms": str(log_retention_ms)}
    return [
        WantedTopic(progress_topic(service_id), 1, PROGRESS_CONFIG),
        WantedTopic(processing_log_topic(service_id), 1, log_config),
    ]


def topics_to_observe(catalog: Catalog, service_id: str) -> list[str]:
    """Names of the topics whose state `topic_orders` needs, each once: librdkafka refuses a request
    that names a topic twice, and one that is doomed may be wanted, too."""
    wanted = (topic.name for topic in wanted_topics(catalog, service_id))
    return list(dict.fromkeys((*catalog.doomed_topics, *wanted, *catalog.made_topics)))


def topic_orders(
    catalog: Catalog,
    observed: Mapping[str, ObservedTopic],
    service_id: str,
    *,
    log_retention_ms: int = LOG_RETENTION_MS,
) -> list[Order]:
    """Orders that bring Kafka in line with the catalog; empty if it already is.

    Deletions come first. A name that is being deleted is created again in a later round.
    """
    own = {topic.name for topic in _own_topics(service_id, log_retention_ms)}
    orders: list[Order] = []
    for name in catalog.doomed_topics:
        orders.extend(_orders_to_end(name, observed.get(name), catalog, is_own=name in own))
    for wanted in wanted_topics(catalog, service_id, log_retention_ms=log_retention_ms):
        if wanted.name in own or wanted.name not in catalog.doomed_topics:
            is_own = wanted.name in own
            orders.extend(_orders_for(wanted, observed.get(wanted.name), catalog, is_own=is_own))
    forgotten = catalog.made_topics.keys() - catalog.topics.keys() - set(catalog.doomed_topics)
    orders.extend(ForgetTopic(name) for name in sorted(forgotten - observed.keys()))
    return orders


def is_still_valid(order: KafkaOrder, then: Catalog, now: Catalog) -> bool:
    """Whether an order derived from one catalog is still valid under a newer one.

    Checked before an order is carried out: Kafka fences no client, and another leader may have
    deleted the topic since and created it again for a later statement.
    """
    is_doomed = order.name in now.doomed_topics
    if now.made_topics.get(order.name) != then.made_topics.get(order.name):
        return False
    if isinstance(order, DeleteTopic):
        return is_doomed
    return not is_doomed and now.topics.get(order.name) == then.topics.get(order.name)


def _config_of(spec: TopicSpec, is_windowed: bool) -> dict[str, str]:
    if spec.kind == "TABLE":
        return {**(WINDOWED_TABLE_CONFIG if is_windowed else TABLE_CONFIG)}
    return {} if spec.retention_ms is None else {"retention.ms": str(spec.retention_ms)}


def _orders_to_end(
    name: str, found: ObservedTopic | None, catalog: Catalog, *, is_own: bool
) -> list[Order]:
    """What is still to do for a topic that a statement deletes."""
    if found is None:
        return [ForgetTopic(name)]
    if is_own:
        return [ForgetTopic(name, "the cluster itself needs it")]
    if catalog.feature_level < TOPIC_IDS:
        return [DeleteTopic(name)]
    recorded = catalog.made_topics.get(name)
    if recorded is None:
        return [ForgetTopic(name, "this cluster did not make it; delete it with Kafka's tools")]
    if found.topic_id is None:  # whether it is ours is not known now
        return [] if found.fault else [AwaitTopic(name)]
    if recorded and found.topic_id and recorded != found.topic_id:
        why = f"another program created it again: its id is {found.topic_id}, not {recorded}"
        return [ForgetTopic(name, why)]
    return [DeleteTopic(name)]


def _orders_for(
    wanted: WantedTopic, found: ObservedTopic | None, catalog: Catalog, *, is_own: bool
) -> list[Order]:
    has_record = not is_own and catalog.feature_level >= TOPIC_IDS
    recorded = catalog.made_topics.get(wanted.name)
    if found is None:
        if has_record and recorded != "":
            return [RecordTopic(wanted.name, "")]
        return [CreateTopic(wanted.name, wanted.partitions, wanted.config)]
    if found.topic_id is None and not found.fault:
        return [AwaitTopic(wanted.name)]
    orders: list[Order] = []
    if has_record and recorded == "" and found.topic_id:
        orders.append(RecordTopic(wanted.name, found.topic_id))
    if found.partitions != wanted.partitions:
        why = f"it has {found.partitions} partitions, the statement says {wanted.partitions}"
        orders.append(ReportTopic(wanted.name, why))
    wrong = {
        key: value
        for key, value in wanted.config.items()
        if not wanted.is_others
        and key in found.config
        and not _suffices(key, found.config[key], value)
    }
    return [*orders, ConfigureTopic(wanted.name, wrong)] if wrong else orders


def _suffices(key: str, found: str, wanted: str) -> bool:
    """Time limits may be longer than needed (-1: no limit); everything else must be equal."""
    if key.endswith(".ms") and found.lstrip("-").isdigit():
        return int(found) == -1 or (wanted != "-1" and int(found) >= int(wanted))
    return sorted(found.split(",")) == sorted(wanted.split(","))
