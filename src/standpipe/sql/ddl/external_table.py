"""CREATE TABLE … WITH (WRITER='EXTERNAL'): a table that an application of a user writes.

The application is a Spark job with `standpipe.spark`. It commits its batches by the protocol that
pipelines use, so the table is served like that of a CREATE TABLE AS. Its query is in the catalog
for its lease, its state and its progress records; the plan is empty, since only the application
knows it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from standpipe.model import PersistentQuery, Source, SparkPlan
from standpipe.sql.context import Context
from standpipe.sql.declarations.added_columns import external_query_id
from standpipe.sql.declarations.properties import Properties
from standpipe.sql.declarations.published import is_registered
from standpipe.sql.plans import CreateTableAsPlan
from standpipe.sql.syntax.ast_statements import Creation
from standpipe.sql.syntax.errors import refusal, unsupported

EXTERNAL: Final = "EXTERNAL"
_PLAN: Final = SparkPlan(version=1, inputs=(), sql="", output_mode="update", is_windowed=False)


def declared(
    source: Source, creation: Creation, properties: Properties, context: Context
) -> CreateTableAsPlan:
    """The table, and the query under whose lease it is written. Raises StatementError for what an
    application cannot write."""
    at = properties.at("WRITER") or creation.at
    if properties.text("WRITER") != EXTERNAL:
        raise refusal(f"WRITER must be '{EXTERNAL}', got '{properties.text('WRITER')}'.", at)
    if creation.kind != "TABLE" or creation.is_source:
        raise refusal(f"WRITER='{EXTERNAL}' is for CREATE TABLE only.", at)
    if creation.or_replace:
        raise unsupported(f"CREATE OR REPLACE of a table with WRITER='{EXTERNAL}'", at)
    if source.window is not None and source.window.kind == "SESSION":
        raise unsupported(f"A table of session windows with WRITER='{EXTERNAL}'", at)
    if source.timestamp_column or any(column.header is not None for column in source.columns):
        raise refusal(
            f"A table with WRITER='{EXTERNAL}' has no TIMESTAMP and no HEADER columns: its writer"
            " sets the time of each row.",
            at,
        )
    if is_registered(source):
        raise unsupported(f"A table in AVRO or JSON_SR with WRITER='{EXTERNAL}'", creation.at)
    table_id = context.table_id(creation.name)
    query = PersistentQuery(
        query_id=external_query_id(table_id),
        sink=source.name,
        sources=(),
        statement=source.statement,
        plan=msgspec.structs.replace(_PLAN, is_windowed=source.window is not None),
        is_external=True,
    )
    made = msgspec.structs.replace(
        source, query_id=query.query_id, table_id=table_id, is_materialized=True
    )
    return CreateTableAsPlan(source=made, query=query, if_not_exists=creation.if_not_exists)
