"""Feature levels: what may be logged while two releases run side by side in one cluster.

    level   brings
    1       everything not listed below
    2       nodes' records say which levels their programs know (register_node 2), clusters begin at
            a level (found_cluster 2), the level is raised (set_feature_level), catalog version 2;
            named types (create_type, drop_type)
    3       leases per query (start_pipeline 2, end_pipelines, grant_leases), catalog version 3
    4       CREATE OR REPLACE … AS (replace_stream_as, replace_table_as, switch_table), catalog
            version 4
    5       logs nothing new: in a cluster of more than 20 nodes each node sends heartbeats to a few
            others, and the failure detector's verdicts spread by gossip (`control.liveness.gossip`)
    6       Kafka's ids of the topics that the cluster made (record_topics), statements that are
            taken back (withdraw_statement), remembered requests bounded by bytes, catalog version 5
    7       queries with a driver of their own (isolate_query, start_pipeline 3), catalog version 6
    8       a table is held while reads move to its next generation (hold_table, switch_table 2),
            catalog version 7
    9       logs nothing new: pipelines let tables over one stream share a query, whose checkpoint a
            pipeline of an older release would not find (`pipeline.run.group`)
    10      external queries, which a user's Spark application runs (create_table_as 2), catalog
            version 8
    11      tables with bounds in ms on the age of their rows (create_table_as 3,
            replace_table_as 2), catalog version 9
    12      logs nothing new: reads at level linearizable, whose barriers only newer nodes await
            (`data.replica.barrier`)
    13      transient queries, each for one push query (create_table_as 4), catalog version 10
    14      direct tables, which nodes follow without a query (create_source 2), catalog version 11
    15      logs nothing new: the catalog says which outcomes of requests are forgotten, so that a
            late copy is refused (`control.metadata.requests`), catalog version 12
    16      source tables whose statement makes their topic (create_table_as 5)
    17      sources in AVRO, with schemas in a registry (create_source 3), catalog version 13
    18      sources in JSON_SR (create_source 4), and queries of Spark that write AVRO
            (create_table_as 6, insert_into 2, replace_stream_as 2, replace_table_as 3) or read it,
            which a pipeline of an older release would call PLAN_UNREADABLE; catalog version 14
    19      logs nothing new: queries of Spark that read or write JSON_SR, whose records a pipeline
            of an older release would take for AVRO and leave out
    20      tables that applications write get columns in place (create_source 5), whose rows an
            older node would cut off; catalog version 15
    21      logs nothing new: queries of Spark that show times by our own functions, whose names a
            pipeline of an older release does not know

A program knows a range of levels. A cluster is at one level, which its log names; a log that names
none is at level 1. A leader logs every command in the form of that level, so that older nodes can
read it. An operator raises the level once every node runs the newer program; it never falls, since
what was logged stays. KIP-535 and KIP-708 raise the version of Streams' metadata, and version
probing finds the newest version that the oldest member reads; here an operator sets it, like
Kafka's metadata.version (KIP-584).

A new level adds its line above, raises NEWEST, and lists its commands in SINCE. Not here: how the
nodes are asked (`node.controller.feature_probe`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from standpipe.control.metadata.commands import (
    Command,
    CreateSource,
    CreateTableAs,
    FoundCluster,
    InsertInto,
    RegisterNode,
    ReplaceStreamAs,
    ReplaceTableAs,
    SetFeatureLevel,
    StartPipeline,
    SwitchTable,
)
from standpipe.errors import BadRequest, FeatureLevelRefused
from standpipe.model import FeatureLevels, NodeId, NodeInfo, PersistentQuery, Source
from standpipe.sql.declarations.published import public_form

OLDEST: Final = 1
NEWEST: Final = 21
#: leases are granted query by query; below, the newest pipeline writes all queries
LEASES: Final = 3
#: below, every node expects heartbeats from every other
GOSSIP: Final = 5
#: below, topics are deleted by name, even if another program made them
TOPIC_IDS: Final = 6
#: below, all pipelines share all queries
ISOLATION: Final = 7
#: below, a table commits on while reads move to its next generation, so they may go back
HOLDS: Final = 8
#: below, each query of Spark keeps one table
GROUPS: Final = 9
#: below, every table's query is run by a pipeline
EXTERNAL: Final = 10
#: below, a table bounds the age of its rows in records only
TIME_BOUNDS: Final = 11
#: below, no read is linearizable
LINEARIZABLE_READS: Final = 12
#: below, push queries that need Spark are refused
TRANSIENT: Final = 13
#: below, every table that answers reads has a query
DIRECT: Final = 14
#: below, a copy of a request that arrives after its outcome is forgotten is applied again
FORGOTTEN_REQUESTS: Final = 15
#: below, CREATE SOURCE TABLE is refused if its topic is absent
SOURCE_TOPICS: Final = 16
#: below, statements with AVRO are refused
SCHEMAS: Final = 17
#: below, statements with JSON_SR are refused, and queries of Spark that read or write AVRO
REGISTRY_QUERIES: Final = 18
#: below, queries of Spark that read or write JSON_SR are refused
JSON_SR_QUERIES: Final = 19
#: below, the columns of tables that applications write never change
ADDED_COLUMNS: Final = 20
#: below, queries of Spark that show times by our own functions are refused
SHOWN_TIMES: Final = 21
#: levels of a program from before levels existed, which reports none
FIRST: Final[FeatureLevels] = (1, 1)

#: (command, version) -> lowest level at which it may be logged; all others: the first
SINCE: Final[Mapping[tuple[str, int], int]] = {
    ("found_cluster", 2): 2,
    ("set_feature_level", 1): 2,
    ("register_node", 2): 2,
    ("create_type", 1): 2,
    ("drop_type", 1): 2,
    ("start_pipeline", 2): LEASES,
    ("end_pipelines", 1): LEASES,
    ("grant_leases", 1): LEASES,
    ("replace_stream_as", 1): 4,
    ("replace_table_as", 1): 4,
    ("switch_table", 1): 4,
    ("record_topics", 1): TOPIC_IDS,
    ("withdraw_statement", 1): TOPIC_IDS,
    ("isolate_query", 1): ISOLATION,
    ("start_pipeline", 3): ISOLATION,
    ("hold_table", 1): HOLDS,
    ("switch_table", 2): HOLDS,
    ("create_table_as", 2): EXTERNAL,
    ("create_table_as", 3): TIME_BOUNDS,
    ("replace_table_as", 2): TIME_BOUNDS,
    ("create_table_as", 4): TRANSIENT,
    ("create_source", 2): DIRECT,
    ("create_table_as", 5): SOURCE_TOPICS,
    ("create_source", 3): SCHEMAS,
    ("create_source", 4): REGISTRY_QUERIES,
    ("create_source", 5): ADDED_COLUMNS,
    ("create_table_as", 6): REGISTRY_QUERIES,
    ("insert_into", 2): REGISTRY_QUERIES,
    ("replace_stream_as", 2): REGISTRY_QUERIES,
    ("replace_table_as", 3): REGISTRY_QUERIES,
}


#: levels at which the catalog has no more fields than below
_SAME_CATALOG: Final = frozenset(
    {GOSSIP, GROUPS, LINEARIZABLE_READS, SOURCE_TOPICS, JSON_SR_QUERIES, SHOWN_TIMES}
)

#: beginning of the names of functions that pipelines add to Spark's -> level from which on every
#: pipeline has them; all others: as long as there have been levels for them
_FUNCTIONS_SINCE: Final = {"standpipe_shown_": SHOWN_TIMES}


def catalog_version(level: int) -> int:
    """Version of the catalog of a cluster at that level: some levels changed nothing in it."""
    return level - sum(level >= each for each in _SAME_CATALOG)


def known_to_program(level_max: int = 0) -> FeatureLevels:
    """The levels that this program knows, up to `level_max` if an operator set one (0: all)."""
    return (OLDEST, min(level_max or NEWEST, NEWEST))


def to_record(levels: FeatureLevels) -> FeatureLevels | UnsetType:
    """The levels as a node reports them: UNSET at level 1, which has no field for them."""
    return levels if levels[1] > 1 else UNSET


def from_record(levels: FeatureLevels | UnsetType) -> FeatureLevels:
    """The levels that a node knows, from its report: inverse of `to_record`."""
    return FIRST if levels is UNSET else levels


def check(level: int, known: FeatureLevels) -> None:
    """Raises FeatureLevelRefused if a program does not know the cluster's level."""
    if not known[0] <= level <= known[1]:
        raise FeatureLevelRefused(
            f"the cluster is at feature level {level}, this program knows {text(known)}",
            next_step="start a release of Standpipe that knows it; the data directory is unharmed",
        )


