"""What a statement means once it has been analysed: the frozen results of `analyzer.analyze`.

A plan names only things that exist (or will exist once it is executed) and holds typed values;
nothing reads the text again. `control.ddl.propose` turns plans that change the catalog into
commands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from standpipe.model import PersistentQuery, Record, Source

#: A typed SQL value: None, bool, int, float, str, bytes or Decimal, by the column's type.
Value = object

#: property of a request with a scan: the number of the only partition that it reads
PARTITION_PROPERTY: Final = "standpipe.query.pull.partition"


class CreateSourcePlan(Record, frozen=True, kw_only=True):
    """CREATE STREAM or TABLE over a topic. `source.partitions` is final.

    `create_topic`: PARTITIONS was given, so the reconciler creates the topic if it is absent.
    """

    source: Source
    or_replace: bool = False
    if_not_exists: bool = False
    create_topic: bool = False


class CreateTableAsPlan(Record, frozen=True, kw_only=True):
    """CREATE TABLE … AS SELECT: a new table, the query that fills it, and its topic.

    `create_topic`: of CREATE SOURCE TABLE, also the topic that its query reads, as above.
    """

    source: Source
    query: PersistentQuery
    or_replace: bool = False
    if_not_exists: bool = False
    create_topic: bool = False


class TransientPlan(Record, frozen=True, kw_only=True):
    """A push query that needs Spark: the query that runs for it, what that writes, and which of
    its columns the client gets."""

    source: Source
    query: PersistentQuery
    #: (name that the client sees, column of `source`), in the order of the SELECT list
    shown: tuple[tuple[str, str], ...]


class InsertIntoPlan(Record, frozen=True, kw_only=True):
    """INSERT INTO … SELECT: an additional query that writes a stream."""

    query: PersistentQuery


class DropPlan(Record, frozen=True, kw_only=True):
    """DROP STREAM or TABLE. Also terminates a query that writes it (as ksqlDB ≥ 0.18)."""

    name: str
    kind: Literal["STREAM", "TABLE"]
    exists: bool
    delete_topic: bool = False


class AlterSourcePlan(Record, frozen=True, kw_only=True):
    """ALTER STREAM or TABLE: `source` already has the new columns."""

    source: Source


class CreateTypePlan(Record, frozen=True, kw_only=True):
    """CREATE TYPE: `definition` in ksqlDB's spelling, without names of other custom types."""

    name: str
    definition: str
    if_not_exists: bool = False


class DropTypePlan(Record, frozen=True, kw_only=True):
    """DROP TYPE."""

    name: str
    if_exists: bool = False


class TerminatePlan(Record, frozen=True, kw_only=True):
    """TERMINATE of one query, or of all if `query_id` is None."""

    query_id: str | None


class PausePlan(Record, frozen=True, kw_only=True):
    """PAUSE or RESUME of one query, or of all if `query_id` is None."""

    query_id: str | None
    state: Literal["RUNNING", "PAUSED"]


class InsertValuesPlan(Record, frozen=True, kw_only=True):
    """INSERT INTO … VALUES: one row, full width, in the order of `source.columns`.

    `rowtime_ms` None: the time of writing.
    """

    source: Source
    values: tuple[Value, ...]
    rowtime_ms: int | None = None


Shown = Literal[
    "STREAMS",
    "TABLES",
    "QUERIES",
    "TOPICS",
    "FUNCTIONS",
    "PROPERTIES",
    "TYPES",
    "VARIABLES",
]


class ShowPlan(Record, frozen=True, kw_only=True):
    """SHOW or LIST of what the catalog or the registry of keys can answer."""

    what: Shown
    extended: bool = False


class ShowLagPlan(Record, frozen=True, kw_only=True):
    """SHOW LAG of one table, or of all (`source` None)."""

    source: Source | None = None


class DescribePlan(Record, frozen=True, kw_only=True):
    """DESCRIBE of one stream or table."""

    source: Source
    extended: bool = False


class SetPropertyPlan(Record, frozen=True, kw_only=True):
    """SET 'key'='value' (or UNSET if `value` is None) for the rest of the request."""

    name: str
    value: str | None


class DefinePlan(Record, frozen=True, kw_only=True):
    """DEFINE name = 'value' (or UNDEFINE if `value` is None) for the rest of the request."""

    name: str
    value: str | None


class AssertTopicPlan(Record, frozen=True, kw_only=True):
    """ASSERT [NOT EXISTS] TOPIC: what must become true in Kafka within `timeout_ms`."""

    topic: str
    exists: bool
    partitions: int | None = None
    replicas: int | None = None
    timeout_ms: int


class PlanCondition(Record, frozen=True, kw_only=True):
    """`column sign literal`. `column`: its index in the full row; `literal`: text as UTF-8, or the
    digits of a number, which `is_negated`; `compared`: the type that both are compared as."""

    column: int
    sign: str
    literal: bytes
    is_negated: bool
    compared: str


