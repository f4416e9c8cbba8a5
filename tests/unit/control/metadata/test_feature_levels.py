"""What is logged at which feature level, and who may take part. Source: KIP-584; KIP-535, KIP-708
(version bumps of what members tell each other)."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest
from msgspec import UNSET, UnsetType, structs
from tests.samples import sample_stream, sample_table
from tests.unit.control.metadata.test_catalog import (
    external,
    generation_of,
    in_avro,
    table_as,
    with_its_topic,
    written_by,
)
from tests.unit.control.metadata.test_transients import transient

from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, from_bytes, to_bytes
from standpipe.control.metadata.commands import (
    VERSIONS,
    Command,
    CreateSource,
    CreateTableAs,
    DropType,
    FoundCluster,
    HoldTable,
    InsertInto,
    IsolateQuery,
    RegisterNode,
    ReplaceTableAs,
    SetFeatureLevel,
    StartPipeline,
    SwitchTable,
    encode,
)
from standpipe.errors import BadRequest, FeatureLevelRefused
from standpipe.model import FeatureLevels, LogIndex, NodeId, NodeInfo, SparkInput, SparkStep

DIRECT = sample_table(table_id="T_1", is_materialized=True, is_direct=True)
Made = TypeVar("Made", CreateTableAs, ReplaceTableAs)
#: of a register_node by the release before there were levels
FIELDS_OF_LEVEL_1 = {
    *("node_id", "public", "internal", "peer", "incarnation", "tags", "rack", "capacity")
}
#: a new command belongs to a new level, not here
COMMAND_NAMES_OF_LEVEL_1 = (
    "found_cluster register_node create_source create_table_as insert_into drop_source "
    "topic_deleted terminate_query set_query_state commit_assignment set_placement_rules "
    "drain_node remove_node start_pipeline"
)
COMMANDS_OF_LEVEL_1 = COMMAND_NAMES_OF_LEVEL_1.split()


def node(levels: FeatureLevels | UnsetType = UNSET) -> NodeInfo:
    return NodeInfo(
        node_id=NodeId("a"),
        public="p:1",
        internal="i:1",
        peer="r:1",
        incarnation="of-a",
        feature_levels=levels,
    )


def bounded(command: Made) -> Made:
    """Its table has a bound in ms."""
    times = (5, None)
    source = msgspec.structs.replace(command.source, time_bounds=times)
    return msgspec.structs.replace(command, source=source)


def logged(command: Command, level: int) -> dict[str, object]:
    """Its bytes in the log of a cluster at that level, as any program would take them apart."""
    return msgspec.msgpack.decode(encode(feature_levels.at_level(command, level)))


@pytest.mark.parametrize(
    ("command", "level", "version", "why"),
    [
        (RegisterNode(node=node((1, 2))), 1, 1, "older nodes read it"),
        (RegisterNode(node=node((1, 2))), 2, 2, "every node reads it"),
        (DropType(name="T"), 2, 1, "what has one form keeps it"),
        (StartPipeline(pipeline_id="p"), 2, 1, "it gets all queries"),
        (StartPipeline(pipeline_id="p"), 3, 2, "it is registered, for leases"),
        (StartPipeline(pipeline_id="p"), 7, 2, "shared pipelines start as before"),
        (StartPipeline(pipeline_id="p", isolates="T"), 7, 3, "older nodes would share it"),
        (SwitchTable(name="U", generation=2), 7, 1, "as older nodes read it"),
        (SwitchTable(name="U", generation=2, floor={"s": {0: 9}}), 8, 2, "it says the floor"),
        (HoldTable(name="U", generation=2), 8, 1, "every node reads it"),
        (table_as("T", "S", 4), 10, 1, "a pipeline runs it, as ever"),
        (external("T", 4), 10, 2, "no pipeline may run it"),
        (bounded(table_as("T", "S", 4)), 11, 3, "older nodes would not bound its reads"),
        (bounded(external("T", 4)), 11, 3, "likewise"),
        (generation_of("U", 2, 24), 11, 1, "a generation without them is as ever"),
        (bounded(generation_of("U", 2, 24)), 11, 2, "older nodes would not bound its reads"),
        (transient("transient_S_7"), 13, 4, "no statement may name what it writes"),
        (with_its_topic("T", 4), 16, 5, "older nodes would not make the topic that it reads"),
        (bounded(with_its_topic("T", 4)), 16, 5, "bounds or not"),
        (bounded(table_as("T", "S", 4)), 16, 3, "only where a topic is made"),
        (CreateSource(source=sample_stream()), 14, 1, "a stream is as ever"),
        (CreateSource(source=DIRECT), 14, 2, "older nodes would not serve it"),
        (CreateSource(source=sample_stream(value_format="AVRO")), 17, 3, "nor read or write it"),
        (CreateSource(source=sample_stream(key_format="AVRO")), 17, 3, "likewise"),
        (CreateSource(source=sample_stream(value_format="JSON_SR")), 18, 4, "nor JSON_SR"),
        (CreateSource(source=sample_stream(key_format="JSON_SR")), 18, 4, "likewise"),
        (in_avro(written_by("C", 4)), 18, 6, "older pipelines do not write AVRO"),
        (in_avro(bounded(table_as("T", "S", 4))), 18, 6, "bounds or not"),
        (in_avro(generation_of("U", 2, 24)), 18, 3, "likewise"),
        (in_avro(InsertInto(query=table_as("T", "S", 4).query)), 18, 2, "likewise"),
        (InsertInto(query=table_as("T", "S", 4).query), 18, 1, "as ever"),
        (FoundCluster(cluster_id="c", feature_level=1), 1, 1, "an older founder"),
        (FoundCluster(cluster_id="c", feature_level=2), 1, 2, "a newer one begins at its newest"),
        (SetFeatureLevel(level=2), 1, 1, "the form of the level that it leads to"),
    ],
)
def test_form(command: Command, level: int, version: int, why: str) -> None:
    assert logged(command, level)["version"] == version, why


def test_level_1_is_byte_for_byte_what_it_was() -> None:
    """Unknown fields would be skipped, but an older node's snapshot would lose them unnoticed."""
    registered = logged(RegisterNode(node=node((1, 2))), 1)
    assert set(registered) == {"type", "version", "request_id", "receipt", "node"}
    assert set(registered["node"]) == FIELDS_OF_LEVEL_1  # type: ignore[call-overload]
    founded = logged(FoundCluster(cluster_id="c", feature_level=1), 1)
    assert set(founded) == {"type", "version", "request_id", "receipt", "cluster_id"}


