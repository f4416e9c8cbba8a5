"""ARRAY, MAP and nulls. Equality and order are Spark's: NaN equals itself and is the largest."""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from standpipe.sql.expressions.python.computed import (
    ITEM_WORK,
    Computed,
    first_length,
    lengths,
    of_types,
    order_of,
    present,
    times,
)
from standpipe.sql.types.casts import text_of
from standpipe.sql.types.types import SqlType

#: stands for each NaN in keys of equality
_NAN: Final = object()


def entries_of(keys: SqlType, pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """MAP(…) with keys of a type; the last of equal ones wins. A null among texts is shown as
    "null". Keys of other types, which no format can show, are left out if they are null."""
    if keys.base == "STRING":
        return {"null" if key is None else key: value for key, value in pairs}
    return {key: value for key, value in pairs if key is not None}


def key_of(value: Any) -> Any:
    """A hashable key that equal values share, and no others."""
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value
    if isinstance(value, list):
        return tuple(map(key_of, value))
    if isinstance(value, dict):
        return frozenset((key_of(key), key_of(item)) for key, item in value.items())
    return value


def element(items: list[Any], index: int) -> Any:
    """Element of an array: indices start at 1; negative ones count from the end."""
    place = index - 1 if index > 0 else index
    return items[place] if index != 0 and -len(items) <= place < len(items) else None


def _first(items: Iterable[Any]) -> list[Any]:
    """The items without those that equal an earlier one."""
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(key_of(item), item)
    return list(found.values())


def _contains(items: list[Any] | None, item: Any) -> bool:
    return items is not None and key_of(item) in map(key_of, items)


def _except(items: list[Any], others: list[Any]) -> list[Any]:
    unwanted = set(map(key_of, others))
    return [item for item in _first(items) if key_of(item) not in unwanted]


def _intersect(items: list[Any], others: list[Any]) -> list[Any]:
    wanted = set(map(key_of, others))
    return [item for item in _first(items) if key_of(item) in wanted]


def _concat(one: list[Any] | None, two: list[Any] | None) -> list[Any] | None:
    return None if one is None and two is None else [*(one or ()), *(two or ())]


def _union(one: dict[Any, Any] | None, two: dict[Any, Any] | None) -> dict[Any, Any] | None:
    return None if one is None and two is None else {**(one or {}), **(two or {})}


def _join(parameters: tuple[SqlType, ...], _: SqlType) -> Callable[..., str | None]:
    of = parameters[0].arguments[0]

    def compute(items: list[Any] | None, *by: str | None) -> str | None:
        if items is None:
            return None
        shown = ("null" if item is None else text_of(item, of) for item in items)
        return (by[0] or "" if by else ",").join(shown)

    return compute


def _join_work(items: list[Any] | None, *by: str | None) -> int:
    items = items or []
    inner = sum(len(item) for item in items if isinstance(item, (str, list, dict)))
    return inner + len(items) * (20 + sum(len(each or "") for each in by))


_IS_DOWN: Final = {"ASC": False, "ASCENDING": False, "DESC": True, "DESCENDING": True}


def _sorted(items: list[Any], way: str = "ASC") -> list[Any] | None:
    """NULLs come last in both directions; NULL for a direction that there is not."""
    is_down = _IS_DOWN.get(way.upper())
    if is_down is None:
        return None
    found = sorted(present(*items), key=order_of, reverse=is_down)
    return found + [None] * (len(items) - len(found))


def _remove(items: list[Any] | None, item: Any) -> list[Any] | None:
    unwanted = key_of(item)
    return None if items is None else [each for each in items if key_of(each) != unwanted]


def _as_map(keys: list[Any], items: list[Any]) -> dict[Any, Any]:
    """A key without a value gets NULL; a NULL cannot be a key."""
    padded = items + [None] * max(0, len(keys) - len(items))
    return {key: item for key, item in zip(keys, padded, strict=False) if key is not None}


def _entries(entries: dict[Any, Any] | None, is_sorted: bool | None) -> list[Any] | None:
    if entries is None:
        return None
    found = [{"K": key, "V": item} for key, item in entries.items()]
    return sorted(found, key=order_of) if is_sorted else found


def _series(start: int, end: int, step: int | None = None) -> list[int] | None:
    if step is None:
        step = 1 if end >= start else -1
    if step == 0 or (step > 0 and end < start) or (step < 0 and end > start):
        return None
    return list(range(start, end + (1 if step > 0 else -1), step))


def _series_work(start: int, end: int, step: int = 1) -> int:
    return ITEM_WORK * (abs(end - start) // max(1, abs(step)) + 1)


def _slice(items: list[Any] | None, start: int | None, end: int | None) -> list[Any] | None:
    """From one place to another, both from 1 and included. NULL if one of them is outside (Java's
    subList)."""
    if items is None:
        return None
    before, last = 0 if start is None else start - 1, len(items) if end is None else end
    return items[before:last] if 0 <= before <= last <= len(items) else None


def _split_to_map(text: str, between: str, inside: str) -> dict[str, str] | None:
    """Entries without the inner separator are left out; the last of equal keys wins."""
    if not between or not inside or between == inside:
        return None
    pairs = (entry.split(inside) for entry in text.split(between) if inside in entry)
    return {pair[0]: pair[1] for pair in pairs}


FUNCTIONS: Final[Mapping[str, Computed]] = {
    "AS_VALUE": Computed(lambda value: value),
    "COALESCE": Computed(lambda *given: next(iter(present(*given)), None), is_strict=False),
    "IFNULL": Computed(lambda one, two: two if one is None else one, is_strict=False),
    "NULLIF": Computed(
        lambda one, two: None if one is not None and key_of(one) == key_of(two) else one,
        is_strict=False,
    ),
    "ARRAY_CONCAT": Computed(_concat, is_strict=False, work=lengths),
    "ARRAY_CONTAINS": Computed(_contains, is_strict=False, work=first_length),
    "ARRAY_DISTINCT": Computed(_first, work=first_length),
    "ARRAY_EXCEPT": Computed(_except, work=lengths),
    "ARRAY_INTERSECT": Computed(_intersect, work=lengths),
    "ARRAY_JOIN": of_types(_join, is_strict=False, work=_join_work),
    "ARRAY_LENGTH": Computed(len),
    "ARRAY_MAX": Computed(
        lambda items: max(present(*items), key=order_of, default=None), work=first_length
    ),
    "ARRAY_MIN": Computed(
        lambda items: min(present(*items), key=order_of, default=None), work=first_length
    ),
    "ARRAY_REMOVE": Computed(_remove, is_strict=False, work=first_length),
    "ARRAY_SORT": Computed(_sorted, work=times(8, first_length)),
    "ARRAY_UNION": Computed(lambda one, two: _first([*one, *two]), work=lengths),
    "AS_MAP": Computed(_as_map, work=lengths),
    "ENTRIES": Computed(_entries, is_strict=False, work=times(8, first_length)),
    "GENERATE_SERIES": Computed(_series, work=_series_work),
    "MAP_KEYS": Computed(list, work=first_length),
    "MAP_UNION": Computed(_union, is_strict=False, work=times(4, lengths)),
    "MAP_VALUES": Computed(lambda entries: list(entries.values()), work=first_length),
    "SLICE": Computed(_slice, is_strict=False, work=first_length),
    "SPLIT_TO_MAP": Computed(_split_to_map, work=times(4, first_length)),
}
