"""A query's result as records of its table topic: key, value, ROWTIME header, partition.

Formats: docs/INTERFACES.md, "Kafka topics". `records_of` belongs to the streaming plan, so that
`batch.py` has only the attempt left to add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from msgspec import UNSET, UnsetType
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from standpipe.model import Column, Source
from standpipe.pipeline.io import java_functions, json_sr_rows, type_mapping
from standpipe.pipeline.io.avro import avro_rows
from standpipe.pipeline.io.sink_writer import UNWRITABLE
from standpipe.sql.declarations.properties import REGISTRY_FORMATS
from standpipe.sql.declarations.published import public_form
from standpipe.sql.declarations.registered import Part
from standpipe.sql.declarations.sink_schemas import Written, format_of, may_be_unwritable, wraps
from standpipe.sql.spark.group_sql import row_name
from standpipe.sql.types.types import parse_type

_KEEP_NULLS = {"ignoreNullFields": "false"}


def records_of(
    result: DataFrame,
    table: Source,
    *,
    has_own_key: bool = False,
    schemas: Written | UnsetType = UNSET,
) -> DataFrame:
    """Columns `key`, `value`, `rowtime` (the header's 8 bytes), and `partition` of a table.

    `has_own_key`: a key of several columns is a key even if all of them are null. `schemas`: those
    of the plan, of rows in AVRO or JSON_SR.

    Of a table with a copy in such a format, `public_key`, `public_value` and `public_partition` are
    those in its public topic. Where a schema may not have a row, `unwritable` says so; then the key
    or the value that it does not have is null.

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
    record = _Record(table, has_own_key=has_own_key, schemas=schemas)
    if table.kind == "TABLE":
        for column in keys:
            rows = rows.filter(record.col(column.name).isNotNull())
    value = record.value()
    columns = [
        record.windowed_key().alias("key"),
        (value.cast("binary") if table.public_formats else value).alias("value"),
        record.rowtime().alias("rowtime"),
    ]
    if table.kind == "TABLE":
        columns.append(record.partition().alias("partition"))
    public = _Record(public_form(table), has_own_key=has_own_key, schemas=schemas)
    if table.public_formats:
        columns += [
            public.windowed_key().alias("public_key"),
            public.value().alias("public_value"),
            public.public_partition().alias("public_partition"),
        ]
    if may_be_unwritable(public.table, schemas):
        columns.append(public.is_unwritable().alias(UNWRITABLE))
    return rows.select(*columns)


def group_records_of(result: DataFrame, tables: Mapping[int, Source]) -> DataFrame:
    """The result of `GroupPlan.sql` as records of these tables, by their numbers in `__TABLE`.

    Columns `__TABLE`, `key`, `value`, `rowtime` and `partition`; and the rows of tables that are
    not among them, all null. Raises ValueError when a format does not fit a table.
    """
    records = {number: _Record(table, row=row_name(number)) for number, table in tables.items()}
    # Spark would not compute what nothing reads, and its state would have another schema
    used = {"__TABLE", *map(row_name, tables)}
    others = [name for name in result.columns if name not in used]

    def of_each(part: Callable[[_Record], SparkColumn]) -> SparkColumn:
        chosen: Any = f
        for number, record in records.items():
            chosen = chosen.when(f.col("__TABLE") == number, part(record))
        return cast(SparkColumn, chosen)

    return result.select(
        "__TABLE",
        of_each(_Record.windowed_key).alias("key"),
        of_each(lambda record: record.value().cast("binary")).alias("value"),
        of_each(_Record.rowtime).alias("rowtime"),
        of_each(_Record.partition).alias("partition"),
        *others,
    )


def addressed(
    rows: DataFrame, table: Source, *, headers: str, topic: str, published_topic: str | None
) -> DataFrame:
    """The records of a batch as `sink_writer.write_fitting` takes them. `headers`, `topic`: SQL.

    Where rows are also written to a public topic, each is there twice: as the table's own topic has
    it, and as the public one, whose schema may lack it.
    """
    judged = [UNWRITABLE] if UNWRITABLE in rows.columns else []
    if published_topic is None:
        partition = ["partition"] if table.kind == "TABLE" else []
        judged = [] if table.public_formats else judged  # there is no copy yet
        return rows.selectExpr("key", "value", *partition, headers, f"{topic} AS topic", *judged)
    both = f"explode(array({topic}, '{published_topic}')) AS topic"
    copied, is_own = rows.selectExpr("*", headers, both), f"topic = '{table.topic}'"
    if not table.public_formats:
        # of the public topic, the partitions are not the catalog's
        partition = "partition" if table.window else f"IF({is_own}, partition, NULL)"
        return copied.selectExpr("key", "value", f"{partition} AS partition", "headers", "topic")
    either = [
        f"IF({is_own}, {name}, public_{name}) AS {name}" for name in ("key", "value", "partition")
    ]
    judged = [f"NOT ({is_own}) AND {name} AS {name}" for name in judged]
    return copied.selectExpr(*either, "headers", "topic", *judged)


@dataclass(frozen=True)
class _Record:
    """Expressions over the columns of a result; `row`: they are fields of this column. `schemas`:
    those of the plan."""

    table: Source
    has_own_key: bool = False
    row: str | None = None
    schemas: Written | UnsetType = UNSET

    def col(self, name: str) -> SparkColumn:
        quoted = "`" + name.replace("`", "``") + "`"
        return f.col(quoted if self.row is None else f"`{self.row}`.{quoted}")

    def rowtime(self) -> SparkColumn:
        return self._long_bytes("__ROWTIME")

    def partition(self) -> SparkColumn:
        """Among the partitions of the catalog. Kafka's producer counts those of the topic: once it
        had more, a key's new rows would be where no replica reads them."""
        return java_functions.partition_column(self._key(), self.table.partitions)

    def public_partition(self) -> SparkColumn:
        """In a public topic: Kafka's producer finds that of a key without a window."""
        return self.partition() if self.table.window else f.lit(None).cast("int")

    def is_unwritable(self) -> SparkColumn:
        """Whether the schema of the key, or of the value, does not have that of this row."""
        no_key = self._has_key() & self._key().isNull() if self.table.key_columns else f.lit(False)
        return no_key | (self.col("__LIVE") & self._has_value() & self._value().isNull())

    def windowed_key(self) -> SparkColumn:
        """Kafka Streams' windowed keys: a session's end comes before its start."""
        window = self.table.window
        if window is None:
            return self._key()
        if window.kind == "SESSION":
            bounds = (self._long_bytes("WINDOWEND"), self._long_bytes("WINDOWSTART"))
            return f.concat(self._key(), *bounds)
        return f.concat(self._key(), self._long_bytes("WINDOWSTART"))

    def value(self) -> SparkColumn:
        """Null, a tombstone, for a row that is not live."""
        return f.when(self.col("__LIVE"), self._value())

    def _long_bytes(self, name: str) -> SparkColumn:
        """8 bytes, big-endian."""
        return java_functions.big_endian(self.col(name), "BIGINT")

    def _on_wire(self, column: Column) -> SparkColumn:
        wire = type_mapping.to_wire(self.col(column.name), parse_type(column.type))
        return wire.alias(column.name)

    def _key(self) -> SparkColumn:
        """The key's bytes without its window. Raises ValueError for an unknown format."""
        columns = self.table.key_columns
        if not columns:
            return f.lit(None).cast("binary")
        key_format = self.table.key_format
        is_there = self._has_key()
        if key_format == "KAFKA" and len(columns) == 1:
            return self._kafka_bytes(columns[0])
        if key_format == "JSON":
            bare = len(columns) == 1
            text = self._bare_json(columns[0]) if bare else self._json_object(columns)
            return f.when(is_there, text.cast("binary"))
        if key_format == "DELIMITED":
            return f.when(is_there, self._delimited(columns, self.table.key_delimiter))
        if key_format in REGISTRY_FORMATS:
            return f.when(is_there, self._under_schema("KEY", columns))
        raise ValueError(f"{len(columns)} key columns do not fit into format {key_format}")

    def _has_key(self) -> SparkColumn:
        """Otherwise a key whose columns are all null is not a key."""
        columns = self.table.key_columns
        is_there = f.lit(self.has_own_key and len(columns) > 1)
        for column in columns:
            is_there = is_there | self.col(column.name).isNotNull()
        return is_there

    def _has_value(self) -> SparkColumn:
        """A bare value with a schema that is null is no value, as in ksqlDB."""
        columns = self.table.value_columns
        is_bare = len(columns) == 1 and not self.table.wrap_single_value
        return self.col(columns[0].name).isNotNull() if is_bare else f.lit(bool(columns))

    def _under_schema(self, part: Part, columns: Sequence[Column]) -> SparkColumn:
        values = [(column, self.col(column.name)) for column in columns]
        if format_of(self.table, part) == "AVRO":
            return avro_rows.written(part, values)
        schema = self.schemas[part != "KEY"] if self.schemas else None
        if schema is None:
            raise ValueError(f"the plan has no schema of the {part.lower()}s of {self.table.name}")
        return json_sr_rows.written(schema, values, wraps=wraps(self.table, part))

    def _value(self) -> SparkColumn:
        table, columns = self.table, self.table.value_columns
        if table.value_format == "NONE" or not columns:
            return f.lit(None).cast("binary")
        if table.value_format == "KAFKA" and len(columns) == 1:
            return self._kafka_bytes(columns[0])
        if table.value_format == "DELIMITED":
            return self._delimited(columns, table.value_delimiter)
        if table.value_format in REGISTRY_FORMATS:
            return f.when(self._has_value(), self._under_schema("VALUE", columns))
        if table.value_format != "JSON":
            raise ValueError(f"cannot write values in format {table.value_format}")
        if not table.wrap_single_value and len(columns) == 1:
            return self._bare_json(columns[0])
        return self._json_object(columns)

    def _kafka_bytes(self, column: Column) -> SparkColumn:
        base = parse_type(column.type).base
        if base == "DOUBLE":
            return java_functions.double_bytes(self.col(column.name))
        if base in ("INTEGER", "BIGINT"):
            return java_functions.big_endian(self.col(column.name), base)
        return self._on_wire(column).cast("binary")  # UTF-8

    def _delimited(self, columns: Sequence[Column], delimiter: str) -> SparkColumn:
        """One line of CSV, as `data.encoding.kafka_keys` writes it: Spark's to_csv has other
        quoting rules."""
        fields = [
            self._in_csv(column, delimiter, is_first=not index)
            for index, column in enumerate(columns)
        ]
        return f.concat_ws(delimiter, *fields).cast("binary")

    def _in_csv(self, column: Column, delimiter: str, *, is_first: bool) -> SparkColumn:
        base = parse_type(column.type).base
        value = self._on_wire(column)
        # CSV cannot hold bytes: ksqlDB writes base64
        text = f.base64(self.col(column.name)) if base == "BYTES" else value.cast("string")
        first = "^$|^[^0-9A-Za-z]|" if is_first else ""
        mark = "\\" + delimiter if not delimiter.isalnum() else delimiter
        special = f'(?s){first}^[\\x00-#]|[\\r\\n"{mark}]|[\\x00- ]$'
        quoted = f.concat(f.lit('"'), f.replace(text, f.lit('"'), f.lit('""')), f.lit('"'))
        if base in _BARE and not is_first and delimiter in _NEVER_IN_NUMBERS:
            return f.coalesce(text, f.lit(""))
        return f.coalesce(f.when(text.rlike(special), quoted).otherwise(text), f.lit(""))

    def _json_object(self, columns: Sequence[Column]) -> SparkColumn:
        return f.to_json(f.struct(*(self._on_wire(column) for column in columns)), _KEEP_NULLS)

    def _bare_json(self, column: Column) -> SparkColumn:
        """to_json accepts no plain value: wrap the value in an array, then strip the brackets."""
        text = f.to_json(f.array(self._on_wire(column)), _KEEP_NULLS)
        return f.substring(text, f.lit(2), f.length(text) - 2)


#: types whose text holds digits, signs, points, E and the letters of true and false only
_BARE = frozenset({"BOOLEAN", "INTEGER", "BIGINT", "DECIMAL", "DATE", "TIME", "TIMESTAMP"})
_NEVER_IN_NUMBERS = frozenset(",;|\t ")