def check_member(node: NodeInfo, level: int) -> None:
    """Raises BadRequest that names the node whose program does not know the cluster's level."""
    known = from_record(node.feature_levels)
    if not known[0] <= level <= known[1]:
        raise BadRequest(
            f"{node.node_id} knows {text(known)}, and this cluster is at feature level {level}: "
            f"start a release of Standpipe on {node.node_id} that knows it"
        )


def check_raise(level: int, current: int, known: Mapping[NodeId, FeatureLevels | None]) -> None:
    """Raises BadRequest with the reason if the level cannot be raised: every member must know it.

    `known` None: a node that neither answers nor has its levels in the log.
    """
    if level < current:
        raise BadRequest(
            f"the feature level is {current} and never falls: what was logged in a newer form stays"
        )
    reasons = [
        f"{node} {_why_not(levels)}"
        for node, levels in sorted(known.items())
        if levels is None or not levels[0] <= level <= levels[1]
    ]
    if reasons:
        raise BadRequest(
            f"the feature level stays {current}, {level} needs every node: {'; '.join(reasons)}"
        )


def _why_not(known: FeatureLevels | None) -> str:
    if known is None:
        return (
            "does not answer, so its feature levels are not known: start it, or remove it from the "
            "cluster with `standpipe node remove`"
        )
    return f"knows {text(known)}: start the newer release on it first"


