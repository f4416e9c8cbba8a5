"""The answer of POST /query-batch, in JSON or as an Arrow stream: a row for each key asked. Pure.

| form | rows | a key without a row | freshness of each partition |
|---|---|---|---|
| JSON | `rows`, arrays | `null` in its place | `freshness` |
| ARROW | record batches of one stream | nulls besides its key | the schema's metadata |

Arrow's metadata are `standpipe.freshness`, as JSON has it, and `standpipe.missing`: the places of
the keys that have no row. Arrow needs pyarrow, which is optional.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from standpipe.data.encoding.answer_values import reader_of
from standpipe.data.encoding.arrow import library, to_arrow
from standpipe.errors import NoArrow
from standpipe.freshness import Freshness
from standpipe.node.worker.request.answer import oldest
from standpipe.sql.plans import PullPlan, Value


class BatchForm(Enum):
    """Layout of the answer, by its media type."""

    JSON = "application/json"
    ARROW = "application/vnd.apache.arrow.stream"


class PartitionFreshness(NamedTuple):
    """How fresh the rows of one partition are."""

    partition: int
    fresh: Freshness

    def describe(self) -> dict[str, object]:
        """As JSON; what is unknown is null."""
        fresh = self.fresh
        return {
            "partition": self.partition,
            "servedBy": fresh.served_by,
            "role": fresh.role,
            "state": fresh.state,
            "offsetLag": fresh.offset_lag,
            "replicaLagMs": fresh.replica_lag_ms,
            "sourceLagMs": fresh.source_lag_ms,
            "batch": fresh.batch,
        }


@dataclass(frozen=True)
class BatchAnswer:
    """The rows of a batch. `keys`: as asked, with duplicates; `rows`: of those that have one."""

    plan: PullPlan
    keys: Sequence[Value]
    rows: Mapping[Value, bytes]
    parts: Sequence[PartitionFreshness]

    def fresh(self, node_id: str) -> Freshness:
        """Of the whole: as stale as its stalest part. `node_id`: who read nothing, if no key was
        asked."""
        if not self.parts:
            return Freshness(served_by=node_id, role="none", state="NONE")
        return oldest([part.fresh for part in self.parts])

    @property
    def rows_bytes(self) -> int:
        """Of all rows as they are answered: a key that is asked twice has its row twice."""
        return sum(len(self.rows.get(key, b"null")) for key in self.keys)

    def body(self, form: BatchForm) -> bytes:
        """Raises NoArrow if pyarrow is not installed, ServerError for a row that is none."""
        return self._as_json() if form is BatchForm.JSON else self._as_arrow()

    def _as_json(self) -> bytes:
        plan, rows = self.plan, self.rows
        head = {
            "table": plan.source.name,
            "columnNames": plan.column_names,
            "columnTypes": plan.column_types,
            "freshness": self._described(),
        }
        listed = b",".join([rows.get(key, b"null") for key in self.keys])
        return b'%b,"rows":[%b]}' % (msgspec.json.encode(head)[:-1], listed)

    def _as_arrow(self) -> bytes:
        pyarrow = arrow()
        names, types = self.plan.column_names, self.plan.column_types
        read = reader_of(tuple(types)).rows(list(self.rows.values()))
        found = dict(zip(self.rows, read, strict=True))
        nulls = (None,) * (len(names) - 1)
        tuples = [found.get(key, (key, *nulls)) for key in self.keys]
        missing = [place for place, key in enumerate(self.keys) if key not in found]
        metadata = {
            "standpipe.freshness": msgspec.json.encode(self._described()),
            "standpipe.missing": msgspec.json.encode(missing),
        }
        table = to_arrow(names, types, tuples).replace_schema_metadata(metadata)
        sink: Any = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    def _described(self) -> list[dict[str, object]]:
        return [part.describe() for part in self.parts]


def arrow() -> Any:
    """pyarrow. Raises NoArrow if this node has none."""
    try:
        return library("pyarrow", "standpipe[pandas]")
    except ImportError as error:
        raise NoArrow(
            f"this node cannot write Arrow: {error}. Or accept application/json"
        ) from None
