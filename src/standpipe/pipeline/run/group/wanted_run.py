"""Which streaming queries run the queries that are wanted: each its own, or one for a group.

A pure decision from the wanted queries and the groups that have begun. `WantedRun` is what the
scheduler starts, watches and stops. Not here: the files of groups (`commit/query_group.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.pipeline.commit.query_group import QueryGroup
from standpipe.pipeline.wanted import WantedQuery
from standpipe.sql.context import Context
from standpipe.sql.spark.create_as import aggregation_of
from standpipe.sql.spark.group_sql import can_be_grouped, fits
from standpipe.sql.spark.to_spark import Aggregation, emit
from standpipe.sql.syntax.ast_statements import CreateAs
from standpipe.sql.syntax.parser import parse


@dataclass(frozen=True, kw_only=True)
class WantedRun:
    """One streaming query of Spark: the queries that it keeps up to date. `group`: whose plan it
    runs, although perhaps for one query alone."""

    members: tuple[WantedQuery, ...]
    group: QueryGroup | None = None

    @property
    def run_id(self) -> str:
        """Its name in Spark, in marks and in logs: of its only query, or of the group."""
        return self.group_id or self.query_ids[0]

    @property
    def group_id(self) -> str:
        """The id of the group that runs together here; empty: it is one query alone."""
        if self.group is not None and len(self.members) > 1:
            return self.group.group_id
        return ""

    @property
    def query_ids(self) -> tuple[str, ...]:
        """The ids of its queries."""
        return tuple(each.query_id for each in self.members)

    @property
    def is_held(self) -> bool:
        """Whether it may commit nothing; such a query is in a run of its own."""
        return self.members[0].is_held

    @property
    def revision(self) -> int:
        """The revision of its only query. Members of a group are not replaced in place."""
        return self.members[0].query.revision if len(self.members) == 1 else 1

    @property
    def identity(self) -> tuple[object, ...]:
        """What cannot change under it."""
        return (self.run_id, *(each.identity for each in self.members))


def runs_of(wanted: Mapping[str, WantedQuery], groups: Sequence[QueryGroup]) -> list[WantedRun]:
    """The runs of these queries, in their order. `groups`: those that have begun."""
    runs: list[WantedRun] = []
    seen: set[str] = set()
    for query_id, query in wanted.items():
        if query_id in seen:
            continue
        group = next((each for each in groups if each.number_of(query) is not None), None)
        members = [query] if group is None else _together(query, group, wanted)
        seen |= {each.query_id for each in members}
        runs.append(WantedRun(members=tuple(members), group=group))
    return runs


def _together(
    query: WantedQuery, group: QueryGroup, wanted: Mapping[str, WantedQuery]
) -> list[WantedQuery]:
    if query.query_id not in group.together or query.is_held:
        return [query]
    there = [wanted[query_id] for query_id in group.together if query_id in wanted]
    return [each for each in there if group.number_of(each) is not None and not each.is_held]


def may_be_grouped(query: WantedQuery) -> bool:
    """Whether a new query is worth waiting a moment for others. Cheap; `new_groups` decides.

    Not a table with a copy in a public topic: a group writes each table's own topic only."""
    plan = query.query.plan
    is_simple = not plan.steps and len(plan.inputs) == 1 and plan.output_mode == "update"
    is_lasting = not query.is_successor and not query.query.served_by
    is_plain_table = query.table.kind == "TABLE" and query.table.public_topic is None
    return is_simple and is_plain_table and is_lasting


def new_groups(
    fresh: Sequence[WantedQuery], sources: Mapping[str, Source]
) -> list[list[tuple[WantedQuery, Aggregation]]]:
    """How to group queries that have never run: each as early as it fits, at least two in each."""
    groups: list[list[tuple[WantedQuery, Aggregation]]] = []
    for query in fresh:
        aggregation = _aggregation(query, sources)
        if aggregation is None:
            continue
        for group in groups:
            if all(_same_input(query, other) and fits(aggregation, of) for other, of in group):
                group.append((query, aggregation))
                break
        else:
            groups.append([(query, aggregation)])
    return [group for group in groups if len(group) > 1]


def _same_input(query: WantedQuery, other: WantedQuery) -> bool:
    """Whether both read the topic in the same way."""
    return query.writers == other.writers and query.partitions == other.partitions


def _aggregation(query: WantedQuery, sources: Mapping[str, Source]) -> Aggregation | None:
    """The aggregation of a query that can be grouped. None, too, if its statement does not give its
    stored plan today: a source was replaced since, or another release has planned it."""
    try:
        (statement,) = parse(query.query.statement)
        if not isinstance(statement, CreateAs):
            return None
        found = aggregation_of(statement, sources, Context(), query.table.table_id or "")
        if found is None or not can_be_grouped(found) or emit(found) != query.query.plan:
            return None
    except (StatementError, ValueError):
        return None
    return found
