"""The log's state machine: deterministic, total, versioned, snapshottable."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import sample_stream

from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import (
    CATALOG_VERSION,
    EMPTY,
    Catalog,
    from_bytes,
    from_snapshot,
    to_bytes,
    to_snapshot,
)
from standpipe.control.metadata.commands import (
    VERSIONS,
    Command,
    CommitAssignment,
    CreateSource,
    CreateTableAs,
    CreateType,
    DrainNode,
    DropSource,
    DropType,
    EndPipelines,
    FoundCluster,
    GrantLeases,
    HoldTable,
    InsertInto,
    IsolateQuery,
    Receipt,
    RecordTopics,
    RegisterNode,
    RemoveNode,
    ReplaceStreamAs,
    ReplaceTableAs,
    SetFeatureLevel,
    SetPlacementRules,
    SetQueryState,
    StartPipeline,
    SwitchTable,
    TerminateQuery,
    TopicDeleted,
    UnknownCommand,
    WithdrawStatement,
    decode,
    encode,
)
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    Column,
    LogIndex,
    NodeId,
    NodeInfo,
    PersistentQuery,
    Placement,
    PlacementRules,
    Snapshot,
    Source,
    SparkPlan,
    TopicSpec,
)


def stream(name: str, topic: str = "") -> Source:
    return sample_stream(
        name=name,
        columns=(Column(name="ID", type="STRING", is_key=True), Column(name="V", type="INTEGER")),
        topic=topic or name.lower(),
        partitions=4,
        statement=f"CREATE STREAM {name} …;",
    )


CommandWithQuery = TypeVar(
    "CommandWithQuery", CreateTableAs, ReplaceTableAs, ReplaceStreamAs, InsertInto
)


def table_as(name: str, reads: str, index: int, topic: str = "") -> CreateTableAs:
    query_id = f"CTAS_{name}_{index}"
    source = msgspec.structs.replace(
        stream(name, topic or name),
        kind="TABLE",
        query_id=query_id,
        table_id=f"{name}_{index}",
        is_materialized=True,
    )
    plan = SparkPlan(version=1, inputs=(), sql="SELECT 1", output_mode="update", is_windowed=False)
    query = PersistentQuery(
        query_id=query_id, sink=name, sources=(reads,), statement=source.statement, plan=plan
    )
    wish = TopicSpec(name=source.topic, partitions=4, kind="TABLE")
    return CreateTableAs(source=source, query=query, topic=wish)


def external(name: str, index: int) -> CreateTableAs:
    """CREATE TABLE … WITH (WRITER='EXTERNAL')."""
    made = table_as(name, "", index)
    query_id = f"EXTERNAL_{name}_{index}"
    query = msgspec.structs.replace(made.query, query_id=query_id, sources=(), is_external=True)
    source = msgspec.structs.replace(made.source, query_id=query_id)
    return CreateTableAs(source=source, query=query, topic=made.topic, version=2)


def with_its_topic(name: str, index: int) -> CreateTableAs:
    """CREATE SOURCE TABLE … PARTITIONS over a topic that is absent."""
    made = table_as(name, "", index)
    query = msgspec.structs.replace(made.query, query_id=f"CST_{name}_{index}", sources=())
    source = msgspec.structs.replace(
        made.source,
        topic="absent",
        query_id=query.query_id,
        changelog=f"{query.query_id}-changelog",
        is_read_only=True,
    )
    return CreateTableAs(
        source=source,
        query=query,
        topic=TopicSpec(name=source.changelog or "", partitions=4, kind="TABLE"),
        source_topic=TopicSpec(name="absent", partitions=4, kind="SOURCE"),
        version=5,
    )


def bounded(name: str, index: int) -> CreateTableAs:
    """A table with bounds in ms."""
    made = table_as(name, "R", index)
    times = (0, 3_000)
    source = msgspec.structs.replace(made.source, time_bounds=times)
    return msgspec.structs.replace(made, source=source, version=3)


def generation_of(name: str, generation: int, index: int) -> ReplaceTableAs:
    """CREATE OR REPLACE TABLE of `table_as(name, "R", 23)`."""
    made = table_as(name, "R", index)
    before = table_as(name, "R", 23).source
    source = msgspec.structs.replace(
        made.source,
        table_id=before.table_id,
        generation=generation,
        topic=f"{made.query.query_id}-changelog",
        public_topic=before.topic,
    )
    wish = TopicSpec(name=source.topic, partitions=4, kind="TABLE")
    return ReplaceTableAs(source=source, query=made.query, topic=wish)


def in_avro(command: CommandWithQuery) -> CommandWithQuery:
    """Its query writes values under schema 7."""
    query = command.query
    plan = msgspec.structs.replace(query.plan, schemas=(None, (7, '"int"')))
    return msgspec.structs.replace(command, query=msgspec.structs.replace(query, plan=plan))


def written_by(name: str, index: int) -> CreateTableAs:
    """CREATE STREAM … AS."""
    made = table_as(name, "R", index)
    query_id = f"CSAS_{name}_{index}"
    source = msgspec.structs.replace(stream(name), query_id=query_id, table_id=f"{name}_{index}")
    return CreateTableAs(
        source=source,
        query=msgspec.structs.replace(made.query, query_id=query_id),
        topic=TopicSpec(name=source.topic, partitions=4, kind="SOURCE"),
    )


def rewritten(name: str, index: int) -> ReplaceStreamAs:
    """CREATE OR REPLACE STREAM of `written_by(name, index)`."""
    made = written_by(name, index)
    return ReplaceStreamAs(
        source=made.source, query=msgspec.structs.replace(made.query, revision=2)
    )


def node(name: str) -> NodeInfo:
    return NodeInfo(
        node_id=NodeId(name), public="p:1", internal="i:1", peer="r:1", incarnation=f"of-{name}"
    )


def assignment(epoch: int) -> Assignment:
    held = Placement(table_id="T_2", generation=1, partition=0, replicas=(NodeId("a"),))
    return Assignment(epoch=AssignmentEpoch(epoch), placements=(held,))


WISH = TopicSpec(name="s", partitions=4, kind="SOURCE", retention_ms=1000)
COMMANDS: tuple[Command, ...] = (
    FoundCluster(cluster_id="c1"),
    RegisterNode(node=node("a")),
    CreateSource(source=stream("S"), topic=WISH),
    table_as("T", "S", 4),
    CommitAssignment(assignment=assignment(1)),
    StartPipeline(pipeline_id="p1", version=2),
    GrantLeases(grants=(("CTAS_T_4", "p1"),)),
    TerminateQuery(query_ids=("CTAS_T_4",)),
    DropSource(name="T", delete_topic=True),
    TopicDeleted(name="T"),
    DropSource(name="S"),
    SetPlacementRules(rules=PlacementRules(standby_count=2, rack_aware_tags=("zone",))),
    DrainNode(node_id=NodeId("a")),
    RemoveNode(node_id=NodeId("a")),
    EndPipelines(pipeline_ids=("p1",)),
    CreateSource(source=stream("S")),
    InsertInto(query=table_as("S", "R", 7).query),
    SetQueryState(query_ids=("CTAS_S_7",), state="PAUSED"),
    SetFeatureLevel(level=2),
    CreateType(name="MONEY", definition="DECIMAL(6, 2)"),
    DropType(name="MONEY"),
    CreateSource(source=stream("R")),
    table_as("U", "R", 23),
    generation_of("U", 2, 24),
    HoldTable(name="U", generation=2),
    SwitchTable(name="U", generation=2, floor={"s": {0: 9}}),
    written_by("O", 26),
    rewritten("O", 26),
    RecordTopics(ids={"T": "id of T", "s": ""}),
    WithdrawStatement(of_request="r", name="T", table_id="T_4", generation=9, reason="late"),
    IsolateQuery(name="T"),
    StartPipeline(pipeline_id="p2", version=3, isolates="T"),
    bounded("V", 33),
    with_its_topic("W", 34),
)


def after(*commands: Command, start: Catalog = EMPTY) -> Catalog:
    catalog = start
    for command in commands:
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    return catalog


def test_a_cluster_from_its_first_command_to_an_empty_catalog() -> None:
    story = [after(*COMMANDS[:count]) for count in range(len(COMMANDS) + 1)]
    assert story[1].cluster_id == "c1"
    assert list(story[2].nodes) == ["a"]
    assert list(story[3].topics) == ["s"]
    assert list(story[4].sources) == ["S", "T"]
    assert list(story[4].queries) == ["CTAS_T_4"]
    assert story[5].assignment.epoch == 1
    assert story[6].pipeline_epoch == 1
    assert story[7].leases["CTAS_T_4"].lease_epoch == 2
    assert story[8].queries == {}
    assert story[8].sources.keys() == {"S", "T"}, "a terminated query leaves its table"
    assert story[9].doomed_topics == ("T",)
    assert list(story[9].topics) == ["s"]
    assert story[10].doomed_topics == ()
    assert (story[11].sources, story[11].topics, story[11].index) == ({}, {}, 11)
    assert story[12].placement_rules == PlacementRules(standby_count=2, rack_aware_tags=("zone",))
    assert story[13].draining == ("a",)
    assert (story[14].nodes, story[14].draining) == ({}, ())
    assert story[17].sources["S"].takes_inserts
    assert story[17].queries["CTAS_S_7"].state == "RUNNING"
    assert story[18].queries["CTAS_S_7"].state == "PAUSED"
    assert [(one.feature_level, one.version) for one in story[17:20]] == [(1, 1), (1, 1), (2, 2)]
    assert (story[20].types, story[21].types) == ({"MONEY": "DECIMAL(6, 2)"}, {})
    assert list(story[24].successors) == ["U"]
    assert story[25].held == {"U_23": 2}
    assert (story[26].successors, story[26].sources["U"].generation) == ({}, 2)
    assert story[28].queries["CSAS_O_26"].revision == 2
    kept = from_bytes(to_bytes(story[33])).sources["V"].time_bounds
    assert kept == (0, 3_000)
    assert list(story[34].topics)[-2:] == ["absent", "CST_W_34-changelog"]
    assert story[0] == EMPTY, "catalogs are values"


def test_a_drain_can_be_taken_back() -> None:
    stays = DrainNode(node_id=NodeId("a"), is_draining=False)
    catalog = after(RegisterNode(node=node("a")), DrainNode(node_id=NodeId("a")), stays)
    assert catalog.draining == ()


@pytest.mark.parametrize(
    "command", [DrainNode(node_id=NodeId("x")), RemoveNode(node_id=NodeId("x"))]
)
def test_a_node_that_is_not_there_neither_drains_nor_leaves(command: Command) -> None:
    before = after(RegisterNode(node=node("a")))
    assert after(command, start=before).nodes == before.nodes


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_commands_survive_their_bytes(command: Command) -> None:
    assert decode(encode(command)) == command


def test_every_command_has_its_newest_version() -> None:
    tags = {msgspec.inspect.type_info(type(command)).tag for command in COMMANDS}  # type: ignore[union-attr]
    assert tags == set(VERSIONS)


@pytest.mark.parametrize("count", range(len(COMMANDS) + 1))
def test_snapshot_equals_replay(count: int) -> None:
    catalog = after(*COMMANDS[:count])
    restored = from_bytes(to_bytes(catalog))
    assert restored == catalog
    assert list(restored.sources) == list(catalog.sources), "SHOW keeps its order"
    assert after(*COMMANDS[count:], start=restored) == after(*COMMANDS)


@pytest.mark.parametrize("count", range(len(COMMANDS) + 1))
def test_workers_get_the_whole_catalog_but_the_outcomes_of_requests(count: int) -> None:
    catalog = after(*COMMANDS[:count])
    shown = to_snapshot(
        catalog,
        node_id=NodeId("a"),
        leader=NodeId("a"),
        service_id="s",
        query_statuses=(),
        published_boot_ms=1,
        quorum_sync_ms=0,
    )
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(shown), type=Snapshot)
    assert from_snapshot(read) == msgspec.structs.replace(catalog, version=1, applied_requests={})


@pytest.mark.parametrize(
    ("wire", "names"),
    [
        ({"type": "grant_lease", "query_id": "Q"}, "'grant_lease' version 1"),
        ({"type": "drop_source", "version": 2, "name": "S"}, "'drop_source' version 2"),
        ({"type": "register_node", "version": 3}, "'register_node' version 3"),
        ({"type": "drop_source", "name": 7}, "cannot be read"),
        ({"name": "S"}, "cannot be read"),
        ([1, 2], "cannot be read"),
    ],
)
def test_unknown_commands_are_refused_by_name(wire: object, names: str) -> None:
    with pytest.raises(UnknownCommand, match=names):
        decode(msgspec.msgpack.encode(wire))


def test_a_catalog_of_a_newer_version_is_refused() -> None:
    newer = msgspec.structs.replace(EMPTY, version=CATALOG_VERSION + 1)
    with pytest.raises(UnknownCommand, match="version 16; this program reads up to 15"):
        from_bytes(to_bytes(newer))
    with pytest.raises(UnknownCommand, match="cannot be read"):
        from_bytes(b"\x00nonsense")


BASE = after(*COMMANDS[:5])  # cluster, node, S, T, assignment 1


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (FoundCluster(cluster_id="c2"), "a cluster is founded once"),
        (CreateSource(source=stream("S", "other")), "the name is taken"),
        (table_as("S", "S", 9), "the name is taken by a stream"),
        (table_as("T", "S", 4), "query and table exist"),
        (DropSource(name="NONE"), "nothing to drop"),
        (CommitAssignment(assignment=assignment(1)), "computed from epoch 0, which is over"),
        (CommitAssignment(assignment=assignment(3)), "epoch 2 is missing"),
        (TopicDeleted(name="none"), "no such wish"),
        (TerminateQuery(query_ids=("NONE",)), "no such query"),
        (SetFeatureLevel(level=0), "a level never falls"),
        (DropType(name="NONE"), "no such type"),
    ],
)
def test_a_command_that_does_not_fit_changes_only_the_index(command: Command, why: str) -> None:
    assert after(command, start=BASE) == msgspec.structs.replace(BASE, index=LogIndex(6)), why


def test_a_refusal_is_remembered_under_its_request() -> None:
    command = CreateSource(source=stream("S"), request_id="r1")
    outcome = after(command, start=BASE).applied_requests["r1"]
    assert outcome.refusal == "S exists"


def test_replacing_is_asked_for() -> None:
    replaced = after(CreateSource(source=stream("S", "other"), replace=True), start=BASE)
    assert replaced.sources["S"].topic == "other"


def test_one_request_is_applied_once() -> None:
    receipt = Receipt(statement="CREATE …", command_id="stream/S/create", message="Stream created")
    first = after(CreateSource(source=stream("S"), request_id="r1", receipt=receipt))
    again = after(StartPipeline(pipeline_id="p", request_id="r1"), start=first)
    assert again == msgspec.structs.replace(first, index=LogIndex(2))
    assert again.applied_requests["r1"].index == 1
    assert again.applied_requests["r1"].receipt == receipt


@pytest.mark.parametrize("index", [4, 5], ids=["older", "the same"])
def test_an_index_is_applied_once(index: int) -> None:
    with pytest.raises(ValueError, match="applied before"):
        apply(BASE, LogIndex(index), StartPipeline(pipeline_id="p"))


def test_gaps_between_indexes_are_no_commands() -> None:
    assert apply(BASE, LogIndex(99), StartPipeline(pipeline_id="p")).index == 99


def test_a_shared_topic_stays_wanted_until_its_last_source_goes() -> None:
    two = after(
        CreateSource(source=stream("S"), topic=WISH), CreateSource(source=stream("S2", "s"))
    )
    one = after(DropSource(name="S"), start=two)
    assert list(one.topics) == ["s"]
    assert after(DropSource(name="S2"), start=one).topics == {}


@given(st.lists(st.sampled_from(COMMANDS), max_size=30))
def test_two_nodes_that_apply_the_same_log_agree(commands: list[Command]) -> None:
    one = after(*commands)
    other = EMPTY
    for index, command in enumerate(commands, 1):
        wire = decode(encode(command))
        restarted = from_bytes(to_bytes(other))
        other = apply(restarted, LogIndex(index), wire)
    assert one == other
    assert to_bytes(one) == to_bytes(other)


STARTS = tuple(StartPipeline(pipeline_id=name, version=2) for name in ("p1", "p2"))


@pytest.mark.parametrize(
    ("commands", "leases", "why"),
    [
        ([GrantLeases(grants=(("CTAS_T_4", "p1"),))], {"CTAS_T_4": ("p1", 3)}, "granted"),
        (
            [GrantLeases(grants=(("CTAS_T_4", name),)) for name in ("p1", "p2")],
            {"CTAS_T_4": ("p2", 4)},
            "granted anew: a new epoch fences the first holder",
        ),
        ([GrantLeases(grants=(("CTAS_T_4", "gone"),))], {}, "its pipeline has ended meanwhile"),
        ([GrantLeases(grants=(("CTAS_X_9", "p1"),))], {}, "its query was dropped meanwhile"),
        (
            [
                GrantLeases(grants=(("CTAS_T_4", "p1"),)),
                TerminateQuery(query_ids=("CTAS_T_4",)),
                GrantLeases(grants=()),
            ],
            {},
            "with its query",
        ),
    ],
)
def test_leases(commands: list[Command], leases: dict[str, tuple[str, int]], why: str) -> None:
    found = after(*STARTS, *commands, start=BASE)
    assert {
        query: (lease.pipeline_id, lease.lease_epoch) for query, lease in found.leases.items()
    } == leases, why


def test_a_pipeline_of_version_1_is_not_registered() -> None:
    found = after(StartPipeline(pipeline_id="p"), start=BASE)
    assert (found.pipelines, found.pipeline_epoch) == ({}, 1)
