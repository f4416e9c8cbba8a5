"""The statements that lookups and inserts are made of, and which may be sent twice. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from standpipe.client.core.literals import UnfitParameter, literal, without_texts
from standpipe.client.core.rows import Row, RowSet
from standpipe.client.core.tables import Key, SourceShape, TableMap, plain_value
from standpipe.errors import StandpipeError
from standpipe.sql.types.names import folded, name_literal
from standpipe.sql.types.types import SqlType, quoted

#: keys of one statement: a node answers so many without a turn of its loop
KEYS_MAX: Final = 256
KEYS_CHARACTERS_MAX: Final = 40_000
#: an answer shows a TIME in whole seconds
SHOWN_TIME_MS: Final = 1000
INSERTS_MAX: Final = 100
INSERT_CHARACTERS_MAX: Final = 40_000
#: statements of POST /ksql that change nothing beyond their request, in a text without quoted names
_REPEATABLE: Final = re.compile(
    r"\s*(?:(?:SHOW|LIST|DESCRIBE|EXPLAIN|SET|UNSET|DEFINE|UNDEFINE)\b[^;]*(?:;\s*|\Z))+",
    re.IGNORECASE,
)
_INSERT: Final = re.compile(r"\s*INSERT\b", re.IGNORECASE)


def is_repeatable(statements: str) -> bool:
    """Whether statements of POST /ksql may be sent to a second node after the first may have
    carried them out. One that changes something among them makes all of them unrepeatable."""
    if _INSERT.match(statements) is not None:  # most are: a long text is not searched
        return False
    return _REPEATABLE.fullmatch(without_texts(statements)) is not None


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


def wanted_keys(shape: SourceShape, keys: Iterable[object]) -> list[Key]:
    """The values of each key, in the order of its columns. Raises UnfitParameter."""
    if isinstance(keys, str | bytes | Mapping):
        raise UnfitParameter("this is one key: give a list of keys, or use get()")
    names = [column.name for column in shape.key_columns]
    listed = list(keys)
    if len(names) == 1 and not any(
        issubclass(kind, Mapping | tuple) for kind in {*map(type, listed)}
    ):
        return list(zip(listed, strict=True))
    return [shape.key_of(key_dict(each, names))[0] for each in listed]


def are_plain(shape: SourceShape, keys: Iterable[Key]) -> bool:
    """Whether the value of a key is the identity of its row: texts or whole numbers, as most."""
    plain = shape.plain_key
    return plain is not None and {type(key[0]) for key in keys} <= {plain}


def _literals(shape: SourceShape, keys: Sequence[Key]) -> list[str]:
    """Of each key of an only column. Raises UnfitParameter."""
    of = shape.columns[shape.key_columns[0].name]
    if shape.plain_key is str and are_plain(shape, keys):
        texts = [cast("str", value) for (value,) in keys]
        together = "".join(texts)
        if together.isascii() and "'" not in together:
            return [f"'{text}'" for text in texts]
    return [literal(value, of) for (value,) in keys]


def identity(values: Sequence[object], shape: SourceShape, time_ms: int = SHOWN_TIME_MS) -> object:
    """What the spellings of one key have in common, and the row that an answer shows for it, as a
    value that a dict can look up. `time_ms`: what a TIME is cut to.

    Of values that nodes refuse, and that no row has, each has an identity of its own.
    """
    try:
        return tuple(
            [
                _hashable(plain_value(value, of), of, time_ms)
                for value, column in zip(values, shape.key_columns, strict=True)
                for of in (shape.columns[column.name],)
            ]
        )
    except (StandpipeError, ValueError, TypeError, ArithmeticError):
        return object()


def _hashable(value: Any, of: SqlType, time_ms: int) -> object:
    if of.base == "TIME" and value is not None:
        return value // time_ms
    if of.base == "ARRAY" and value is not None:
        return tuple([_hashable(each, of.arguments[0], time_ms) for each in value])
    if of.base == "STRUCT" and value is not None:
        parts = zip(value.values(), of.arguments, strict=True)
        return tuple([_hashable(each, part, time_ms) for each, part in parts])
    return value


def lookups(found: TableMap, wanted: Sequence[Key]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Statements that ask for all keys, each with the holders of its keys.

    Keys of one column go into an IN, those of several columns each into a statement. Raises
    UnfitParameter.
    """
    shape = found.shape
    if len(shape.key_columns) != 1:
        names = [column.name for column in shape.key_columns]
        wheres = {shape.key_of(key_dict(key, names))[1]: key for key in wanted}
        for where, key in wheres.items():
            yield f"{found.select}{where};", found.holders_of(key)
        return
    name = name_literal(shape.key_columns[0].name)
    keys = list(dict.fromkeys(wanted)) if are_plain(shape, wanted) else wanted
    for holders, its_keys in found.by_holders(keys).items():
        for listed in _lists(list(dict.fromkeys(_literals(shape, its_keys)))):
            where = f"= {listed[0]}" if len(listed) == 1 else f"IN ({', '.join(listed)})"
            yield f"{found.select}{name} {where};", holders


