"""ksqlDB's types: their spelling, their widening order, and the Python value of each.

Values in plans, keys and INSERTs are plain Python: BOOLEAN bool, INTEGER and BIGINT int, DOUBLE
float, DECIMAL decimal.Decimal (at the type's scale), STRING str, BYTES bytes, DATE int (days since
1970-01-01), TIME int (ms of the day), TIMESTAMP int (Unix ms), ARRAY list, MAP and STRUCT dict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NoReturn

from standpipe.errors import StatementError

#: Every accepted name of a type, and the name that this code uses.
NAMES: Final = {
    "BOOLEAN": "BOOLEAN",
    "INT": "INTEGER",
    "INTEGER": "INTEGER",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "DECIMAL": "DECIMAL",
    "VARCHAR": "STRING",
    "STRING": "STRING",
    "BYTES": "BYTES",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP",
    "ARRAY": "ARRAY",
    "MAP": "MAP",
    "STRUCT": "STRUCT",
}
#: Left widens to right without a CAST: INTEGER < BIGINT < DECIMAL < DOUBLE (ksqlDB).
NUMERIC: Final = ("INTEGER", "BIGINT", "DECIMAL", "DOUBLE")
#: Types to which a string literal is converted if the context requires it.
FROM_TEXT: Final = frozenset({"DATE", "TIME", "TIMESTAMP", "BYTES"})
PRECISION_MAX: Final = 38  # Spark's limit; ksqlDB has none
_SCALE_KEPT: Final = 6  # Spark's as well
#: the remainder of DECIMALs is NULL from this quotient on: Spark ends the query with an error where
#: it has more than 38 digits. ksqlDB's is NULL where it has more digits than the result's type
REMAINDER_QUOTIENT_MAX: Final = 1e37
#: A type within a type within a type …: Spark and JSON parsers recurse.
NESTING_MAX: Final = 50
TOO_DEEP: Final = f"A type is nested deeper than {NESTING_MAX} levels."
#: Characters of a type. Names of types stand for their definitions, and a STRUCT may have a field
#: of one type a thousand times, so a few statements of 300 bytes make a type of a gigabyte.
TYPE_CHARS_MAX: Final = 32_768
#: Spark stores instants as 64-bit microseconds, and one that does not fit ends the query
INSTANT_MS_MAX: Final = 2**63 // 1000 - 1
#: days around 1970 whose midnight is an instant for Spark
DATE_DAYS_MAX: Final = INSTANT_MS_MAX // 86_400_000 - 1


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type. ARRAY has one argument, MAP two (key, value), STRUCT one per field name.

    `base` may be a name that is not in NAMES until the analyser has resolved custom types.
    """

    base: str
    precision: int = 0
    scale: int = 0
    arguments: tuple[SqlType, ...] = ()
    field_names: tuple[str, ...] = ()

    @property
    def nesting(self) -> int:
        """How many levels of ARRAY, MAP and STRUCT are around its innermost part."""
        return 1 + max(part.nesting for part in self.arguments) if self.arguments else 0

    def __str__(self) -> str:
        """ksqlDB's spelling, as in `Column.type` and a header's schema."""
        if self.base == "DECIMAL":
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.base == "STRUCT":
            fields = zip(self.field_names, self.arguments, strict=True)
            return "STRUCT<" + ", ".join(f"{quoted(name)} {of}" for name, of in fields) + ">"
        if self.arguments:
            return f"{self.base}<{', '.join(map(str, self.arguments))}>"
        return self.base

    @property
    def is_numeric(self) -> bool:
        """INTEGER, BIGINT, DECIMAL or DOUBLE."""
        return self.base in NUMERIC

    @property
    def is_nested(self) -> bool:
        """ARRAY, MAP or STRUCT."""
        return self.base in ("ARRAY", "MAP", "STRUCT")

    def contains(self, base: str) -> bool:
        """Whether this type is `base` or contains it at any depth."""
        return self.base == base or any(part.contains(base) for part in self.arguments)

    def is_too_long(self) -> bool:
        """Whether its text has more than TYPE_CHARS_MAX characters, without making the text."""
        left = TYPE_CHARS_MAX
        waiting: list[SqlType] = [self]
        while waiting and left >= 0:
            part = waiting.pop()
            left -= len(part.base) + sum(map(len, part.field_names))
            waiting += part.arguments
        return left < 0

    def field(self, name: str) -> SqlType | None:
        """Type of a STRUCT's field; None if there is no such field."""
        if name not in self.field_names:
            return None
        return self.arguments[self.field_names.index(name)]


