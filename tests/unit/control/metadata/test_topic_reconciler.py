"""Orders that bring Kafka and the assignment to what the catalog wants."""

from __future__ import annotations

import msgspec
import pytest
from tests.samples import sample_table

from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.topic_reconciler import (
    PROGRESS_CONFIG,
    TABLE_CONFIG,
    WINDOWED_TABLE_CONFIG,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    ForgetTopic,
    KafkaOrder,
    ObservedTopic,
    Order,
    ReportTopic,
    is_still_valid,
    topic_orders,
    topics_to_observe,
    wanted_topics,
)
from standpipe.model import TopicSpec, Window

ID = "default_"
TABLE = TopicSpec(name="T", partitions=4, kind="TABLE")
SOURCE = TopicSpec(name="s", partitions=2, kind="SOURCE")
KEPT = TopicSpec(name="k", partitions=2, kind="SOURCE", retention_ms=60_000)


def wanting(*wishes: TopicSpec, doomed: tuple[str, ...] = ()) -> Catalog:
    topics = {wish.name: wish for wish in wishes}
    return msgspec.structs.replace(EMPTY, topics=topics, doomed_topics=doomed)


def there(catalog: Catalog, **more: ObservedTopic) -> dict[str, ObservedTopic]:
    """Kafka as the catalog wants it."""
    wanted = wanted_topics(catalog, ID)
    return {t.name: ObservedTopic(t.partitions, t.config) for t in wanted} | more


def table_topic(key: str, value: str) -> ObservedTopic:
    """T as it is wanted, but for one key."""
    return ObservedTopic(4, {**TABLE_CONFIG, key: value})


def windowed(catalog: Catalog, retention_ms: int = 86_400_000) -> Catalog:
    """T is of a table with windows; with retention 0, of one that somebody else writes."""
    window = Window(kind="TUMBLING", size_ms=1, advance_ms=1, grace_ms=0, retention_ms=retention_ms)
    query_id = "CTAS_T_1" if retention_ms else None
    table = msgspec.structs.replace(SOURCE_OF_T, window=window, query_id=query_id)
    return msgspec.structs.replace(catalog, sources={"T": table})


def declared(catalog: Catalog, changelog: str | None = None) -> Catalog:
    """T is of a table that other programs write; with a changelog, of a CREATE SOURCE TABLE."""
    query_id = None if changelog is None else "CST_T_1"
    table = msgspec.structs.replace(SOURCE_OF_T, query_id=query_id, changelog=changelog)
    return msgspec.structs.replace(catalog, sources={"T": table})


def copied(catalog: Catalog, retention_ms: int = 86_400_000) -> Catalog:
    """T is the copy, in AVRO, of a table with windows."""
    own = windowed(catalog, retention_ms).sources["T"]
    table = msgspec.structs.replace(
        own,
        topic="CTAS_T_1-changelog",
        public_topic="T",
        value_format="JSON",
        public_formats=("KAFKA", "AVRO"),
    )
    return msgspec.structs.replace(catalog, sources={"T": table})


SOURCE_OF_T = sample_table(columns=(), partitions=4)
OWN = there(EMPTY)


