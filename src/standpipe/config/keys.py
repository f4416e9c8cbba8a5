"""All configuration keys: name, type, unit, default, bounds, source, meaning; and their relations.

`docs/config.md` is generated from this list (`make docs`). Not here: how keys are layered and
checked (`registry.py`); the keys of heartbeats and lag reports (`liveness.py`), of how far behind
an answer may be (`lags.py`), and of the ports (`listeners.py`).
"""

from __future__ import annotations

import re

from standpipe.config.registry import key, relation

# ------------------------------------------------------------------------------- the keys

SERVICE_ID = key(
    "ksql.service.id",
    str,
    "default_",
    source="ksqlDB",
    doc="Prefix of the topics that the cluster itself owns: progress and processing log.",
)
STANDBYS = key(
    "num.standby.replicas",
    int,
    1,
    unit="count",
    low=0,
    high=8,
    source="Kafka Streams",
    doc="Copies of each table partition beside the active one. Cluster-wide: stored in the "
    "metadata log; `standpipe assignment rules` changes it.",
)
RACK_TAGS = key(
    "rack.aware.assignment.tags",
    str,
    "",
    source="KIP-708",
    doc="Tags, separated by commas, over whose values the copies of a partition are spread. Each "
    "node sets client.tag.<name> for each of them. Cluster-wide: stored in the metadata log.",
)
RACK_FORCED = key(
    "standpipe.rack.aware.forced",
    str,
    "",
    doc="Forced awareness, as in Elasticsearch: tag:value,… of all racks that exist. When a "
    "rack is lost, its copies are not rebuilt in the others. Cluster-wide: stored in the "
    "metadata log.",
)
RACK = key(
    "client.rack",
    str,
    "",
    source="Kafka",
    doc="Rack of this node. Copies are spread over racks where no tags are named.",
)
CAPACITY = key(
    "standpipe.node.capacity",
    int,
    1,
    unit="count",
    low=1,
    high=1000,
    doc="Weight of this node's share of the table partitions.",
)
RECOVERY_LAG = key(
    "acceptable.recovery.lag",
    int,
    10_000,
    unit="records",
    low=0,
    source="Kafka Streams",
    doc="A copy whose lag is at most this counts as caught up and may become the active.",
)
WARMUPS_MAX = key(
    "max.warmup.replicas",
    int,
    2,
    unit="count",
    low=1,
    source="Kafka Streams",
    doc="Copies that may be built at once, in the whole cluster, to move a replica.",
)
MOVE_BYTES_MAX = key(
    "standpipe.move.bytes.max",
    int,
    2**63 - 1,
    unit="bytes",
    low=1,
    doc="Bytes of the stores that may be built at once to move replicas. One store may always "
    "move.",
)
GONE_AFTER = key(
    "standpipe.node.gone.after.ms",
    int,
    600_000,
    unit="ms",
    low=1_000,
    doc="A node that is silent for this long loses its copies: they are rebuilt on other nodes. "
    "Until then other replicas answer in its place.",
)
FEATURE_LEVEL_MAX = key(
    "standpipe.feature.level.max",
    int,
    0,
    unit="count",
    low=0,
    doc="Newest feature level that this node claims to support, as an older release would; 0: all "
    "that the program supports. For trying an upgrade with two versions in one cluster.",
)
STANDBY_READS = key(
    "ksql.query.pull.enable.standby.reads",
    bool,
    True,
    source="ksqlDB",
    doc="Standbys may answer, after the active. On by default, unlike ksqlDB.",
)
PUSH_QUERIES_MAX = key(
    "ksql.max.push.queries",
    int,
    100,
    unit="count",
    low=0,
    source="ksqlDB",
    doc="Push queries and PRINT statements that a node serves at once. Each has a Kafka consumer.",
)
FORWARD_TIMEOUT = key(
    "ksql.query.pull.forwarding.timeout.ms",
    int,
    1000,
    unit="ms",
    low=10,
    source="ksqlDB",
    doc="How long a forwarded read may take before the next replica is tried.",
)
ROUTING_TIMEOUT = key(
    "ksql.query.pull.routing.timeout.ms",
    int,
    3000,
    unit="ms",
    low=10,
    source="KLIP-12",
    doc="How long a read may take in total, retries included, before it fails.",
)
SCAN_TIMEOUT = key(
    "standpipe.query.pull.scan.timeout.ms",
    int,
    30_000,
    unit="ms",
    low=10,
    doc="How long a pull query that scans (no keys in WHERE) may take in total. A node that "
    "works on a scan reports so to the node that forwarded it. A forwarded scan therefore fails "
    "after `ksql.query.pull.forwarding.timeout.ms` of silence, not of work.",
)
ROUTING_POLICY = key(
    "standpipe.query.pull.routing.policy",
    str,
    "active-first",
    doc="Which usable replica is read first: `active-first` (KLIP-12), `balanced` (this node's "
    "own, else spread), `nearest` (this node's own, else the one that shares most tags).",
)
HEDGE_LOAD = key(
    "standpipe.forward.hedge.load.percent",
    int,
    5,
    unit="percent",
    low=0,
    high=100,
    doc="A forwarded read that is slower than the p95 is also sent to the next replica (hedging). "
    "Limit on these extra reads, as a share of the reads of 10 s; short bursts may exceed it. "
    "0: no hedging.",
)
RETRY_LOAD = key(
    "standpipe.forward.retry.load.percent",
    int,
    10,
    unit="percent",
    low=0,
    high=100,
    doc="Limit on reads that are sent again after a path failed, as a share of the reads of 10 s; "
    "short bursts may exceed it. Without it a failing cluster would get twice the load.",
)
FETCH_TIMEOUT = key(
    "controller.quorum.fetch.timeout.ms",
    int,
    600,
    unit="ms",
    low=300,
    high=3_000,
    source="Kafka",
    doc="How long a voter of the metadata quorum waits for its leader before it starts an "
    "election; the quorum's other time-outs are proportional to it. Set the same value on every "
    "node. If a disk needs more than about four fifths of it for a write "
    "(`standpipe_quorum_sync_seconds`), a leader on it loses the leadership. A larger value "
    "tolerates a slower disk, and a dead leader is replaced later. Kafka's default is 2000.",
)
LEASE_TIMEOUT = key(
    "standpipe.pipeline.lease.timeout.ms",
    int,
    6000,
    unit="ms",
    low=2000,
    doc="A pipeline that is silent for longer loses its queries to another one, if there is one. "
    "Pipelines renew their leases once a second.",
)
BREAKER_OPEN = key(
    "standpipe.forward.breaker.open.ms",
    int,
    1000,
    unit="ms",
    low=0,
    doc="How long a peer that refused a connection or timed out is skipped before it is tried "
    "again.",
)
BODY_MAX = key(
    "standpipe.request.body.bytes.max",
    int,
    1_048_576,
    unit="bytes",
    low=1024,
    doc="Largest request body. Larger ones are refused with HTTP status 413.",
)
WORKERS = key(
    "standpipe.http.workers",
    int,
    0,
    unit="count",
    low=0,
    high=256,
    doc="HTTP worker processes of a node. 0: one per core.",
)
HTTP2_STREAMS_MAX = key(
    "standpipe.http2.streams.max",
    int,
    100,
    unit="count",
    low=0,
    high=10_000,
    doc="Concurrent requests on one HTTP/2 connection. 0: the public port speaks HTTP/1.1 only.",
)
TLS_LISTENER = key(
    "standpipe.tls.listener",
    str,
    "",
    doc="host:port of a second public listener that speaks TLS (HTTP/1.1, and HTTP/2 by ALPN); "
    "empty: none. The listener without TLS stays: bind it to the loopback address where clients "
    "must not use it.",
)
TLS_CERTIFICATE = key(
    "standpipe.tls.certificate",
    str,
    "",
    doc="PEM file with the certificate of `standpipe.tls.listener`, and the chain behind it. A "
    "changed file is loaded within a second.",
    is_private=True,
)
TLS_KEY = key(
    "standpipe.tls.key",
    str,
    "",
    doc="PEM file with the private key of `standpipe.tls.certificate`, without a password.",
    is_private=True,
)
STATE_CLEANUP_DELAY = key(
    "state.cleanup.delay.ms",
    int,
    60_000,
    unit="ms",
    low=0,
    source="Kafka Streams",
    doc="How long the store of a replica that this node holds no more is kept under its name, in "
    "case it comes back; then it is moved aside, and deleted after as long again.",
)
LMDB_MAP_START = key(
    "standpipe.store.map.bytes.start",
    int,
    256 * 1024 * 1024,
    unit="bytes",
    low=1024 * 1024,
    doc="Initial size of a store's memory map. It takes no disk space, and doubles when full.",
)
DIGEST_INTERVAL = key(
    "standpipe.digest.compare.interval.ms",
    int,
    30_000,
    unit="ms",
    low=0,
    doc="How often replicas compare digests; a diverged replica is rebuilt. 0: not periodically.",
)
RESTORE_BYTES = key(
    "standpipe.restore.bytes.per.second.max",
    int,
    64 * 1024 * 1024,
    unit="bytes",
    low=64 * 1024,
    doc="How fast a replica without a store copies one from a peer. The limit leaves disk and "
    "network to readers.",
)
BATCH_OFFSETS_MAX = key(
    "standpipe.pipeline.commit.batch.offsets.max",
    int,
    400_000,
    unit="records",
    low=1,
    doc="Most source records of one Spark batch. A batch is one transaction for readers.",
)
QUERY_GROUPS = key(
    "standpipe.pipeline.query.groups",
    bool,
    True,
    doc="Tables over one stream that are created together share one query of Spark, which costs a"
    " fraction of one query for each. From feature level 9 on: `standpipe quorum upgrade`, once"
    " every node and every pipeline runs a release that knows it.",
)
KAFKA_FETCH_WAIT = key(
    "standpipe.pipeline.kafka.fetch.wait.ms",
    int,
    5,
    unit="ms",
    low=0,
    doc="Spark's kafka.fetch.max.wait.ms. Kafka's 500 adds half a second to every batch.",
)
SHUFFLE_PARTITIONS = key(
    "standpipe.pipeline.shuffle.partitions",
    int,
    2,
    unit="count",
    low=1,
    doc="Partitions of Spark's state. Fixed for a query at its first start.",
)
BAD_RECORDS_SAMPLED = key(
    "standpipe.pipeline.bad.records.sampled.max",
    int,
    20,
    unit="records",
    low=0,
    doc="Bad records of one batch that are copied into the processing log. All are counted.",
)
RECORD_BYTES_MAX = key(
    "standpipe.pipeline.record.bytes.max",
    int,
    1024 * 1024,
    unit="bytes",
    low=1024,
    high=64 * 1024 * 1024,
    doc="Largest key and value of a record together, uncompressed. A larger source record is a "
    "bad record. A row that would be larger is left out of a stream, and deleted from a table. "
    "Both are counted, and sampled in the processing log. For a row, the max.message.bytes of its "
    "topic applies where it is smaller. Kafka's clients send at most 1 MiB by default.",
)
CONSISTENCY = key(
    "standpipe.consistency",
    str,
    "local",
    source="KIP-650",
    doc="Which catalog statements see: `local`, what this node knows; or `linearizable`, every "
    "statement that any node acknowledged before the request. Set per request.",
)

# -------------------------------------------------------------------------- relations

ROUTING_POLICIES = ("active-first", "balanced", "nearest")

relation(
    lambda config: config[ROUTING_POLICY] in ROUTING_POLICIES,
    why="standpipe.query.pull.routing.policy is one of " + ", ".join(ROUTING_POLICIES),
)
relation(
    lambda config: not config[TLS_LISTENER] or bool(re.fullmatch(r".*:\d+", config[TLS_LISTENER])),
    why="standpipe.tls.listener is host:port",
)
relation(
    lambda config: (
        bool(config[TLS_LISTENER]) == bool(config[TLS_CERTIFICATE]) == bool(config[TLS_KEY])
    ),
    why="standpipe.tls.listener, standpipe.tls.certificate and standpipe.tls.key go together",
)
