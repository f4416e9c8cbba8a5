"""Schemas that a statement registers: those of the rows that its stream or table can be given.

As in ksqlDB (SchemaRegisterInjector), CREATE over a topic registers a schema for a subject that has
none, so that other producers find it; one that has schemas keeps them. Asked of the registry before
the statement is logged: a schema that is refused refuses the statement. Not here: which schema that
is (`sql.declarations.registered`); rows of INSERT, which register a newer one.
"""

from __future__ import annotations

from typing import Final

from standpipe.control.metadata.commands import Command, CreateSource
from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.declarations.properties import REGISTRY_FORMATS
from standpipe.sql.declarations.registered import Part, given_id, own_schema
from standpipe.sql.schemas.registry import (
    KINDS,
    SchemaRefused,
    Schemas,
    UnknownSchema,
    subject_of,
)

_PARTS: Final[tuple[Part, Part]] = ("KEY", "VALUE")


def register(command: Command, schemas: Schemas | None) -> None:
    """Register what a command's source needs. Raises StatementError, SchemaRegistryUnavailable."""
    if not isinstance(command, CreateSource) or schemas is None:
        return
    for part in _PARTS:
        if _is_ours(command.source, part):
            _register(command.source, part, schemas)


def _is_ours(source: Source, part: Part) -> bool:
    """Whether rows of this part are written under a schema that is made from the columns."""
    if given_id(source, part):
        return False
    if part == "KEY":
        return bool(source.key_columns) and source.key_format in REGISTRY_FORMATS
    is_there = any(column.header is None for column in source.value_columns)
    return is_there and source.value_format in REGISTRY_FORMATS


def _register(source: Source, part: Part, schemas: Schemas) -> None:
    subject = subject_of(source.topic, is_key=part == "KEY")
    kind = KINDS[source.key_format if part == "KEY" else source.value_format]
    try:
        schemas.latest(subject)
    except UnknownSchema:
        try:
            schemas.register(subject, kind, own_schema(source, part))
        except SchemaRefused as error:
            raise StatementError(
                f"Could not register schema for topic: {error}. Subject: {subject}",
                statement=source.statement,
            ) from error