class PullPlan(Record, frozen=True, kw_only=True):
    """A pull query: which keys of which table, in which windows, and what each row shows.

    `is_scan`: all rows, not `keys`. `where` and `cells` are functions of the decoded full row, for
    what splicing cannot do: a filter, and computed cells of the answer.

    The full row is: key columns, then WINDOWSTART and WINDOWEND if windowed, then value columns.
    `projection` indexes into it; ROWTIME has the index `rowtime_index` = its length. None means
    the full row, which `data.query.pull` splices without decoding it.
    """

    source: Source
    keys: tuple[tuple[Value, ...], ...]
    schema: str  # ksqlDB's header string, e.g. "`ID` STRING KEY, `N` BIGINT"
    column_names: tuple[str, ...]
    column_types: tuple[str, ...]
    projection: tuple[int, ...] | None = None
    #: inclusive bounds in ms; None: unbounded
    window_start_low_ms: int | None = None
    window_start_high_ms: int | None = None
    window_end_low_ms: int | None = None
    window_end_high_ms: int | None = None
    limit: int | None = None
    is_scan: bool = False
    where: Callable[[Sequence[Any]], bool] | None = None
    cells: tuple[Callable[[Sequence[Any]], Any], ...] | None = None
    expression_count: int = 0  # how many `where` and `cells` compute for a row: what a row costs
    #: a row may take long, whatever it has: for functions of texts and lists, and for patterns
    has_costly_rows: bool = False
    is_ordered: bool = False  # ORDER BY the key, over all partitions
    is_count: bool = False  # COUNT(*): one row, over all partitions
    #: the last row of the previous page: its key columns, and the window bounds that AFTER named
    after: tuple[Value, ...] = ()
    #: bounds of the first key column in a scan, inclusive unless they are open
    key_low: Value = None
    key_high: Value = None
    is_low_open: bool = False
    is_high_open: bool = False
    #: `where` of a scan says no more than these bounds and conditions; None: it may say more
    conditions: tuple[PlanCondition, ...] | None = None
    #: of a stream: see PushPlan
    arrays: tuple[Callable[[Sequence[Any]], Any], ...] = ()

    @property
    def is_merged(self) -> bool:
        """Whether rows of several partitions must be merged, not only concatenated."""
        return self.is_ordered or self.is_count

    @property
    def full_row_width(self) -> int:
        """How many columns the full row has, including window bounds, but not ROWTIME."""
        return len(self.source.columns) + (2 if self.source.window else 0)

    @property
    def rowtime_index(self) -> int:
        """Index of ROWTIME, which follows the full row."""
        return self.full_row_width


class PushPlan(Record, frozen=True, kw_only=True):
    """A push query: the rows of one topic as they arrive, until the client disconnects.

    `where` and `cells` are functions of the full row: key columns, WINDOWSTART and WINDOWEND if
    windowed, value columns, ROWTIME, ROWPARTITION, ROWOFFSET. `key_cells`: cells that the tombstone
    of a table's row still shows. `is_left`: a table's row may stop satisfying `where`, which reads
    more than its key; the client then gets a tombstone. `arrays`: of those, a row becomes one row
    for each element, with an element of each behind the full row; without any, it stays one.
    """

    source: Source
    schema: str
    column_names: tuple[str, ...]
    column_types: tuple[str, ...]
    cells: tuple[Callable[[Sequence[Any]], Any], ...]
    key_cells: tuple[bool, ...]
    where: Callable[[Sequence[Any]], bool] | None = None
    is_left: bool = False
    limit: int | None = None
    arrays: tuple[Callable[[Sequence[Any]], Any], ...] = ()
    has_costly_rows: bool = False  # as in PullPlan


class PrintPlan(Record, frozen=True, kw_only=True):
    """PRINT: every `interval`-th record of a topic as it arrives."""

    topic: str
    from_beginning: bool
    interval: int
    limit: int | None


class DescribeFunctionPlan(Record, frozen=True, kw_only=True):
    """DESCRIBE FUNCTION of a function in the registry."""

    name: str


class ExplainPlan(Record, frozen=True, kw_only=True):
    """EXPLAIN of a running query (`query_id`), or of a statement that is not executed."""

    query_id: str | None = None
    subject: PullPlan | PushPlan | TransientPlan | CreateTableAsPlan | InsertIntoPlan | None = None


class ExplainRoutePlan(Record, frozen=True, kw_only=True):
    """EXPLAIN ROUTE: the replicas that would answer, in order, and why."""

    pull: PullPlan


class ExplainAssignmentPlan(Record, frozen=True, kw_only=True):
    """EXPLAIN ASSIGNMENT: the holders of each table partition, why, and what would move."""


Plan = (
    CreateSourcePlan
    | CreateTableAsPlan
    | InsertIntoPlan
    | DropPlan
    | AlterSourcePlan
    | CreateTypePlan
    | DropTypePlan
    | TerminatePlan
    | PausePlan
    | InsertValuesPlan
    | ShowPlan
    | ShowLagPlan
    | DescribePlan
    | SetPropertyPlan
    | DefinePlan
    | AssertTopicPlan
    | PullPlan
    | PushPlan
    | TransientPlan
    | PrintPlan
    | DescribeFunctionPlan
    | ExplainPlan
    | ExplainRoutePlan
    | ExplainAssignmentPlan
)

#: Plans that change the catalog: they go through the metadata log.
LOGGED = (
    CreateSourcePlan,
    CreateTableAsPlan,
    InsertIntoPlan,
    DropPlan,
    AlterSourcePlan,
    CreateTypePlan,
    DropTypePlan,
    TerminatePlan,
    PausePlan,
)
