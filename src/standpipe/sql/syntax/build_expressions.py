"""Grammar callbacks for expressions, types and names: words and nodes in, one node out.

lark calls them bottom-up while it parses, so nesting costs no Python frames here.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, NamedTuple, cast

from lark import Token

from standpipe.errors import StatementError
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast import Expression, LiteralValue, Position
from standpipe.sql.syntax.errors import refusal, unknown_name
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType
from standpipe.sql.types.values import BIGINT_MAX, INTEGER_MAX

_PLAIN_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")


#: types that are nothing without others in them, and what to write
_WITH_PARTS: Final = {
    "ARRAY": "ARRAY<type>",
    "MAP": "MAP<STRING, type>",
    "STRUCT": "STRUCT<name type>",
}


class Name(NamedTuple):
    """An identifier: its name (upper-cased unless quoted), its position, and as written, without
    quotes."""

    text: str
    at: Position
    written: str = ""
    is_quoted: bool = False


def position(token: Token) -> Position:
    """Where a token begins."""
    return Position(token.line or 1, token.column or 1, token.start_pos or 0)


def text_of(token: Token) -> str:
    """The value of a quoted string: only a doubled quote is special."""
    return str(token)[1:-1].replace("''", "'")


def integer_kind(value: int) -> ast.LiteralKind:
    """INTEGER if the value fits 32 bits, otherwise BIGINT."""
    return "INTEGER" if -INTEGER_MAX - 1 <= value <= INTEGER_MAX else "BIGINT"


class Pair(NamedTuple):
    """WHEN left THEN right, or key := value."""

    left: Expression
    right: Expression


class ExpressionBuilder:
    """Names, literals, expressions, types. StatementBuilder adds the rest."""

    # ------------------------------------------------------------------------------------ words

    def identifier(self, token: Token) -> Name:
        """A name: upper-cased, or as quoted."""
        raw = str(token)
        if raw[0] in '`"':
            quote = raw[0]
            text = raw[1:-1].replace(quote * 2, quote)
            return Name(text, position(token), text, is_quoted=True)
        return Name(raw.upper(), position(token), raw)

    alias = identifier

    def unreserved(self, token: Token) -> Token:
        """A keyword that may also be a name."""
        return token

    def clause_word(self, token: Token) -> Token:
        """A keyword that begins a clause, as a name."""
        return token

    def not_word(self) -> bool:
        """NOT before BETWEEN, IN, LIKE, NULL."""
        return True

    # --------------------------------------------------------------------------------- literals

    def text(self, token: Token) -> LiteralValue:
        """'quoted text'."""
        return LiteralValue(position(token), "STRING", text_of(token), str(token))

    def number(self, token: Token) -> LiteralValue:
        """An unsigned number: INTEGER, BIGINT, DECIMAL (1.5) or DOUBLE (1E3)."""
        raw = str(token)
        if token.type == "INTEGER":
            value = int(raw) if len(raw) < 400 else BIGINT_MAX + 1
            return LiteralValue(position(token), integer_kind(value), value, raw)
        if token.type == "DECIMAL":
            return LiteralValue(position(token), "DECIMAL", Decimal(raw), raw)
        return LiteralValue(position(token), "DOUBLE", float(raw), raw)

    def null(self, token: Token) -> LiteralValue:
        """NULL."""
        return LiteralValue(position(token), "NULL", None, "NULL")

    def boolean(self, token: Token) -> LiteralValue:
        """TRUE or FALSE."""
        return LiteralValue(position(token), "BOOLEAN", token.type == "TRUE", token.type)

    # ------------------------------------------------------------------------------- predicates

    def any_of(self, *operands: Expression) -> Expression:
        """a OR b OR …."""
        return ast.Logical(operands[0].at, "OR", operands)

    def all_of(self, *operands: Expression) -> Expression:
        """a AND b AND …."""
        return ast.Logical(operands[0].at, "AND", operands)

    def none_of(self, operand: Expression) -> Expression:
        """NOT a."""
        return ast.Not(operand.at, operand)

    def comparator(self, token: Token) -> str:
        """A comparison operator; != becomes <>."""
        return "<>" if str(token) == "!=" else str(token)

    def comparison(self, left: Expression, operator: str, right: Expression) -> Expression:
        """left operator right."""
        return ast.Comparison(left.at, cast("ast.Comparator", operator), left, right)

    def between(
        self, value: Expression, negated: bool | None, low: Expression, high: Expression
    ) -> Expression:
        """value [NOT] BETWEEN low AND high."""
        return ast.Between(value.at, value, low, high, bool(negated))

    def in_list(self, value: Expression, negated: bool | None, *items: Expression) -> Expression:
        """value [NOT] IN (items)."""
        return ast.InList(value.at, value, items, bool(negated))

    def like(
        self, value: Expression, negated: bool | None, pattern: Expression, escape: Token | None
    ) -> Expression:
        """value [NOT] LIKE pattern [ESCAPE 'c']."""
        escaped = None if escape is None else text_of(escape)
        return ast.Like(value.at, value, pattern, escaped, bool(negated))

    def is_null(self, value: Expression, negated: bool | None, _null: Token) -> Expression:
        """value IS [NOT] NULL."""
        return ast.IsNull(value.at, value, bool(negated))

    def distinct_from(
        self, left: Expression, negated: bool | None, right: Expression
    ) -> Expression:
        """left IS [NOT] DISTINCT FROM right."""
        operator: ast.Comparator = "IS NOT DISTINCT FROM" if negated else "IS DISTINCT FROM"
        return ast.Comparison(left.at, operator, left, right)

    # ----------------------------------------------------------------------------------- values

    def arithmetic(self, left: Expression, operator: Token, right: Expression) -> Expression:
        """left operator right."""
        return ast.Arithmetic(left.at, str(operator), left, right)  # pyright: ignore[reportArgumentType]

    def negative(self, sign: Token, operand: Expression) -> Expression:
        """Folds the sign into a number, so that the smallest BIGINT can be written."""
        if not isinstance(operand, LiteralValue) or operand.text.startswith("-"):
            return ast.Negative(position(sign), operand)
        value = operand.value
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            return ast.Negative(position(sign), operand)
        folded = value.copy_negate() if isinstance(value, Decimal) else -value
        kind = integer_kind(folded) if isinstance(folded, int) else operand.kind
        return LiteralValue(operand.at, kind, folded, f"-{operand.text}")

    def positive(self, _sign: Token, operand: Expression) -> Expression:
        """+operand: the operand."""
        return operand

    def at_time_zone(self, operand: Expression, zone: Token) -> Expression:
        """operand AT TIME ZONE 'zone'."""
        return ast.AtTimeZone(operand.at, operand, text_of(zone))

    # -------------------------------------------------------------------------------- primaries

    def column(self, name: Name) -> Expression:
        """NAME."""
        return ast.ColumnName(name.at, name.text)

    def qualified_column(self, source: Name, name: Name) -> Expression:
        """SOURCE.NAME."""
        return ast.ColumnName(source.at, name.text, source.text)

    def typed_text(self, kind: Name, text: Token) -> Expression:
        """DATE '2020-02-23': a CAST of the text. DECIMAL '1.50' has the digits that are written."""
        literal = self.text(text)
        if kind.text != "DECIMAL":
            return ast.Cast(kind.at, literal, self.named_type(kind))
        digits = str(literal.value).strip()
        if _PLAIN_NUMBER.fullmatch(digits) is None:
            raise refusal(f"Not a number: DECIMAL '{literal.value}'.", kind.at)
        return ast.Cast(kind.at, literal, types.literal_decimal(digits.lstrip("+")))

    def dereference(self, base: Expression, field: Name) -> Expression:
        """base->field."""
        return ast.Dereference(base.at, base, field.text)

    def subscript(self, base: Expression, index: Expression) -> Expression:
        """base[index]."""
        return ast.Subscript(base.at, base, index)

    def call(self, name: Name, arguments: tuple[Expression, ...] | None) -> Expression:
        """NAME(arguments)."""
        return ast.FunctionCall(name.at, name.text, arguments or ())

    def call_star(self, name: Name, _star: Token) -> Expression:
        """COUNT(*): a call without arguments."""
        return ast.FunctionCall(name.at, name.text, ())

    def arguments(self, *items: Expression) -> tuple[Expression, ...]:
        """The arguments of a call."""
        return items

    def expressions(self, *items: Expression) -> tuple[Expression, ...]:
        """a, b, …."""
        return items

    def parenthesis(self, inner: Expression) -> Expression:
        """(inner): parentheses have no node."""
        return inner

    def function_body(self, *parts: Name | Expression) -> Expression:
        """`x => body` or `(x, y) => body`; LALR reads the latter's head as a list of columns."""
        *heads, body = parts
        names: list[str] = []
        for head in heads:
            if isinstance(head, Name):
                names.append(head.text)
            elif isinstance(head, ast.ColumnName) and head.source is None:
                names.append(head.name)
            else:
                raise StatementError(
                    "A lambda's parameters must be names.", line=head.at.line, column=head.at.column
                )
        return ast.Lambda(heads[0].at, tuple(names), cast("Expression", body))

    def cast(self, word: Token, operand: Expression, of: SqlType) -> Expression:
        """CAST(operand AS type)."""
        return ast.Cast(position(word), operand, of)

    def when(self, condition: Expression, result: Expression) -> Pair:
        """WHEN condition THEN result."""
        return Pair(condition, result)

    def case(self, word: Token, *parts: Pair | Expression | None) -> Expression:
        """CASE WHEN … END."""
        whens = tuple((part.left, part.right) for part in parts if isinstance(part, Pair))
        return ast.Case(position(word), None, whens, cast("Expression | None", parts[-1]))

    def simple_case(
        self, word: Token, operand: Expression, *parts: Pair | Expression | None
    ) -> Expression:
        """CASE operand WHEN … END."""
        whens = tuple((part.left, part.right) for part in parts if isinstance(part, Pair))
        return ast.Case(position(word), operand, whens, cast("Expression | None", parts[-1]))

    def make_array(self, word: Token, items: tuple[Expression, ...] | None) -> Expression:
        """ARRAY[items]."""
        return ast.MakeArray(position(word), items or ())

    def entries(self, *parts: Expression) -> tuple[tuple[Expression, Expression], ...]:
        """key := value, …."""
        return tuple(zip(parts[::2], parts[1::2], strict=True))

    def make_map(
        self, word: Token, entries: tuple[tuple[Expression, Expression], ...] | None
    ) -> Expression:
        """MAP(entries)."""
        return ast.MakeMap(position(word), entries or ())

    def fields(self, *parts: Name | Expression) -> tuple[tuple[str, Expression], ...]:
        """name := value, …."""
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return tuple((cast("Name", name).text, cast("Expression", value)) for name, value in pairs)

    def make_struct(
        self, word: Token, entries: tuple[tuple[str, Expression], ...] | None
    ) -> Expression:
        """STRUCT(fields)."""
        return ast.MakeStruct(position(word), entries or ())

    # ------------------------------------------------------------------------------------ types

    def named_type(self, name: Name) -> SqlType:
        """INT, or a name of CREATE TYPE: not checked yet. Raises UnknownName for a type that has
        others in it, without them."""
        if name.text in _WITH_PARTS:
            message = f"Cannot resolve unknown type: {name.text}"
            raise unknown_name(message, name.at, f"Write {_WITH_PARTS[name.text]}.")
        return SqlType(types.NAMES.get(name.text, name.text))

    def type_parameter(self, token: Token) -> Token:
        """A number or word in a type's brackets."""
        return token

    def parameterised_type(self, name: Name, *parameters: Token) -> SqlType:
        """DECIMAL(p, s), and VARCHAR(STRING) or VARCHAR(20), whose parameter is ignored."""
        if name.text == "DECIMAL" and len(parameters) == 2:
            precision, scale = (int(str(each)) for each in parameters)
            return types.decimal(precision, scale)
        if name.text == "DECIMAL":
            hint = "Write DECIMAL(precision, scale)."
            raise refusal("DECIMAL has a precision and a scale", name.at, hint)
        return self.named_type(name)

    def array_type(self, _word: Token, element: SqlType) -> SqlType:
        """ARRAY<element>."""
        return types.array(element)

    def array_of(self, element: SqlType, _word: Token) -> SqlType:
        """element ARRAY."""
        return types.array(element)

    def map_type(self, _word: Token, key: SqlType, value: SqlType) -> SqlType:
        """MAP<key, value>."""
        return types.map_of(key, value)

    def type_field(self, name: Name, of: SqlType) -> tuple[str, SqlType]:
        """name type."""
        return (name.text, of)

    def type_fields(self, *fields: tuple[str, SqlType]) -> tuple[tuple[str, SqlType], ...]:
        """name type, …."""
        return fields

    def struct_type(
        self, _word: Token, fields: tuple[tuple[str, SqlType], ...] | None = None
    ) -> SqlType:
        """STRUCT<fields>."""
        return types.struct(fields or ())
