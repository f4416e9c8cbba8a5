"""Many keys of one table, for POST /query-batch: a row for each key, or the news that it has none.

    sample           a lookup of the table, planned once; its plan with the keys is the batch's
    keys_by_partition  each key checked and hashed once
    PullQuery        the keys of a partition, and the statement that a peer gets for them
    SlowPath.parts   one read of each, here or forwarded, side by side, as for any pull query
    _placed          rows back to the places of their keys

All rules are those of a pull query: which replica answers, bounds on the lag, hedging, refusals. A
batch is answered whole or not at all. Rows of one partition are of one batch of the pipeline if
they come from one statement (`request_body.slices`), which holds 1,000 keys; at level `snapshot`,
all rows are.

Not here: HTTP (`endpoint.py`), the layouts (`answer.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from msgspec.structs import replace

from standpipe.data.encoding import native
from standpipe.data.query.partition_keys import (
    PartitionKeys,
    keys_by_partition,
    usual_values_by_partition,
)
from standpipe.data.query.pull import cell_json
from standpipe.errors import BadRequest, ServerError
from standpipe.node.worker.pull.forward import PartitionAnswer
from standpipe.node.worker.pull.pull_query import PullQuery
from standpipe.node.worker.pull.slow_path import SlowPath
from standpipe.node.worker.query_batch.answer import NO_ROW, BatchAnswer, PartitionFreshness
from standpipe.node.worker.query_batch.request_body import (
    Batch,
    body_of,
    check_keys,
    sample,
    slices,
    statement,
)
from standpipe.node.worker.request.answer import oldest
from standpipe.node.worker.request.body import refuse_unbatched
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.sql.plans import PullPlan, Value
from standpipe.sql.types.names import folded, name_literal

#: what follows a cell in a row
_CELL_ENDS: Final = (b",", b"]")


@dataclass(frozen=True)
class BatchReads:
    """The batches of one worker."""

    slow_path: SlowPath

    async def answer(self, batch: Batch, requester: ScanRequester) -> BatchAnswer:
        """Raises StandpipeError: BadRequest, the table's own, NotReady, NoReplica."""

        async def once() -> BatchAnswer:
            return await self._answer(batch, self.slow_path.map.view, requester)

        text = f"of {len(batch.keys)} keys of {folded(batch.table)}"
        return await self.slow_path.again(once, text)

    async def _answer(
        self, batch: Batch, view: ClusterView, requester: ScanRequester
    ) -> BatchAnswer:
        started = time.perf_counter()
        plan = _plan(batch, view)
        rows: dict[Value, bytes] = dict.fromkeys(batch.keys, NO_ROW)
        wanted = _keys(batch, plan, rows)
        refuse_unbatched(batch.properties, plan.source)
        asked = list(self._asked(batch, plan, wanted, view, requester))
        parts = await self.slow_path.parts(asked)
        for (query, partition), part in zip(asked, parts, strict=True):
            _place(rows, query.keys[partition], part.rows)
        nodes = {part.fresh.served_by for part in parts}
        route = "local" if nodes <= {self.slow_path.node_id} else "remote"
        self.slow_path.metrics.answered(route, time.perf_counter() - started)
        return BatchAnswer(plan, batch.keys, rows, _freshness(asked, parts))

    def _asked(
        self,
        batch: Batch,
        plan: PullPlan,
        wanted: Mapping[int, PartitionKeys],
        view: ClusterView,
        requester: ScanRequester,
    ) -> Iterator[tuple[PullQuery, int]]:
        slow_path = self.slow_path
        bounds = slow_path.routes.bounds(batch.bounds, plan.source)
        for partition, its in wanted.items():
            for part in slices(its):
                keys = PartitionKeys(its.keys[part], its.store_keys[part], its.kind)
                text = statement(plan.source, list(chain.from_iterable(keys.keys)))
                query = PullQuery(
                    text=text,
                    body=body_of(text, batch.properties),
                    view=view,
                    plan=replace(plan, keys=tuple(keys.keys)),
                    bounds=bounds,
                    requester=requester,
                    time_limit_ms=slow_path.routing_timeout_ms,
                    digest=slow_path.in_hand.admitted(text),
                    keys={partition: keys},
                )
                yield query.wanting(None) if batch.is_snapshot else query, partition


def _plan(batch: Batch, view: ClusterView) -> PullPlan:
    """The plan of a lookup of one key. Raises StatementError, BadRequest."""
    name = folded(batch.table)
    source = view.sources.get(name)
    if source is None:  # its error is that of a statement
        view.plans.plan(f"SELECT * FROM {name_literal(name)} WHERE K = 0;", {})  # noqa: S608
        raise BadRequest(f"{name} cannot be read by its keys")
    return view.plans.plan(sample(source), {})


def _keys(batch: Batch, plan: PullPlan, once: Iterable[Value]) -> Mapping[int, PartitionKeys]:
    """All keys by partition. `once`: each once. Raises BadRequest."""
    found = usual_values_by_partition(plan.source, once)
    if found is not None:
        return found
    check_keys(plan.source, batch.keys)
    return keys_by_partition(replace(plan, keys=tuple((key,) for key in once)))


def _place(rows: dict[Value, bytes], asked: PartitionKeys, found: Sequence[bytes]) -> None:
    """Put the rows of a partition to their keys. Raises ServerError if one is of none."""
    if asked.store_keys and native.placed(rows, asked.keys, found, asked.kind):
        return
    rows.update(_placed(asked.keys, found))


def _placed(
    keys: Sequence[tuple[Value, ...]], rows: Sequence[bytes]
) -> Iterator[tuple[Value, bytes]]:
    """The rows of a partition with their keys. They are in the order asked, so that a row whose
    first cell is not its key's is that of a later key. Raises ServerError if one is of no key."""
    left = iter(rows)
    row = next(left, None)
    for (key,) in keys:
        if row is None:
            return
        cell = b"[" + cell_json(key)
        size = len(cell)
        if row[:size] == cell and row[size : size + 1] in _CELL_ENDS:
            yield key, row
            row = next(left, None)
    if row is not None:
        raise ServerError(f"a replica answered with a row of no key that was asked: {row[:80]!r}")


def _freshness(
    asked: Sequence[tuple[PullQuery, int]], parts: Sequence[PartitionAnswer]
) -> list[PartitionFreshness]:
    """Of each partition that holds keys, ascending."""
    found: dict[int, list[PartitionAnswer]] = {}
    for (_, partition), part in zip(asked, parts, strict=True):
        found.setdefault(partition, []).append(part)
    return [
        PartitionFreshness(partition, oldest([part.fresh for part in its]))
        for partition, its in found.items()
    ]