def one_lookup(found: TableMap, wanted: Sequence[Key]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """One statement that asks any node for all keys, so that its answer is of one batch; none if
    there are no keys. A node refuses one with too many. Raises UnfitParameter."""
    if not wanted:
        return
    shape = found.shape
    if len(shape.key_columns) != 1:
        names = [column.name for column in shape.key_columns]
        wheres = dict.fromkeys(shape.key_of(key_dict(key, names))[1] for key in wanted)
        yield f"{found.select}{' OR '.join(f'({where})' for where in wheres)};", ()
        return
    name = name_literal(shape.key_columns[0].name)
    listed = dict.fromkeys(_literals(shape, wanted))
    yield f"{found.select}{name} IN ({', '.join(listed)});", ()


def _lists(literals: Sequence[str]) -> Iterator[Sequence[str]]:
    """Literals of one statement each: at most `KEYS_MAX`, and not too long together."""
    if len(literals) <= KEYS_MAX and sum(map(len, literals)) <= KEYS_CHARACTERS_MAX:
        yield literals
        return
    start = size = 0
    for place, each in enumerate(literals):
        size += len(each)
        if place > start and (place - start == KEYS_MAX or size > KEYS_CHARACTERS_MAX):
            yield literals[start:place]
            start, size = place, len(each)
    yield literals[start:]


def rows_of_keys(
    shape: SourceShape, wanted: Sequence[Key], answers: Iterable[RowSet]
) -> list[Row | None]:
    """The row of each key among the answers to `lookups`, in the order of the keys.

    Raises UnfitParameter if a row cannot be assigned to a key: the client and the nodes read a
    value differently, the table was recreated, or keys differ only in the milliseconds of a TIME.
    """
    names = [column.name for column in shape.key_columns]
    is_plain = are_plain(shape, wanted)
    asked = [key[0] if is_plain else identity(key, shape) for key in wanted]
    _check_are_told_apart(shape, wanted, asked)
    rows: dict[object, Row] = {}
    for answer in answers:
        columns, fresh = answer.columns, answer.fresh
        places = [columns.place(name) for name in names]
        for values in answer.tuples:
            row = Row(columns, values, fresh)
            if is_plain:
                rows[values[places[0]]] = row
            else:
                rows[identity([values[place] for place in places], shape)] = row
    if not rows.keys() <= (known := set(asked)):
        stranger = next(row for each, row in rows.items() if each not in known)
        key = {name: stranger[name] for name in names}
        raise UnfitParameter(
            f"{shape.name}: the answer has a row of the key {key!r}, which is none of those that "
            "were asked for: spell the keys as rows show them, or use query()"
        )
    return [rows.get(each) for each in asked]


def _check_are_told_apart(
    shape: SourceShape, wanted: Sequence[Key], asked: Sequence[object]
) -> None:
    """Answers show a TIME without milliseconds. Raises UnfitParameter."""
    if not any(shape.columns[column.name].contains("TIME") for column in shape.key_columns):
        return
    exact = {identity(key, shape, 1): shown for key, shown in zip(wanted, asked, strict=True)}
    if len({*exact.values()}) < len(exact):
        raise UnfitParameter(
            f"{shape.name}: keys differ in the milliseconds of a TIME alone, which no answer shows:"
            " ask for each with get()"
        )


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
