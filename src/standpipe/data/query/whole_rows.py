"""Rows of a scan that are shown as they are stored: spliced, as those of lookups are. Pure.

To decode a row and to encode it again takes twenty times as long. Neither is needed where a plan
wants all rows between its bounds, and shows each whole. What is unusual about some rows is left to
who decodes them (`data/query/scan.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from standpipe.data.encoding import native
from standpipe.data.encoding.cells import cell_json
from standpipe.data.encoding.kafka_keys import WINDOW_BYTES, UnfitKey, bounds_of
from standpipe.data.encoding.store_keys import parse_store_key
from standpipe.data.query.order import Pair, has_exact_bounds
from standpipe.sql.declarations.added_columns import count_added
from standpipe.sql.plans import PullPlan
from standpipe.sql.types.types import parse_type


def shows_whole_rows(plan: PullPlan) -> bool:
    """Whether a scan shows all rows between its bounds as they are stored, and `whole_rows` can
    be asked for them."""
    return (
        plan.source.kind == "TABLE"
        and not plan.is_count
        and plan.projection is None
        and plan.cells is None
        and native.kind_of(plan.source) is not None
        and has_exact_bounds(plan)
    )


def whole_rows(plan: PullPlan, pairs: Sequence[Pair]) -> list[bytes] | None:
    """JSON arrays of the rows of a plan that `shows_whole_rows`; None: one is unusual, or damaged.
    `pairs` in the order of the store."""
    source = plan.source
    added = count_added(source)
    if source.window is None:
        kind = native.kind_of(source)
        assert kind is not None, "shows_whole_rows"
        return native.spliced([key for key, _ in pairs], [row for _, row in pairs], kind, added)
    bounds = bounds_of(source.window)
    size_ms = 0 if bounds > 1 else source.window.size_ms
    (column,) = source.key_columns
    of = parse_type(column.type)
    rows: list[bytes] = []
    for prefix, alike in groupby(pairs, lambda pair: pair[0][: -WINDOW_BYTES * bounds]):
        try:
            (value,), _ = parse_store_key(prefix, (column.type,), 0)
        except UnfitKey:  # a shortened one
            return None
        found = native.windows(b"[" + cell_json(value, of), [*alike], size_ms, added)
        if found is None:
            return None
        rows += found
    return rows
