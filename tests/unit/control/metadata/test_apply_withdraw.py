"""A statement whose table could not be placed is taken back; remembered requests have a bound."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.control.ddl.test_propose import asked

from standpipe.control.assignment.from_catalog import still_fits, unplaced
from standpipe.control.ddl.propose import judge
from standpipe.control.ddl.responses import StatementReply, entities
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import (
    CommitAssignment,
    RecordTopics,
    RegisterNode,
    WithdrawStatement,
)
from standpipe.control.metadata.feature_levels import TOPIC_IDS
from standpipe.control.metadata.requests import REQUEST_BYTES_MAX
from standpipe.errors import StatementError
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    LogIndex,
    NodeId,
    NodeInfo,
    Placement,
)

S = "CREATE STREAM S (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=2, FORMAT='JSON');"
T = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID EMIT CHANGES;"
T2 = T.replace("CREATE", "CREATE OR REPLACE").replace("AS N", "AS N, MAX(V) AS M")
START = msgspec.structs.replace(EMPTY, feature_level=TOPIC_IDS)


def after(catalog: Catalog, *statements: str) -> Catalog:
    for sql in statements:
        request = msgspec.structs.replace(asked(sql), request_id=f"r{catalog.index}")
        command = judge(request, catalog, {})
        assert not isinstance(command, StatementReply)
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    return catalog


def withdrawn(catalog: Catalog, of_request: str, generation: int = 1) -> Catalog:
    source = catalog.successors.get("T") or catalog.sources["T"]
    command = WithdrawStatement(
        of_request=of_request,
        name="T",
        table_id=source.table_id or "",
        generation=generation,
        reason="too late",
    )
    return apply(catalog, LogIndex(catalog.index + 1), command)


def but(catalog: Catalog, **changes: object) -> Catalog:
    return msgspec.structs.replace(catalog, index=LogIndex(0), applied_requests={}, **changes)


def test_the_catalog_is_as_before_and_the_request_failed() -> None:
    before = after(START, S)
    left = withdrawn(after(before, T), "r1")
    assert but(left) == but(before)
    with pytest.raises(StatementError, match="too late"):
        entities(left.applied_requests["r1"])
    assert entities(left.applied_requests["r0"]), "others stay done"


def test_a_topic_that_was_made_for_it_goes_and_one_that_was_there_stays() -> None:
    made = after(START, S, T)
    recorded = apply(made, LogIndex(9), RecordTopics(ids={"T": "A"}))
    assert withdrawn(recorded, "r1").doomed_topics == ("T",)
    assert withdrawn(made, "r1").doomed_topics == ()


def test_a_generation_is_taken_back_and_the_table_stays() -> None:
    before = after(START, S, T)
    left = withdrawn(after(before, T2), "r2", generation=2)
    assert (left.sources, left.queries) == (before.sources, before.queries)
    assert (left.successors, left.topics) == ({}, before.topics)
    assert left.applied_requests["r2"].refusal == "too late"


@pytest.mark.parametrize("generation", [0, 2])
def test_another_table_of_that_name_is_not_taken_back(generation: int) -> None:
    there = after(START, S, T)
    assert but(withdrawn(there, "r1", generation)) == but(there)


def test_a_table_that_is_read_by_now_stays() -> None:
    there = after(START, S, T, "CREATE STREAM C AS SELECT * FROM S;")
    reader = there.queries["CSAS_C_3"]
    read = but(
        there, queries={**there.queries, "Q": msgspec.structs.replace(reader, sources=("T",))}
    )
    assert but(withdrawn(read, "r1")) == read


def placed(catalog: Catalog, *partitions: int) -> Catalog:
    table_id = catalog.sources["T"].table_id or ""
    placements = tuple(
        Placement(table_id=table_id, generation=1, partition=each, replicas=(NodeId("a"),))
        for each in partitions
    )
    assignment = Assignment(
        epoch=AssignmentEpoch(catalog.assignment.epoch + 1), placements=placements
    )
    command = CommitAssignment(assignment=assignment)
    return apply(catalog, LogIndex(catalog.index + 1), command)


def test_a_table_waits_until_each_partition_is_placed() -> None:
    made = after(START, S, T)
    assert unplaced(made, "CTAS_T_2") is made.sources["T"]
    half = placed(made, 0)
    assert unplaced(half, "CTAS_T_2") is made.sources["T"]
    assert unplaced(placed(made, 0, 1), "CTAS_T_2") is None
    assert unplaced(made, None) is None, "a statement without a query"
    assert unplaced(made, "CSAS_X_9") is None, "dropped meanwhile"


def test_when_a_step_still_fits() -> None:
    made = after(START, S, T)
    node = NodeInfo(node_id=NodeId("b"), public="", internal="", peer="", incarnation="")
    joined = apply(made, LogIndex(9), RegisterNode(node=node))
    assert still_fits(made, after(made, "CREATE TYPE M AS INTEGER;"))
    assert still_fits(made, after(made, T.replace("TABLE T", "TABLE U"))), "U is placed next"
    assert not still_fits(made, after(made, "DROP TABLE T;")), "T must not be placed again"
    assert not still_fits(made, placed(made, 0)), "another step was faster"
    assert not still_fits(made, joined), "the nodes are others"


def test_remembered_requests_have_a_bound_in_bytes() -> None:
    """1024 statements of 64 KB would be 64 MB of every snapshot."""
    big, catalog = f"/*{'x' * 15_000}*/", after(START, S)
    for number in range(100):
        catalog = after(catalog, f"CREATE TYPE {big} M{number} AS INTEGER;")
    kept = catalog.applied_requests
    assert sum(each.text_bytes for each in kept.values()) <= REQUEST_BYTES_MAX
    assert 60 < len(kept) < 100
    assert list(kept)[-1] == "r100", "the newest are kept"
    old = after(msgspec.structs.replace(EMPTY, feature_level=TOPIC_IDS - 1), S)
    for number in range(100):
        old = after(old, f"CREATE TYPE {big} M{number} AS INTEGER;")
    assert len(old.applied_requests) == 101, "older nodes of a cluster know no such bound"
