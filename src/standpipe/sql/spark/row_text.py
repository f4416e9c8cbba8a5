"""Rows as text and back, for operators that keep them (`data/operators/keyed.py`).

Fields go by their place (`c0`, `c1`, …): no name of a user gets into the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from standpipe.sql.types.types import quoted

#: (column, Spark's type of it)
Fields = Sequence[tuple[str, str]]


def pack(fields: Fields, prefix: str = "") -> str:
    """One text of some columns; nulls stay."""
    named = ", ".join(
        f"{prefix}{quoted(name)} AS `c{index}`" for index, (name, _) in enumerate(fields)
    )
    return f"to_json(struct({named}), map('ignoreNullFields', 'false'))"


def unpack(text: str, fields: Fields) -> str:
    """The struct of a packed text; null of null."""
    listed = ", ".join(f"c{index}: {of}" for index, (_, of) in enumerate(fields))
    return f"from_json({text}, 'STRUCT<{listed}>')"


def unpacked(struct: str, fields: Fields) -> list[str]:
    """The columns again, out of what `unpack` gave."""
    return [f"{struct}.`c{index}` AS {quoted(name)}" for index, (name, _) in enumerate(fields)]
