"""Transient queries in the catalog: what is there with them, and that nothing stays after them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.control.metadata.test_catalog import after, generation_of, stream, table_as

from standpipe.control.metadata.catalog import Catalog, from_snapshot, to_snapshot
from standpipe.control.metadata.commands import (
    Command,
    CreateSource,
    CreateTableAs,
    DropSource,
    GrantLeases,
    SetQueryState,
    StartPipeline,
    TerminateQuery,
)
from standpipe.control.metadata.isolation import check_internal
from standpipe.control.metadata.transients import is_transient_id, readers_of
from standpipe.errors import BadRequest
from standpipe.model import NodeId, TopicSpec

ID = "transient_S_7"


def transient(query_id: str, *, reads: str = "S", request_id: str = "") -> CreateTableAs:
    """The command of a push query at node n over a stream or table."""
    base = table_as(query_id, reads, 4)
    topic = f"{query_id}-changelog"
    source = replace(base.source, topic=topic, query_id=query_id, is_materialized=False)
    query = replace(base.query, query_id=query_id, served_by=NodeId("n"))
    spec = TopicSpec(name=topic, partitions=1, kind="SOURCE", retention_ms=1000)
    return CreateTableAs(source=source, query=query, topic=spec, request_id=request_id)


S, T = CreateSource(source=stream("S")), table_as("T", "S", 23)
RUNNING = after(S, T, transient(ID))


def leaves_nothing(catalog: Catalog) -> bool:
    topic = f"{ID}-changelog"
    there = (catalog.transients, catalog.queries, catalog.sources, catalog.topics)
    return not any(ID in each or topic in each for each in there) and (
        topic in catalog.doomed_topics
    )


def test_it_is_a_query_whose_sink_no_statement_can_name() -> None:
    assert (list(RUNNING.transients), list(RUNNING.sources)) == ([ID], ["S", "T"])
    assert ID in RUNNING.queries
    assert ID not in RUNNING.persistent_queries
    assert RUNNING.topics[f"{ID}-changelog"].kind == "SOURCE"
    assert RUNNING.generations[-1] == RUNNING.transients[ID]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (TerminateQuery(query_ids=(ID,)), "its client left, or nobody renews it"),
        (DropSource(name="S"), "what it reads was dropped"),
    ],
)
def test_its_end_leaves_nothing(command: Command, why: str) -> None:
    catalog = after(command, start=RUNNING)
    assert leaves_nothing(catalog), why
    assert leaves_nothing(after(command, start=catalog)), "run twice"


def test_it_does_not_see_two_generations_of_a_table() -> None:
    over_t = after(S, T, transient(ID, reads="T"))
    assert readers_of(over_t, "T") == (ID,)
    assert leaves_nothing(after(generation_of("T", 2, 9), start=over_t))
    assert not leaves_nothing(after(generation_of("T", 2, 9), start=RUNNING)), "it reads S alone"


def test_it_begins_once() -> None:
    """The answer was lost, and the worker has sent it again; or two have the same id."""
    again = after(transient(ID, request_id="r"), transient(ID, request_id="r"), start=after(S))
    assert list(again.transients) == [ID]
    assert again.applied_requests["r"].refusal == ""
    other = after(transient(ID, request_id="r2"), start=again)
    assert other.applied_requests["r2"].refusal == f"{ID} exists"
    assert other.transients == again.transients


def test_it_does_not_begin_without_its_source() -> None:
    """The leader judged it, and a DROP was logged by an earlier leader meanwhile."""
    catalog = after(transient(ID, request_id="r"))
    assert catalog.applied_requests["r"].refusal == "S does not exist"
    assert not catalog.transients
    assert not catalog.queries


def test_it_is_leased_as_any_query() -> None:
    start = StartPipeline(pipeline_id="p", version=2)
    leased = after(start, GrantLeases(grants=((ID, "p"),)), start=RUNNING)
    assert leased.leases[ID].pipeline_id == "p"
    paused = after(SetQueryState(query_ids=("CTAS_T_23",), state="PAUSED"), start=leased)
    assert paused.queries[ID].state == "RUNNING"


def test_it_is_not_isolated() -> None:
    with pytest.raises(BadRequest, match="ends with it"):
        check_internal(ID, RUNNING)


def test_workers_know_it() -> None:
    shown = to_snapshot(
        RUNNING,
        node_id=NodeId("n"),
        leader=NodeId("n"),
        service_id="",
        query_statuses=(),
        published_boot_ms=1,
        quorum_sync_ms=0,
    )
    assert from_snapshot(shown).transients == RUNNING.transients
    assert [each.name for each in shown.sources] == ["S", "T"]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (ID, True),
        ("transient_S_9223372036854775807", True),
        ("transient_S", False),
        ("TRANSIENT_S_7", False),
        ("transient_S_7-1", False),
        ("transient_../x_7", False),
        ("CTAS_T_2", False),
    ],
)
def test_ids(text: str, is_one: bool) -> None:
    assert is_transient_id(text) is is_one