def at_level(command: Command, level: int) -> Command:
    """The command as a cluster at that level reads it.

    A command that sets or raises the level has the form of the new level, which every reader
    knows. Raises BadRequest if the command has no form at that level.
    """
    match command:
        case FoundCluster(feature_level=begins):
            level = begins or 1
            changed = {"version": _second(level), "feature_level": begins if level > 1 else UNSET}
        case SetFeatureLevel(level=raised):
            level, changed = raised, {}
        case RegisterNode(node=node):
            changed = {"version": _second(level), "node": node_at(node, level)}
        case SwitchTable(floor=floor):
            changed = {"version": 1 if floor is UNSET else 2}
        case CreateSource(source=source):
            changed = {"version": _version_of_source(source)}
        case CreateTableAs():
            changed = {"version": _version_of_table(command)}
        case ReplaceTableAs(source=source, query=query):
            changed = {"version": 3 if query.plan.schemas else 2 if source.time_bounds else 1}
        case ReplaceStreamAs(query=query) | InsertInto(query=query):
            changed = {"version": 2 if query.plan.schemas else 1}
        case StartPipeline(isolates=name):
            changed = {"version": 3 if name else 2 if level >= LEASES else 1}
        case _:
            changed = {}
    formed = msgspec.structs.replace(command, **changed) if changed else command
    tag = str(formed.__struct_config__.tag)
    if (needed := SINCE.get((tag, formed.version), 1)) > level:
        raise BadRequest(
            f"{tag} needs feature level {needed}, this cluster is at {level}: "
            "`standpipe quorum upgrade`, once every node runs the newer release"
        )
    if level < REGISTRY_QUERIES and _reads_avro(command):
        raise BadRequest(
            f"a query over a source in AVRO needs feature level {REGISTRY_QUERIES}, this cluster is"
            f" at {level}: `standpipe quorum upgrade`, once every pipeline and every node runs the"
            " newer release"
        )
    query = getattr(command, "query", None)
    if isinstance(query, PersistentQuery):
        made = getattr(command, "source", None)
        check_query(query, made if isinstance(made, Source) else None, level)
    return formed


