"""Rows of a scan whose cells are shown as they are stored. Pure.

To decode a row and to encode it again takes twenty times as long. Neither is needed where a plan
shows columns as they are, and its WHERE is a range of keys and comparisons of columns with
literals. What is unusual about some rows is left to who decodes them (`data/query/scan.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from standpipe.data.encoding import native
from standpipe.data.encoding.cells import cell_json
from standpipe.data.encoding.kafka_keys import WINDOW_BYTES, UnfitKey, bounds_of
from standpipe.data.encoding.store_keys import parse_store_key
from standpipe.data.query.order import Pair, has_exact_bounds
from standpipe.data.query.row_program import row_program
from standpipe.sql.declarations.added_columns import count_added
from standpipe.sql.plans import PullPlan
from standpipe.sql.types.types import parse_type


@dataclass(frozen=True)
class RawRows:
    """Those of one plan. `kind`: of its key, for C. `added`: how many columns its table got in
    place. `program`: conditions and columns, for C; None: all rows are shown whole."""

    plan: PullPlan
    kind: int
    added: int
    program: bytes | None = None

    def of(self, pairs: Sequence[Pair]) -> list[bytes | None] | None:
        """Of each pair its row as a JSON array, or None if the WHERE does not want it; None: one is
        unusual, or damaged. `pairs` in the order of the store."""
        if self.program is not None:
            return self._shown(self.program, pairs)
        if self.plan.source.window is not None:
            return self._windows(pairs)
        keys, rows = [key for key, _ in pairs], [row for _, row in pairs]
        found = native.spliced(keys, rows, self.kind, self.added)
        return None if found is None else [*found]

    def _shown(self, program: bytes, pairs: Sequence[Pair]) -> list[bytes | None] | None:
        is_text = self.kind == native.KINDS["STRING"]
        literals = tuple(each.literal for each in self.plan.conditions or ())
        rows: list[bytes | None] = []
        for key, stored in pairs:
            row = native.shown(key, stored, is_text, program, literals)
            if row is None:
                return None
            rows.append(row if isinstance(row, bytes) else None)
        return rows

    def _windows(self, pairs: Sequence[Pair]) -> list[bytes | None] | None:
        window = self.plan.source.window
        assert window is not None
        bounds = bounds_of(window)
        size_ms = 0 if bounds > 1 else window.size_ms
        (column,) = self.plan.source.key_columns
        of = parse_type(column.type)
        rows: list[bytes | None] = []
        for prefix, alike in groupby(pairs, lambda pair: pair[0][: -WINDOW_BYTES * bounds]):
            try:
                (value,), _ = parse_store_key(prefix, (column.type,), 0)
            except UnfitKey:  # a shortened one
                return None
            found = native.windows(b"[" + cell_json(value, of), [*alike], size_ms, self.added)
            if found is None:
                return None
            rows += found
        return rows


def raw_rows(plan: PullPlan) -> RawRows | None:
    """How a scan of this plan shows rows without decoding them; None: it cannot."""
    kind = native.kind_of(plan.source) if plan.source.kind == "TABLE" else None
    if kind is None or plan.cells is not None or not has_exact_bounds(plan):
        return None
    if plan.projection is None and not plan.conditions:
        return RawRows(plan, kind, count_added(plan.source))
    if plan.source.window is not None:
        return None
    conditions = [
        (each.column, each.sign, place, each.is_negated, each.compared)
        for place, each in enumerate(plan.conditions or ())
    ]
    # with a WHERE, Python decodes the cells that it shows
    program = row_program(plan, conditions, is_decoded=bool(conditions))
    return None if program is None else RawRows(plan, kind, count_added(plan.source), program)
