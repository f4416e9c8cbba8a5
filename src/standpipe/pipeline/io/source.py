"""A source topic as the view that a query's SQL reads: parsed, counted, with a watermark.

    Kafka records → cut where too large → key and value parsed → bad ones counted (`observe`) and
    left out → the view

The view has the declared columns and ROWTIME (BIGINT, ms), ROWPARTITION, ROWOFFSET, `__TS`
(TIMESTAMP of ROWTIME, with the watermark) and `__ORDER` (BIGINT, grows with the offset: the order
of LATEST_BY_OFFSET). A bad record is never dropped silently: `observe` counts it inside the plan,
and `bad_records.py` runs the same parser over the batch's offsets to sample it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from standpipe.config.keys import RECORD_BYTES_MAX
from standpipe.data.encoding.framed_values import FRAME_BYTES
from standpipe.data.encoding.store_keys import HEADER_ROWTIME, OWN_HEADERS
from standpipe.model import Column, SparkInput
from standpipe.pipeline.io import java_functions, loose_json, type_mapping
from standpipe.pipeline.io.avro.avro_source import avro_stream
from standpipe.pipeline.io.avro.writer_schemas import parts_of
from standpipe.pipeline.io.checkpoint_path import CheckpointPath
from standpipe.pipeline.io.committed_source import Upstream, committed_stream
from standpipe.pipeline.io.kafka_options import KafkaReads, needs_headers, one_task_per_core
from standpipe.pipeline.io.type_mapping import CORRUPT
from standpipe.pipeline.io.windowed_keys import raw_key, window_bounds
from standpipe.sql.declarations.properties import JSON_FORMATS
from standpipe.sql.types.types import INSTANT_MS_MAX, parse_type, quoted

_CORRUPT_FIELD = t.StructField(CORRUPT, t.StringType())
_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT} | loose_json.STRICT
#: how much of a bad record's key and value a sample shows
RAW_BYTES_MAX = 512
#: `__ORDER` = offset * this + partition: unique in a topic, and in the order of offsets
ORDER_PARTITIONS_MAX = 65_536


def metrics_name(source: SparkInput) -> str:
    """The name of the counts of `open_view` among a batch's observed metrics."""
    return f"records:{source.view}"


def open_view(
    spark: SparkSession,
    source: SparkInput,
    reads: KafkaReads,
    upstream: Upstream | None,
    directory: CheckpointPath,
) -> None:
    """Register the temporary view `source.view` in this session.

    `upstream`: our query that writes the topic, if any; only what it committed is then visible.
    `directory`: the checkpoint of the query that reads. Raises SchemaRegistryUnavailable.
    """
    if upstream is not None:
        # even if the topic was declared a second time: its ROWTIME is in a header
        source = structs.replace(source, is_ours=True)
    if parts_of(source):
        records = avro_stream(spark, source, reads, upstream, directory)
    elif upstream is None:
        starts, headers = source.starts or None, needs_headers(source)
        records = reads.stream(spark, source.topic, headers=headers, starts=starts)
    else:
        records = committed_stream(spark, reads, source, upstream)
    rows = parse(one_task_per_core(records), source, bytes_max=reads.config[RECORD_BYTES_MAX])
    is_bad = f.col("__bad").isNotNull()
    rows = rows.observe(metrics_name(source), f.count_if(is_bad).alias("bad"))
    rows = rows.filter("__bad IS NULL")
    if not source.keeps_nulls:  # a null value is not an event (ksqlDB skips it too)
        rows = rows.filter("NOT __null_value")
    rows = rows.select(*visible_columns(source))
    if source.watermark_delay_ms is not None:
        # Spark drops rows of windows that ended at the watermark or before
        rows = rows.withWatermark("__TS", f"{source.watermark_delay_ms} milliseconds")
    rows.createOrReplaceTempView(source.view)