@pytest.mark.parametrize(
    ("catalog", "observed", "orders", "why"),
    [
        (EMPTY, OWN, [], "all is there"),
        (
            EMPTY,
            {},
            [
                CreateTopic("default__progress", 1, dict(PROGRESS_CONFIG)),
                CreateTopic(
                    "default_ksql_processing_log",
                    1,
                    {"cleanup.policy": "delete", "retention.ms": "604800000"},
                ),
            ],
            "a new cluster has its own two topics",
        ),
        (
            wanting(TABLE),
            OWN,
            [
                CreateTopic(
                    "T",
                    4,
                    {
                        "cleanup.policy": "compact",
                        "min.compaction.lag.ms": "3600000",
                        "delete.retention.ms": "604800000",
                    },
                )
            ],
            "a table topic is compacted, late, and keeps its tombstones for a week",
        ),
        (wanting(SOURCE), OWN, [CreateTopic("s", 2, {})], "the broker's default retention"),
        (
            wanting(KEPT),
            OWN,
            [CreateTopic("k", 2, {"retention.ms": "60000"})],
            "the statement said RETENTION_MS",
        ),
        (
            wanting(TABLE),
            OWN | {"T": table_topic("cleanup.policy", "delete")},
            [ConfigureTopic("T", {"cleanup.policy": "compact"})],
            "somebody made it before, without compaction",
        ),
        (
            windowed(wanting(TABLE)),
            OWN,
            [CreateTopic("T", 4, WINDOWED_TABLE_CONFIG)],
            "windows: the pipeline may delete what has expired, and Kafka by itself nothing",
        ),
        (
            copied(wanting(TABLE)),
            OWN,
            [CreateTopic("T", 4, {**WINDOWED_TABLE_CONFIG, "retention.ms": str(2 * 86_400_000)})],
            "nobody deletes from a copy what has expired, so Kafka does, a day after the table",
        ),
        (
            copied(wanting(TABLE), retention_ms=2**63 - 1),
            OWN,
            [CreateTopic("T", 4, {**WINDOWED_TABLE_CONFIG, "retention.ms": str(2**63 - 1)})],
            "Kafka's number has 64 bits",
        ),
        (
            windowed(wanting(TABLE), retention_ms=0),
            OWN,
            [CreateTopic("T", 4, TABLE_CONFIG)],
            "windows that never expire",
        ),
        (
            windowed(wanting(TABLE)),
            OWN | {"T": ObservedTopic(4, TABLE_CONFIG | {"retention.ms": "604800000"})},
            [ConfigureTopic("T", {"cleanup.policy": "compact,delete", "retention.ms": "-1"})],
            "of an older release: both keys at once, else Kafka would delete by its own clock",
        ),
        (
            windowed(wanting(TABLE)),
            OWN
            | {
                "T": ObservedTopic(4, {**WINDOWED_TABLE_CONFIG, "cleanup.policy": "delete,compact"})
            },
            [],
            "a list has no order",
        ),
        (
            wanting(TABLE),
            OWN | {"T": table_topic("delete.retention.ms", "1209600000")},
            [],
            "two weeks are more than enough",
        ),
        (
            wanting(TABLE),
            OWN | {"T": table_topic("delete.retention.ms", "604799999")},
            [ConfigureTopic("T", {"delete.retention.ms": "604800000"})],
            "one millisecond is missing",
        ),
        (
            wanting(TABLE),
            OWN | {"T": ObservedTopic(3, TABLE_CONFIG)},
            [ReportTopic("T", "it has 3 partitions, the statement says 4")],
            "partitions are never changed: keys would move",
        ),
        (
            declared(wanting(TABLE)),
            OWN,
            [CreateTopic("T", 4, TABLE_CONFIG)],
            "a declared table's topic is compacted as well",
        ),
        (
            declared(wanting(TABLE)),
            OWN | {"T": table_topic("cleanup.policy", "delete")},
            [],
            "it was there while Kafka did not answer: compaction would delete others' records",
        ),
        (
            declared(wanting(TABLE), "changelog"),
            OWN | {"T": table_topic("cleanup.policy", "delete")},
            [],
            "a source table's query writes another topic",
        ),
        (EMPTY, OWN | {"other": ObservedTopic(1, {})}, [], "somebody else's topic is left alone"),
        (
            wanting(doomed=("T",)),
            OWN | {"T": ObservedTopic(4, TABLE_CONFIG)},
            [DeleteTopic("T")],
            "a statement said DELETE TOPIC",
        ),
        (wanting(doomed=("T",)), OWN, [ForgetTopic("T")], "it is gone: a namesake is safe"),
        (
            wanting(TABLE, doomed=("T",)),
            OWN | {"T": ObservedTopic(4, TABLE_CONFIG)},
            [DeleteTopic("T")],
            "the old one goes before the new one comes",
        ),
        (wanting(TABLE, doomed=("T",)), OWN, [ForgetTopic("T")], "the new one comes next"),
    ],
)
def test_topic_orders(
    catalog: Catalog, observed: dict[str, ObservedTopic], orders: list[Order], why: str
) -> None:
    assert topic_orders(catalog, observed, ID) == orders, why


def test_carried_out_orders_are_not_ordered_again() -> None:
    catalog = wanting(TABLE, SOURCE, KEPT)
    created = topic_orders(catalog, {}, ID)
    observed = {
        order.name: ObservedTopic(order.partitions, order.config)
        for order in created
        if isinstance(order, CreateTopic)
    }
    assert len(observed) == 5
    assert topic_orders(catalog, observed, ID) == []


def test_observed_are_wanted_and_doomed() -> None:
    assert topics_to_observe(wanting(SOURCE, doomed=("T",)), ID) == [
        "T",
        "default__progress",
        "default_ksql_processing_log",
        "s",
    ]


DELETE, MAKE, SET = DeleteTopic("s"), CreateTopic("s", 2, {}), ConfigureTopic("s", {})
OWN_ONE = CreateTopic("default__progress", 1, {})
MORE = msgspec.structs.replace(SOURCE, partitions=8)


@pytest.mark.parametrize(
    ("order", "then", "now", "stands", "why"),
    [
        (DELETE, wanting(doomed=("s",)), wanting(doomed=("s",)), True, "nothing has changed"),
        (DELETE, wanting(doomed=("s",)), wanting(), False, "another leader has deleted it"),
        (DELETE, wanting(doomed=("s",)), wanting(SOURCE), False, "and it was made anew"),
        (DELETE, wanting(doomed=("s",)), wanting(TABLE, doomed=("s",)), True, "others may change"),
        (DELETE, wanting(doomed=("s",)), wanting(SOURCE, doomed=("s",)), True, "first deleted"),
        (MAKE, wanting(SOURCE), wanting(SOURCE, TABLE), True, "others may change"),
        (MAKE, wanting(SOURCE), wanting(), False, "dropped since"),
        (MAKE, wanting(SOURCE), wanting(doomed=("s",)), False, "to be deleted since"),
        (MAKE, wanting(SOURCE), wanting(SOURCE, doomed=("s",)), False, "first deleted"),
        (MAKE, wanting(SOURCE), wanting(MORE), False, "wanted otherwise now"),
        (SET, wanting(SOURCE), wanting(), False, "no longer ours"),
        (OWN_ONE, wanting(), wanting(SOURCE), True, "the cluster's own topics always stand"),
    ],
)
def test_an_order_is_looked_at_again_before_it_is_carried_out(
    order: KafkaOrder, then: Catalog, now: Catalog, stands: bool, why: str
) -> None:
    assert is_still_valid(order, then, now) is stands, why
