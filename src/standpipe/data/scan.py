"""Store -> answer where rows have to be decoded: scans, filters, computed cells.

The rows come from a scan of the whole partition, or from the keys of the plan; each is decoded,
filtered and laid out. A scan reads at most SCAN_ROWS_MAX rows of a partition and is refused beyond:
it shares the worker with lookups. Not here: plain lookups (`data/pull.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from standpipe.data.cells import cell_json, row_of
from standpipe.data.keys import bounds_of
from standpipe.data.order import marked
from standpipe.data.records import parse_store_key
from standpipe.data.rows import Row, unpack_row
from standpipe.errors import BadRequest
from standpipe.model import Column, Source
from standpipe.sql.plans import PullPlan
from standpipe.sql.types import SqlType, parse_type

SCAN_ROWS_MAX: Final = 1_000_000


def rows_of(plan: PullPlan, pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """JSON arrays of the rows that satisfy the plan. Raises BadRequest beyond SCAN_ROWS_MAX."""
    source = plan.source
    for count, (key, data) in enumerate(pairs):
        if count >= SCAN_ROWS_MAX:
            raise BadRequest(
                f"the query would read more than {SCAN_ROWS_MAX} rows of a partition of"
                f" {source.name}: name its keys, or a LIMIT"
            )
        stored = unpack_row(data)
        row = full_row(source, key, stored)
        window_ms = row[len(source.key_columns) :][:2]
        if (plan.where is None or plan.where(row)) and is_in_window(plan, window_ms):
            laid = laid_out(plan, row)
            yield marked(stored.full_key or key, laid) if plan.is_ordered else laid


def full_row(source: Source, store_key: bytes, stored: Row) -> list[Any]:
    """Key columns, window bounds, value columns, ROWTIME: as values."""
    window = source.window
    types = [column.type for column in source.key_columns]
    key = stored.full_key or store_key
    values, window_ms = parse_store_key(key, types, bounds_of(window))
    row: list[Any] = [*values, *window_ms]
    if window is not None and len(window_ms) == 1:
        row.append(window_ms[0] + window.size_ms)
    row += row_of(stored.value_json, types_of(source.value_columns))
    row.append(stored.rowtime_ms)
    return row


def laid_out(plan: PullPlan, row: list[Any]) -> bytes:
    """The cells of the answer as one JSON array."""
    types = [parse_type(name) for name in plan.column_types]
    if plan.cells is not None:
        cells = [cell(row) for cell in plan.cells]
    elif plan.projection is not None:
        cells = [row[index] for index in plan.projection]
    else:
        cells = row[: plan.full_row_width]
    return b"[%b]" % b",".join(map(cell_json, cells, types))


def is_in_window(plan: PullPlan, window_ms: Sequence[int]) -> bool:
    """Whether a row's window, its start and its end, lies within the bounds of the plan."""
    if plan.source.window is None:
        return True
    bounds = (
        (window_ms[0], plan.window_start_low_ms, plan.window_start_high_ms),
        (window_ms[1], plan.window_end_low_ms, plan.window_end_high_ms),
    )
    return all(
        (low is None or value >= low) and (high is None or value <= high)
        for value, low, high in bounds
    )


@lru_cache(maxsize=1024)
def _types(names: tuple[str, ...]) -> tuple[SqlType, ...]:
    return tuple(map(parse_type, names))


def types_of(columns: Sequence[Column]) -> tuple[SqlType, ...]:
    """The columns' types, parsed once for equal ones."""
    return _types(tuple(column.type for column in columns))
