"""The columns of a served table, from a DataFrame's schema; and the statement that declares it.

Names become capitals, as those of SQL statements do, also the names of a struct's fields. Each type
of Spark becomes the type of ours that holds all of its values; one that has none is refused, with
the column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import types as t

from standpipe.model import Column, Source, Window
from standpipe.spark.errors import ServeRefused
from standpipe.sql.ddl.external_table import EXTERNAL
from standpipe.sql.declarations.added_columns import added_columns, may_grow
from standpipe.sql.declarations.source_columns import duration_ms
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType, parse_type, quoted

_PLAIN: Final[Mapping[type[t.DataType], SqlType]] = {
    t.BooleanType: types.BOOLEAN,
    t.ByteType: types.INTEGER,
    t.ShortType: types.INTEGER,
    t.IntegerType: types.INTEGER,
    t.LongType: types.BIGINT,
    t.FloatType: types.DOUBLE,
    t.DoubleType: types.DOUBLE,
    t.StringType: types.STRING,
    t.CharType: types.STRING,
    t.VarcharType: types.STRING,
    t.BinaryType: types.BYTES,
    t.DateType: types.DATE,
    t.TimestampType: types.TIMESTAMP,
}
_INSTEAD: Final[Mapping[type[t.DataType], str]] = {
    t.TimestampNTZType: "cast it to TIMESTAMP, which says of which time zone it is",
    t.NullType: "cast it to the type that it should have",
}
#: types of a single key that the format KAFKA holds
_KAFKA_KEYS: Final = frozenset({"STRING", "INTEGER", "BIGINT", "DOUBLE", "BYTES"})


@dataclass(frozen=True, kw_only=True)
class ServedTable:
    """A table as a program asks for it."""

    name: str
    #: key columns first
    columns: tuple[Column, ...]
    partitions: int | None
    window: Window | None = None

    @property
    def statement(self) -> str:
        """The CREATE TABLE that declares it."""
        columns = ", ".join(
            f"{quoted(each.name)} {each.type}{' PRIMARY KEY' if each.is_key else ''}"
            for each in self.columns
        )
        topic = self.name.replace("'", "''")
        return (
            f"CREATE TABLE {quoted(self.name)} ({columns}) WITH (KAFKA_TOPIC='{topic}',"
            f" KEY_FORMAT='{self._key_format}', VALUE_FORMAT='JSON',"
            f" PARTITIONS={self.partitions or PARTITIONS}, WRITER='{EXTERNAL}'{self._windows});"
        )

    @property
    def _windows(self) -> str:
        if self.window is None:
            return ""
        size_ms, retention_ms = self.window.size_ms, self.window.retention_ms
        kept = f", WINDOW_RETENTION='{retention_ms} MILLISECONDS'" if retention_ms else ""
        return f", WINDOW_TYPE='TUMBLING', WINDOW_SIZE='{size_ms} MILLISECONDS'{kept}"

    @property
    def _key_format(self) -> str:
        first, *others = (each for each in self.columns if each.is_key)
        is_plain = not others and parse_type(first.type).base in _KAFKA_KEYS
        return "KAFKA" if is_plain else "JSON"

    def added_to(self, there: Source) -> tuple[Column, ...]:
        """The columns that a table of the catalog lacks, and that can be added to it in place.

        As in CREATE OR REPLACE of a source, these are value columns behind all others, and the rows
        that are there stay as they are. A DataFrame may also lack columns that were added, as that
        of a program from before does: its rows have null there. Raises ServeRefused, with each
        column that does not fit.
        """
        self._check_shape(there)
        ours, theirs = ({each.name: each for each in of.columns} for of in (self, there))
        keys = [column.name for column in self.columns if column.is_key]
        issues: list[str] = []
        if keys != [column.name for column in there.key_columns]:
            issues.append(f"its key is {_listed(there.key_columns)}")
        for name, own in theirs.items():
            new = ours.get(name)
            if new is None and not own.is_key and own not in added_columns(there):
                issues.append(f"the DataFrame lacks {_listed([own])}")
            elif new is not None and _spelled(new) != _spelled(own):
                issues.append(f"the DataFrame has {_listed([new])} instead of {_listed([own])}")
        new = tuple(column for column in self.columns if column.name not in theirs)
        if new and not may_grow(there):
            issues.append(f"it cannot get {_listed(new)}: its VALUE_FORMAT is not JSON with names")
        if issues:
            raise ServeRefused(
                f"{there.name} has other columns than the DataFrame: {'; '.join(issues)}. Columns"
                " can be added, and none can be changed or removed",
                next_step=f"DROP TABLE {there.name}; and serve it again, or serve it under another"
                " name",
            )
        return new

    def additions(self, new: Sequence[Column]) -> str:
        """The ALTER TABLE that adds these columns."""
        added = ", ".join(f"ADD COLUMN {quoted(each.name)} {each.type}" for each in new)
        return f"ALTER TABLE {quoted(self.name)} {added};"

    def _check_shape(self, there: Source) -> None:
        instead = f"DROP TABLE {there.name}; and serve it again, or serve it under another name"
        if self.partitions is not None and self.partitions != there.partitions:
            raise ServeRefused(
                f"{there.name} has {there.partitions} partitions, not {self.partitions}",
                next_step=f"leave out `partitions`, or {instead}",
            )
        if self.window != there.window:
            raise ServeRefused(
                f"{there.name} has {_windows_of(there.window)}, not {_windows_of(self.window)}",
                next_step=f"give its own `window_size` and `retention`, or {instead}",
            )


#: of a table whose program does not say
PARTITIONS: Final = 4
#: the column of the bounds of a window, in capitals
WINDOW: Final = "WINDOW"


def served_table(
    schema: t.StructType,
    *,
    table: str,
    key: Sequence[str],
    left_out: Collection[str],
    partitions: int | None,
    window: Window | None = None,
) -> ServedTable:
    """The table of a DataFrame, without the columns `left_out`. Raises ServeRefused."""
    name = capitals(table)
    left_out = [*left_out, WINDOW] if window is not None else left_out
    if not key or isinstance(key, str):
        raise ServeRefused("`key` names no column", next_step="give a list: key=['user_id']")
    by_name: dict[str, t.StructField] = {}
    for field in schema.fields:
        if field.name.upper() in by_name:
            raise ServeRefused(
                f"two columns are {field.name.upper()} in SQL, which has no small letters",
                next_step="rename one of them with withColumnRenamed",
            )
        by_name[field.name.upper()] = field
    keys = [each.upper() for each in key]
    for each in (*keys, *(column.upper() for column in left_out)):
        if each not in by_name:
            raise ServeRefused(
                f"the DataFrame has no column {each}", next_step=f"it has {', '.join(by_name)}"
            )
    values = [each for each in by_name if each not in {*keys, *(c.upper() for c in left_out)}]
    if not values:
        raise ServeRefused(
            "all columns are in the key, and a row without a value is a deleted one",
            next_step="add a column that is not in the key",
        )
    return ServedTable(
        name=name,
        columns=tuple(
            Column(
                name=each,
                type=str(sql_type(by_name[each].dataType, by_name[each].name)),
                is_key=each in keys,
            )
            for each in (*keys, *values)
        ),
        partitions=partitions,
        window=window,
    )


def window_of(
    schema: t.StructType, size: str | None, retention: str | None, *, is_append: bool = False
) -> Window | None:
    """The windows of a DataFrame with a column `window`, as Spark's function makes it; None: it has
    none. `is_append`: each comes when the watermark has passed its end. Raises ServeRefused."""
    if size is None:
        if retention is not None:
            raise ServeRefused("`retention` is for windows", next_step="give `window_size`, too")
        return None
    found = [field.dataType for field in schema.fields if field.name.upper() == WINDOW]
    if not found or not _is_window(found[0]):
        raise ServeRefused(
            "the DataFrame has no column `window` of the struct that Spark's function makes",
            next_step="group by window(…), or leave out `window_size`",
        )
    size_ms, retention_ms = _duration_ms(size), 0 if retention is None else _duration_ms(retention)
    if 0 < retention_ms < size_ms:
        raise ServeRefused(
            f"a retention of {retention} is less than the size of a window, {size}",
            next_step="keep windows until they have ended, or longer",
        )
    if is_append and retention_ms == size_ms:
        raise ServeRefused(
            "in output mode append a window comes after its end, when so short a retention is over",
            next_step="give a `retention` well above `window_size`, or use output mode update",
        )
    return Window(
        kind="TUMBLING",
        size_ms=size_ms,
        advance_ms=size_ms,
        grace_ms=0,
        retention_ms=retention_ms,
    )


def _duration_ms(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise ServeRefused(
            f"{text!r} is no duration: {error}", next_step="write it as '10 minutes'"
        ) from error


def _is_window(of: t.DataType) -> bool:
    fields = [(f.name, f.dataType) for f in of.fields] if isinstance(of, t.StructType) else []
    return fields == [("start", t.TimestampType()), ("end", t.TimestampType())]


def capitals(name: str) -> str:
    """A name as SQL reads it: capitals, unless it is in back-quotes."""
    is_quoted = len(name) > 2 and name[0] == name[-1] == "`"
    return name[1:-1].replace("``", "`") if is_quoted else name.upper()


def sql_type(of: t.DataType, column: str) -> SqlType:
    """The type of ours. Raises ServeRefused that names the column, or its part."""
    match of:
        case t.DecimalType():
            return types.decimal(of.precision, of.scale)
        case t.ArrayType():
            return types.array(sql_type(of.elementType, f"{column}[]"))
        case t.MapType():
            if not isinstance(of.keyType, t.StringType):
                raise _without_type(column, of, "cast the keys of the map to STRING")
            return types.map_of(types.STRING, sql_type(of.valueType, f"{column}{{}}"))
        case t.StructType():
            return _struct(of, column)
        case _:
            found = _PLAIN.get(type(of))
            if found is None:
                raise _without_type(column, of, _INSTEAD.get(type(of), "cast it, or leave it out"))
            return found


def _struct(of: t.StructType, column: str) -> SqlType:
    names = [field.name.upper() for field in of.fields]
    if _is_window(of) and column.upper() in (WINDOW, "SESSION_WINDOW"):
        sized = "give `window_size`, or " if column.upper() == WINDOW else ""
        raise ServeRefused(
            f"column {column} is a window",
            next_step=f"{sized}select its bounds as columns: {column}.start, {column}.end",
        )
    if len({*names}) < len(names) or not names:
        raise _without_type(column, of, "give each of its fields a name of its own, in any case")
    parts = (sql_type(field.dataType, f"{column}.{field.name}") for field in of.fields)
    return types.struct(tuple(zip(names, parts, strict=True)))


def _without_type(column: str, of: t.DataType, instead: str) -> ServeRefused:
    return ServeRefused(
        f"column {column} is {of.simpleString()}, which no type of a table can hold",
        next_step=instead,
    )


def _windows_of(window: Window | None) -> str:
    if window is None:
        return "no windows"
    kept = f"kept for {window.retention_ms} ms" if window.retention_ms else "never dropped"
    return f"windows of {window.size_ms} ms that are {kept}"


def _spelled(column: Column) -> tuple[str, str, bool]:
    return column.name, str(parse_type(column.type)), column.is_key


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(f"{quoted(c.name)} {c.type}{' KEY' if c.is_key else ''}" for c in columns)
