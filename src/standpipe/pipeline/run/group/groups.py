"""The groups of this pipeline's queries: formed, looked up, and left.

Queries form a group only before their first batch, since Spark's state belongs to one plan. Tables
are mostly created by one script, so a new query waits a moment for others over the same stream.

For the driver's loop, and for the threads that start queries. Not here: what fits together
(`sql/spark/group_sql.py`), which run a query belongs to (`wanted_run.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

import structlog

from standpipe.adapters.files.named_paths import folder_below
from standpipe.model import Source
from standpipe.pipeline.commit.query_group import (
    QueryGroup,
    groups_below,
    without,
    write_group,
)
from standpipe.pipeline.io.checkpoint_path import CheckpointPath
from standpipe.pipeline.run.group.wanted_run import WantedRun, may_be_grouped, new_groups, runs_of
from standpipe.pipeline.wanted import WantedQuery
from standpipe.sql.spark.group_sql import group_plan
from standpipe.sql.spark.to_spark import Aggregation

#: a new query waits until no other has come for this long. So does a group that loses a member
SETTLE_S = 1.0
#: after how long storage that was away is asked again
AGAIN_S = 2.0

_logger = structlog.get_logger("groups")


class Groups:
    """`forms`: whether new queries form groups where the cluster's feature level allows it. Those
    that have begun go on in any case.

    `lease_timeout_s`: after so long the leader takes a dead pipeline's leases away. A pipeline that
    has just started waits that long for the members of a group that it did not get at once: until
    then, the driver before it may count as the holder of the rest.
    """

    def __init__(
        self,
        checkpoints: CheckpointPath,
        service_id: str,
        *,
        forms: bool = False,
        lease_timeout_s: float = 0.0,
    ) -> None:
        self._checkpoints, self._service_id, self._forms = checkpoints, service_id, forms
        self._first_wait_s = lease_timeout_s + SETTLE_S
        self._may_form = forms
        self._lock = threading.Lock()
        self._groups: dict[str, QueryGroup] = {}
        #: whether the groups have been read. Until then nothing may run: a member would look for a
        #: checkpoint of its own, and say that it is lost
        self.is_known = False
        #: the newest answer; and since storage is away, when to ask again. On the caller's clock
        self._newest: list[WantedRun] = []
        self._again_s: float | None = None
        #: of the queries that are wanted: those that have run, or will run, as they are
        self._settled: set[str] = set()
        #: of groups that lack members: which are here, and since when; and the runs from before
        self._lacks: dict[str, tuple[frozenset[str], float]] = {}
        self._runs: dict[str, WantedRun] = {}
        #: whether it is not sure yet, for one of them, who does not come
        self._is_unsure = False
        #: when new ones came, on the caller's clock
        self._arrived_s: dict[str, float] = {}

    def arrange(
        self,
        wanted: Mapping[str, WantedQuery],
        sources: Mapping[str, Source],
        now_s: float,
        *,
        may_form: bool = True,
    ) -> list[WantedRun]:
        """The runs of these queries. New ones that wait for others are left out meanwhile.
        `may_form`: every pipeline of the cluster knows groups.

        While storage is away, what runs goes on and nothing new begins."""
        self._may_form = self._forms and may_form
        # another pipeline that holds one meanwhile may put it into a group
        self._settled &= wanted.keys()
        self._arrived_s = {each: at for each, at in self._arrived_s.items() if each in wanted}
        if self._again_s is not None and now_s < self._again_s:
            return self._still_wanted(wanted)
        try:
            self._newest = self._arrange(wanted, sources, now_s)
        except OSError as error:
            if self._again_s is None:
                _logger.error("the groups cannot be read; no query begins", why=str(error))
            self._again_s = now_s + AGAIN_S
            return self._still_wanted(wanted)
        if self._again_s is not None:
            _logger.info("the groups are read again")
            self._again_s = None
        return self._newest

    def _still_wanted(self, wanted: Mapping[str, WantedQuery]) -> list[WantedRun]:
        """The runs of before, of which a query is wanted as it was. A member that is not goes once
        storage is back: the others could not begin without it. If its lease has gone, no batch
        commits it."""

        def is_wanted(before: WantedQuery) -> bool:
            now = wanted.get(before.query_id)
            return now is not None and (now == before or now.identity == before.identity)

        return [run for run in self._newest if any(map(is_wanted, run.members))]

    def _arrange(
        self, wanted: Mapping[str, WantedQuery], sources: Mapping[str, Source], now_s: float
    ) -> list[WantedRun]:
        self._read_first()
        new = wanted.keys() - self._settled
        if new:
            self._learn(new, wanted, sources, now_s)
        ready = {key: query for key, query in wanted.items() if key in self._settled}
        if self._is_unsure:
            self._read_those_of_others()  # what another pipeline's lease keeps away may have left
            self._is_unsure = False
        with self._lock:
            runs = runs_of(ready, list(self._groups.values()))
        held = [self._held(run, now_s) for run in runs]
        there = {run.group.group_id for run in runs if run.group is not None}
        self._lacks = {key: since for key, since in self._lacks.items() if key in there}
        self._runs = {key: run for key, run in self._runs.items() if key in there}
        return [run for run in held if run is not None]

    def _held(self, run: WantedRun, now_s: float) -> WantedRun | None:
        """The run; that of before, or None, until it is sure that a member does not come."""
        group, here = run.group, frozenset(run.query_ids)
        if group is None or not here <= set(group.together):
            return run
        if here == frozenset(group.together):
            self._lacks.pop(group.group_id, None)
        else:
            known, since_s = self._lacks.get(group.group_id, (here, now_s))
            since_s = since_s if known == here else now_s
            self._lacks[group.group_id] = (here, since_s)
            before = self._runs.get(group.group_id)
            if now_s - since_s < (SETTLE_S if before else self._first_wait_s):
                self._is_unsure = True
                return before
        self._runs[group.group_id] = run
        return run

    def current(self, group_id: str) -> QueryGroup:
        """The group as it is now. Raises OSError."""
        self._read_first()
        with self._lock:
            return self._groups[group_id]

    def group_ids(self, query_ids: Iterable[str]) -> set[str]:
        """The groups in which any of these queries has been."""
        named = set(query_ids)
        with self._lock:
            groups = list(self._groups.values())
        return {
            each.group_id
            for each in groups
            if any(member.query_id in named for member in each.members)
        }

    def let_leave(self, group_id: str, query_ids: Sequence[str]) -> None:
        """Note that these queries no longer run with the others. Raises OSError."""
        self._read_first()
        with self._lock:
            left = without(self._groups[group_id], query_ids)
            write_group(left, self._checkpoints)
            self._groups[group_id] = left
        _logger.info("left the group", group_id=group_id, query_ids=list(query_ids))

    def divide(self, group_id: str, why: str) -> None:
        """Let every member continue alone. Raises OSError."""
        _logger.warning("a group is divided", group_id=group_id, why=why)
        self.let_leave(group_id, self.current(group_id).together)

    # ------------------------------------------------------------------------------- new queries

    def _learn(
        self,
        new: Iterable[str],
        wanted: Mapping[str, WantedQuery],
        sources: Mapping[str, Source],
        now_s: float,
    ) -> None:
        """Find out which of these queries have run before, here or in another pipeline; form groups
        of the others once no more come."""
        unknown = [query_id for query_id in new if query_id not in self._arrived_s]
        if unknown:
            self._read_those_of_others()
        for query_id in unknown:
            if self._is_fresh(wanted[query_id]):
                self._arrived_s[query_id] = now_s
            else:
                self._settled.add(query_id)
        if self._arrived_s and now_s - max(self._arrived_s.values()) >= SETTLE_S:
            fresh = [wanted[query_id] for query_id in wanted if query_id in self._arrived_s]
            for members in new_groups(fresh, sources):
                self._form(members)
            self._read_those_of_others()  # this process may have stood still for long
            self._settled |= self._arrived_s.keys()
            self._arrived_s = {}

    def _read_first(self) -> None:
        if not self.is_known:
            self._read_those_of_others()

    def _read_those_of_others(self) -> None:
        """Another pipeline may have formed a group, or noted who has left one. Raises OSError."""
        found = {each.group_id: each for each in groups_below(self._checkpoints, self._service_id)}
        with self._lock:
            for group_id, known in self._groups.items():
                if other := found.get(group_id):
                    found[group_id] = without(known, set(known.together) - set(other.together))
                else:
                    found[group_id] = known
            self._groups = found
            self.is_known = True

    def _is_fresh(self, query: WantedQuery) -> bool:
        if not self._may_form or not may_be_grouped(query):
            return False
        return not self._root(query).exists()

    def _root(self, query: WantedQuery) -> CheckpointPath:
        return folder_below(self._checkpoints, f"{query.query_id}-{query.table.generation}")

    def _is_taken(self, query: WantedQuery) -> bool:
        """Create the folder of its checkpoint, as one pipeline alone can. Raises OSError."""
        try:
            self._root(query).mkdir(parents=True)
        except FileExistsError:
            return False
        return True

    def _form(self, members: Sequence[tuple[WantedQuery, Aggregation]]) -> None:
        """Form a group of those that no other pipeline forms one of at the same time: a query in
        two groups would run in both."""
        try:
            taken = [each for each in members if self._is_taken(each[0])]
            if len(taken) < len(members):
                self._read_those_of_others()
            if len(taken) < 2:
                return
            queries = [query for query, _ in taken]
            plan = group_plan([of for _, of in taken], view=f"{queries[0].query_id}__GROUP")
            group = QueryGroup.begin(queries, plan, self._service_id)
            write_group(group, self._checkpoints)
        except OSError as error:
            ids = [query.query_id for query, _ in members]
            _logger.error("queries run alone", query_ids=ids, why=str(error))
            return
        with self._lock:
            self._groups[group.group_id] = group
        _logger.info("a group begins", group_id=group.group_id, query_ids=list(group.together))
