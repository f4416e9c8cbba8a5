"""CREATE SOURCE TABLE: a topic that other programs write, as a table that answers pull queries.

PARTITIONS makes that topic if it is absent, as for every CREATE over a topic. One of our queries
copies it into a changelog: replicas then follow a topic whose records name their batch, as for
every table (docs/ARCHITECTURE.md, "The path of the data"). The changelog has JSON values, and keys
in the topic's format: lookups find a partition by the key's bytes. Those of a key in AVRO depend on
the id of its schema, so such keys are refused.
"""

from __future__ import annotations

import msgspec

from standpipe.model import PersistentQuery, Source
from standpipe.sql.context import Context
from standpipe.sql.declarations.properties import REGISTRY_FORMATS
from standpipe.sql.plans import CreateTableAsPlan
from standpipe.sql.spark import to_spark
from standpipe.sql.syntax.ast_statements import Creation
from standpipe.sql.syntax.errors import unsupported
from standpipe.sql.types.typed_expression import TypedColumn
from standpipe.sql.types.types import parse_type


def materialised(
    source: Source, creation: Creation, context: Context, *, create_topic: bool
) -> CreateTableAsPlan:
    """The table, and the query that maintains its changelog. `create_topic`: PARTITIONS was given
    and the topic is absent. Raises StatementError for windowed keys, and for keys in a format of a
    schema registry."""
    if source.window is not None:
        raise unsupported("CREATE SOURCE TABLE over windowed keys", creation.at)
    if source.key_format in REGISTRY_FORMATS:
        raise unsupported(f"CREATE SOURCE TABLE with KEY_FORMAT='{source.key_format}'", creation.at)
    table_id = context.table_id(creation.name)
    query_id = f"CST_{table_id}"
    relation = to_spark.SparkRelation.of(source, f"{table_id}__IN0", keeps_nulls=True)
    keys = tuple((c.name, TypedColumn(parse_type(c.type), c.name)) for c in source.key_columns)
    values = tuple((c.name, TypedColumn(parse_type(c.type), c.name)) for c in source.value_columns)
    rows = to_spark.Rows(relation=relation, keys=keys, values=values, exploded=(), where=None)
    query = PersistentQuery(
        query_id=query_id,
        sink=source.name,
        sources=(),  # it is dropped with its table, so it must not block the drop
        statement=source.statement,
        plan=to_spark.emit_rows(rows),
    )
    made = msgspec.structs.replace(
        source,
        query_id=query_id,
        table_id=table_id,
        is_materialized=True,
        changelog=f"{query_id}-changelog",
    )
    return CreateTableAsPlan(
        source=made,
        query=query,
        or_replace=creation.or_replace,
        if_not_exists=creation.if_not_exists,
        create_topic=create_topic,
    )
