"""The statements that lookups and inserts are made of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, cast

from standpipe.client.core.literals import UnfitParameter, folded, literal, name_literal
from standpipe.client.core.tables import SourceShape, TableMap
from standpipe.sql.types.types import quoted

#: keys of one statement: nodes keep plans of statements with up to 63 literals
KEYS_MAX: Final = 32
INSERTS_MAX: Final = 100
INSERT_CHARACTERS_MAX: Final = 40_000


def key_dict(given: object, names: Sequence[str]) -> Mapping[str, object]:
    """A key as `get` takes it, from a dict, a tuple, or the value of the only column.

    Raises UnfitParameter.
    """
    if isinstance(given, Mapping):
        return given  # pyright: ignore[reportUnknownVariableType] `key_of` checks it
    if isinstance(given, tuple):
        parts = cast("tuple[object, ...]", given)
        if len(parts) == len(names):
            return {quoted(name): part for name, part in zip(names, parts, strict=True)}
    elif len(names) == 1:
        return {quoted(names[0]): given}
    raise UnfitParameter(f"the key is {', '.join(names)}: give dicts, or tuples of that length")


def wanted_keys(shape: SourceShape, keys: Iterable[object]) -> list[tuple[tuple[object, ...], str]]:
    """Of each key its values and its condition, as `SourceShape.key_of` has them.

    Raises UnfitParameter. Values of an only column take a shorter way: there are many of them.
    """
    names = [column.name for column in shape.key_columns]
    first = name_literal(names[0])
    of = shape.columns[names[0]]
    return [
        ((each,), f"{first} = {literal(each, of)}")
        if len(names) == 1 and _is_value(each)
        else shape.key_of(key_dict(each, names))
        for each in keys
    ]


def _is_value(given: object) -> bool:
    return not isinstance(given, Mapping | tuple)


def identity(values: Sequence[object], shape: SourceShape) -> object:
    """What equal keys have in common, as a value that a dict can look up."""
    shown = [
        literal(_same(value, shape.columns[column.name].base), shape.columns[column.name])
        for value, column in zip(values, shape.key_columns, strict=True)
    ]
    return tuple(shown)


def _same(value: object, base: str) -> object:
    """Values that one SQL value stands for become one: 5 and 5.0 of a DOUBLE, 1.5 and 1.50."""
    if base == "DOUBLE" and isinstance(value, int | float | Decimal):
        return float(value) + 0.0
    if base == "DECIMAL" and isinstance(value, int | float | Decimal):
        number = Decimal(value).normalize()
        return number if number else Decimal(0)
    return value


def lookups(
    found: TableMap, wanted: Sequence[tuple[tuple[object, ...], str]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Statements that ask for all keys, each with the holders of its keys.

    Keys of one column go into an IN, those of several columns each into a statement. The last key
    is repeated until their number is a power of two: nodes then plan six shapes, not 32.
    """
    shape = found.shape
    by_holders: dict[tuple[str, ...], dict[str, None]] = {}
    for values, where in wanted:
        by_holders.setdefault(found.holders_of(values), {})[where] = None
    for holders, wheres in by_holders.items():
        listed = list(wheres)
        if len(shape.key_columns) != 1:
            yield from ((f"{found.select}{where};", holders) for where in listed)
            continue
        (column,) = shape.key_columns
        name = name_literal(column.name)
        values = [where.removeprefix(f"{name} = ") for where in listed]
        for at in range(0, len(values), KEYS_MAX):
            part = values[at : at + KEYS_MAX]
            part += part[-1:] * ((1 << (len(part) - 1).bit_length()) - len(part))
            yield f"{found.select}{name} IN ({', '.join(part)});", holders


def insert_text(shape: SourceShape, row: Mapping[str, object]) -> str:
    """INSERT of one row. Raises UnfitParameter for an unknown column, or a value that has no
    literal."""
    names: list[str] = []
    values: list[str] = []
    for given, value in row.items():
        name = "ROWTIME" if folded(given) == "ROWTIME" else shape.column(given)
        names.append(name_literal(name))
        values.append(literal(value, shape.columns.get(name)))
    columns, literals = ", ".join(names), ", ".join(values)
    return f"INSERT INTO {name_literal(shape.name)} ({columns}) VALUES ({literals});"  # noqa: S608


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Statements of one request each: at most `INSERTS_MAX`, and not too long together."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == INSERTS_MAX or size + len(text) > INSERT_CHARACTERS_MAX):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch
