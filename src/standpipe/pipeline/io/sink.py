"""A query's result as records of its table topic: key, value, ROWTIME header, partition.

Formats: docs/INTERFACES.md, "Kafka topics". `records_of` belongs to the streaming plan, so that
`batch.py` has only the attempt left to add.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from standpipe.model import Column, Source
from standpipe.pipeline.io import java_functions, type_mapping
from standpipe.sql.types.types import parse_type

_KEEP_NULLS = {"ignoreNullFields": "false"}


def records_of(result: DataFrame, table: Source, *, has_own_key: bool = False) -> DataFrame:
    """Columns `key`, `value`, `rowtime` (the header's 8 bytes), and `partition` if windowed.

    `has_own_key`: a key of several columns is a key even if all of them are null.

    A table's row with a null in its key is left out, as in ksqlDB. Raises ValueError when the
    result's width or a format does not fit the table.
    """
    keys, values = table.key_columns, table.value_columns
    bounds = ("WINDOWSTART", "WINDOWEND") if table.window else ()
    names = [*(c.name for c in keys), *bounds, *(c.name for c in values), "__ROWTIME", "__LIVE"]
    if len(result.columns) != len(names):
        raise ValueError(
            f"the result has {len(result.columns)} columns, {table.name} needs {names}"
        )
    rows = result.toDF(*names)
    if table.kind == "TABLE":
        for column in keys:
            rows = rows.filter(_col(column.name).isNotNull())
    key = _key(keys, table, has_own_key=has_own_key)
    value = _value(values, table)
    columns = [
        _windowed(key, table).alias("key"),
        f.when(f.col("__LIVE"), value).alias("value"),
        _long_bytes("__ROWTIME").alias("rowtime"),
    ]
    if table.window:
        columns.append(java_functions.partition_column(key, table.partitions).alias("partition"))
    return rows.select(*columns)


def _windowed(key: SparkColumn, table: Source) -> SparkColumn:
    """Kafka Streams' windowed keys: a session's end comes before its start."""
    if table.window is None:
        return key
    if table.window.kind == "SESSION":
        return f.concat(key, _long_bytes("WINDOWEND"), _long_bytes("WINDOWSTART"))
    return f.concat(key, _long_bytes("WINDOWSTART"))


def _col(name: str) -> SparkColumn:
    return f.col("`" + name.replace("`", "``") + "`")


def _long_bytes(name: str) -> SparkColumn:
    """8 bytes, big-endian: what CAST AS BINARY makes of a BIGINT while ANSI mode is off."""
    return _col(name).cast("bigint").cast("binary")


def _on_wire(column: Column) -> SparkColumn:
    return type_mapping.to_wire(_col(column.name), parse_type(column.type)).alias(column.name)


def _key(columns: Sequence[Column], table: Source, *, has_own_key: bool) -> SparkColumn:
    """The key's bytes without its window. Raises ValueError for an unknown format."""
    if not columns:
        return f.lit(None).cast("binary")
    key_format = table.key_format
    # otherwise a key whose columns are all null is not a key
    is_there = f.lit(has_own_key and len(columns) > 1)
    for column in columns:
        is_there = is_there | _col(column.name).isNotNull()
    if key_format == "KAFKA" and len(columns) == 1:
        return _kafka_bytes(columns[0])
    if key_format == "JSON":
        text = _bare_json(columns[0]) if len(columns) == 1 else _json_object(columns)
        return f.when(is_there, text.cast("binary"))
    if key_format == "DELIMITED":
        return f.when(is_there, _delimited(columns, table.key_delimiter))
    raise ValueError(f"{len(columns)} key columns do not fit into format {key_format}")


def _kafka_bytes(column: Column) -> SparkColumn:
    if parse_type(column.type).base == "DOUBLE":
        return java_functions.double_bytes(_col(column.name))
    return _on_wire(column).cast("binary")  # UTF-8, or 4 or 8 bytes big-endian


def _delimited(columns: Sequence[Column], delimiter: str) -> SparkColumn:
    """One line of CSV, as `data.encoding.kafka_keys` writes it: Spark's to_csv has other quoting
    rules."""
    fields = [
        _in_csv(column, delimiter, is_first=not index) for index, column in enumerate(columns)
    ]
    return f.concat_ws(delimiter, *fields).cast("binary")


def _in_csv(column: Column, delimiter: str, *, is_first: bool) -> SparkColumn:
    base = parse_type(column.type).base
    value = _on_wire(column)
    # CSV cannot hold bytes: ksqlDB writes base64
    text = f.base64(_col(column.name)) if base == "BYTES" else value.cast("string")
    first = "^$|^[^0-9A-Za-z]|" if is_first else ""
    mark = "\\" + delimiter if not delimiter.isalnum() else delimiter
    special = f'(?s){first}^[\\x00-#]|[\\r\\n"{mark}]|[\\x00- ]$'
    quoted = f.concat(f.lit('"'), f.replace(text, f.lit('"'), f.lit('""')), f.lit('"'))
    if base in _BARE and not is_first and delimiter in _NEVER_IN_NUMBERS:
        return f.coalesce(text, f.lit(""))
    return f.coalesce(f.when(text.rlike(special), quoted).otherwise(text), f.lit(""))


#: types whose text holds digits, signs, points, E and the letters of true and false only
_BARE = frozenset({"BOOLEAN", "INTEGER", "BIGINT", "DECIMAL", "DATE", "TIME", "TIMESTAMP"})
_NEVER_IN_NUMBERS = frozenset(",;|\t ")


def _value(columns: Sequence[Column], table: Source) -> SparkColumn:
    if table.value_format == "NONE" or not columns:
        return f.lit(None).cast("binary")
    if table.value_format == "KAFKA" and len(columns) == 1:
        return _kafka_bytes(columns[0])
    if table.value_format == "DELIMITED":
        return _delimited(columns, table.value_delimiter)
    if table.value_format != "JSON":
        raise ValueError(f"cannot write values in format {table.value_format}")
    if not table.wrap_single_value and len(columns) == 1:
        return _bare_json(columns[0])
    return _json_object(columns)


def _json_object(columns: Sequence[Column]) -> SparkColumn:
    return f.to_json(f.struct(*(_on_wire(column) for column in columns)), _KEEP_NULLS)


def _bare_json(column: Column) -> SparkColumn:
    """to_json accepts no plain value: wrap the value in an array, then strip the brackets."""
    text = f.to_json(f.array(_on_wire(column)), _KEEP_NULLS)
    return f.substring(text, f.lit(2), f.length(text) - 2)
