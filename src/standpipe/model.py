"""Every id and every frozen record that crosses a wire, a file or a folder of this package.

Terms are defined once, in docs/glossary.md. Units come last in a name. No counter is called plain
"epoch": *lease epoch* (a query's writer), *leader epoch* (Raft), *assignment epoch*. Not here: what
decides something, which belongs in `sql`, `control` or `data`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, NamedTuple, NewType

import msgspec

NodeId = NewType("NodeId", str)  # name of a node, unique in a cluster: "node-1"
Offset = NewType("Offset", int)  # position in one Kafka partition, 0-based; the next one wanted
BatchId = NewType("BatchId", int)  # Spark's batch id within one persistent query, 0-based
LeaseEpoch = NewType("LeaseEpoch", int)  # fences the writers of one query; grows, starts at 1
AssignmentEpoch = NewType("AssignmentEpoch", int)
LogIndex = NewType("LogIndex", int)  # 1-based place of a command in the metadata log
TimeBounds = tuple[int | None, int | None]  # of a replica lag and a source lag, in ms; None: none
WrittenSchema = tuple[int, str]  # of a registry, under which rows are written: its id, its text
FeatureLevels = tuple[int, int]  # that a program knows (`control.metadata.feature_levels`)


class ReplicaId(NamedTuple):
    """Names one partition of one generation of a table: its stores, status pages, lags, placement.

    All its replicas share it. A table that is created again has another generation, so it gets no
    rows and lags of the one before. Text: `<table id>-<generation>-<partition>`."""

    table_id: str
    generation: int
    partition: int

    def __str__(self) -> str:
        return f"{self.table_id}-{self.generation}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> ReplicaId:
        """The id that `str` writes as `text`. Raises ValueError for any other text."""
        table_id, generation, partition = text.rsplit("-", 2)
        found = cls(table_id, int(generation), int(partition))
        if str(found) != text:
            raise ValueError(f"{text!r} is no replica id")
        return found


NO_BATCH = BatchId(-1)  # no whole batch is known: before the first, or after a compacted range
OF_LOG = BatchId(-2)  # rows of a direct table: those of a prefix of its log, which has no batches
UNLABELLED = frozenset({NO_BATCH, OF_LOG})  # no answer shows these as a batch


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Base of all records: immutable, keyword-only, tolerant of fields that a newer peer adds."""


# ---------------------------------------------------------------- tables, streams and queries


class Column(Record, frozen=True, kw_only=True):
    """A column of a stream or table. `type` is ksqlDB's spelling, e.g. ``ARRAY<STRING>``."""

    name: str
    type: str
    is_key: bool = False
    #: key of the record header that the column shows; "": all headers; None: not a header
    header: str | None = None


