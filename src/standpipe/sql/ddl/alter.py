"""ALTER STREAM and TABLE … ADD COLUMN: the source with more value columns.

Running queries keep the columns that they started with, as in ksqlDB. Of the tables that a query
writes, only those get more whose writer is an application: it writes them once it knows them, and
the rows that are there stay as they are (`sql/declarations/added_columns.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from standpipe.model import Column, Source
from standpipe.sql.context import Context
from standpipe.sql.declarations import formats
from standpipe.sql.declarations.added_columns import ADDED_MAX, count_added, count_first, may_grow
from standpipe.sql.declarations.checks import check_definition
from standpipe.sql.declarations.registered import check_own_schemas, given_id
from standpipe.sql.plans import AlterSourcePlan
from standpipe.sql.syntax.ast_statements import AlterSource, ColumnDefinition
from standpipe.sql.syntax.errors import nearest, refusal, unknown_name


def alter_source(
    statement: AlterSource, sources: Mapping[str, Source], _context: Context
) -> AlterSourcePlan:
    """Raises StatementError if the source does not exist, is not alterable, or has the column."""
    source = _target(statement, sources)
    columns = list(source.columns)
    for definition in statement.additions:
        columns.append(_column(definition, columns))
    values = [column for column in columns if not column.is_key and column.header is None]
    formats.check_columns(values, source.value_format, "Value", statement.at)
    if schema_id := given_id(source, "VALUE"):
        raise refusal(
            f"Cannot alter {source.kind.lower()} '{source.name}': its columns are those of schema"
            f" {schema_id}. CREATE OR REPLACE it from a newer one.",
            statement.at,
        )
    check_own_schemas(replace(source, columns=tuple(columns)), statement.at)
    if not source.wrap_single_value and len(values) > 1:
        raise refusal("'WRAP_SINGLE_VALUE' is only valid for single-field value schemas")
    altered = replace(source, columns=tuple(columns))
    return AlterSourcePlan(
        source=_grown(source, altered, statement) if may_grow(source) else altered
    )


def _grown(source: Source, altered: Source, statement: AlterSource) -> Source:
    """A table that an application writes: it notes how many columns it began with."""
    altered = replace(altered, columns_first=count_first(source))
    if count_added(altered) > ADDED_MAX:
        raise refusal(
            f"Cannot alter table '{source.name}': at most {ADDED_MAX} columns can be added to a"
            f" table that an application writes, and {count_added(source)} were.",
            statement.at,
        )
    return altered


def _target(statement: AlterSource, sources: Mapping[str, Source]) -> Source:
    name, kind = statement.name, statement.kind
    source = sources.get(name)
    if source is None:
        raise unknown_name(f"Source {name} does not exist.", statement.at, nearest(name, sources))
    if source.kind != kind:
        raise refusal(
            f"Incompatible data source type is {source.kind}, but statement was ALTER {kind}",
            statement.at,
        )
    if source.is_read_only:
        raise refusal(
            f"Cannot alter {kind.lower()} '{name}': ALTER operations are not supported on source"
            f" {kind.lower()}s.",
            statement.at,
        )
    if source.query_id is not None and not may_grow(source):
        raise refusal("ALTER command is not supported for CREATE ... AS statements.", statement.at)
    return source


def _column(definition: ColumnDefinition, there: list[Column]) -> Column:
    name, at = definition.name, definition.at
    if any(column.name == name for column in there):
        raise refusal(
            f"Cannot add column `{name}` to schema. A column with the same name already exists.", at
        )
    check_definition(definition)
    return Column(name=name, type=str(definition.type))
