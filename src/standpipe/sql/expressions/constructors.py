"""ARRAY[…], MAP(…), STRUCT(…) and lambdas: the expressions that build or traverse collections.

A lambda alone has no type. It is typed in place, as an argument of TRANSFORM, FILTER or REDUCE,
whose first argument gives the types of its parameters. Over a MAP these functions take lambdas of
(key, value).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from standpipe.errors import StatementError
from standpipe.sql.expressions import coercion, failing
from standpipe.sql.expressions.admission import check_lambda
from standpipe.sql.functions.cast import convert
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types import types
from standpipe.sql.types.typed_expression import (
    Constant,
    Failing,
    LambdaBody,
    LambdaVariable,
    Operation,
    Typed,
    caught,
    rewrite,
)
from standpipe.sql.types.types import BOOLEAN, NULL, STRING, SqlType

_EMPTY: Final = (
    "{} constructor cannot be empty. Please supply at least one {} (see"
    " https://github.com/confluentinc/ksql/issues/4239)."
)

_COLLECTIONS: Final = frozenset({"ARRAY", "MAP", "STRUCT"})

_ALL_NULL: Final = (
    "Cannot construct {} with all NULL {} (see https://github.com/confluentinc/ksql/issues/4239)."
    " As a workaround, you may cast a NULL value to the desired type."
)


class Types(Protocol):
    """The part of the Typer that this module calls (the Typer imports this module)."""

    #: ids of the CASE expressions whose branches were checked: those within another, too
    checked_cases: set[int]

    def type(self, node: ast.Expression) -> Typed:
        """The typed expression. Raises StatementError at the node that is wrong."""
        ...

    def condition(self, node: ast.Expression) -> Typed:
        """The typed expression, which must be BOOLEAN. Raises StatementError."""
        ...

    def under(self, variables: dict[str, Typed], body: ast.Expression) -> Typed:
        """The typed body, in which `variables` may be used as names."""
        ...


def _common(
    items: Sequence[Typed], nodes: Sequence[ast.Expression], what: str
) -> tuple[SqlType, list[Typed]]:
    """The common type of the items, and the items converted to it."""
    try:
        of = coercion.common(items)
        return of, [coercion.coerced(item, of) for item in items]
    except coercion.Mismatch as error:
        node = nodes[error.item]
        raise refusal(
            f"operator does not exist: {error.found} = {items[error.item].type}"
            f" ({expression_text(node)})\nHint: You might need to add explicit type casts."
            f" All {what} must have one type.",
            node.at,
        ) from None
    except coercion.NotOfType as error:
        raise refusal(f"{error} All {what} must have one type.", nodes[0].at) from None


def make_array(typer: Types, node: ast.MakeArray) -> Typed:
    """ARRAY[…]: items of one common type. Raises StatementError if it is empty or all NULL."""
    if not node.items:
        raise refusal(_EMPTY.format("Array", "element"), node.at)
    items = [typer.type(item) for item in node.items]
    of, made = _common(items, node.items, "elements of an array")
    if of == NULL:
        raise refusal(_ALL_NULL.format("an array", "elements"), node.at)
    return caught(Operation(types.array(of), coercion.ARRAY, tuple(made)))


def make_map(typer: Types, node: ast.MakeMap) -> Typed:
    """MAP(key := value, …): keys of one type, values of one type; neither may be all NULL."""
    if not node.entries:
        raise refusal(_EMPTY.format("Map", "key value pair"), node.at)
    keys = [typer.type(key) for key, _ in node.entries]
    values = [typer.type(value) for _, value in node.entries]
    key_of, keys = _common(keys, [key for key, _ in node.entries], "keys of a map")
    value_of, values = _common(values, [value for _, value in node.entries], "values of a map")
    for of, what in ((key_of, "keys"), (value_of, "values")):
        if of == NULL:
            raise refusal(_ALL_NULL.format("a map", what), node.at)
    if key_of.base in _COLLECTIONS:
        raise refusal(f"Keys of a map have a type without others in it, not {key_of}", node.at)
    parts: list[Typed] = []
    for key, value in zip(keys, values, strict=True):
        parts += [_map_key(key), value]
    template = coercion.MAP
    if key_of != STRING and not all(map(_is_there, keys)):
        pairs = (f"struct({{{n}}} AS key, {{{n + 1}}} AS value)" for n in range(0, len(parts), 2))
        listed = ", ".join(pairs)
        template = f"map_from_entries(filter(array({listed}), e -> e.key IS NOT NULL))"
    return caught(Operation(types.map_of(key_of, value_of), template, tuple(parts)))


def _map_key(key: Typed) -> Typed:
    """Spark's maps cannot have a null key, and would end the query. ksqlDB's can: it shows a text
    as "null". Keys of other types, which no format can show, are left out."""
    if key.type != STRING or _is_there(key):
        return key
    return Operation(STRING, "coalesce({0}, 'null')", (key,))


def _is_there(key: Typed) -> bool:
    return isinstance(key, Constant) and key.value is not None


def make_struct(typer: Types, node: ast.MakeStruct) -> Typed:
    """STRUCT(name := value, …). Raises StatementError for a name given twice."""
    names = [name for name, _ in node.entries]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise refusal(f"Duplicate field names found in STRUCT: '{twice}'.", node.at)
    parts: list[Typed] = []
    fields: list[tuple[str, SqlType]] = []
    for name, value in node.entries:
        typed = typer.type(value)
        fields.append((name, typed.type))
        parts += [Constant(STRING, name), typed]
    made = types.struct(tuple(fields))
    if made.is_too_long():
        raise refusal(f"A type is longer than {types.TYPE_CHARS_MAX} characters.", node.at)
    return caught(Operation(made, coercion.STRUCT, tuple(parts)))


# ---------------------------------------------------------------------------------------- lambdas


def call_with_lambdas(typer: Types, node: ast.FunctionCall) -> Typed:
    """TRANSFORM, FILTER or REDUCE. Raises StatementError for other names or argument shapes."""
    maker = _WALKERS.get(node.name)
    if maker is None:
        raise refusal(f"Function {node.name} takes no lambda.", node.at)
    if isinstance(node.arguments[0], ast.Lambda):
        raise _not_accepted(node, [])
    collection = typer.type(node.arguments[0])
    if collection.type.base not in ("ARRAY", "MAP"):
        raise _not_accepted(node, [collection])
    return maker(typer, node, collection)


def check_has_lambda(node: ast.FunctionCall, arguments: Sequence[Typed]) -> None:
    """Refuses TRANSFORM, FILTER and REDUCE without a lambda."""
    if node.name in _WALKERS:
        raise _not_accepted(node, arguments)


def _not_accepted(node: ast.FunctionCall, typed: Sequence[Typed]) -> StatementError:
    """`typed`: the arguments before the first lambda."""
    count = sum(isinstance(each, ast.Lambda) for each in node.arguments)
    given = ", ".join([*(str(each.type) for each in typed), *["LAMBDA"] * count])
    return refusal(
        f"Function '{node.name.lower()}' does not accept parameters ({given}).\nGot:"
        f" {expression_text(node)}",
        node.at,
    )


def _bodies(
    node: ast.FunctionCall, counts: tuple[int, ...], typed: Sequence[Typed]
) -> list[ast.Lambda]:
    """The lambdas after the arguments in `typed`. `counts`: how many parameters each must have."""
    others = node.arguments[len(typed) :]
    found = [each for each in others if isinstance(each, ast.Lambda)]
    arity = [len(each.parameters) for each in found]
    if len(found) != len(others) or arity != list(counts):
        raise _not_accepted(node, typed)
    return found


def _body(typer: Types, node: ast.Lambda, of: Sequence[Typed]) -> Typed:
    if len(set(node.parameters)) < len(node.parameters):
        names = ", ".join(node.parameters)
        raise refusal(f"Lambda arguments have duplicates: [{names}]", node.at)
    made = typer.under(dict(zip(node.parameters, of, strict=True)), node.body)
    check_lambda(node, made)
    return made


#: ksqlDB's function fails (Java's Collectors.toMap) for two entries with one key, and for a value
#: that is null. A key that is null would end the query
_MAP_OF_ENTRIES: Final = (
    "transform(array(transform(map_entries({0}), {1})), m -> if("
    "size(array_distinct(filter(transform(m, e -> e.k), k -> k IS NOT NULL))) < size(m)"
    " OR exists(m, e -> e.v IS NULL), NULL, map_from_entries(m)))[0]"
)
#: likewise of the entries that it keeps
_MAP_OF_KEPT: Final = (
    "transform(array(map_filter({0}, {1})), m -> if("
    "exists(map_values(m), v -> v IS NULL), NULL, m))[0]"
)


def _pair(entry: LambdaVariable, of: SqlType) -> list[Typed]:
    key, value = of.arguments
    return [Operation(key, "{0}.`key`", (entry,)), Operation(value, "{0}.`value`", (entry,))]


def _transform(typer: Types, node: ast.FunctionCall, collection: Typed) -> Typed:
    if collection.type.base == "ARRAY":
        (body,) = _bodies(node, (1,), (collection,))
        variable = LambdaVariable(collection.type.arguments[0], body.parameters[0])
        made = _body(typer, body, [variable])
        walked = LambdaBody(made.type, (variable,), made)
        plain = _walk(types.array(made.type), "transform({0}, {1})", collection, walked)
        tests = [failing.test_of(made)]
        return _unless_failing(plain, "exists({0}, {1})", (variable,), tests)
    first, second = _bodies(node, (2, 2), (collection,))
    entry = LambdaVariable(collection.type, "__E")
    key = _body(typer, first, _pair(entry, collection.type))
    value = _body(typer, second, _pair(entry, collection.type))
    pair = Operation(NULL, "named_struct('k', {0}, 'v', {1})", (key, value))
    result = types.map_of(key.type, value.type)
    plain = _walk(result, _MAP_OF_ENTRIES, collection, LambdaBody(NULL, (entry,), pair))
    tests = [failing.test_of(key), failing.test_of(value)]
    return _unless_failing(plain, "exists(map_entries({0}), {1})", (entry,), tests)


def _filter(typer: Types, node: ast.FunctionCall, collection: Typed) -> Typed:
    of = collection.type
    count = 1 if of.base == "ARRAY" else 2
    (body,) = _bodies(node, (count,), (collection,))
    variables = tuple(map(LambdaVariable, of.arguments, body.parameters))
    made = _body(typer, body, list(variables))
    if made.type != BOOLEAN:
        raise refusal(f"FILTER's lambda must return BOOLEAN, not {made.type}", body.at)
    word = "filter" if count == 1 else "map_filter"
    walked = LambdaBody(BOOLEAN, variables, made)
    template = "filter({0}, {1})" if count == 1 else _MAP_OF_KEPT
    plain = _walk(of, template, collection, walked)
    tests = [failing.undecided(made)]
    return _unless_failing(plain, f"size({word}({{0}}, {{1}})) > 0", variables, tests)


def _walk(of: SqlType, template: str, collection: Typed, walked: Typed) -> Operation:
    return Operation(of, template, (collection, walked), failing=Failing.STRICT_CALL)


def _unless_failing(
    plain: Operation,
    somewhere: str,
    variables: tuple[LambdaVariable, ...],
    tests: Sequence[Typed | None],
) -> Typed:
    """Fails if a lambda fails for any element (`failing.py`), which `tests` tell.

    `somewhere`: the template of the test whether any element satisfies a condition; its operands
    are the collection and a lambda.
    """
    found = tuple(test for test in tests if test is not None)
    if not found:
        return plain
    places = " OR ".join(f"{{{index}}}" for index in range(len(found)))
    fails = LambdaBody(BOOLEAN, variables, Operation(BOOLEAN, f"({places})", found))
    test = Operation(BOOLEAN, somewhere, (plain.arguments[0], fails))
    return Operation(plain.type, "if({0}, NULL, {1})", (test, plain), failing=Failing.IN_LAMBDA)


def _reduce(typer: Types, node: ast.FunctionCall, collection: Typed) -> Typed:
    if len(node.arguments) < 2:
        raise _not_accepted(node, [collection])
    start = typer.type(node.arguments[1])
    of = collection.type
    (body,) = _bodies(node, (2 if of.base == "ARRAY" else 3,), (collection, start))
    state = LambdaVariable(start.type, body.parameters[0])
    if of.base == "ARRAY":
        entry = LambdaVariable(of.arguments[0], body.parameters[1])
        made = _body(typer, body, [state, entry])
        template = "if({0} IS NULL, {1}, aggregate({0}, {1}, {2}))"
    else:
        entry = LambdaVariable(of, "__E")
        made = _body(typer, body, [state, *_pair(entry, of)])
        template = "if({0} IS NULL, {1}, aggregate(map_entries({0}), {1}, {2}))"
    common = types.common_type(start.type, made.type)
    if common is None:
        raise refusal(f"REDUCE: the lambda makes {made.type}, its state is {start.type}.", body.at)
    if not isinstance(start, Constant):  # ksqlDB: NULL without a step
        template = template.replace("{0} IS NULL", "{0} IS NULL OR {1} IS NULL")
    started, body_of = convert(start, common), convert(made, common)
    test = failing.test_of(body_of)
    stays_null = test is None or (failing.shows(body_of) and _is_null_with(state, body_of))
    if test is not None and not stays_null:
        walked = _unless_failed((state, entry), body_of, test)
        return _reduced(template, (collection, started), state, walked)
    walked = LambdaBody(common, (LambdaVariable(common, state.name), entry), body_of)
    return Operation(common, template, (collection, started, walked), failing=Failing.CALLED)


def _is_null_with(state: LambdaVariable, node: Typed) -> bool:
    """Whether a state that is NULL stays so: the lambda is arithmetic of it."""
    if not isinstance(node, Operation):
        return node == state
    is_conversion = node.failing is Failing.PASSED and len(node.arguments) == 1
    is_arithmetic = is_conversion or node.failing is Failing.IF_NULL
    return is_arithmetic and any(_is_null_with(state, each) for each in node.arguments)


def _unless_failed(
    variables: tuple[LambdaVariable, LambdaVariable], body: Typed, test: Typed
) -> LambdaBody:
    """A step of REDUCE whose state remembers a failure: NULL then, whatever follows."""
    state, entry = variables
    held = LambdaVariable(NULL, state.name)
    value = Operation(body.type, "{0}.`v`", (held,))

    def from_struct(node: Typed) -> Typed | None:
        return value if node == state else None

    fails, made = rewrite(test, from_struct), rewrite(body, from_struct)
    step = (
        "if({0}.`f` OR {1}, named_struct('f', true, 'v', {2}), named_struct('f', false, 'v', {3}))"
    )
    parts = (held, fails, Constant(body.type, None), made)
    return LambdaBody(body.type, (held, entry), Operation(NULL, step, parts))


def _reduced(
    template: str, given: tuple[Typed, Typed], state: LambdaVariable, walked: LambdaBody
) -> Typed:
    """REDUCE with such a step: its value is a field of the last state."""
    of, held = walked.type, LambdaVariable(NULL, state.name)
    template = template.replace("{1}, {2})", "named_struct('f', false, 'v', {1}), {2}, {3})")
    last = LambdaBody(of, (held,), Operation(of, "{0}.`v`", (held,)))
    return Operation(of, template, (*given, walked, last), failing=Failing.CALLED)


_WALKERS: Final[dict[str, Callable[[Types, ast.FunctionCall, Typed], Typed]]] = {
    "TRANSFORM": _transform,
    "FILTER": _filter,
    "REDUCE": _reduce,
}