def parse(records: DataFrame, source: SparkInput, *, bytes_max: int) -> DataFrame:
    """Kafka records with parsed `__key` and `__value`; `__bad` is the reason, or null if good.

    Also works on a batch. Parts in AVRO are columns of `records` already (`io/avro`). Keeps `key`,
    `value`, `partition`, `offset`, `timestamp`; for a record of more than `bytes_max` bytes, only
    the heads of key and value.
    """
    records = _cut(records, bytes_max)
    keys = tuple(column for column in source.columns if column.is_key)
    values = tuple(
        column for column in source.columns if not column.is_key and column.header is None
    )
    has_key = bool(keys) and source.key_format != "NONE"
    avro = {part.name: f.col(part.column) for part in parts_of(source)}
    parsed = records.select(
        "key",
        "value",
        "partition",
        "offset",
        "timestamp",
        *(["headers"] if needs_headers(source) else []),
        *window_bounds(source),
        (avro["key"] if "key" in avro else _parsed_key(source, keys)).alias("__key"),
        (avro["value"] if "value" in avro else _parsed_value(source, values)).alias("__value"),
        f.col("value").isNull().alias("__null_value"),
        "__too_large",
    )
    if source.value_format in JSON_FORMATS and values:
        parsed = _reread_json(parsed, source, values)
    timed = parsed.withColumn("ROWTIME", _rowtime(source))
    # a row of a table must have a key
    no_key = f.col("key").isNull() if has_key and source.is_table else f.lit(False)
    bad = (
        f.when(f.col("__too_large"), f.lit("TOO_LARGE"))
        .when(no_key, f.lit("NULL_KEY"))
        .when(_is_corrupt("__key", "key"), f.lit("KEY"))
        .when(_is_corrupt("__value", "value"), f.lit("VALUE"))
        .when(f.col("value").isNotNull() & ~_is_instant("ROWTIME"), f.lit("TIMESTAMP"))
    )
    return timed.withColumn("__bad", bad)


def _cut(records: DataFrame, bytes_max: int) -> DataFrame:
    """Truncate key and value of a record that is too large: parsers would hold several copies of
    it, and a sample shows no more than the head."""
    size = f.coalesce(f.octet_length("key"), f.lit(0)).cast("bigint")
    size += f.coalesce(f.octet_length("value"), f.lit(0))

    def head(name: str) -> SparkColumn:
        start = f.substring(f.col(name), f.lit(1), f.lit(RAW_BYTES_MAX))
        return f.when(f.col("__too_large"), start).otherwise(f.col(name))

    marked = records.withColumn("__too_large", size > bytes_max)
    return marked.withColumns({name: head(name) for name in ("key", "value")})


def _is_instant(name: str) -> SparkColumn:
    """Kafka Streams drops times before the epoch; Spark fails on times beyond its own maximum."""
    return f.coalesce(f.col(name).between(0, INSTANT_MS_MAX - 1), f.lit(False))


#: numbers that a JSON key may also hold as text (in ksqlDB, {"ID": "10"} is a 10)
_NUMBERS = (t.IntegerType, t.LongType, t.DoubleType)


def _parsed_key(source: SparkInput, keys: tuple[Column, ...]) -> SparkColumn:
    delimiter, raw = source.key_delimiter or ",", raw_key(source)
    wrapped = len(keys) != 1
    if source.key_format not in JSON_FORMATS or not keys:
        return _parsed(raw, keys, source.key_format, wrapped=wrapped, delimiter=delimiter)
    schema = type_mapping.wire_schema(keys, any_case=True)
    plain = _with_text(schema, _NUMBERS).add(_CORRUPT_FIELD)
    text = _json_text(_json_bytes(raw, source.key_format), keys, wrapped=wrapped)
    parsed = f.from_json(text, plain, _OPTIONS)
    if not any(isinstance(field.dataType, _NUMBERS) for field in schema):
        return parsed
    return _reread(parsed, schema, _NUMBERS, lambda part, kind: part.cast(kind))


def _parsed_value(source: SparkInput, values: tuple[Column, ...]) -> SparkColumn:
    wrapped = source.wrap_single_value or len(values) != 1
    delimiter = source.value_delimiter
    return _parsed(
        f.col("value"), values, source.value_format, wrapped=wrapped, delimiter=delimiter
    )


def _json_bytes(raw: SparkColumn, format_: str) -> SparkColumn:
    """The JSON of a key or a value: in JSON_SR what is behind 0 and the id of a schema, which need
    not exist, as nodes and ksqlDB read it; null if it does not begin with these five bytes."""
    if format_ != "JSON_SR":
        return raw
    has_frame = (f.octet_length(raw) >= FRAME_BYTES) & f.startswith(raw, f.lit(bytearray(1)))
    return f.when(has_frame, f.substring(raw, f.lit(FRAME_BYTES + 1), f.octet_length(raw)))


def _json_text(raw: SparkColumn, columns: tuple[Column, ...], *, wrapped: bool) -> SparkColumn:
    """The text of a JSON object; null for bytes that are not UTF-8."""
    text = f.try_validate_utf8(raw.cast("string"))
    if wrapped:
        return text
    name = columns[0].name.replace("\\", "\\\\").replace('"', '\\"')
    return f.concat(f.lit(f'{{"{name}":'), text, f.lit("}"))


