import dataclasses

import msgspec
import pytest
from tests.unit.pipeline.queries_of import commands_of, wanted_of

from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import (
    CreateTableAs,
    HoldTable,
    ReplaceTableAs,
    SetQueryState,
    SwitchTable,
    TerminateQuery,
)
from standpipe.model import LeaseEpoch, LogIndex, QueryLease, TopicSpec
from standpipe.pipeline.run.group.wanted_run import WantedRun, may_be_grouped, runs_of
from standpipe.pipeline.run.reconcile import (
    PipelineRegistration,
    RunOrder,
    StartRun,
    StopRun,
    diff,
    every_query,
    lease_epoch_of,
    wanted_queries,
)
from standpipe.pipeline.wanted import WantedQuery
from standpipe.sql.declarations.published import kept_form

SQL = """
CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;
CREATE TABLE B AS SELECT K, SUM(N) AS T FROM S GROUP BY K;
"""
A, B = wanted_of(SQL)
#: the same id, made again: another table stands behind it
A2 = msgspec.structs.replace(A.table, table_id="another")
A_AGAIN = dataclasses.replace(A, table=A2)
A_HELD = dataclasses.replace(A, is_held=True)
A_GRANTED_ANEW = dataclasses.replace(A, lease_epoch=LeaseEpoch(3))
ME = PipelineRegistration(pipeline_id="me", lease_epoch=LeaseEpoch(1), log_index=LogIndex(1))


#: reads have moved to it: its rows are written to the public topic as well
SUCCESSOR = dataclasses.replace(
    A,
    table=msgspec.structs.replace(A.table, generation=2, public_topic="A"),
    is_successor=True,
)
SWITCHED = dataclasses.replace(SUCCESSOR, is_successor=False)


def start(query: WantedQuery) -> StartRun:
    return StartRun(WantedRun(members=(query,)))


def test_a_successor_is_not_published() -> None:
    assert (A.published_topic, SUCCESSOR.published_topic) == (None, None)
    assert SWITCHED.published_topic == "A"


def test_a_table_with_a_copy_is_in_no_group() -> None:
    """A group would write no copy."""
    table = kept_form(msgspec.structs.replace(A.table, value_format="AVRO"))
    assert table.public_topic is not None
    found = [A, dataclasses.replace(A, table=table)]
    assert [may_be_grouped(each) for each in found] == [True, False]


def test_both_generations_of_a_table_run() -> None:
    catalog = EMPTY
    for command in commands_of(SQL):
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    query = msgspec.structs.replace(A.query, query_id="CTAS_A_9")
    source = msgspec.structs.replace(
        A.table, generation=2, query_id="CTAS_A_9", topic="CTAS_A_9-changelog", public_topic="A"
    )
    wish = TopicSpec(name=source.topic, partitions=2, kind="TABLE")
    command = ReplaceTableAs(source=source, query=query, topic=wish)
    catalog = apply(catalog, LogIndex(9), command)
    found = {query.query_id: query for query in every_query(catalog)}
    assert (found[A.query_id].table.topic, found[A.query_id].is_successor) == ("A", False)
    assert found["CTAS_A_9"].table.topic == "CTAS_A_9-changelog"
    assert found["CTAS_A_9"].is_successor
    held = apply(catalog, LogIndex(10), HoldTable(name="A", generation=2))
    assert [q.query_id for q in every_query(held) if q.is_held] == [A.query_id]
    paused = SetQueryState(query_ids=(A.query_id,), state="PAUSED")
    assert A.query_id not in {q.query_id for q in every_query(apply(catalog, LogIndex(10), paused))}
    still = [q.query_id for q in every_query(apply(held, LogIndex(11), paused)) if q.is_held]
    assert still == [A.query_id], "who holds it says what it committed, although it is paused"
    switch = SwitchTable(name="A", generation=2)
    (left, _) = every_query(apply(catalog, LogIndex(10), switch))[::-1]
    assert (left.query_id, left.published_topic) == ("CTAS_A_9", "A")


def test_a_transient_query_runs_as_any_other_but_in_no_group() -> None:
    """It ends with its client; the tables of a group go on."""
    catalog = EMPTY
    for command in commands_of(SQL):
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    query_id = "transient_S_7"
    source = msgspec.structs.replace(A.table, name=query_id, query_id=query_id, topic="c")
    query = msgspec.structs.replace(A.query, query_id=query_id, sink=query_id, served_by="n")
    wish = TopicSpec(name="c", partitions=1, kind="SOURCE")
    command = CreateTableAs(source=source, query=query, topic=wish, version=3)
    catalog = apply(catalog, LogIndex(9), command)
    *others, found = every_query(catalog)
    assert (found.query_id, found.table.topic, found.is_successor) == (query_id, "c", False)
    assert found.partitions == {"s": 2}
    assert [may_be_grouped(each) for each in (*others, found)] == [True, True, False]
    ended = apply(catalog, LogIndex(10), TerminateQuery(query_ids=(query_id,)))
    assert every_query(ended) == others


