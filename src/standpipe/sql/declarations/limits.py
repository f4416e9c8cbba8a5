"""Properties that bound what an aggregate collects: `ksql.functions.collect_list.limit` and so on.

The bound becomes part of the query when it is made: SLICE around the aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from standpipe.sql.syntax.ast import Call, LiteralValue, Node, Position, Query

_BOUNDED: Final = {
    "COLLECT_LIST": "ksql.functions.collect_list.limit",
    "COLLECT_SET": "ksql.functions.collect_set.limit",
}


def limited(query: Query, properties: Mapping[str, str]) -> Query:
    """The query with its collections cut at the limits of the session, if it has any."""
    limits = {name: properties[key] for name, key in _BOUNDED.items() if key in properties}
    known = {name: int(text) for name, text in limits.items() if text.isdecimal()}
    return _limited(query, known) if known else query


def _limited(part: Any, known: Mapping[str, int]) -> Any:
    if isinstance(part, tuple) and not isinstance(part, Position):
        parts: tuple[Any, ...] = part  # pyright: ignore[reportUnknownVariableType]
        return tuple(_limited(each, known) for each in parts)
    if not isinstance(part, Node):
        return part
    if isinstance(part, Call) and part.name in known:
        first, last = (
            LiteralValue(part.at, "INTEGER", count, str(count)) for count in (1, known[part.name])
        )
        return Call(part.at, "SLICE", (part, first, last))
    changed = {each.name: _limited(getattr(part, each.name), known) for each in fields(part)}
    return replace(part, **changed)