class Window(Record, frozen=True, kw_only=True):
    """A window clause after analysis. Unset grace = max(24 h - size, 0) (ksqlDB)."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION"]
    size_ms: int
    advance_ms: int
    grace_ms: int
    retention_ms: int


class Source(Record, frozen=True, kw_only=True):
    """A stream or a table that statements can name. `columns`: key columns first."""

    name: str
    kind: Literal["STREAM", "TABLE"]
    columns: tuple[Column, ...]
    topic: str
    partitions: int
    key_format: str
    value_format: str
    statement: str
    window: Window | None = None
    timestamp_column: str | None = None
    timestamp_format: str | None = None
    wrap_single_value: bool = True
    value_delimiter: str = ","
    key_delimiter: str = ","
    retention_ms: int | None = None  # of a topic it creates; -1: unlimited, None: the broker's
    query_id: str | None = None  # of the query that writes it; None: another program does
    table_id: str | None = None  # names its stores and lags; never reused, even after a drop
    generation: int = 1
    is_materialized: bool = False  # has replicas and answers pull queries
    offset_lag_max: int | None = None  # ACCEPTABLE_OFFSET_LAG; None: the node's own (KLIP-12)
    time_bounds: TimeBounds | msgspec.UnsetType = msgspec.UNSET  # likewise; unset: none
    is_read_only: bool = False  # CREATE SOURCE: no statement may write to it or delete its topic
    changelog: str | None = None  # of a CREATE SOURCE TABLE: topic that its replicas follow
    public_topic: str | None = None  # of a replaced table: its rows are also written here
    takes_inserts: bool = False  # a query of an INSERT INTO writes it, beside other writers
    is_direct: bool | msgspec.UnsetType = msgspec.UNSET  # its replicas follow its topic themselves
    version_column: str | msgspec.UnsetType = msgspec.UNSET  # of a direct table: its larger stays
    topic_id: str | msgspec.UnsetType = msgspec.UNSET  # Kafka's id of a direct table's topic
    columns_first: int | msgspec.UnsetType = msgspec.UNSET  # value columns, before some were added
    #: in a registry, of keys and values: the schema that we write, by its id; None: ours, by name
    schema_ids: tuple[int | None, int | None] | msgspec.UnsetType = msgspec.UNSET
    schema_names: tuple[str | None, str | None] | msgspec.UnsetType = msgspec.UNSET
    public_formats: tuple[str, str] | msgspec.UnsetType = msgspec.UNSET  # of `public_topic`'s parts

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Key columns in the order of declaration."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """Value columns in the order of declaration, including header columns."""
        return tuple(column for column in self.columns if not column.is_key)

    def replica_id(self, partition: int) -> ReplicaId:
        """The id of the replicas of one partition of this table."""
        return ReplicaId(self.table_id or "", self.generation, partition)

    def stored_form(self) -> Source:
        """As its query writes and replicas keep it: of a CREATE SOURCE TABLE, our copy, as JSON."""
        if self.changelog is None:
            return self
        return msgspec.structs.replace(
            self,
            topic=self.changelog,
            changelog=None,
            columns=tuple(msgspec.structs.replace(column, header=None) for column in self.columns),
            value_format="JSON",
            wrap_single_value=True,
            timestamp_column=None,
            timestamp_format=None,
        )


class SparkInput(Record, frozen=True, kw_only=True):
    """A topic that a query reads, and the view under which its SQL sees the parsed rows."""

    source: str
    topic: str
    view: str
    columns: tuple[Column, ...]
    key_format: str
    value_format: str
    timestamp_column: str | None = None
    timestamp_format: str | None = None
    wrap_single_value: bool = True
    value_delimiter: str = ","
    key_delimiter: str | msgspec.UnsetType = msgspec.UNSET  # unset in older plans: a comma
    watermark_delay_ms: int | None = None  # of this input; None: the query keeps no windows
    time_shift_ms: int = 0  # of event time: Spark's first watermark, 0, drops a 0
    is_table: bool | None = None  # a table's changelog: a null value is a deletion
    keeps_nulls: bool | None = None  # rows with a null value come too, as absent (`__PRESENT`)
    is_ours: bool | None = None  # our queries write it: ROWTIME is in a header
    window: Window | None = None  # of a windowed source: its keys end with the window
    starts: dict[int, int] | msgspec.UnsetType = msgspec.UNSET  # where to begin; unset: at 0


class SparkStep(Record, frozen=True, kw_only=True):
    """An operator with state that Spark SQL cannot express (`data/operators/keyed.py`, with its
    columns). `sql` is its input, over the views before it, with the key as text in `__K`; `view`:
    the name of its output."""

    view: str
    operator: Literal["CHANGES", "MEMBERS", "SESSIONS", "LOOKUP", "FOREIGN", "STREAMS"]
    sql: str
    options: dict[str, int] = {}


class SparkPlan(Record, frozen=True, kw_only=True):
    """What a persistent query runs, stored with its statement so that a newer Standpipe cannot
    make a checkpoint unreadable by translating differently.

    `sql` is Spark SQL over the views of `inputs` and `steps`. If there is a `batch_sql`, it runs
    over each batch that `sql` returns (the view `__BATCH`), as a batch query of Spark. The last of
    them has, in this order: the key columns; `WINDOWSTART` and `WINDOWEND` (BIGINT, ms) if
    windowed; the value columns; `__ROWTIME` (BIGINT, ms); `__LIVE` (false: a tombstone).
    """

    version: int
    inputs: tuple[SparkInput, ...]
    sql: str
    output_mode: Literal["update", "append"]
    is_windowed: bool
    steps: tuple[SparkStep, ...] = ()
    batch_sql: str | None = None
    has_own_key: bool | msgspec.UnsetType = msgspec.UNSET  # PARTITION BY: exists if all are null
    #: of keys and of values that are written in AVRO; unset: neither is
    schemas: tuple[WrittenSchema | None, WrittenSchema | None] | msgspec.UnsetType = msgspec.UNSET


class PersistentQuery(Record, frozen=True, kw_only=True):
    """A running statement. `state` is the desired state; a pipeline reports QueryStatus."""

    query_id: str
    sink: str
    sources: tuple[str, ...]
    statement: str
    plan: SparkPlan
    state: Literal["RUNNING", "PAUSED"] = "RUNNING"
    revision: int = 1  # grows when CREATE OR REPLACE gives it another plan in place
    is_external: bool | msgspec.UnsetType = msgspec.UNSET  # a user's application runs it; no plan
    served_by: NodeId | msgspec.UnsetType = msgspec.UNSET  # if it is transient: its client's node


class QueryStatus(Record, frozen=True, kw_only=True):
    """What a pipeline says of a query each second, never logged. Only nodes set UNRESPONSIVE."""

    query_id: str
    state: Literal["STARTING", "RUNNING", "RETRYING", "FAILED", "STOPPED", "UNRESPONSIVE"]
    reason: str = ""  # stable name where the state needs one: CHECKPOINT_MISMATCH, DATA_LOSS, ...
    message: str = ""
    lease_epoch: LeaseEpoch = LeaseEpoch(0)
    batch: BatchId = NO_BATCH
    input_rows_per_second: float = 0.0
    bad_records: int = 0
    late_records: int = 0
    repaired_rows: int = 0  # rows of its sink rewritten because foreign records shadowed them
    at_ms: int = 0
    pipeline_id: str = ""  # of the reporting pipeline; empty: an older release
    read_records: int = 0  # of a table's next generation: those of its topics in a batch,
    backlog_records: int | None = None  # and those that it does not cover; None: unknown
    covered: dict[str, dict[int, int]] | None = None  # as `Progress.sources`, up to `batch`
    group: str = ""  # the tables that share its streaming query have the same; empty: none does


class QueryLease(Record, frozen=True, kw_only=True):
    """Which pipeline writes a query, and the lease epoch that fences all writers before it."""

    pipeline_id: str
    lease_epoch: LeaseEpoch


class TopicSpec(Record, frozen=True, kw_only=True):
    """A Kafka topic that must exist. `retention_ms` None: the broker's default."""

    name: str
    partitions: int
    kind: Literal["SOURCE", "TABLE"]
    retention_ms: int | None = None