BOOLEAN: Final = SqlType("BOOLEAN")
INTEGER: Final = SqlType("INTEGER")
BIGINT: Final = SqlType("BIGINT")
DOUBLE: Final = SqlType("DOUBLE")
STRING: Final = SqlType("STRING")
BYTES: Final = SqlType("BYTES")
DATE: Final = SqlType("DATE")
TIME: Final = SqlType("TIME")
TIMESTAMP: Final = SqlType("TIMESTAMP")
#: Type of the literal NULL: fits everywhere, cannot be written in a statement.
NULL: Final = SqlType("NULL")


def decimal(precision: int, scale: int) -> SqlType:
    """DECIMAL(precision, scale), unchecked: `functions.cast.check_known` checks the limits."""
    return SqlType("DECIMAL", precision, scale)


def fitted_decimal(precision: int, scale: int) -> SqlType:
    """A DECIMAL of at most 38 digits: those before the point first, of the scale down to six."""
    if precision <= PRECISION_MAX:
        return decimal(precision, scale)
    scale = max(PRECISION_MAX - (precision - scale), min(scale, _SCALE_KEPT))
    return decimal(PRECISION_MAX, scale)


def literal_decimal(text: str) -> SqlType:
    """The DECIMAL type of a literal as written: -1.50 is DECIMAL(3, 2), .5 is DECIMAL(2, 1): as in
    ksqlDB, there is a digit before the point (DecimalUtil.fromValue)."""
    whole, _, places = text.lstrip("-").partition(".")
    return decimal(max(len(whole.lstrip("0")), 1) + len(places), len(places))


def array(element: SqlType) -> SqlType:
    """ARRAY<element>."""
    return SqlType("ARRAY", arguments=(element,))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    """MAP<key, value>."""
    return SqlType("MAP", arguments=(key, value))


def struct(fields: tuple[tuple[str, SqlType], ...]) -> SqlType:
    """STRUCT of (name, type) pairs, in order."""
    names = tuple(name for name, _ in fields)
    return SqlType("STRUCT", arguments=tuple(of for _, of in fields), field_names=names)


def quoted(name: str) -> str:
    """A name in back-quotes, inner ones doubled, as ksqlDB prints it and Spark reads it."""
    return "`" + name.replace("`", "``") + "`"


# ------------------------------------------------------------------------------------- spelling

_WORD: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([A-Za-z0-9_@]+)|(.))", re.DOTALL)


#: Characters of a short text. A kept type takes some twenty bytes for each, so few long ones are.
SHORT_CHARS_MAX: Final = 2_000
LONG_KEPT_MAX: Final = 32


def parse_type(text: str) -> SqlType:
    """The type that a text (`str(type)`, `Column.type`) spells; raises StatementError if none."""
    return _short_type(text) if len(text) <= SHORT_CHARS_MAX else _long_type(text)


@lru_cache(maxsize=2048)
def _short_type(text: str) -> SqlType:
    """Kept, because each statement asks for the types of the same columns."""
    return _parsed_type(text)


@lru_cache(maxsize=LONG_KEPT_MAX)
def _long_type(text: str) -> SqlType:
    return _parsed_type(text)


def _parsed_type(text: str) -> SqlType:
    words = [(match[1], match[2], match[3]) for match in _WORD.finditer(text.strip())]
    cursor = _TypeReader(text, words)
    result = cursor.read_type(0)
    if cursor.index != len(words):
        cursor.fail()
    return result