@pytest.mark.parametrize(
    ("wanted", "running", "orders", "why"),
    [
        ([], [], [], "nothing to do"),
        ([A, B], [], [start(A), start(B)], "a fresh pipeline starts all, in order"),
        ([A], [A], [], "it runs already"),
        ([], [A], [StopRun(A.query_id)], "dropped"),
        ([B], [A], [StopRun(A.query_id), start(B)], "stops first: cores are few"),
        (
            [A_AGAIN],
            [A],
            [StopRun(A.query_id), start(A_AGAIN)],
            "dropped and made again under the same id between two looks",
        ),
        (
            [A_GRANTED_ANEW],
            [A],
            [StopRun(A.query_id), start(A_GRANTED_ANEW)],
            "another one may have written it in between",
        ),
        (
            [A_HELD],
            [A],
            [StopRun(A.query_id), start(A_HELD)],
            "it commits nothing more",
        ),
        (
            [SWITCHED],
            [SUCCESSOR],
            [StopRun(A.query_id), start(SWITCHED)],
            "from now on its rows are published",
        ),
    ],
)
def test_diff(wanted: list, running: list, orders: list[RunOrder], why: str) -> None:
    there = {query.query_id: WantedRun(members=(query,)) for query in running}
    assert diff(runs_of({query.query_id: query for query in wanted}, []), there) == orders, why


def test_wanted_are_those_of_the_catalog() -> None:
    catalog = EMPTY
    for index, command in enumerate(commands_of(SQL), 1):
        catalog = apply(catalog, LogIndex(index), command)
    assert list(wanted_queries(catalog, ME)) == [A.query_id, B.query_id]
    wanted = wanted_queries(catalog, ME)[A.query_id]
    assert wanted.partitions == {"s": 2}, "as the stream was declared"
    ended = TerminateQuery(query_ids=(A.query_id,))
    catalog = apply(catalog, LogIndex(9), ended)
    assert list(wanted_queries(catalog, ME)) == [B.query_id]


def test_a_paused_query_is_not_wanted() -> None:
    paused = msgspec.structs.replace(A.query, state="PAUSED")
    catalog = Catalog(sources={"A": A.table}, queries={A.query_id: paused})
    assert wanted_queries(catalog, ME) == {}


@pytest.mark.parametrize(
    ("lease", "epoch", "why"),
    [
        (None, None, "not granted yet"),
        (QueryLease(pipeline_id="me", lease_epoch=LeaseEpoch(5)), 5, "granted"),
        (QueryLease(pipeline_id="other", lease_epoch=LeaseEpoch(6)), None, "another one's"),
    ],
)
def test_a_pipeline_runs_what_it_holds_a_lease_of(
    lease: QueryLease | None, epoch: int | None, why: str
) -> None:
    catalog = Catalog(
        sources={"A": A.table},
        queries={A.query_id: A.query},
        feature_level=feature_levels.LEASES,
        leases={A.query_id: lease} if lease else {},
    )
    assert lease_epoch_of(A.query_id, catalog, ME) == epoch, why
    wanted = {query: one.lease_epoch for query, one in wanted_queries(catalog, ME).items()}
    assert wanted == ({A.query_id: epoch} if epoch else {}), why


@pytest.mark.parametrize(
    ("names", "isolates", "queries", "why"),
    [
        ([], "", ["A", "B"], "all are shared"),
        (["A"], "", ["B"], "a poison query must not end a standby by its rehearsal"),
        (["A"], "A", ["A"], "a second driver of A stands by for A alone"),
        (["A"], "B", [], "B is not isolated"),
    ],
)
def test_a_standby_rehearses_what_it_may_take_over(
    names: list[str], isolates: str, queries: list[str], why: str
) -> None:
    catalog = Catalog(
        sources={each.table.name: each.table for each in (A, B)},
        queries={each.query_id: each.query for each in (A, B)},
        isolated=dict.fromkeys(names, ()),
    )
    assert [each.query.sink for each in every_query(catalog, isolates)] == queries, why


@pytest.mark.parametrize(("isolates", "is_over"), [("", False), ("A", False), ("B", True)], ids=str)
def test_a_driver_ends_when_its_name_is_isolated_no_longer(isolates: str, is_over: bool) -> None:
    me = msgspec.structs.replace(ME, isolates=isolates)
    assert me.is_over(Catalog(isolated={"A": ()})) is is_over


@pytest.mark.parametrize(("newest", "epoch"), [(1, 1), (2, None)])
def test_below_the_level_of_leases_the_newest_pipeline_runs_all(
    newest: int, epoch: int | None
) -> None:
    catalog = Catalog(feature_level=2, pipeline_epoch=LeaseEpoch(newest))
    assert lease_epoch_of("any", catalog, ME) == epoch