def _reread_json(rows: DataFrame, source: SparkInput, values: tuple[Column, ...]) -> DataFrame:
    """Values as ksqlDB reads them, where Spark's parser missed something.

    A separate step: in one expression with the parser, the parser would run twice per record.
    """
    wrapped = source.wrap_single_value or len(values) != 1
    found = _json_bytes(f.col("value"), source.value_format)
    text = _json_text(found, values, wrapped=wrapped)
    missed = loose_json.may_be_missed(text, values)
    again = text.isNotNull() & (_is_corrupt("__value", "value") | missed)
    schema = type_mapping.wire_schema(values, any_case=True).add(_CORRUPT_FIELD)
    takes_entries = source.value_format == "JSON_SR"
    again_text = loose_json.rewritten(text, values, takes_entries=takes_entries)
    loose = f.from_json(again_text, schema, _OPTIONS)
    return rows.withColumn("__value", f.when(again, loose).otherwise(f.col("__value")))


def _parsed(
    part: SparkColumn, columns: tuple[Column, ...], format_: str, *, wrapped: bool, delimiter: str
) -> SparkColumn:
    """A struct of the wire types of `columns` and `__corrupt`; null if `part` is null.

    Raises ValueError for an unsupported format.
    """
    # null for bytes that are not UTF-8: decode() would raise, and one record would stop the query
    text = f.try_validate_utf8(part.cast("string"))
    if format_ == "NONE" or not columns:
        return f.struct(f.lit(None).cast("string").alias(CORRUPT))
    if format_ == "KAFKA":
        return _parsed_kafka(part, columns)
    if format_ in JSON_FORMATS:
        schema = type_mapping.wire_schema(columns, any_case=True).add(_CORRUPT_FIELD)
        found = _json_bytes(part, format_)
        return f.from_json(_json_text(found, columns, wrapped=wrapped), schema, _OPTIONS)
    if format_ == "DELIMITED":
        line = f.regexp_replace(text, r"(?:\r\n|\r|\n)\z", "")  # as programs send that write lines
        return _parsed_csv(line, columns, _OPTIONS | {"sep": delimiter, "escape": '"'})
    raise ValueError(f"format {format_} is not supported")


def _parsed_csv(
    text: SparkColumn, columns: tuple[Column, ...], options: dict[str, str]
) -> SparkColumn:
    """BYTES are base64 in CSV (ksqlDB); Spark would take the bytes of the text itself."""
    schema = type_mapping.wire_schema(columns, any_case=False)
    plain = _with_text(schema, (t.BinaryType,)).add(_CORRUPT_FIELD)
    fields = [f"{quoted(each.name)} {each.dataType.simpleString()}" for each in plain]
    parsed = f.from_csv(text, f.lit(", ".join(fields)), options)
    if not any(isinstance(field.dataType, t.BinaryType) for field in schema):
        return parsed
    return _reread(
        parsed, schema, (t.BinaryType,), lambda part, _: f.try_to_binary(part, f.lit("base64"))
    )


def _with_text(schema: t.StructType, kinds: tuple[type[t.DataType], ...]) -> t.StructType:
    """The schema with STRING in place of types of these kinds."""
    text = t.StringType()
    return t.StructType(
        [
            t.StructField(each.name, text if isinstance(each.dataType, kinds) else each.dataType)
            for each in schema
        ]
    )


def _reread(
    parsed: SparkColumn,
    schema: t.StructType,
    kinds: tuple[type[t.DataType], ...],
    read: Callable[[SparkColumn, t.DataType], SparkColumn],
) -> SparkColumn:
    """Converts fields that `_with_text` parsed as text to the schema's types; text that `read`
    cannot convert is corrupt."""
    fields: list[SparkColumn] = []
    unread: list[SparkColumn] = []
    for each in schema:
        part = parsed.getField(each.name)
        if isinstance(each.dataType, kinds):
            made = read(part, each.dataType)
            unread.append(f.when(part.isNotNull() & made.isNull(), part))
            part = made
        fields.append(part.alias(each.name))
    corrupt = f.coalesce(parsed.getField(CORRUPT), *unread).alias(CORRUPT)
    return f.when(parsed.isNotNull(), f.struct(*fields, corrupt))