class _TypeReader:
    """Reads a type from left to right. `words`: (quoted name, word, mark), of which one is set."""

    def __init__(self, text: str, words: list[tuple[str | None, str | None, str | None]]) -> None:
        self.text = text
        self.words = words
        self.index = 0

    def fail(self) -> NoReturn:
        raise StatementError(f"Cannot resolve unknown type: {self.text}")

    def take(self) -> tuple[str | None, str | None, str | None]:
        if self.index >= len(self.words):
            self.fail()
        self.index += 1
        return self.words[self.index - 1]

    def at(self, mark: str) -> bool:
        """Consumes `mark` if it is next."""
        if self.index < len(self.words) and self.words[self.index][2] == mark:
            self.index += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.at(mark):
            self.fail()

    def read_number(self) -> int:
        word = self.take()[1]
        if word is None or not word.isdecimal():
            self.fail()
        return int(word)

    def read_type(self, depth: int) -> SqlType:
        word = self.take()[1]
        base = NAMES.get((word or "").upper())
        if depth > NESTING_MAX:
            raise StatementError(TOO_DEEP)
        if base is None:
            self.fail()
        if base == "DECIMAL":
            self.expect("(")
            precision = self.read_number()
            self.expect(",")
            scale = self.read_number()
            self.expect(")")
            return decimal(precision, scale)
        if base == "ARRAY":
            self.expect("<")
            element = self.read_type(depth + 1)
            self.expect(">")
            return array(element)
        if base == "MAP":
            self.expect("<")
            key = self.read_type(depth + 1)
            self.expect(",")
            value = self.read_type(depth + 1)
            self.expect(">")
            return map_of(key, value)
        return self.read_struct(depth) if base == "STRUCT" else SqlType(base)

    def read_struct(self, depth: int) -> SqlType:
        self.expect("<")
        fields: list[tuple[str, SqlType]] = []
        while not self.at(">"):
            if fields:
                self.expect(",")
            name, word, _ = self.take()
            if name is None and word is None:
                self.fail()
            plain = name.replace("``", "`") if name is not None else str(word).upper()
            fields.append((plain, self.read_type(depth + 1)))
        return struct(tuple(fields))


# ------------------------------------------------------------------------------------- widening


def as_decimal(of: SqlType) -> SqlType:
    """The DECIMAL that holds every value of an exact numeric type."""
    return {"INTEGER": decimal(10, 0), "BIGINT": decimal(19, 0)}.get(of.base, of)


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """The narrowest type that both widen to; None if there is none."""
    if left == right or right.base == "NULL":
        return left
    if left.base == "NULL":
        return right
    if left.is_numeric and right.is_numeric:
        base = max(left.base, right.base, key=NUMERIC.index)
        if base != "DECIMAL":
            return SqlType(base)
        one, two = as_decimal(left), as_decimal(right)
        scale = max(one.scale, two.scale)
        digits = max(one.precision - one.scale, two.precision - two.scale) + scale
        return fitted_decimal(digits, scale)
    if left.base == right.base and left.base in ("ARRAY", "MAP"):
        pairs = zip(left.arguments, right.arguments, strict=True)
        parts = tuple(part for one, two in pairs if (part := common_type(one, two)) is not None)
        return SqlType(left.base, arguments=parts) if len(parts) == len(left.arguments) else None
    return None


def widens(source: SqlType, target: SqlType) -> bool:
    """Whether a value of `source` is accepted as `target` without a CAST."""
    return common_type(source, target) == target


_ADDITIVE: Final[Callable[[SqlType, SqlType], tuple[int, int]]] = lambda one, two: (  # noqa: E731
    max(one.scale, two.scale) + max(one.precision - one.scale, two.precision - two.scale) + 1,
    max(one.scale, two.scale),
)


def arithmetic_type(operator: str, left: SqlType, right: SqlType) -> SqlType | None:
    """Result of `left operator right` (ksqlDB: integers stay integers, even with /)."""
    if operator in ("+", "||") and left == right == STRING:
        return STRING
    common = common_type(left, right)
    if operator == "||" or common is None or not common.is_numeric:
        return None
    if common.base != "DECIMAL":
        return common
    one, two = as_decimal(left), as_decimal(right)
    if operator in "+-":
        precision, scale = _ADDITIVE(one, two)
    elif operator == "*":
        precision, scale = one.precision + two.precision + 1, one.scale + two.scale
    elif operator == "/":
        scale = max(6, one.scale + two.precision + 1)
        precision = one.precision - one.scale + two.scale + scale
    else:
        scale = max(one.scale, two.scale)
        precision = min(one.precision - one.scale, two.precision - two.scale) + scale
    return fitted_decimal(precision, scale)
