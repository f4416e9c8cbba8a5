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
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from standpipe.data.encoding.answer_values import reader_of
from standpipe.data.encoding.arrow import (
    has_compiled_reader,
    library,
    rows_to_arrow,
    to_arrow,
)
from standpipe.data.query.pull import cell_json
from standpipe.errors import NoArrow
from standpipe.freshness import Freshness
from standpipe.node.worker.request.answer import oldest
from standpipe.node.worker.request.answer_pieces import PIECE_BYTES
from standpipe.sql.plans import PullPlan, Value

#: in place of a row that is not there
NO_ROW: Final = b"null"


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
    """The rows of a batch. `keys`: as asked, with duplicates; `rows`: of each key, in the order in
    which they were first asked for."""

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
        return sum(map(len, self._listed))

    def takes_long(self, form: BatchForm) -> bool:
        """Whether `body` may take more than some ms."""
        is_quick = has_compiled_reader(self.plan.column_types) and self.rows_bytes <= PIECE_BYTES
        return form is BatchForm.ARROW and not is_quick

    def body(self, form: BatchForm) -> bytes:
        """Raises NoArrow if pyarrow is not installed, ServerError for a row that is none."""
        return self._as_json() if form is BatchForm.JSON else self._as_arrow()

    @cached_property
    def _listed(self) -> Sequence[bytes]:
        """The row of each key asked."""
        rows = self.rows
        if len(rows) == len(self.keys):
            return [*rows.values()]
        return [rows[key] for key in self.keys]

    def _as_json(self) -> bytes:
        plan = self.plan
        head = {
            "table": plan.source.name,
            "columnNames": plan.column_names,
            "columnTypes": plan.column_types,
            "freshness": self._described(),
        }
        return b'%b,"rows":[%b]}' % (msgspec.json.encode(head)[:-1], b",".join(self._listed))

    def _as_arrow(self) -> bytes:
        pyarrow = arrow()
        names, types = self.plan.column_names, self.plan.column_types
        listed = self._listed
        missing: list[int] = []
        if NO_ROW in listed:
            nulls = b",null" * (len(names) - 1)
            missing = [place for place, row in enumerate(listed) if row is NO_ROW]
            listed = [*listed]
            for place in missing:
                listed[place] = b"[%b%b]" % (cell_json(self.keys[place]), nulls)
        table = rows_to_arrow(names, types, listed)
        if table is None:
            table = to_arrow(names, types, reader_of(tuple(types)).rows(listed))
        metadata = {
            "standpipe.freshness": msgspec.json.encode(self._described()),
            "standpipe.missing": msgspec.json.encode(missing),
        }
        table = table.replace_schema_metadata(metadata)
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