# ------------------------------------------------------------------------ nodes and placement


class NodeInfo(Record, frozen=True, kw_only=True):
    """A member of the cluster. Addresses are `host:port`, as other processes should dial them."""

    node_id: NodeId
    public: str  # clients: HTTP workers
    internal: str  # controller: log, lags, quorum
    peer: str  # forwards from other nodes: HTTP workers, a separate listener
    incarnation: str  # identity of its data directory (the sources' directory id)
    tags: dict[str, str] = {}  # client.tag.*
    rack: str = ""  # client.rack
    capacity: int = 1  # weight of its share of the table partitions, > 0
    feature_levels: FeatureLevels | msgspec.UnsetType = msgspec.UNSET  # unset: of level 1


class Health(IntEnum):
    """A node's verdict on a peer (`control.liveness.heartbeats`)."""

    UNKNOWN = 0  # newly known: not enough heartbeats received, or missed, to judge it
    ALIVE = 1
    DOWN = 2


class Placement(Record, frozen=True, kw_only=True):
    """Replicas of one table partition, the active first."""

    table_id: str
    generation: int
    partition: int
    replicas: tuple[NodeId, ...]
    warmups: tuple[NodeId, ...] = ()  # copies that will replace `replicas`; not read (KIP-441)

    @property
    def replica_id(self) -> ReplicaId:
        """The id of the placed replicas."""
        return ReplicaId(self.table_id, self.generation, self.partition)

    @property
    def holders(self) -> tuple[NodeId, ...]:
        """All nodes that keep a copy."""
        return (*self.replicas, *self.warmups)


class PlacementRules(Record, frozen=True, kw_only=True):
    """Placement rules of the whole cluster. Logged, since nodes' files could contradict."""

    standby_count: int = 1  # num.standby.replicas
    rack_aware_tags: tuple[str, ...] = ()  # rack.aware.assignment.tags
    forced: dict[str, tuple[str, ...]] = {}  # standpipe.rack.aware.forced


class Assignment(Record, frozen=True, kw_only=True):
    """Which nodes hold which replicas, as committed in the metadata log."""

    epoch: AssignmentEpoch = AssignmentEpoch(0)
    placements: tuple[Placement, ...] = ()


