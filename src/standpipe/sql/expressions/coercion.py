"""Lists of expressions that must have one type: IN, ARRAY[…], MAP(…), coerced as ksqlDB does.

Numbers widen; a text literal takes the type of the other items; a literal beside text becomes text;
structs get the fields of all; text beside a time or BYTES is read as such, also that of a column.
Otherwise columns never change their type: that takes a CAST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

from standpipe.sql.functions.cast import convert
from standpipe.sql.types import casts, types, values
from standpipe.sql.types.typed_expression import Constant, Operation, Typed
from standpipe.sql.types.types import NULL, STRING, SqlType

ARRAY: Final = "array({all})"
MAP: Final = "map({all})"
STRUCT: Final = "named_struct({all})"

#: what any text becomes beside such an item (DefaultSqlValueCoercer.STRICT)
_READ_FROM_TEXT: Final = frozenset({"TIMESTAMP", "DATE", "TIME", "BYTES"})


class Mismatch(Exception):
    """No type holds both this item and those before it."""

    def __init__(self, found: SqlType, item: int) -> None:
        super().__init__(str(found))
        self.found, self.item = found, item


class NotOfType(Exception):
    """A text literal is not valid for the wanted type."""


def common(items: Sequence[Typed]) -> SqlType:
    """The common type of all items. Raises Mismatch."""
    found = NULL
    for index, item in enumerate(items):
        wider = _wider(found, item)
        if wider is None:
            raise Mismatch(found, index)
        found = wider
    return found


def coerced(typed: Typed, target: SqlType) -> Typed:
    """The expression as the common type. Raises NotOfType."""
    if target in (typed.type, NULL):
        return typed
    if isinstance(typed, Constant):
        return _constant(typed, target)
    if isinstance(typed, Operation) and typed.template in (ARRAY, MAP, STRUCT):
        return _constructed(typed, target)
    if target.base == "STRUCT" and typed.type.field_names != target.field_names:
        return _widened_struct(typed, target)
    return convert(typed, target)


def _wider(found: SqlType, typed: Typed) -> SqlType | None:
    of = typed.type
    if NULL in (found, of):
        return of if found == NULL else found
    if isinstance(typed, Constant) and not found.is_nested:
        if STRING in (of, found):
            return _beside_text(found, typed)
    elif isinstance(typed, Operation) and typed.template in (ARRAY, MAP, STRUCT):
        return _wider_constructed(found, typed)
    return _wider_types(found, of)


def _beside_text(found: SqlType, typed: Constant) -> SqlType:
    """Text beside whole numbers takes their type, or becomes a DECIMAL if it has an exponent. In
    ksqlDB a time is no literal, so text beside it is read."""
    if typed.type.base in _READ_FROM_TEXT:
        return typed.type
    text = str(typed.value).strip()
    if typed.type != STRING or found.base not in ("INTEGER", "BIGINT") or "E" not in text.upper():
        return found
    try:
        plain = values.plain_text(Decimal(text))
    except (InvalidOperation, ValueError):
        return found  # `coerced` reports what is wrong with it
    return types.common_type(found, types.literal_decimal(plain)) or found


def _wider_constructed(found: SqlType, typed: Operation) -> SqlType | None:
    if found.base != typed.type.base:
        return None
    if typed.template == STRUCT:
        before = _types_of_fields(found)
        wider = {name: _wider(before.get(name, NULL), value) for name, value in _fields(typed)}
        return _struct(wider, before)
    parts = list(found.arguments)
    for index, argument in enumerate(typed.arguments):
        place = index % len(parts)
        wider = _wider(parts[place], argument)
        if wider is None:
            return None
        parts[place] = wider
    return SqlType(found.base, arguments=tuple(parts))


def _wider_types(one: SqlType, two: SqlType) -> SqlType | None:
    if NULL in (one, two):
        return two if one == NULL else one
    if one.base == two.base == "STRUCT":
        before, added = _types_of_fields(one), _types_of_fields(two)
        wider = {name: _wider_types(before.get(name, NULL), of) for name, of in added.items()}
        return _struct(wider, before)
    if one.is_nested and one.base == two.base:
        parts = [_wider_types(*pair) for pair in zip(one.arguments, two.arguments, strict=True)]
        found = tuple(part for part in parts if part is not None)
        return SqlType(one.base, arguments=found) if len(found) == len(parts) else None
    for text, other in ((one, two), (two, one)):
        if text == STRING and other.base in _READ_FROM_TEXT:
            return other
    return types.common_type(one, two)


def _types_of_fields(of: SqlType) -> dict[str, SqlType]:
    return dict(zip(of.field_names, of.arguments, strict=True))


def _struct(wider: Mapping[str, SqlType | None], before: Mapping[str, SqlType]) -> SqlType | None:
    """The fields of an item, then those that only the ones before it have: so are ksqlDB's
    (CoercionUtil.resolveCommonStructType, DefaultSqlValueCoercer.canCoerceToStruct)."""
    fields = {**wider, **{name: of for name, of in before.items() if name not in wider}}
    found = {name: of for name, of in fields.items() if of is not None}
    return types.struct(tuple(found.items())) if len(found) == len(fields) else None


def _fields(typed: Operation) -> list[tuple[str, Typed]]:
    parts = typed.arguments
    names = [str(each.value) for each in parts[::2] if isinstance(each, Constant)]
    return list(zip(names, parts[1::2], strict=True))


def _constant(typed: Constant, target: SqlType) -> Constant:
    if target.base == "BOOLEAN" and isinstance(typed.value, str):
        return Constant(target, _boolean(typed.value))
    try:
        if target.base in ("INTEGER", "BIGINT") and isinstance(typed.value, str):
            return Constant(target, _whole(typed.value, target))
        return Constant(target, casts.cast_value(typed.value, typed.type, target))
    except (ValueError, ArithmeticError):
        raise NotOfType(f'invalid input syntax for type {target.base}: "{typed.value}".') from None


def _whole(text: str, target: SqlType) -> int:
    """Accepts also 4.000 and 2e1. Raises ValueError or ArithmeticError."""
    number = values.whole_number(Decimal(text.strip()))
    if casts.wrapped(number, target.base) != number:
        raise ValueError(f"{text} does not fit {target}")
    return number


def _boolean(text: str) -> bool:
    """Accepts any prefix of true, yes, false or no."""
    small = text.strip().lower()
    for words, meaning in ((("true", "yes"), True), (("false", "no"), False)):
        if small and any(word.startswith(small) for word in words):
            return meaning
    raise NotOfType(f'invalid input syntax for type BOOLEAN: "{text}".')


def _constructed(typed: Operation, target: SqlType) -> Typed:
    if typed.template == STRUCT:
        given = dict(_fields(typed))
        parts: list[Typed] = []
        for name, of in zip(target.field_names, target.arguments, strict=True):
            parts += [Constant(STRING, name), coerced(given.get(name, Constant(of, None)), of)]
        return replace(typed, type=target, arguments=tuple(parts))
    width = len(target.arguments)
    made = [coerced(each, target.arguments[i % width]) for i, each in enumerate(typed.arguments)]
    return replace(typed, type=target, arguments=tuple(made))


def _widened_struct(typed: Typed, target: SqlType) -> Typed:
    parts: list[Typed] = []
    for name, of in zip(target.field_names, target.arguments, strict=True):
        own = typed.type.field(name)
        value: Typed = Constant(of, None)
        if own is not None:
            field = types.quoted(name).replace("{", "{{").replace("}", "}}")
            value = coerced(Operation(own, f"{{0}}.{field}", (typed,)), of)
        parts += [Constant(STRING, name), value]
    made = Operation(target, STRUCT, tuple(parts))
    return Operation(target, "if({0} IS NULL, NULL, {1})", (typed, made))
