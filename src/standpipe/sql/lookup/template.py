"""A pull query without its literals, as the plan cache keeps it and fills it in again.

`slots` are the literals in the order of the text. `bind` fills them with values: each is coerced to
the type of its key column or bound, then keys and bounds are computed. Nothing here reads text.
Whatever is the same for all values is computed when the template is made, not in `bind`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from standpipe.errors import StatementError
from standpipe.sql.plans import PullPlan

#: Converts a literal's value to the type that is needed; raises StatementError if it does not fit.
Coercion = Callable[[Any], Any]


def unchanged(value: Any) -> Any:
    """The coercion of a value that has the needed type already."""
    return value


#: Keys of one pull query; a WHERE that only allows more is read as a scan. Key columns multiply:
#: 300 values for each of three are 27 million keys.
KEYS_MAX: Final = 1_000
#: whether a full row is wanted, by the values of the slots
FilterTest = Callable[[Sequence[Any], Sequence[Any]], bool]
#: Index into the values of the slots, followed by the constants.
Place = int


@dataclass(frozen=True, slots=True)
class Slot:
    """A literal of the text. `offset`: of its quote or first digit, after any sign."""

    offset: int
    coerce: Coercion
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """`column operator value` on WINDOWSTART or WINDOWEND."""

    column: Literal["WINDOWSTART", "WINDOWEND"]
    operator: str
    place: Place


class Condition(NamedTuple):
    """`column sign value`. `column`: its index in the full row; `compared`: the type that both are
    compared as."""

    column: int
    sign: str
    place: Place
    compared: str


_FIELDS: Final = {"WINDOWSTART": "window_start", "WINDOWEND": "window_end"}
_LOW: Final = {"=": 0, ">=": 0, ">": 1}  # what to add to get the inclusive bound
_HIGH: Final = {"=": 0, "<=": 0, "<": -1}


def _folded(slot: Slot) -> Coercion:
    """The slot's coercion with its sign applied first."""
    coerce = slot.coerce
    return (lambda value: coerce(-value)) if slot.negated else coerce


@dataclass(frozen=True, slots=True)
class PullTemplate:
    """`terms`: per key column, the lists of values that it must be in (AND of INs).

    `test`: the WHERE has more conditions, and `plan` has them with the literals of the first text;
    None: keys and bounds are all.
    """

    plan: PullPlan
    slots: tuple[Slot, ...]
    constants: tuple[object, ...]
    terms: tuple[tuple[tuple[Place, ...], ...], ...]
    bounds: tuple[Bound, ...] = ()
    limit: Place | None = None
    test: FilterTest | None = None
    #: `test`, if it is an AND of these; None: it is anything else
    conditions: tuple[Condition, ...] | None = None
    #: per slot, its coercion with the sign folded in
    _coercions: tuple[Coercion, ...] = field(init=False)
    #: the value of each key column, if each has only one: the common case
    _row: tuple[Place, ...] | None = field(init=False)
    #: field of the plan, what to add, index of the value, and whether it is a lower bound
    _limits: tuple[tuple[str, int, Place, bool], ...] = field(init=False)

    def __post_init__(self) -> None:
        is_row = all(len(terms) == 1 and len(terms[0]) == 1 for terms in self.terms)
        row = tuple(terms[0][0] for terms in self.terms) if is_row else None
        limits: list[tuple[str, int, Place, bool]] = []
        for bound in self.bounds:
            name = _FIELDS[bound.column]
            if bound.operator in _LOW:
                limits.append((f"{name}_low_ms", _LOW[bound.operator], bound.place, True))
            if bound.operator in _HIGH:
                limits.append((f"{name}_high_ms", _HIGH[bound.operator], bound.place, False))
        object.__setattr__(self, "_coercions", tuple(map(_folded, self.slots)))
        object.__setattr__(self, "_row", row)
        object.__setattr__(self, "_limits", tuple(limits))

    @property
    def key_coercion(self) -> Coercion | None:
        """The coercion of the only literal, if that is the only key: the most common case."""
        is_alone = len(self.slots) == 1 and self._row == (0,) and not self.bounds
        return self._coercions[0] if is_alone and self.test is None else None

    @property
    def key_place(self) -> Place | None:
        """The slot that is the only key as it is, up to its sign; None: there is none such."""
        row = self._row
        if row is None or len(row) != 1 or row[0] >= len(self.slots):
            return None
        return row[0] if self.slots[row[0]].coerce is unchanged else None

    @property
    def is_single(self) -> bool:
        """Whether each plan has one key."""
        return self._row is not None

    def bind(self, values: Sequence[object]) -> PullPlan:
        """The plan with `values`, one per slot, signs not yet applied."""
        if not self.terms:  # a scan, or keys that the plan already has
            return self.plan
        given = [coerce(value) for coerce, value in zip(self._coercions, values, strict=True)]
        given += self.constants
        if self._row is not None:
            keys: tuple[tuple[object, ...], ...] = (tuple([given[place] for place in self._row]),)
        else:
            columns = [_common(terms, given) for terms in self.terms]
            _check_count(math.prod(map(len, columns)))
            keys = tuple(product(*columns))
        changes: dict[str, object] = {"keys": keys}
        for name, add, place, is_low in self._limits:
            bound = cast("int", given[place]) + add
            known = cast("int", changes.get(name, bound))
            changes[name] = max(bound, known) if is_low else min(bound, known)
        if self.limit is not None:
            changes["limit"] = given[self.limit]
        if self.test is not None:
            changes["where"] = _bound(self.test, given)
        return msgspec.structs.replace(self.plan, **changes)


def _bound(test: FilterTest, given: list[object]) -> Callable[[Sequence[Any]], bool]:
    return lambda row: test(row, given)


def _common(terms: tuple[tuple[Place, ...], ...], given: list[object]) -> list[object]:
    """Values that occur in every term, without duplicates, in the order of the first term."""
    first, *others = [_once([given[place] for place in term]) for term in terms]
    for other in others:
        first = _both(first, other)
    return first


def _both(one: list[object], other: list[object]) -> list[object]:
    """The values of `one` that are in `other` too."""
    try:
        wanted: Container[object] = set(other)
    except TypeError:
        wanted = other
    return [value for value in one if value in wanted]


def _check_count(count: int) -> None:
    if count > KEYS_MAX:
        raise StatementError(
            f"The query names {count} keys. One query may name {KEYS_MAX}: ask for fewer at a time."
        )


def _once(values: list[object]) -> list[object]:
    """Removes duplicates: by hash, as IN may name many; ARRAY and STRUCT keys have no hash."""
    try:
        return list(dict.fromkeys(values))
    except TypeError:
        return [value for place, value in enumerate(values) if value not in values[:place]]
