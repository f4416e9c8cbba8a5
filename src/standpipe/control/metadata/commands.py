"""The commands of the metadata log, and their bytes.

A command that this program does not know, or knows only in an older version, stops it with an error
that names the command (UnknownCommand): by guessing, its catalog would permanently diverge from the
others'.

Not here: what a command does to the catalog (`control.metadata.apply`), at which feature level it
may be logged (`control.metadata.feature_levels`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from standpipe.errors import ServerError
from standpipe.model import (
    Assignment,
    LogIndex,
    NodeId,
    NodeInfo,
    PersistentQuery,
    PlacementRules,
    Record,
    Source,
    TopicSpec,
)


class UnknownCommand(ServerError):
    """The log holds a command that a newer program wrote. This program must not continue."""


class CommandRejected(Exception):
    """A command does not fit the catalog that it is applied to. Ends as AppliedRequest.refusal."""


class Receipt(Record, frozen=True, kw_only=True):
    """The answer to a statement's client, the same for every retry at any node."""

    statement: str
    command_id: str  # ksqlDB's, e.g. "stream/S1/create"
    message: str
    query_id: str | None = None


class CommandBase(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Fields of every command. `version` is raised when older programs would misread its fields."""

    version: int = 1
    request_id: str = ""  # a repeated one is applied once; empty: never compared
    receipt: Receipt | None = None


class FoundCluster(CommandBase, frozen=True, kw_only=True, tag="found_cluster"):
    """The first command of a log: names the cluster.

    Version 2 also names the feature level at which it begins; version 1 is of level 1.
    """

    cluster_id: str
    feature_level: int | msgspec.UnsetType = msgspec.UNSET


class SetFeatureLevel(CommandBase, frozen=True, kw_only=True, tag="set_feature_level"):
    """Every node knows this level: from now on, commands have its form. It never falls."""

    level: int


class RegisterNode(CommandBase, frozen=True, kw_only=True, tag="register_node"):
    """A node is a member from now on, or has new addresses, tags or a new incarnation.

    Version 2 also lists the feature levels that its program knows.
    """

    node: NodeInfo


class CreateSource(CommandBase, frozen=True, kw_only=True, tag="create_source"):
    """A stream or table over a topic that another program writes. Version 2: a direct table, which
    has replicas and no query. Version 3: its records name schemas in a registry. Version 4: so do
    those of JSON_SR. Version 5: a table that an application writes has more columns in place."""

    source: Source
    replace: bool = False
    topic: TopicSpec | None = None  # the statement said PARTITIONS


class CreateTableAs(CommandBase, frozen=True, kw_only=True, tag="create_table_as"):
    """A materialized table, the query that fills it and the topic between them. Version 2: the
    query is external, so it is isolated under its id from the start. Version 3: `source` has bounds
    in ms, also if the query is external. Version 4: it is transient, and so is the table or stream,
    for one push query. Version 5: of CREATE SOURCE TABLE, `source_topic` is made as well. Version
    6: the query writes AVRO or JSON_SR, a table's also into `public_topic`."""

    source: Source
    query: PersistentQuery
    topic: TopicSpec
    #: the topic that the query reads; unset: it was there
    source_topic: TopicSpec | msgspec.UnsetType = msgspec.UNSET
    #: the topic of a copy of the table; unset: it has none
    public_topic: TopicSpec | msgspec.UnsetType = msgspec.UNSET


class InsertInto(CommandBase, frozen=True, kw_only=True, tag="insert_into"):
    """One more query writes to an existing stream. Version 2: in AVRO or JSON_SR."""

    query: PersistentQuery


class ReplaceStreamAs(CommandBase, frozen=True, kw_only=True, tag="replace_stream_as"):
    """A stream's query continues from its position under a new plan; `source` has its columns.
    Version 2: it writes AVRO or JSON_SR."""

    source: Source
    query: PersistentQuery


class ReplaceTableAs(CommandBase, frozen=True, kw_only=True, tag="replace_table_as"):
    """The next generation of a table is built beside the one that serves reads. Version 2: `source`
    has bounds in ms. Version 3: the query writes AVRO."""

    source: Source
    query: PersistentQuery
    topic: TopicSpec


class HoldTable(CommandBase, frozen=True, kw_only=True, tag="hold_table"):
    """The generation that answers commits no more batches, until reads move to the next one.

    Its query gets another lease epoch, so that its fence ends it. `is_held` False: it goes on.
    """

    name: str
    generation: int  # the next one
    is_held: bool = True


class SwitchTable(CommandBase, frozen=True, kw_only=True, tag="switch_table"):
    """The next generation has caught up: reads go to it, and the old one is dropped.

    Version 2 also says what is in its rows at least: all that the old one ever committed.
    """

    name: str
    generation: int
    #: source topic -> partition -> offset up to which the old one had read, as it was held
    floor: dict[str, dict[int, int]] | msgspec.UnsetType = msgspec.UNSET


class DropSource(CommandBase, frozen=True, kw_only=True, tag="drop_source"):
    """A stream or table is dropped, and with it the query that writes it."""

    name: str
    delete_topic: bool = False


class CreateType(CommandBase, frozen=True, kw_only=True, tag="create_type"):
    """A name for a type. `definition`: ksqlDB's spelling, with no other such name in it."""

    name: str
    definition: str


class DropType(CommandBase, frozen=True, kw_only=True, tag="drop_type"):
    """The name is dropped; columns declared with it keep their type."""

    name: str


class TopicDeleted(CommandBase, frozen=True, kw_only=True, tag="topic_deleted"):
    """Kafka has carried out a deletion that a statement requested. It is never repeated."""

    name: str


class RecordTopics(CommandBase, frozen=True, kw_only=True, tag="record_topics"):
    """Kafka's ids of topics that this cluster makes, by name. Empty: the topic is absent, and the
    leader is about to make it. Only a topic with such a record is ever deleted."""

    ids: Mapping[str, str]


class WithdrawStatement(CommandBase, frozen=True, kw_only=True, tag="withdraw_statement"):
    """A statement's table could not be placed: it is taken back, with its query and its topic.

    `of_request` is the statement's request; `reason` becomes its outcome. Rejected if another
    query reads the table by now.
    """

    of_request: str
    name: str
    table_id: str
    generation: int
    reason: str


class TerminateQuery(CommandBase, frozen=True, kw_only=True, tag="terminate_query"):
    """Queries end; their tables stay readable as they are."""

    query_ids: tuple[str, ...]


class SetQueryState(CommandBase, frozen=True, kw_only=True, tag="set_query_state"):
    """Queries pause or resume; what they have read stays read."""

    query_ids: tuple[str, ...]
    state: Literal["RUNNING", "PAUSED"]


class CommitAssignment(CommandBase, frozen=True, kw_only=True, tag="commit_assignment"):
    """Which node holds which replica. Its epoch is one more than that it was computed from."""

    assignment: Assignment


class SetPlacementRules(CommandBase, frozen=True, kw_only=True, tag="set_placement_rules"):
    """From now on: how many copies there are, and over what they are spread."""

    rules: PlacementRules


class DrainNode(CommandBase, frozen=True, kw_only=True, tag="drain_node"):
    """A node must give up all replicas; `is_draining` false ends the drain."""

    node_id: NodeId
    is_draining: bool = True


class RemoveNode(CommandBase, frozen=True, kw_only=True, tag="remove_node"):
    """A node is no longer a member. It may register again, under any incarnation."""

    node_id: NodeId


class StartPipeline(CommandBase, frozen=True, kw_only=True, tag="start_pipeline"):
    """A pipeline starts. Version 1: it gets the next lease epoch, for all queries. Version 2: it
    is registered, and leases are granted to it query by query (GrantLeases). Version 3: it runs
    only the queries that are isolated under a name; rejected if the name is not isolated."""

    pipeline_id: str
    isolates: str | msgspec.UnsetType = msgspec.UNSET


class IsolateQuery(CommandBase, frozen=True, kw_only=True, tag="isolate_query"):
    """From now on, only pipelines that are started for this name run its queries; `is_isolated`
    false: shared pipelines run them again. The name: a query's id, or the name of what it writes.
    """

    name: str
    is_isolated: bool = True


class EndPipelines(CommandBase, frozen=True, kw_only=True, tag="end_pipelines"):
    """Pipelines ended or were silent for too long: their leases may be granted to others."""

    pipeline_ids: tuple[str, ...]


class GrantLeases(CommandBase, frozen=True, kw_only=True, tag="grant_leases"):
    """(query id, pipeline id): the pipeline writes the query, each under a new lease epoch."""

    grants: tuple[tuple[str, str], ...]


Command = (
    FoundCluster
    | SetFeatureLevel
    | RegisterNode
    | CreateSource
    | CreateTableAs
    | InsertInto
    | ReplaceStreamAs
    | ReplaceTableAs
    | HoldTable
    | SwitchTable
    | DropSource
    | CreateType
    | DropType
    | TopicDeleted
    | RecordTopics
    | WithdrawStatement
    | TerminateQuery
    | SetQueryState
    | CommitAssignment
    | SetPlacementRules
    | DrainNode
    | RemoveNode
    | StartPipeline
    | IsolateQuery
    | EndPipelines
    | GrantLeases
)

#: type -> newest version that this program understands
VERSIONS: Final[Mapping[str, int]] = {
    "found_cluster": 2,
    "set_feature_level": 1,
    "register_node": 2,
    "create_source": 5,
    "create_table_as": 6,
    "insert_into": 2,
    "replace_stream_as": 2,
    "replace_table_as": 3,
    "hold_table": 1,
    "switch_table": 2,
    "drop_source": 1,
    "create_type": 1,
    "drop_type": 1,
    "topic_deleted": 1,
    "record_topics": 1,
    "withdraw_statement": 1,
    "terminate_query": 1,
    "set_query_state": 1,
    "commit_assignment": 1,
    "set_placement_rules": 1,
    "drain_node": 1,
    "remove_node": 1,
    "start_pipeline": 3,
    "isolate_query": 1,
    "end_pipelines": 1,
    "grant_leases": 1,
}


class _Head(msgspec.Struct):
    """What must be decoded of a command before its other fields."""

    type: str
    version: int = 1


_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)
_command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def encode(command: Command) -> bytes:
    """Bytes of a command, in the log and on the wire."""
    return _encoder.encode(command)


def decode(data: bytes) -> Command:
    """A command from its bytes. Raises UnknownCommand that names type and version."""
    try:
        head = _head_decoder.decode(data)
        newest = VERSIONS.get(head.type, 0)
        if head.version > newest:
            raise UnknownCommand(
                f"the log holds command {head.type!r} version {head.version}; this program knows "
                f"{f'it up to version {newest}' if newest else 'no such command'}: upgrade it"
            )
        return _command_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UnknownCommand(f"a command of the log cannot be read: {error}") from error


# ------------------------------------------------------------------------ how they travel


class LogEntry(Record, frozen=True, kw_only=True):
    """One command of the metadata log as it is sent to followers (`GET /log`)."""

    index: LogIndex
    command: msgspec.Raw  # msgpack of a command


class LogPage(Record, frozen=True, kw_only=True):
    """Answer of `GET /log?from=N`: entries from N on, and the last committed index.

    Indexes ascend with gaps: the quorum's log also holds records that are not commands.
    """

    entries: tuple[LogEntry, ...]
    last_index: LogIndex
    leader: NodeId
    cluster_id: str
    #: if N was trimmed: the whole catalog up to `last_index`, instead of entries
    catalog: bytes = b""
