"""`Computed`: how a SQL function is computed in Python. The tables beside this module hold them."""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from standpipe.sql.types.types import SqlType

#: An item is an object, which is made and freed, while the interpreter does nothing else.
ITEM_WORK: Final = 8
#: (types of the parameters, type of the result) -> the function for these types
ForTypes = Callable[[tuple[SqlType, ...], SqlType], Callable[..., Any]]


class Failed(Exception):
    """Computing an expression failed: NULL stands for all of it (`expressions/failing.py`)."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A function in Python. `is_strict`: NULL, without a call, if any argument is NULL.

    `work`: characters that it reads or makes; an item of a list counts for ITEM_WORK of them. None:
    a fixed amount.
    `for_types`: makes `compute`, for a function whose result depends on types.
    `counts`: numbers of arguments that it has in Python; empty: those of the registry.
    `takes_budget`: it counts its work itself as it goes: the argument `budget` is a list of the one
    number that is left, from which it takes it.
    """

    compute: Callable[..., Any]
    is_strict: bool = True
    work: Callable[..., int] | None = None
    for_types: ForTypes | None = None
    counts: tuple[int, ...] = ()
    takes_budget: bool = False


def of_types(
    for_types: ForTypes, *, is_strict: bool = True, work: Callable[..., int] | None = None
) -> Computed:
    """An entry whose function is made for the types of a call."""
    return Computed(_unmade, is_strict=is_strict, work=work, for_types=for_types)


def _unmade(*_: object) -> object:
    raise AssertionError("made for types")


def present(*values: Any) -> list[Any]:
    """The values that are not NULL."""
    return [value for value in values if value is not None]


def first_length(first: Any, *_: Any) -> int:
    """Work of a function that reads its first argument once."""
    return 0 if first is None else size_of(first)


def lengths(*given: Any) -> int:
    """Work of a function that reads all its arguments once."""
    return sum(size_of(each) for each in given if hasattr(each, "__len__"))


def times(count: int, work: Callable[..., int]) -> Callable[..., int]:
    """`count` times as much: for a function that makes an object of every few characters, or calls
    Python for them. What makes or frees them all holds the interpreter as long as it takes, and the
    event loop of the process stands still."""
    return lambda *given: count * work(*given)


def size_of(value: Any) -> int:
    """Characters of a text; ITEM_WORK for each item of a list or an entry of a map."""
    return len(value) * (1 if isinstance(value, (str, bytes)) else ITEM_WORK)


def order_of(value: Any) -> Any:
    """A key to sort by: NULL first, NaN last, arrays and structs by their parts."""
    if value is None:
        return (0, 0)
    if isinstance(value, float):
        return (2, 0) if math.isnan(value) else (1, value)
    if isinstance(value, list):
        return (1, [order_of(item) for item in value])
    if isinstance(value, dict):
        return (1, [order_of(item) for item in value.values()])
    return (1, value)
