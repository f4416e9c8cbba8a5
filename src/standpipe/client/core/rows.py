"""Rows of an answer: `Row` is a mapping of column names to values, `Rows` a sequence of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, overload

from standpipe.client.core import frames
from standpipe.freshness import Freshness, parse_headers


@dataclass(frozen=True, slots=True)
class Columns:
    """Names and SQL types of an answer's columns, in order."""

    names: tuple[str, ...]
    types: tuple[str, ...]

    def place(self, name: str) -> int:
        """Position of a column; upper and lower case are one unless two columns differ in case.

        Raises KeyError.
        """
        return _places(self.names)[name]


class _Places(dict[str, int]):
    def __missing__(self, name: str) -> int:
        place = self.get(name.upper()) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance] a caller may pass anything
        if place is None:
            raise KeyError(name)
        return place


@lru_cache(maxsize=1024)
def _places(names: tuple[str, ...]) -> _Places:
    return _Places({name: place for place, name in enumerate(names)})


class LazyFreshness:
    """The freshness of an answer, read from its headers when somebody asks: few lookups do."""

    __slots__ = ("_fresh", "_headers")

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self._fresh: Freshness | None = None

    def read(self) -> Freshness:
        """What the headers say."""
        if self._fresh is None:
            self._fresh = parse_headers(self._headers)
        return self._fresh


class Row(Mapping[str, Any]):
    """One row: `row["SCORE"]`, `dict(row)`, `row.values()`.

    `is_deleted`: in a push query on a table, the row was deleted, and only its key is known.
    """

    __slots__ = ("_columns", "_fresh", "_values", "is_deleted")

    def __init__(
        self,
        columns: Columns,
        values: tuple[Any, ...],
        fresh: LazyFreshness | None = None,
        *,
        is_deleted: bool = False,
    ) -> None:
        self._columns = columns
        self._values = values
        self._fresh = fresh
        self.is_deleted = is_deleted

    def __getitem__(self, name: str) -> Any:
        return self._values[self._columns.place(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.names)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}={each!r}" for name, each in self.items())
        return f"Row({pairs}{', deleted' if self.is_deleted else ''})"

    @property
    def freshness(self) -> Freshness | None:
        """Of the answer that it came with; None for a row of a push query."""
        return self._fresh and self._fresh.read()

    @property
    def columns(self) -> Columns:
        """Names and types of its values."""
        return self._columns

    @property
    def as_tuple(self) -> tuple[Any, ...]:
        """The values in the order of the columns."""
        return self._values


class RowSet(Sequence[Row]):
    """The rows of one answer, and how fresh they are. Two rows may be equal."""

    __slots__ = ("columns", "fresh", "tuples")

    def __init__(
        self, columns: Columns, tuples: list[tuple[Any, ...]], fresh: LazyFreshness
    ) -> None:
        self.columns = columns
        #: the rows as plain tuples
        self.tuples = tuples
        self.fresh = fresh

    @property
    def freshness(self) -> Freshness:
        """Which node answered, and how old the rows may be."""
        return self.fresh.read()

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> RowSet: ...
    def __getitem__(self, index: int | slice) -> Row | RowSet:
        if isinstance(index, slice):
            return RowSet(self.columns, self.tuples[index], self.fresh)
        return Row(self.columns, self.tuples[index], self.fresh)

    def __len__(self) -> int:
        return len(self.tuples)

    def __repr__(self) -> str:
        return f"RowSet({len(self.tuples)} of {', '.join(self.columns.names)})"

    def to_arrow(self) -> Any:
        """A pyarrow.Table. Raises ImportError with the name of what to install."""
        return frames.to_arrow(self.columns.names, self.columns.types, self.tuples)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; whole numbers with a NULL among them are Int64. Raises ImportError
        with the name of what to install."""
        return frames.to_pandas(self.columns.names, self.columns.types, self.tuples)

    def to_polars(self) -> Any:
        """A polars.DataFrame. Raises ImportError with the name of what to install."""
        return frames.to_polars(self.columns.names, self.columns.types, self.tuples)
