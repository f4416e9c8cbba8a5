"""CREATE SOURCE TABLE … WITH (APPLY='DIRECT'): nodes follow a topic of another program themselves.

No query of ours copies it: a row can be read milliseconds after it was produced. What such a table
cannot have is refused here; what cannot read it: `sql/declarations/direct.py`. The reasons:
data/replica/DESIGN.md.
"""

from __future__ import annotations

from typing import Final

import msgspec

from standpipe.model import Source
from standpipe.sql.context import Context
from standpipe.sql.declarations.direct import DIRECT, DIRECT_TABLE
from standpipe.sql.declarations.properties import Properties
from standpipe.sql.plans import CreateSourcePlan
from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.ast_statements import Creation
from standpipe.sql.syntax.errors import nearest, refusal, unknown_name, unsupported

KEY_FORMATS: Final = ("KAFKA",)
VALUE_FORMATS: Final = ("JSON", "KAFKA")
#: types of a version: whole numbers, which are compared as such
VERSION_TYPES: Final = ("INTEGER", "BIGINT", "TIMESTAMP")
#: keys of WITH that have no meaning here, and what to do instead
_REFUSED_KEYS: Final = {
    "TIMESTAMP": "ROWTIME is the time of the record. Leave TIMESTAMP out",
    "RETENTION_MS": "rows stay until they are deleted. Configure the topic with Kafka's tools",
    "WRITER": "the topic is written by any program. Leave WRITER out",
}


def is_named(properties: Properties) -> bool:
    """Whether the WITH clause asks for a direct table, or for what only such a table has."""
    return any(name in properties.values for name in ("APPLY", "VERSION_COLUMN"))


def declared(
    source: Source,
    creation: Creation,
    properties: Properties,
    context: Context,
    *,
    is_there: bool,
) -> CreateSourcePlan:
    """The table. Raises StatementError for what nodes cannot apply themselves. `is_there`: its
    topic is in Kafka."""
    at = properties.at("APPLY") or properties.at("VERSION_COLUMN")
    if properties.text("APPLY") is None:
        raise refusal(f"VERSION_COLUMN is for tables with APPLY='{DIRECT}'.", at)
    if properties.text("APPLY") != DIRECT:
        raise refusal(f"APPLY must be '{DIRECT}', got '{properties.text('APPLY')}'.", at)
    if creation.kind != "TABLE" or not creation.is_source:
        raise refusal(f"APPLY='{DIRECT}' is for CREATE SOURCE TABLE only.", at)
    if source.window is not None:
        raise unsupported(f"{DIRECT_TABLE} over windowed keys", at)
    for name, instead in _REFUSED_KEYS.items():
        if name in properties.values:
            text = f"{DIRECT_TABLE} cannot have {name}: {instead}."
            raise refusal(text, properties.at(name))
    _check_formats(source, properties, at)
    if any(column.header is not None for column in source.columns):
        raise refusal(
            f"{DIRECT_TABLE} cannot have HEADER columns. Leave out APPLY, or the columns.", at
        )
    if not is_there:
        raise refusal(
            f"Topic '{source.topic}' does not exist. {DIRECT_TABLE} only reads what another program"
            " writes: create the topic first.",
            creation.at,
        )
    made = msgspec.structs.replace(
        source,
        table_id=context.table_id(creation.name),
        is_materialized=True,
        is_direct=True,
        version_column=_version_column(source, properties),
    )
    return CreateSourcePlan(source=made, if_not_exists=creation.if_not_exists)


def _check_formats(source: Source, properties: Properties, at: Position | None) -> None:
    """Bytes of a JSON or DELIMITED key may differ for one key, and decide its partition."""
    for part, given, known in (
        ("key", source.key_format, KEY_FORMATS),
        ("value", source.value_format, VALUE_FORMATS),
    ):
        if given not in known:
            raise refusal(
                f"{DIRECT_TABLE} cannot have {part}s of format {given}, only {' or '.join(known)}."
                " Leave out APPLY: a query then copies the topic.",
                properties.at(f"{part.upper()}_FORMAT") or at,
            )


def _version_column(source: Source, properties: Properties) -> str | msgspec.UnsetType:
    """VERSION_COLUMN, which is upper-cased unless quoted."""
    text, at = properties.text("VERSION_COLUMN"), properties.at("VERSION_COLUMN")
    if text is None:
        return msgspec.UNSET
    name = text.strip('`"') if text[:1] in ("`", '"') else text.upper()
    by_name = {column.name: column for column in source.value_columns}
    column = by_name.get(name)
    if column is None:
        message = f"The VERSION_COLUMN is not among the value columns: '{name}'"
        raise unknown_name(message, at, nearest(name, by_name))
    if column.type not in VERSION_TYPES:
        raise refusal(
            f"The VERSION_COLUMN {name} must be of type {', '.join(VERSION_TYPES[:-1])} or"
            f" {VERSION_TYPES[-1]}, not {column.type}.",
            at,
        )
    return name
