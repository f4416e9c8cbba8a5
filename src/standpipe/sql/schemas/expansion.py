"""Columns of a topic from its schema: the steps that AVRO and JSON_SR have in common.

Not here: which SQL type a type of the schema has (`avro_columns.py`, `json_columns.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from standpipe.model import Column
from standpipe.sql.schemas.registry import BadSchema
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType

#: types that the columns of a schema are made of, each counted wherever it is used
TYPES_MAX: Final = 10_000
#: columns of a schema without fields
BARE_KEY: Final = "ROWKEY"
BARE_VALUE: Final = "ROWVAL"
Type = TypeVar("Type")


class NoColumnType(BadSchema):
    """A type without one in SQL: its field makes no column."""


class Expansion(ABC, Generic[Type]):
    """The SQL types of one schema. A type is expanded wherever it is used, so a schema of 2,000
    characters may stand for more types than fit into memory."""

    def __init__(self, *, keeps_case: bool) -> None:
        self._keeps_case = keeps_case
        self._types_left = TYPES_MAX
        self._upper: dict[str, str] = {}  # name -> the same in upper case

    def columns(self, of: Type, *, is_key: bool, unwraps: bool) -> list[Column]:
        """The columns of a topic whose keys or values have this schema. `unwraps`: it is that of a
        single column. Raises BadSchema with ksqlDB's reason."""
        if unwraps:
            try:
                made = self.root_type(of)
            except NoColumnType as error:
                raise BadSchema(f"Unsupported type at root of schema: {error}") from None
            return [Column(name=BARE_KEY if is_key else BARE_VALUE, type=str(made), is_key=is_key)]
        row = self.root_struct(of)
        if row is None:
            raise BadSchema(
                "Schema returned from schema registry is anonymous type. To use this schema with"
                " ksqlDB, set 'WRAP_SINGLE_VALUE=false' in the WITH clause properties."
            )
        if not row.field_names:
            raise BadSchema("Schema does not include any columns with types that ksqlDB supports.")
        named = zip(row.field_names, row.arguments, strict=True)
        return [Column(name=name, type=str(made), is_key=is_key) for name, made in named]

    @abstractmethod
    def root_type(self, of: Type) -> SqlType:
        """Of a schema for a single column. Raises NoColumnType, BadSchema."""

    @abstractmethod
    def root_struct(self, of: Type) -> SqlType | None:
        """Of a schema whose fields are the columns; None: it has no fields. Raises BadSchema."""

    def count_type(self) -> None:
        """Raises BadSchema if this one is too many."""
        self._types_left -= 1
        if self._types_left < 0:
            raise BadSchema(f"it stands for more than {TYPES_MAX} types")

    def shown(self, name: str) -> str:
        """The column of a field. Upper case costs as much as the name is long, so each name is
        converted once, however many types use it."""
        if self._keeps_case:
            return name
        if name not in self._upper:
            self._upper[name] = name.upper()
        return self._upper[name]


def struct_of(fields: Iterable[tuple[str, SqlType]]) -> SqlType:
    """A STRUCT of a text that is not too long. Raises BadSchema."""
    made = types.struct(tuple(fields))
    if made.is_too_long():
        raise BadSchema(f"its type has more than {types.TYPE_CHARS_MAX} characters")
    return made