def check_query(query: PersistentQuery, sink: Source | None, level: int) -> None:
    """Raises BadRequest for a query over or into JSON_SR, or that calls a function of ours, where a
    pipeline may not know it. `sink`: what it writes, which a command of INSERT INTO does not have;
    None: not known here."""
    formats = {of for read in query.plan.inputs for of in (read.key_format, read.value_format)}
    if sink is not None:
        public = public_form(sink)
        formats |= {public.key_format, public.value_format}
    if level < JSON_SR_QUERIES and "JSON_SR" in formats:
        raise BadRequest(
            f"a query over or into JSON_SR needs feature level {JSON_SR_QUERIES}, this cluster is"
            f" at {level}: `standpipe quorum upgrade`, once every pipeline and every node runs the"
            " newer release"
        )
    texts = (query.plan.sql, query.plan.batch_sql or "", *(step.sql for step in query.plan.steps))
    for name, needed in _FUNCTIONS_SINCE.items():
        if level < needed and any(name in text for text in texts):
            raise BadRequest(
                f"a query that shows times needs feature level {needed}, this cluster is at"
                f" {level}: `standpipe quorum upgrade`, once every pipeline and every node runs the"
                " newer release"
            )


def _reads_avro(command: Command) -> bool:
    """Not here: JSON_SR, which needs a higher level (`check_query`)."""
    query = getattr(command, "query", None)
    return isinstance(query, PersistentQuery) and any(
        format_ == "AVRO"
        for read in query.plan.inputs
        for format_ in (read.key_format, read.value_format)
    )


def _version_of_source(source: Source) -> int:
    """The lowest version whose readers know the formats of a source, how it is followed, and that
    its rows may have fewer columns."""
    if source.columns_first:
        return 5
    formats = {source.key_format, source.value_format}
    if "JSON_SR" in formats:
        return 4
    return 3 if "AVRO" in formats else 2 if source.is_direct else 1


def _version_of_table(command: CreateTableAs) -> int:
    """The lowest version whose readers do all that a CREATE … AS asks for."""
    if command.query.plan.schemas:
        return 6
    if command.source_topic:
        return 5
    if command.query.served_by:
        return 4
    return 3 if command.source.time_bounds else 2 if command.query.is_external else 1


def _second(level: int) -> int:
    """The version of a command whose second version came with level 2."""
    return 2 if level > 1 else 1


def node_at(node: NodeInfo, level: int) -> NodeInfo:
    """A node's record in the form of that level's catalog."""
    if level > 1:
        return node
    return msgspec.structs.replace(node, feature_levels=UNSET)


def records_to_update(
    nodes: Iterable[NodeInfo], known: Mapping[NodeId, FeatureLevels | None]
) -> list[NodeInfo]:
    """Records of the nodes whose levels are not yet in the log, with those levels."""
    return [
        msgspec.structs.replace(node, feature_levels=levels)
        for node in nodes
        if (levels := known.get(node.node_id)) is not None and node.feature_levels != levels
    ]


def text(known: FeatureLevels) -> str:
    """A range of levels, as shown in messages."""
    oldest, newest = known
    return f"feature level {newest}" if oldest == newest else f"feature levels {oldest} to {newest}"
