import msgspec
import pytest
from tests.unit.pipeline.queries_of import commands_of, wanted_of

from standpipe.control import catalog as catalogs
from standpipe.model import LogIndex
from standpipe.pipeline.reconcile import Order, StartQuery, StopQuery, diff, wanted_queries

SQL = """
CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;
CREATE TABLE B AS SELECT K, SUM(N) AS T FROM S GROUP BY K;
"""
A, B = wanted_of(SQL)
#: the same id, made again: another table stands behind it
A2 = msgspec.structs.replace(A.table, table_id="another")
A_AGAIN = type(A)(query=A.query, table=A2)


@pytest.mark.parametrize(
    ("wanted", "running", "orders", "why"),
    [
        ([], [], [], "nothing to do"),
        ([A, B], [], [StartQuery(A), StartQuery(B)], "a fresh pipeline starts all, in order"),
        ([A], [A], [], "it runs already"),
        ([], [A], [StopQuery(A.query_id)], "dropped"),
        ([B], [A], [StopQuery(A.query_id), StartQuery(B)], "stops first: cores are few"),
        (
            [A_AGAIN],
            [A],
            [StopQuery(A.query_id), StartQuery(A_AGAIN)],
            "dropped and made again under the same id between two looks",
        ),
    ],
)
def test_diff(wanted: list, running: list, orders: list[Order], why: str) -> None:
    by_id = {query.query_id: query for query in running}
    assert diff({query.query_id: query for query in wanted}, by_id) == orders, why


def test_wanted_are_those_of_the_catalog() -> None:
    catalog = catalogs.EMPTY
    for index, command in enumerate(commands_of(SQL), 1):
        catalog = catalogs.apply(catalog, LogIndex(index), command)
    assert list(wanted_queries(catalog)) == [A.query_id, B.query_id]
    ended = catalogs.TerminateQuery(query_ids=(A.query_id,))
    catalog = catalogs.apply(catalog, LogIndex(9), ended)
    assert list(wanted_queries(catalog)) == [B.query_id]


def test_a_paused_query_is_not_wanted() -> None:
    paused = msgspec.structs.replace(A.query, state="PAUSED")
    catalog = catalogs.Catalog(sources={"A": A.table}, queries={A.query_id: paused})
    assert wanted_queries(catalog) == {}