def test_level_2_says_what_a_node_knows() -> None:
    registered = logged(RegisterNode(node=node((1, 2))), 2)
    assert registered["node"]["feature_levels"] == [1, 2]  # type: ignore[index]
    assert logged(FoundCluster(cluster_id="c", feature_level=2), 1)["feature_level"] == 2


def test_what_a_level_has_no_form_of_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_levels, "SINCE", {("drop_type", 1): 3})
    drop = DropType(name="T")
    with pytest.raises(BadRequest, match=r"drop_type needs feature level 3, this cluster is "):
        feature_levels.at_level(drop, 2)
    assert feature_levels.at_level(drop, 3) == drop


def test_no_query_is_isolated_beside_nodes_that_would_share_it() -> None:
    for command in (IsolateQuery(name="T"), StartPipeline(pipeline_id="p", isolates="T")):
        with pytest.raises(
            BadRequest, match=r"needs feature level 7, .*`standpipe quorum upgrade`"
        ):
            feature_levels.at_level(command, 6)
    assert "isolates" not in logged(StartPipeline(pipeline_id="p"), 6), "byte for byte as it was"


def test_every_other_form_is_of_a_level() -> None:
    """What no level brings would be logged beside nodes that stop at it."""
    forms = {
        (name, version) for name, newest in VERSIONS.items() for version in range(1, newest + 1)
    }
    assert forms - set(feature_levels.SINCE) == {(name, 1) for name in COMMANDS_OF_LEVEL_1}
    assert set(feature_levels.SINCE) <= forms
    logs_nothing = {
        feature_levels.GOSSIP,
        feature_levels.GROUPS,
        feature_levels.LINEARIZABLE_READS,
        feature_levels.FORGOTTEN_REQUESTS,
        feature_levels.REGISTRY_QUERIES,
        feature_levels.JSON_SR_QUERIES,
        feature_levels.SHOWN_TIMES,
    }
    levels = {*feature_levels.SINCE.values(), *logs_nothing}
    assert levels == set(range(2, feature_levels.NEWEST + 1))


@pytest.mark.parametrize("command", [FoundCluster(cluster_id="c", feature_level=2)])
def test_a_cluster_begins_at_a_level(command: Command) -> None:
    catalog = apply(EMPTY, LogIndex(1), command)
    assert (catalog.feature_level, catalog.version) == (2, 2)
    assert from_bytes(to_bytes(catalog)) == catalog


@pytest.mark.parametrize(
    ("level", "known", "is_in", "why"),
    [
        (1, (1, 1), True, "the same release"),
        (2, (1, 1), False, "the cluster has gone on"),
        (2, (1, 2), True, "the newest that it knows"),
        (3, (1, 2), False, "one more than it knows"),
        (1, (2, 3), False, "a release that forgot how to write level 1"),
    ],
)
def test_who_takes_part(level: int, known: FeatureLevels, is_in: bool, why: str) -> None:
    if is_in:
        feature_levels.check(level, known)
        feature_levels.check_member(node(known), level)
        return
    with pytest.raises(FeatureLevelRefused, match=f"feature level {level}") as refused:
        feature_levels.check(level, known)
    assert "start a release" in refused.value.next_step, why
    with pytest.raises(BadRequest, match=r"^a knows feature level"):
        feature_levels.check_member(node(known), level)


