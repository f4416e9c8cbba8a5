"""Schemas that a statement registers: those of the rows that its stream or table can be given.

As in ksqlDB (SchemaRegisterInjector), CREATE over a topic registers a schema for a subject that has
none, so that other producers find it; one that has schemas keeps them. A query that writes AVRO has
its schema registered in any case, as the subject's newest if it is none of them yet, and its plan
gets the id. Asked of the registry before the statement is logged: a schema that is refused refuses
the statement. Asked also for what this process has registered before: the subject may have been
deleted since, and a query keeps its id permanently. Not here: which schema that is
(`sql.declarations.registered`); rows of INSERT, which register a newer one.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import (
    Command,
    CreateSource,
    CreateTableAs,
    InsertInto,
    ReplaceStreamAs,
    ReplaceTableAs,
)
from standpipe.errors import StatementError
from standpipe.model import PersistentQuery, Source, WrittenSchema
from standpipe.sql.declarations.properties import REGISTRY_FORMATS
from standpipe.sql.declarations.published import public_form
from standpipe.sql.declarations.registered import Part, given_id, own_schema
from standpipe.sql.declarations.sink_schemas import columns_of
from standpipe.sql.schemas.registry import (
    KINDS,
    SchemaRefused,
    Schemas,
    UnknownSchema,
    subject_of,
)

_PARTS: Final[tuple[Part, Part]] = ("KEY", "VALUE")


def register(command: Command, catalog: Catalog, schemas: Schemas | None) -> Command:
    """Register what a command's source or query needs; the command with the ids that its query
    writes. `catalog`: before it. Raises StatementError, SchemaRegistryUnavailable, and BadRequest
    at a feature level at which it cannot be logged."""
    if schemas is None:
        return command
    feature_levels.at_level(command, catalog.feature_level)  # what is refused registers nothing
    match command:
        case CreateSource(source=source):
            for part in _PARTS:
                if _is_ours(source, part):
                    _register_first(source, part, schemas)
            return command
        case CreateTableAs() | ReplaceStreamAs() | ReplaceTableAs():
            query = _with_schemas(command.query, public_form(command.source), schemas)
            return replace(command, query=query)
        case InsertInto():
            target = catalog.sources[command.query.sink]
            feature_levels.check_query(command.query, target, catalog.feature_level)
            return replace(command, query=_with_schemas(command.query, target, schemas))
        case _:
            return command


def _is_ours(source: Source, part: Part) -> bool:
    """Whether rows of this part are written under a schema that is made from the columns."""
    format_ = source.key_format if part == "KEY" else source.value_format
    is_there = format_ in REGISTRY_FORMATS and bool(columns_of(source, part))
    return is_there and not given_id(source, part)


def _register_first(source: Source, part: Part, schemas: Schemas) -> None:
    subject = subject_of(source.topic, is_key=part == "KEY")
    try:
        schemas.latest(subject)
    except UnknownSchema:
        _registered(source, part, schemas)


def _registered(source: Source, part: Part, schemas: Schemas) -> WrittenSchema:
    subject, text = subject_of(source.topic, is_key=part == "KEY"), own_schema(source, part)
    kind = KINDS[source.key_format if part == "KEY" else source.value_format]
    try:
        return schemas.register(subject, kind, text, asks=True), text
    except SchemaRefused as error:
        raise StatementError(
            f"Could not register schema for topic: {error}. Subject: {subject}",
            statement=source.statement,
        ) from error


def _with_schemas(query: PersistentQuery, sink: Source, schemas: Schemas) -> PersistentQuery:
    """The query with the ids of our own schemas, which its plan leaves open."""
    if not query.plan.schemas:
        return query

    def of(part: Part, given: WrittenSchema | None) -> WrittenSchema | None:
        return _registered(sink, part, schemas) if _is_ours(sink, part) else given

    key, value = query.plan.schemas
    found = (of("KEY", key), of("VALUE", value))
    return replace(query, plan=replace(query.plan, schemas=found))
