"""Checks for every CREATE, wherever its columns come from: names, topics, timestamps.

CREATE over a topic, CREATE … AS SELECT and ALTER call them. A check either returns or raises
StatementError with ksqlDB's text.

Not here: the keys of a WITH clause (`properties.py`), what a format can carry (`formats.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from standpipe.model import Column, Source
from standpipe.sql.context import Context
from standpipe.sql.declarations import formats, names
from standpipe.sql.declarations.properties import Properties
from standpipe.sql.expressions.scope import RESERVED
from standpipe.sql.functions import time_patterns
from standpipe.sql.functions.cast import check_known
from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.ast_statements import ColumnDefinition, Creation
from standpipe.sql.syntax.errors import nearest, refusal, unknown_name
from standpipe.sql.types.types import quoted
from standpipe.topics import TopicRules

#: the names that Kafka accepts for a topic
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_free(creation: Creation, sources: Mapping[str, Source]) -> None:
    """Refuses a name that is taken, unless the statement allows for it (OR REPLACE, …); and one
    that must not be given."""
    known = sources.get(creation.name)
    if known is None:
        names.check_name(creation.kind.lower(), creation.name, creation.at)
    kind = creation.kind.lower()
    if creation.or_replace and (creation.is_source or (known is not None and known.is_read_only)):
        raise refusal(
            f"Cannot add {kind} '{creation.name}': CREATE OR REPLACE is not supported on source"
            f" {kind}s.",
            creation.at,
        )
    if known is None or creation.if_not_exists:
        return
    if creation.or_replace and known.kind == creation.kind:
        return
    raise refusal(
        f"Cannot add {creation.kind.lower()} '{creation.name}': A {known.kind.lower()} with the"
        " same name already exists",
        creation.at,
    )


def check_own_name(name: str, at: Position) -> None:
    """Refuses names that Standpipe reserves, or that Spark would read as a variable."""
    if "${" in name:
        raise refusal(f"'{name}': names that hold ${{ are reserved.", at)
    if names.is_own(name):
        other = name.swapcase()
        kept = "" if names.is_own(other) else f", or keep the case of the field: `{other}`"
        raise refusal(f"'{name}' is a name that Standpipe itself uses. Use another{kept}.", at)


def check_definition(definition: ColumnDefinition) -> None:
    """Refuses a declared column whose name is reserved or whose type is unknown."""
    name, at = definition.name, definition.at
    if name in RESERVED:
        raise refusal(
            f"'{name}' is a reserved column name. You cannot use it as a name for a column.", at
        )
    names.check_columns((name,), at)
    names.check_marks("field", str(definition.type), at)
    check_own_name(name, at)
    check_known(definition.type, at)


def check_topic_name(topic: str, rules: TopicRules, at: Position | None) -> None:
    """Refuses a topic that no statement may name. Every clause that names one calls this."""
    names.check_marks("topic", topic, at)
    if why := rules.refusal(topic):
        raise refusal(why, at)


def check_writable_topic(
    source: Source, sources: Mapping[str, Source], rules: TopicRules, at: Position | None
) -> None:
    """Refuses to write into a source's topic if that is internal, which a source of an older
    release may have, or if it is a table's: only the table's query may write it."""
    check_topic_name(source.topic, rules, at)
    for table in sources.values():
        is_written = table.kind == "TABLE" and table.query_id is not None
        own = {table.changelog} if table.changelog else {table.topic, table.public_topic}
        if is_written and table.name != source.name and source.topic in own:
            raise refusal(
                f"Cannot insert into {source.name}: its topic '{source.topic}' is that of table"
                f" {table.name}, which query {table.query_id} writes.",
                at,
            )


def check_topic(
    topic: str,
    partitions: int,
    context: Context,
    properties: Properties,
    at: Position,
) -> bool:
    """Whether the topic already exists. Raises StatementError if its partitions differ, if no
    statement may name it, or if Kafka would reject the name."""
    named_at = properties.at("KAFKA_TOPIC") or at
    check_topic_name(topic, context.rules, named_at)
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise refusal(
            f"Invalid topic name: '{topic}'. Kafka takes up to 249 letters, digits, '.', '_' and"
            " '-'; name another with KAFKA_TOPIC.",
            named_at,
        )
    present = context.topics.get(topic)
    if present is not None and present != partitions:
        raise refusal(
            f"A Kafka topic with the name '{topic}' already exists, with different"
            f" partition/replica configuration than required. KSQL expects {partitions} partitions"
            f" (topic has {present}).",
            properties.at("PARTITIONS") or at,
        )
    return present is not None


def check_own_topic(
    topic: str, creation: Creation, sources: Mapping[str, Source], properties: Properties
) -> None:
    """Refuses the topic of a result, or of a table that an application writes, if another source
    has it. ksqlDB lets several queries write one topic; here, its progress records name one."""
    for other in sources.values():
        if topic not in (other.topic, other.public_topic) or other.name == creation.name:
            continue
        takes_rows = creation.kind == other.kind == "STREAM" and not other.is_read_only
        raise refusal(
            f"Topic '{topic}' already belongs to {other.kind} {other.name}.",
            properties.at("KAFKA_TOPIC") or creation.at,
            f"INSERT INTO {other.name} SELECT … adds rows to it."
            if takes_rows
            else "Name another KAFKA_TOPIC.",
        )


def check_declared(columns: Sequence[Column], creation: Creation) -> None:
    """Refuses two declared columns with one name, and names that cannot be seen as they are."""
    names.check_columns((column.name for column in columns), creation.at)
    counts = Counter(column.name for column in columns)
    if twice := [quoted(name) for name, count in counts.items() if count > 1]:
        raise refusal(f"Duplicate column names: {', '.join(twice)}", creation.at)


def check_unique(columns: Sequence[Column], creation: Creation) -> None:
    """Refuses two columns of a result with one name, including a key column and a value column; and
    names that cannot be seen as they are."""
    names.check_columns((column.name for column in columns), creation.at)
    for is_key, part in ((True, "key"), (False, "value")):
        given = [column.name for column in columns if column.is_key is is_key]
        if len(set(given)) != len(given):
            twice = [c for c in columns if c.is_key is is_key and given.count(c.name) > 1]
            raise refusal(
                f"Duplicate {part} columns found in schema: {formats.schema_text(twice[:1])}",
                creation.at,
            )
    keys = {column.name for column in columns if column.is_key}
    both = [c for c in columns if not c.is_key and c.name in keys]
    if both:
        raise refusal(
            f"Duplicate value columns found in schema: {formats.schema_text(both[:1])}",
            creation.at,
        )


def timestamp_column(properties: Properties, columns: Sequence[Column]) -> str | None:
    """The column that TIMESTAMP names, which is upper-cased unless quoted; None if not given."""
    text, at = properties.text("TIMESTAMP"), properties.at("TIMESTAMP")
    if text is None:
        return None
    by_name = {column.name: column for column in columns}
    name = text.strip('`"') if text[:1] in '`"' else text.upper()
    column = by_name.get(name)
    if column is None:
        raise unknown_name(
            f"The TIMESTAMP column set in the WITH clause does not exist in the schema: '{name}'",
            at,
            nearest(name, by_name),
        )
    has_format = properties.text("TIMESTAMP_FORMAT") is not None
    if column.type == "STRING" and not has_format:
        raise refusal(
            "A String timestamp field has been specified without also specifying the"
            f" timestamp_format: {name} is a STRING.",
            at,
        )
    if column.type not in ("BIGINT", "TIMESTAMP", "STRING"):
        raise refusal(
            f"Timestamp column, `{name}`, should be LONG(INT64), TIMESTAMP, or a String with a"
            " timestamp_format specified.",
            at,
        )
    if has_format:
        _check_timestamp_format(properties, column)
    return name


def _check_timestamp_format(properties: Properties, column: Column) -> None:
    pattern, at = str(properties.text("TIMESTAMP_FORMAT")), properties.at("TIMESTAMP_FORMAT")
    if column.type != "STRING":
        raise refusal(
            "'TIMESTAMP_FORMAT' set in the WITH clause can only be used when the timestamp column"
            f" is of type STRING. Column {column.name} is of type {column.type}: leave the format"
            " out.",
            at,
        )
    try:
        time_patterns.parts_of(pattern, time_patterns.PARSED)
    except ValueError as error:
        raise refusal(f"Invalid TIMESTAMP_FORMAT '{pattern}': {error}.", at) from None


def wraps_single_value(
    properties: Properties, context: Context, value_format: str, columns: Sequence[Column]
) -> bool:
    """Whether a single value column is wrapped in an object: the WITH clause, else the session."""
    return formats.wraps(
        value_format,
        columns,
        properties.flag("WRAP_SINGLE_VALUE"),
        properties.at("WRAP_SINGLE_VALUE"),
        usual=context.flag(formats.WRAP_PROPERTY, default=True),
    )