def test_a_node_that_says_nothing_is_of_the_first_release() -> None:
    feature_levels.check_member(node(), 1)
    with pytest.raises(BadRequest, match="a knows feature level 1, and this cluster is at"):
        feature_levels.check_member(node(), 2)
    assert feature_levels.to_record((1, 1)) is UNSET
    assert feature_levels.from_record(UNSET) == feature_levels.FIRST


@pytest.mark.parametrize(
    ("level", "known", "words", "why"),
    [
        (2, {"a": (1, 2), "b": (1, 2)}, "", "all know it"),
        (2, {"a": (1, 2), "b": (1, 1)}, "b knows feature level 1: start the newer", "one is old"),
        (2, {"a": (1, 2), "b": None}, "b does not answer", "unknown is not new"),
        (3, {"a": (1, 2), "b": (1, 3)}, "a knows feature levels 1 to 2", "the leader too"),
        (1, {"a": (1, 2)}, "is 2 and never falls", "its records stay in the log"),
    ],
)
def test_raising(
    level: int, known: dict[NodeId, FeatureLevels | None], words: str, why: str
) -> None:
    current = 2 if level == 1 else 1
    if not words:
        feature_levels.check_raise(level, current, known)
        return
    with pytest.raises(BadRequest) as refused:
        feature_levels.check_raise(level, current, known)
    assert words in refused.value.message, why


def test_only_news_is_logged_of_a_node() -> None:
    told = feature_levels.records_to_update([node()], {NodeId("a"): (1, 2)})
    assert told == [node((1, 2))]
    assert feature_levels.records_to_update(told, {NodeId("a"): (1, 2)}) == []
    assert feature_levels.records_to_update([node()], {NodeId("a"): None}) == []


def test_an_external_query_waits_until_every_node_knows_them() -> None:
    with pytest.raises(BadRequest, match="create_table_as needs feature level 10"):
        feature_levels.at_level(external("T", 4), 9)


def test_a_table_with_bounds_in_ms_waits_until_every_node_keeps_them() -> None:
    for made, name in (
        (table_as("T", "S", 4), "create_table_as"),
        (external("T", 4), "create_table_as"),
        (generation_of("U", 2, 24), "replace_table_as"),
    ):
        with pytest.raises(BadRequest, match=f"{name} needs feature level 11, .* is at 10"):
            feature_levels.at_level(bounded(made), 10)  # type: ignore[type-var]
        assert "time_bounds" not in logged(made, 10)["source"], "byte for byte as it was"  # type: ignore[operator]


def test_a_transient_query_waits_until_every_node_knows_them() -> None:
    """An older node would show what it writes as a table, and let statements read it."""
    with pytest.raises(BadRequest, match="create_table_as needs feature level 13"):
        feature_levels.at_level(transient("transient_S_7"), 12)


def test_a_direct_table_waits_until_every_node_follows_them() -> None:
    with pytest.raises(BadRequest, match="create_source needs feature level 14"):
        feature_levels.at_level(CreateSource(source=DIRECT), 13)
    assert "is_direct" not in logged(CreateSource(source=sample_stream()), 13)["source"]  # type: ignore[operator]


@pytest.mark.parametrize(("value_format", "level"), [("AVRO", 17), ("JSON_SR", 18)])
def test_a_source_with_schemas_waits_until_every_node_knows_them(
    value_format: str, level: int
) -> None:
    command = CreateSource(source=sample_stream(value_format=value_format))
    with pytest.raises(BadRequest, match=f"create_source needs feature level {level}"):
        feature_levels.at_level(command, level - 1)
    assert "schema_ids" not in logged(CreateSource(source=sample_stream()), 16)["source"]  # type: ignore[operator]


def test_a_query_that_writes_avro_waits_until_every_pipeline_does() -> None:
    with pytest.raises(BadRequest, match="create_table_as needs feature level 18"):
        feature_levels.at_level(in_avro(written_by("C", 4)), 17)
    before = logged(written_by("C", 4), 17)
    assert "public_topic" not in before, "byte for byte as it was"
    assert "schemas" not in before["query"]["plan"]  # type: ignore[index]
    assert "public_formats" not in before["source"]  # type: ignore[operator]


