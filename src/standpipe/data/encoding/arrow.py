"""Rows as tables of pyarrow, which is optional: nodes write Arrow with it, and clients hand it out.

Not here: pandas and polars (`client/core/frames.py`), and what makes Python values of rows
(`data/encoding/answer_values.py`).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from standpipe.data.encoding import native
from standpipe.errors import StatementError
from standpipe.sql.types.types import SqlType, parse_type

Tuples = Sequence[tuple[Any, ...]]
#: types whose cells have a compiled reader -> their numbers in C
_KINDS: Final = {"STRING": 0, "BIGINT": 1, "INTEGER": 2, "DOUBLE": 3, "BOOLEAN": 4}


def to_arrow(names: Sequence[str], types: Sequence[str], tuples: Tuples) -> Any:
    """A pyarrow.Table whose types are those of the columns, also if there is no row."""
    pyarrow = library("pyarrow", "standpipe[pandas]")
    columns: list[Any] = list(zip(*tuples, strict=True)) if tuples else [()] * len(names)
    arrays = [
        pyarrow.array(column, type=_arrow_type(pyarrow, text))
        for column, text in zip(columns, types, strict=True)
    ]
    return pyarrow.Table.from_arrays(arrays, names=list(names))


def rows_to_arrow(names: Sequence[str], types: Sequence[str], rows: Sequence[bytes]) -> Any:
    """The same of rows as JSON arrays, as `to_arrow` makes of their values; None: there is no row,
    nothing was compiled, or a type or a cell is unusual."""
    pyarrow = library("pyarrow", "standpipe[pandas]")
    kinds = _kinds_of(tuple(types))
    columns = native.arrow_columns(rows, kinds) if kinds and rows else None
    if columns is None:
        return None
    arrays: list[Any] = []
    for text, (nulls, bits, offsets, values) in zip(types, columns, strict=True):
        parts = (bits, values) if offsets is None else (bits, offsets, values)
        buffers = [None if part is None else pyarrow.py_buffer(part) for part in parts]
        of = _simple_type(pyarrow, text)
        arrays.append(pyarrow.Array.from_buffers(of, len(rows), buffers, nulls))
    return pyarrow.Table.from_arrays(arrays, names=list(names))


@lru_cache(maxsize=len(_KINDS))
def _simple_type(pyarrow: Any, text: str) -> Any:
    return _arrow_type(pyarrow, text)


def has_compiled_reader(types: Sequence[str]) -> bool:
    """Whether `rows_to_arrow` takes usual cells of these columns."""
    return native.IS_COMPILED and _kinds_of(tuple(types)) is not None


@lru_cache(maxsize=1024)
def _kinds_of(types: tuple[str, ...]) -> bytes | None:
    """None: one has no compiled reader."""
    found = [_KINDS[text] for text in types if text in _KINDS]
    return bytes(found) if len(found) == len(types) else None


def library(name: str, what: str) -> Any:
    """An optional package. Raises ImportError that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed: pip install {what}") from error


def _arrow_type(pyarrow: Any, text: str) -> Any:
    try:
        return _arrow_of(pyarrow, parse_type(text))
    except StatementError:
        return None  # a type of a later release: pyarrow finds out


def _arrow_of(pyarrow: Any, of: SqlType) -> Any:
    match of.base:
        case "DECIMAL":
            return pyarrow.decimal128(of.precision, of.scale)
        case "ARRAY":
            return pyarrow.list_(_arrow_of(pyarrow, of.arguments[0]))
        case "MAP":  # its keys are texts in every answer
            return pyarrow.map_(pyarrow.string(), _arrow_of(pyarrow, of.arguments[1]))
        case "STRUCT":
            named = zip(of.field_names, of.arguments, strict=True)
            return pyarrow.struct([(name, _arrow_of(pyarrow, part)) for name, part in named])
        case "TIMESTAMP":
            return pyarrow.timestamp("ms", tz="UTC")
        case "TIME":
            return pyarrow.time32("ms")
        case _:
            names = {"BOOLEAN": "bool_", "INTEGER": "int32", "BIGINT": "int64"}
            names |= {"DOUBLE": "float64", "STRING": "string", "BYTES": "binary", "DATE": "date32"}
            return getattr(pyarrow, names[of.base])()
