"""Which tables get columns in place, and which columns those are: ALTER TABLE … ADD COLUMN of a
table that an application writes.

Its rows stay as they are. Each has the columns that its writer knew, which are the first ones of
the table, in its order. So a row is described by one number: how many it has of those that were
added.
"""

from __future__ import annotations

from typing import Final

from standpipe.model import Column, Source

#: of a table; a stored row has seven bits for them
ADDED_MAX: Final = 127


def external_query_id(table_id: str) -> str:
    """Of the query under whose lease an application writes a table; no other query has such an
    id."""
    return f"EXTERNAL_{table_id}"


def may_grow(source: Source) -> bool:
    """Whether columns can be added in place: a record must say which ones its writer knew."""
    is_external = source.query_id == external_query_id(source.table_id or "")
    has_names = source.value_format == "JSON" and source.wrap_single_value
    return is_external and has_names and bool(source.value_columns)


def count_first(source: Source) -> int:
    """How many value columns the table began with."""
    return source.columns_first or len(source.value_columns)


def count_added(source: Source) -> int:
    """How many were added to it."""
    return len(source.value_columns) - count_first(source)


def added_columns(source: Source) -> tuple[Column, ...]:
    """Those that were added, in their order."""
    return source.value_columns[count_first(source) :]
