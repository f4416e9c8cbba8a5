"""Which query reads and writes what, by catalogs that statements have made."""

from __future__ import annotations

import pytest
from tests.unit.node.worker.statements.test_execute import REPLACED, STREAM, TABLE, logged

from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import Catalog, to_snapshot
from standpipe.control.metadata.commands import SwitchTable
from standpipe.data.commit.covered_offsets import QueryGraph
from standpipe.model import LogIndex, NodeId

CHOSEN = "CREATE STREAM C AS SELECT * FROM S WHERE V > 0 EMIT CHANGES;"
OVER_C = "CREATE TABLE U AS SELECT ID, COUNT(*) AS N FROM C GROUP BY ID EMIT CHANGES;"
INTO_C = "INSERT INTO C SELECT ID, V + 1 AS V FROM S EMIT CHANGES;"
SOURCE_TABLE = (
    "CREATE SOURCE TABLE R (ID STRING PRIMARY KEY, V BIGINT)"
    " WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
)


def graph(catalog: Catalog) -> QueryGraph:
    snapshot = to_snapshot(
        catalog,
        node_id=NodeId("a"),
        leader=NodeId("a"),
        service_id="s",
        query_statuses=(),
        published_boot_ms=1,
        quorum_sync_ms=0,
    )
    return QueryGraph.of(snapshot)


def stems(queries: frozenset[str]) -> set[str]:
    """Query ids without the numbers of their statements."""
    return {each.rpartition("_")[0] for each in queries}


def test_a_chain() -> None:
    found = graph(logged(STREAM, CHOSEN, OVER_C))
    assert {stems(frozenset([query])).pop(): topics for query, topics in found.reads.items()} == {
        "CSAS_C": {"t"},
        "CTAS_U": {"C"},
    }
    assert {topic: stems(by) for topic, by in found.writers.items()} == {
        "C": {"CSAS_C"},
        "U": {"CTAS_U"},
    }
    assert found.owned == {"C", "U"}
    assert found.copiers == {}


def test_a_topic_with_two_writers() -> None:
    found = graph(logged(STREAM, CHOSEN, OVER_C, INTO_C))
    assert stems(found.writers["C"]) == {"CSAS_C", "INSERTQUERY"}
    assert found.owned == {"U"}, "what is written to C may come from elsewhere, too"


def test_a_source_table_reads_its_topic_and_writes_its_changelog() -> None:
    found = graph(logged(SOURCE_TABLE))
    ((query, topics),) = found.reads.items()
    assert topics == {"t"}
    assert found.writers == {f"{query}-changelog": {query}}
    assert "t" not in found.owned


@pytest.mark.parametrize("is_switched", [False, True])
def test_a_table_that_is_replaced(is_switched: bool) -> None:
    catalog = logged(STREAM, TABLE, REPLACED)
    first, second = sorted(catalog.queries)
    found = graph(catalog)
    assert found.writers["T"] == {first}
    assert found.writers[f"{second}-changelog"] == {second}
    assert found.copiers == {}, "generation 1 writes the table's own topic"
    if not is_switched:
        return

    switch = SwitchTable(name="T", generation=2)
    found = graph(apply(catalog, LogIndex(catalog.index + 1), switch))
    assert found.copiers == {"T": {second}}, "who reads that topic reads copies"
    assert found.writers == {f"{second}-changelog": {second}}
