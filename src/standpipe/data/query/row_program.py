"""Conditions and columns of a plan with keys of one column, as C reads them (`shown` in
`_native.c`). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from standpipe.sql.declarations.added_columns import count_added
from standpipe.sql.plans import PullPlan
from standpipe.sql.types.types import parse_type

#: Full rows with more cells are left to Python.
CELLS_MAX: Final = 64
#: A byte says how many there are.
CONDITIONS_MAX: Final = 255
_SIGNS: Final = ("=", "<>", "<", "<=", ">", ">=")
#: what cells of a column have to be, in C
_CELLS: Final = {"STRING": 0, "INTEGER": 1, "BIGINT": 1, "BOOLEAN": 2}
_ANY_CELL: Final = 3

#: column in the full row, sign, index of the literal, whether a minus is before that, and the type
#: that both are compared as
ProgramCondition = tuple[int, str, int, bool, str]


def row_program(
    plan: PullPlan, conditions: Sequence[ProgramCondition], *, is_decoded: bool
) -> bytes | None:
    """The program of such a plan; None: its rows are shown by Python. `is_decoded`: Python decodes
    and encodes the cells that it shows, so cells that would change by that are left to it."""
    width = plan.full_row_width + 1
    if plan.cells is not None or width > CELLS_MAX or len(plan.source.key_columns) != 1:
        return None
    if len(conditions) > CONDITIONS_MAX:
        return None
    types = [parse_type(each.type).base for each in plan.source.value_columns]
    kinds = [_ANY_CELL, *(_CELLS.get(each, -1) for each in types), _CELLS["BIGINT"]]
    columns = range(width - 1) if plan.projection is None else plan.projection
    made = bytearray((width, count_added(plan.source), is_decoded, len(conditions)))
    for index, sign, place, is_negated, compared in conditions:
        kind = _CELLS.get(compared, -1)
        if kind < 0 or index == 0 or kinds[index] != kind:
            return None
        made += bytes((index, kind, _SIGNS.index(sign), place, is_negated))
    for index in columns:
        kind = kinds[index] if is_decoded else _ANY_CELL
        if kind < 0:
            return None
        made += bytes((index, kind))
    return bytes(made)
