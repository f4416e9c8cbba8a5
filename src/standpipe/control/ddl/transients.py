"""A push query that needs Spark, as its node asks the leader for it: request to command.

    SELECT … GROUP BY … EMIT CHANGES, id, node, offsets ─► TransientPlan ─► CreateTableAs version 4

Not here: what the statement becomes for Spark (`sql.spark.transient`), how many may run
(`quotas.py`), what the catalog keeps of it (`control.metadata.transients`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import CreateTableAs, Receipt
from standpipe.control.metadata.transients import is_transient_id
from standpipe.errors import StatementError
from standpipe.model import NodeId, Source, SparkInput, TopicSpec
from standpipe.sql import analyzer
from standpipe.sql.plans import TransientPlan
from standpipe.sql.syntax import ast

#: How long Kafka keeps its changes. A client that reads more slowly gets an error, never a gap.
RETENTION_MS: Final = 3_600_000


class PushRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a node adds to the statement of its client."""

    query_id: str
    #: the node that serves the client
    node_id: Annotated[NodeId, msgspec.Meta(min_length=1)]
    #: topic -> partition -> offset at which to begin, for all streams that are read; empty: all at
    #: their beginning
    starts: dict[str, dict[int, int]] = {}

    def plan(
        self, statement: ast.Statement, sources: Mapping[str, Source], context: analyzer.Context
    ) -> TransientPlan:
        """Raises StatementError, also for an id that another kind of query may have, and for a node
        that did not know the streams as they are."""
        if not is_transient_id(self.query_id):
            raise StatementError(
                f"{self.query_id} is no id of a push query", statement=statement.text
            )
        plan = analyzer.transient(statement, sources, context, self.query_id)
        query = plan.query
        inputs = tuple(self._from_its_start(each, sources) for each in query.plan.inputs)
        spark = msgspec.structs.replace(query.plan, inputs=inputs)
        query = msgspec.structs.replace(query, plan=spark, served_by=self.node_id)
        return msgspec.structs.replace(plan, query=query)

    def _from_its_start(self, read: SparkInput, sources: Mapping[str, Source]) -> SparkInput:
        """A table is read whole, even if a stream over the same topic is not."""
        if read.is_table or not self.starts:
            return msgspec.structs.replace(read, starts=msgspec.UNSET)
        starts = self.starts.get(read.topic, {})
        if set(range(sources[read.source].partitions)) - starts.keys():
            raise StatementError(
                f"{read.source} was changed while the query began, and what its node says of"
                f" {read.topic} does not fit: send the query again"
            )
        return msgspec.structs.replace(read, starts=starts)


def named(query_id: str | None, catalog: Catalog) -> str | None:
    """The query that a statement means: ids of transient queries have small letters, which SQL
    makes capitals."""
    found = (each for each in catalog.transients if each.upper() == query_id)
    return next(found, query_id)


def begin(plan: TransientPlan, request_id: str, receipt: Receipt) -> CreateTableAs:
    """The command that starts it."""
    source = plan.source
    return CreateTableAs(
        source=source,
        query=plan.query,
        # each change is read once, soon after it was written: nothing to compact
        topic=TopicSpec(
            name=source.topic,
            partitions=source.partitions,
            kind="SOURCE",
            retention_ms=RETENTION_MS,
        ),
        request_id=request_id,
        receipt=receipt,
    )
