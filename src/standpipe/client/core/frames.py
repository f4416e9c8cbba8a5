"""Rows as tables of pandas, polars and pyarrow, none of which the client needs otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from standpipe.data.encoding.arrow import Tuples, library, to_arrow

__all__ = ["to_arrow", "to_pandas", "to_polars"]


def to_pandas(names: Sequence[str], tuples: Tuples) -> Any:
    """A pandas.DataFrame; values that pandas has no type for (DECIMAL, DATE) stay Python's."""
    pandas = library("pandas", "standpipe[pandas]")
    return pandas.DataFrame.from_records(list(tuples), columns=list(names))


def to_polars(names: Sequence[str], types: Sequence[str], tuples: Tuples) -> Any:
    """A polars.DataFrame, by way of Arrow."""
    polars = library("polars", "polars and standpipe[pandas]")
    return polars.from_arrow(to_arrow(names, types, tuples))
