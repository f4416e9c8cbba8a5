"""Which pipeline writes which query: leases per query, granted by the leader, fenced by epoch.

A pipeline that has Spark running registers (StartPipeline) and then renews each second; renewals
are not logged. The leader ends a pipeline that stays silent for too long, unless it is the only
one: no other could take over. Its queries go to the others, and a new pipeline gets its share
(GrantLeases). Each grant has a new lease epoch, greater than all before it.

A lease only decides which pipeline *tries* to write. The order of the progress topic decides which
writes count: the holder of a newer lease epoch writes a fence there first (`data.commit.progress`).

Pure, on the caller's clock, which is monotonic: a wall clock that jumps extends nothing. Not here:
the log (`control.metadata.apply`), the renewals' route (`node.controller.leases`), what a pipeline
does with its leases (`pipeline.run.reconcile`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from standpipe.model import LeaseEpoch, QueryLease

#: (query id, pipeline id): a grant in its logged form
Grant = tuple[str, str]
#: Two pipelines' loads may differ by this many queries: a move costs a query some seconds.
LOAD_DIFFERENCE_MAX: Final = 1


def due(
    queries: Sequence[str], pipelines: Collection[str], leases: Mapping[str, QueryLease]
) -> tuple[Grant, ...]:
    """The grants that give each query a pipeline and each pipeline its share, by fewest moves.

    `queries`: ids of those that should run, in the order of creation; `pipelines`: all registered
    ones. Nothing is granted while there is no pipeline.
    """
    if not pipelines:
        return ()
    held = {query: leases[query].pipeline_id for query in queries if query in leases}
    holder = {query: pipeline for query, pipeline in held.items() if pipeline in pipelines}
    load = Counter(dict.fromkeys(sorted(pipelines), 0))
    load.update(holder.values())
    for query in queries:
        if query not in holder:
            holder[query] = min(load, key=load.__getitem__)
            load[holder[query]] += 1
    while True:
        most, least = max(load, key=load.__getitem__), min(load, key=load.__getitem__)
        if load[most] - load[least] <= LOAD_DIFFERENCE_MAX:
            break
        # the newest moves: it has the least state to read again
        moved = next(query for query in reversed(queries) if holder[query] == most)
        holder[moved] = least
        load.update({most: -1, least: 1})
    return tuple((query, holder[query]) for query in queries if holder[query] != held.get(query))


def granted(
    grants: Iterable[Grant],
    *,
    leases: Mapping[str, QueryLease],
    queries: Collection[str],
    pipelines: Collection[str],
    newest: LeaseEpoch,
) -> tuple[Mapping[str, QueryLease], LeaseEpoch]:
    """The leases after these grants, and the newest lease epoch.

    A grant whose query or pipeline no longer exists changes nothing.
    """
    after = dict(leases)
    for query, pipeline in grants:
        if query in queries and pipeline in pipelines:
            newest = LeaseEpoch(newest + 1)
            after[query] = QueryLease(pipeline_id=pipeline, lease_epoch=newest)
    return after, newest


@dataclass
class Renewals:
    """When each pipeline last renewed, or each transient query (`transients.py`); only the leader
    knows. Milliseconds of its clock.

    `look_ms`: how often the leader checks. If a check is late, its cause (such as a stopped
    process) also held up renewals, so that time does not count as silence.
    """

    timeout_ms: int
    look_ms: int
    _heard_ms: dict[str, int] = field(default_factory=dict[str, int])
    _looked_ms: int = 0

    def begin(self, pipelines: Iterable[str], now_ms: int) -> None:
        """A new leader has no record of renewals: every registered pipeline counts as renewed."""
        self._heard_ms = dict.fromkeys(pipelines, now_ms)
        self._looked_ms = now_ms

    def heard(self, pipeline: str, now_ms: int) -> None:
        """The pipeline started or renewed."""
        self._heard_ms[pipeline] = now_ms

    def silent(self, pipelines: Collection[str], now_ms: int) -> tuple[str, ...]:
        """The registered pipelines to end: silent for too long while another one is not silent."""
        found = self.overdue(pipelines, now_ms)
        return found if len(found) < len(pipelines) else ()

    def overdue(self, pipelines: Collection[str], now_ms: int) -> tuple[str, ...]:
        """Those that are silent for too long, even if they are all."""
        late_ms = max(0, now_ms - self._looked_ms - self.look_ms)
        self._looked_ms = now_ms
        self._heard_ms = {
            pipeline: min(now_ms, self._heard_ms.get(pipeline, now_ms) + late_ms)
            for pipeline in pipelines
        }
        return tuple(
            pipeline
            for pipeline, heard_ms in self._heard_ms.items()
            if now_ms - heard_ms > self.timeout_ms
        )
