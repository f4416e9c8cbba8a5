"""The keys that limit what statements may name, and what they may put into the catalog.

The leader's values count; a worker checks with its own first. Set the same on every node. Not here:
how they are checked (`standpipe.topics`, `control.ddl.quotas`); all other keys (`keys`).
"""

from __future__ import annotations

from standpipe.config.registry import key
from standpipe.topics import OTHERS_INTERNAL

TOPICS_INTERNAL = key(
    "standpipe.topics.internal",
    str,
    OTHERS_INTERNAL,
    doc="Topics of other services that no statement may name: shell patterns, separated by commas. "
    "This cluster's own internal topics, changelogs and names that begin with `__` are always "
    "refused. Leave a pattern out if it matches topics of yours.",
)
TOPICS_PREFIXES = key(
    "standpipe.topics.prefixes",
    str,
    "",
    doc="What the topics must begin with that CREATE, INSERT, PRINT, ASSERT and DELETE TOPIC name: "
    "prefixes, separated by commas. Empty: all topics that are not internal.",
)
SOURCE_PARTITIONS_MAX = key(
    "standpipe.source.partitions.max",
    int,
    1000,
    unit="count",
    low=1,
    doc="Partitions of one stream or table.",
)
PARTITIONS_MAX = key(
    "standpipe.partitions.max",
    int,
    10_000,
    unit="count",
    low=1,
    high=100_000,
    doc="Partitions of all streams and tables together. Each table partition has a place in the "
    "assignment, which is one entry of the metadata log.",
)
SOURCE_REPLICAS_MAX = key(
    "standpipe.source.replicas.max",
    int,
    10,
    unit="count",
    low=1,
    doc="Largest REPLICAS of a statement.",
)
SOURCES_MAX = key(
    "standpipe.sources.max",
    int,
    1000,
    unit="count",
    low=1,
    doc="Streams and tables of the cluster.",
)
QUERIES_MAX = key(
    "ksql.query.persistent.active.limit",
    int,
    500,
    unit="count",
    low=0,
    source="ksqlDB",
    doc="Persistent queries of the cluster, paused ones among them. ksqlDB sets no limit.",
)
TRANSIENTS_MAX = key(
    "standpipe.push.transient.max",
    int,
    8,
    unit="count",
    low=0,
    doc="Push queries with GROUP BY, WINDOW, JOIN, PARTITION BY or EMIT FINAL that may run in the "
    "cluster at the same time. Each is a query of Spark, with a topic and a checkpoint, for one "
    "client. One that has ended counts until Kafka has deleted its topic. 0: none.",
)
TYPES_MAX = key(
    "standpipe.types.max",
    int,
    1000,
    unit="count",
    low=0,
    doc="Types of CREATE TYPE.",
)
CATALOG_BYTES_MAX = key(
    "standpipe.catalog.bytes.max",
    int,
    2 * 1024 * 1024,
    unit="bytes",
    low=64 * 1024,
    high=6 * 1024 * 1024,
    doc="Bytes of all streams, tables, queries and types. Each node publishes the catalog to its "
    "workers once a second, and they decode it beside their reads.",
)
STATEMENT_BYTES_MAX = key(
    "standpipe.statement.bytes.max",
    int,
    16 * 1024,
    unit="bytes",
    low=1024,
    doc="Bytes of a statement whose text the catalog keeps: those that create or replace.",
)
PLACEMENT_TIMEOUT = key(
    "standpipe.placement.timeout.ms",
    int,
    8000,
    unit="ms",
    low=1,
    high=60_000,
    doc="How long a statement waits until the replicas of its table are placed. Then it is taken "
    "back and fails. Its client waits no longer than 20 s for all of it.",
)
