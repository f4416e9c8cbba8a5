"""Rows as tables of pandas, polars and pyarrow, none of which the client needs otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from standpipe.data.encoding.arrow import Tuples, library, to_arrow

__all__ = ["to_arrow", "to_pandas", "to_polars"]

_WHOLE_NUMBERS: Final = frozenset({"INTEGER", "BIGINT"})


def to_pandas(names: Sequence[str], types: Sequence[str], tuples: Tuples) -> Any:
    """A pandas.DataFrame; values that pandas has no type for (DECIMAL, DATE) stay Python's.

    A column of whole numbers with a NULL is Int64, pandas' type with nulls: pandas itself would
    make it float64, which rounds numbers beyond 2**53. Without a NULL it is int64. One type for
    both would depend less on the data, but programs count on int64, as numpy has it.
    """
    pandas = library("pandas", "standpipe[pandas]")
    frame = pandas.DataFrame.from_records(list(tuples), columns=list(names))
    for place, of in enumerate(types):
        if of in _WHOLE_NUMBERS:
            cells = [values[place] for values in tuples]
            if None in cells:
                frame.isetitem(place, pandas.array(cells, dtype="Int64"))
    return frame


def to_polars(names: Sequence[str], types: Sequence[str], tuples: Tuples) -> Any:
    """A polars.DataFrame, by way of Arrow."""
    polars = library("polars", "polars and standpipe[pandas]")
    return polars.from_arrow(to_arrow(names, types, tuples))