@pytest.mark.parametrize("part", ["key_format", "value_format"])
def test_a_query_over_avro_waits_until_every_pipeline_reads_it(part: str) -> None:
    made = table_as("T", "S", 4)
    given: dict[str, Any] = {"key_format": "JSON", "value_format": "JSON", part: "AVRO"}
    read = SparkInput(source="S", topic="s", view="S", columns=(), **given)
    plan = structs.replace(made.query.plan, inputs=(read,))
    over_avro = structs.replace(made, query=structs.replace(made.query, plan=plan))
    with pytest.raises(BadRequest, match="over a source in AVRO needs feature level 18"):
        feature_levels.at_level(over_avro, 17)
    assert feature_levels.at_level(over_avro, 18) == over_avro


@pytest.mark.parametrize("part", ["key_format", "value_format"])
def test_a_query_over_json_sr_waits_until_every_pipeline_reads_it(part: str) -> None:
    """An older one takes its records for AVRO, and leaves them all out."""
    made = table_as("T", "S", 4)
    given: dict[str, Any] = {"key_format": "JSON", "value_format": "JSON", part: "JSON_SR"}
    read = SparkInput(source="S", topic="s", view="S", columns=(), **given)
    plan = structs.replace(made.query.plan, inputs=(read,))
    over = structs.replace(made, query=structs.replace(made.query, plan=plan))
    for level in (17, 18):
        with pytest.raises(BadRequest, match="over or into JSON_SR needs feature level 19"):
            feature_levels.at_level(over, level)
    assert feature_levels.at_level(over, 19) == over


def test_a_query_into_json_sr_waits_until_every_pipeline_writes_it() -> None:
    made = in_avro(table_as("T", "S", 4))
    formats = ("KAFKA", "JSON_SR")
    source = structs.replace(made.source, public_topic="T", public_formats=formats)
    into = structs.replace(made, source=source)
    with pytest.raises(BadRequest, match="over or into JSON_SR needs feature level 19"):
        feature_levels.at_level(into, 18)
    assert logged(into, 19)["version"] == 6, "as of AVRO"


def test_a_table_that_gets_columns_waits_until_every_node_keeps_them() -> None:
    """An older node would cut its rows off."""
    table = external("T", 4).source
    grown = CreateSource(source=structs.replace(table, columns_first=1), replace=True)
    with pytest.raises(BadRequest, match=r"create_source needs feature level 20, .* is at 19"):
        feature_levels.at_level(grown, 19)
    assert logged(grown, 20)["version"] == 5
    before = logged(external("T", 4), 20)
    assert "columns_first" not in before["source"], "byte for byte as it was"  # type: ignore[operator]
    assert before["version"] == 2


@pytest.mark.parametrize(
    ("limit", "known"), [(0, (1, 21)), (1, (1, 1)), (2, (1, 2)), (22, (1, 21))]
)
def test_a_program_admits_to_no_more_than_it_knows(limit: int, known: FeatureLevels) -> None:
    assert feature_levels.known_to_program(limit) == known


def test_a_source_table_whose_topic_is_made_waits_until_every_node_makes_it() -> None:
    with pytest.raises(BadRequest, match="create_table_as needs feature level 16"):
        feature_levels.at_level(with_its_topic("T", 4), 15)
    assert "source_topic" not in logged(table_as("T", "S", 4), 15), "byte for byte as it was"


@pytest.mark.parametrize(
    ("level", "version", "why"),
    [
        *[(1, 1, ""), (4, 4, ""), (5, 4, "gossip"), (8, 7, ""), (9, 7, "groups"), (11, 9, "")],
        *[(12, 9, "linearizable reads"), (13, 10, ""), (15, 12, ""), (16, 12, "source topics")],
        *[(17, 13, ""), (18, 14, ""), (19, 14, "JSON_SR in Spark"), (20, 15, "")],
    ],
)
def test_a_level_without_a_new_field_keeps_the_version_of_the_catalog(
    level: int, version: int, why: str
) -> None:
    """Otherwise a program that knows the level refuses a snapshot that it can read."""
    assert feature_levels.catalog_version(level) == version, why


@pytest.mark.parametrize("where", ["sql", "batch_sql", "steps"])
def test_a_query_that_shows_times_waits_until_every_pipeline_has_the_functions(where: str) -> None:
    """Spark of an older one does not know their names, and the query would fail for good."""
    made = table_as("T", "S", 4)
    text = "SELECT standpipe_shown_instant(0, 'yyyy', 'UTC')"
    step = SparkStep(view="V", operator="CHANGES", sql=text)
    given: dict[str, Any] = {where: (step,) if where == "steps" else text}
    plan = structs.replace(made.query.plan, **given)
    shows = structs.replace(made, query=structs.replace(made.query, plan=plan))
    with pytest.raises(
        BadRequest, match="shows times needs feature level 21, this cluster is at 20"
    ):
        feature_levels.at_level(shows, 20)
    assert feature_levels.at_level(shows, 21) == shows
    assert feature_levels.at_level(made, 20) == made, "all others as before"