class Snapshot(Record, frozen=True, kw_only=True):
    """What the controller publishes to its node's workers and tailer (`run/snapshot`, msgpack,
    replaced by rename): the catalog without the outcomes of requests (`catalog.to_snapshot`).
    `stamp` only grows, even across restarts; an old snapshot is still valid."""

    stamp: int
    node_id: NodeId
    service_id: str
    cluster_id: str
    log_index: LogIndex
    leader: NodeId  # the quorum's leader, as far as this node knows; empty: none
    nodes: tuple[NodeInfo, ...]
    sources: tuple[Source, ...]
    queries: tuple[PersistentQuery, ...]
    assignment: Assignment
    successors: tuple[Source, ...] = ()  # next generations of tables, not read yet
    transients: tuple[Source, ...] = ()  # what transient queries write, each for one push query
    types: dict[str, str] = {}  # name of CREATE TYPE -> its definition
    feature_level: int = 1  # what may be logged (`control.metadata.feature_levels`)
    topics: tuple[TopicSpec, ...] = ()  # that must exist
    doomed_topics: tuple[str, ...] = ()  # to delete before anything else may use their names
    made_topics: dict[str, str] = {}  # that this cluster made -> Kafka's id; "": being made
    placement_rules: PlacementRules | None = None
    draining: tuple[NodeId, ...] = ()
    pipeline_epoch: LeaseEpoch = LeaseEpoch(0)
    pipelines: dict[str, LeaseEpoch] = {}
    leases: dict[str, QueryLease] = {}
    isolated: dict[str, tuple[str, ...]] = {}  # isolated name -> pipelines registered for it
    held: dict[str, int] = {}  # table id -> next generation, for which the one that answers is held
    query_statuses: tuple[QueryStatus, ...] = ()
    published_boot_ms: int = 0  # when the controller wrote this, on the node's boot clock
    quorum_sync_ms: int = 0  # what the slowest write of its log took in the last minute
    topic_faults: tuple[str, ...] = ()  # at the leader: topics that are not as they should be, why


# ------------------------------------------------------------------------- the commit protocol


class Commit(Record, frozen=True, kw_only=True):
    """Identifies what one foreachBatch call wrote. Only an exact match is ever visible. The fields
    are those of a record's `sp-commit` header, each as 8 bytes, big-endian."""

    lease_epoch: LeaseEpoch
    batch: BatchId
    attempt: int  # random 64-bit nonce, new for every foreachBatch call


class Progress(Record, frozen=True, kw_only=True):
    """Batch `commit.batch` of a query is committed up to `sinks`. A fence has NO_BATCH and none."""

    query_id: str
    commit: Commit
    sources: dict[str, dict[int, int]] = {}  # source topic -> partition -> end of what is in it
    sinks: dict[int, int] = {}  # partition of the table topic -> end offset that covers the batch
    starts: dict[int, int] = {}  # `sinks` of the valid record before it; empty: not given
    clean_through: dict[int, int] = {}  # partition -> below it every foreign record was repaired
    watermark_ms: int = 0
    batch_started_ms: int = 0  # when Spark chose its offsets (Unix ms, driver's clock)
    source_instant_ms: int = 0  # no source record from before it is missing (likewise); 0: unknown
    committed_at_ms: int = 0
    since_ms: int = 0  # that of the valid record before it: no row is older; 0: not given
    topic_id: str = ""  # Kafka's id (KIP-516) of the topic that `sinks` belong to; "": not given
    source_topic_ids: dict[str, str] = {}  # source topic -> Kafka's id, for `sources`
    is_load: bool = False  # it adds rows to its batch, which no source has (`takeover.streamed`)
    is_first: bool | None = None  # of a load: no batch of a stream was before it; None: not given


class ReplicaState(IntEnum):
    """States of a replica. Only CATCHING_UP and RUNNING answer."""

    ABSENT = 0
    BOOTSTRAP = 1  # no whole batch yet
    CATCHING_UP = 2  # whole at an older batch
    RUNNING = 3
    DATA_LOSS = 4  # position beyond the committed end: the topic is not the one that was read
    FAILED = 5

    @property
    def answers(self) -> bool:
        """Whether reads may be answered in this state."""
        return self in (ReplicaState.CATCHING_UP, ReplicaState.RUNNING)


class ReplicaStatus(Record, frozen=True, kw_only=True):
    """A status page: what the tailer reports about one replica; workers read it without a lock."""

    state: ReplicaState
    position: Offset  # A(p): everything committed below it is applied
    committed_end: Offset  # C(p): newest valid progress record; -1: none read yet
    log_end: Offset  # end of the Kafka partition, foreign records included; -1: unknown
    batch: BatchId  # batch that the rows show; NO_BATCH: between batches after compaction
    lease_epoch: LeaseEpoch
    confirmed_boot_ms: int  # boot clock: last instant at which Kafka answered and A = C; 0: never
    source_instant_ms: int  # of the batch that is shown (`Progress`); 0: unknown
    foreign_records: int  # seen and skipped since the store was created
    rows: int
    watermark_ms: int
    known_boot_ms: int = 0  # boot clock: last instant at which Kafka had no more than C; 0: never
    beat_boot_ms: int = 0  # boot clock: when the tailer wrote this page; 0: it does not say
    source_boot_ms: int = 0  # boot clock: the rows have all source records from before; 0: unknown
    progress_end: int = 0  # the rows have all that progress below this offset commits; 0: unknown
    progress_topic_id: str = ""  # Kafka's id of the topic with that offset; "": not known

    @property
    def offset_lag(self) -> int | None:
        """Records behind the committed end, >= 0; None while no committed end is known."""
        return None if self.committed_end < 0 else max(0, self.committed_end - self.position)