def _parsed_kafka(raw: SparkColumn, columns: tuple[Column, ...]) -> SparkColumn:
    """One column of ksqlDB's KAFKA format: big-endian numbers, UTF-8 text, bytes."""
    if len(columns) != 1:
        raise ValueError("the KAFKA format holds one column")
    column = columns[0]
    base = parse_type(column.type).base
    if base == "STRING":
        value, width = f.try_validate_utf8(raw.cast("string")), None
    elif base == "BYTES":
        value, width = raw, None
    elif base == "DOUBLE":
        value, width = java_functions.bytes_double(raw), 8
    elif base in ("BIGINT", "TIMESTAMP"):
        value, width = f.conv(f.hex(raw), 16, -10).cast("bigint"), 8
    elif base in ("INTEGER", "DATE", "TIME"):
        unsigned = f.conv(f.hex(raw), 16, 10).cast("bigint")
        value = f.when(unsigned < 2**31, unsigned).otherwise(unsigned - 2**32).cast("int")
        width = 4
    else:
        raise ValueError(f"the KAFKA format holds no {column.type}")
    fits = value.isNotNull() if width is None else f.octet_length(raw) == width
    corrupt = f.when(~fits, f.hex(raw)).cast("string")
    fields = f.struct(f.when(fits, value).alias(column.name), corrupt.alias(CORRUPT))
    return f.when(raw.isNotNull(), fields)


def _is_corrupt(struct: str, raw: str) -> SparkColumn:
    """Blank text counts too: Spark's parsers return a null struct for it without an error."""
    unparsed = f.col(struct).isNull() & f.col(raw).isNotNull()
    return unparsed | f.col(struct).getField(CORRUPT).isNotNull()


def _value_column(source: SparkInput, name: str) -> SparkColumn:
    column = next(column for column in source.columns if column.name == name)
    if column.header is not None:
        return _header_column(column)
    part, format_ = ("__key", source.key_format) if column.is_key else ("__value", "")
    any_case = (format_ or source.value_format) in JSON_FORMATS
    beside = [
        each for each in source.columns if each.header is None and each.is_key == column.is_key
    ]
    return type_mapping.fields_of(f.col(part), beside, any_case=any_case)[name]


def _header_column(column: Column) -> SparkColumn:
    """All headers as ksqlDB shows them, or the last value under one key."""
    headers = f.coalesce(
        f.filter("headers", lambda header: ~header["key"].isin(*OWN_HEADERS)), f.array()
    )
    if column.header == "":
        return f.transform(
            headers, lambda each: f.struct(each["key"].alias("KEY"), each["value"].alias("VALUE"))
        )
    found = f.filter(headers, lambda header: header["key"] == column.header)
    return f.try_element_at(found, f.lit(-1)).getField("value")


def _rowtime(source: SparkInput) -> SparkColumn:
    """ROWTIME in ms: the record's own timestamp, or the column that WITH (TIMESTAMP=…) names."""
    if source.timestamp_column is None and source.is_ours:
        own = f.filter("headers", lambda header: header["key"] == HEADER_ROWTIME)
        written = f.conv(f.hex(f.get(own, f.lit(0)).getField("value")), 16, -10).cast("bigint")
        return f.coalesce(written, f.unix_millis(f.col("timestamp")))
    if source.timestamp_column is None:
        return f.unix_millis(f.col("timestamp"))
    column = _value_column(source, source.timestamp_column)
    if source.timestamp_format is not None:
        pattern = f.lit(source.timestamp_format)
        return f.call_function("standpipe_instant", column, pattern, f.lit("UTC"))
    declared = next(c for c in source.columns if c.name == source.timestamp_column)
    if parse_type(declared.type).base == "TIMESTAMP":
        return f.unix_millis(column)
    return column.cast("bigint")


def visible_columns(source: SparkInput) -> list[SparkColumn]:
    """What the view has, of rows that `parse` returned and that are not bad."""
    return [
        *(_value_column(source, column.name).alias(column.name) for column in source.columns),
        *(f.col(name) for name in ("WINDOWSTART", "WINDOWEND") if source.window is not None),
        *([(~f.col("__null_value")).alias("__PRESENT")] if source.keeps_nulls else []),
        f.col("ROWTIME"),
        f.col("partition").alias("ROWPARTITION"),
        f.col("offset").alias("ROWOFFSET"),
        f.timestamp_millis(f.col("ROWTIME") + source.time_shift_ms).alias("__TS"),
        (f.col("offset") * ORDER_PARTITIONS_MAX + f.col("partition")).alias("__ORDER"),
    ]
