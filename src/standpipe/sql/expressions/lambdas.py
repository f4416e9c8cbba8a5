"""TRANSFORM, FILTER and REDUCE in Python, for pull and push queries and INSERT.

A function of a lambda is a function of a longer row: the values of the parameters follow the row,
those of an inner lambda last. Before them stands the budget, a list of one number: how many
characters and items the lambdas and their functions may still work on for this row.
"""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from standpipe.errors import NotComputable
from standpipe.sql.expressions.python.computed import Computed, Failed
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import unsupported
from standpipe.sql.types.typed_expression import LambdaVariable
from standpipe.sql.types.types import BIGINT, SqlType

Row = Sequence[Any]
Compute = Callable[[Row], Any]
Element = tuple[Any, ...]

#: of each: its parameters and its result, as DESCRIBE FUNCTION shows them
SIGNATURES: Final = {
    "FILTER": (
        (("ARRAY<T>", "LAMBDA (T) => BOOLEAN"), "ARRAY<T>"),
        (("MAP<K, V>", "LAMBDA (K, V) => BOOLEAN"), "MAP<K, V>"),
    ),
    "REDUCE": (
        (("ARRAY<T>", "S", "LAMBDA (S, T) => S"), "S"),
        (("MAP<K, V>", "S", "LAMBDA (S, K, V) => S"), "S"),
    ),
    "TRANSFORM": (
        (("ARRAY<T>", "LAMBDA (T) => U"), "ARRAY<U>"),
        (("MAP<K, V>", "LAMBDA (K, V) => A", "LAMBDA (K, V) => B"), "MAP<A, B>"),
    ),
}
NAMES: Final = frozenset(SIGNATURES)
#: what one node of a lambda counts for, for one element: some 0.2 µs, as so many characters
_WORK_OF_NODE: Final = 40


class LambdaParameters:
    """What follows the row where the next expression is computed: in lambdas a budget, and the
    values of their parameters. Places are counted from the end, as rows have any length."""

    def __init__(self, typer: Typer) -> None:
        self._typer = typer
        self.count = 0
        self._places: dict[str, int] = {}

    @property
    def scope(self) -> Hashable:
        """The same wherever the same names have the same places."""
        return self.count, *self._places.items()

    @property
    def budget(self) -> int:
        """Index of the budget."""
        return -self.count

    def index_of(self, node: ast.ColumnName) -> int | None:
        """Index of a parameter's value; None if the name is not one."""
        place = self._places.get(node.name) if node.source is None else None
        return None if place is None else place - self.count

    @contextmanager
    def appended(self, named: Iterable[tuple[str, SqlType]]) -> Generator[None]:
        """Meanwhile, these names stand for values that follow."""
        listed = list(named)
        places, count = self._places, self.count
        here = {name: count + index for index, (name, _) in enumerate(listed)}
        self._places, self.count = {**places, **here}, count + len(listed)
        try:
            with self._typer.variables({name: LambdaVariable(of, name) for name, of in listed}):
                yield
        finally:
            self._places, self.count = places, count


class LambdaCompiler(Protocol):
    """The part of the Evaluator that this module calls (the Evaluator imports this module)."""

    parameters: LambdaParameters

    def type(self, node: ast.Expression) -> SqlType:
        """The type of an expression."""
        ...

    def compile(self, node: ast.Expression) -> Compute:
        """The expression as a function of a row."""
        ...

    def argument(self, node: ast.Expression) -> Compute:
        """An argument of a call: what fails in a call or a field is NULL there."""
        ...

    def failing(self, compute: Compute) -> Compute:
        """Raises Failed where the value is NULL."""
        ...

    def converted(self, compute: Compute, source: SqlType, target: SqlType) -> Compute:
        """The value as another type, NULL where it does not fit."""
        ...

    def share(self) -> Callable[[], int]:
        """What the functions of one more call may work on, once all are compiled."""
        ...


def call(compiler: LambdaCompiler, node: ast.FunctionCall) -> Compute:
    """TRANSFORM, FILTER or REDUCE. Raises StatementError as the Typer does."""
    compiler.type(node)
    if compiler.parameters.count:  # within another lambda, whose budget is theirs, too
        return _WALKS[node.name](compiler, node)
    share = compiler.share()
    with compiler.parameters.appended([("", BIGINT)]):
        compute = _WALKS[node.name](compiler, node)
    return lambda row: compute((*row, [share()]))


def limited(made: Computed, arguments: Sequence[Compute], place: int) -> Compute:
    """A function within a lambda. `place`: index of the budget in the row."""
    work = made.work
    assert work is not None

    def compute(row: Row) -> Any:
        given = [argument(row) for argument in arguments]
        if made.is_strict and any(each is None for each in given):
            return None
        _spend(row[place], work(*given))
        return made.compute(*given, **({"budget": row[place]} if made.takes_budget else {}))

    return compute


def _spend(budget: list[int], work: int) -> None:
    budget[0] -= work
    if budget[0] < 0:
        raise NotComputable(
            "The lambdas of a row would work on more characters or items than are allowed."
        )


@dataclass(frozen=True, slots=True)
class _LambdaFunction:
    """One lambda. What it raises for an element, its function raises (ksqlDB)."""

    compute: Compute
    type: SqlType
    work: int


def _body(compiler: LambdaCompiler, node: ast.Expression, of: Sequence[SqlType]) -> _LambdaFunction:
    """`of`: the types of the parameters."""
    assert isinstance(node, ast.Lambda), "the typer would have refused it"
    with compiler.parameters.appended(zip(node.parameters, of, strict=True)):
        body = node.body
        work = _WORK_OF_NODE * sum(1 for _ in ast.walk(body))
        return _LambdaFunction(compiler.compile(body), compiler.type(body), work)


def _elements(
    compiler: LambdaCompiler, node: ast.Expression
) -> Callable[[Row], list[Element] | None]:
    """The items of an ARRAY, or the keys and values of a MAP; None for NULL."""
    collection = compiler.argument(node)
    is_map = compiler.type(node).base == "MAP"

    def elements(row: Row) -> list[Element] | None:
        value = collection(row)
        if value is None:
            return None
        return list(value.items()) if is_map else [(item,) for item in value]

    return elements


def _transform(compiler: LambdaCompiler, node: ast.FunctionCall) -> Compute:
    collection, *lambdas = node.arguments
    of = compiler.type(collection)
    elements_of, place = _elements(compiler, collection), compiler.parameters.budget
    bodies = [_body(compiler, each, of.arguments) for each in lambdas]
    if of.base == "MAP" and bodies[0].type.base in ("ARRAY", "MAP", "STRUCT"):
        raise unsupported(f"Keys of {bodies[0].type} in a MAP outside of a pipeline", node.at)
    work = sum(body.work for body in bodies)

    def compute(row: Row) -> Any:
        elements = elements_of(row)
        if elements is None:
            return None
        _spend(row[place], work * len(elements))
        made: list[Element] = []
        for each in elements:
            values = tuple(body.compute((*row, *each)) for body in bodies)
            _spend(row[place], _size(values))
            made.append(values)
        return [value for (value,) in made] if of.base == "ARRAY" else _map(made)

    return compute


def _map(entries: Sequence[Element]) -> dict[Any, Any] | None:
    """NULL if two have one key or one has no value, for which ksqlDB's functions fail, or one has
    no key."""
    made: dict[Any, Any] = dict(entries)  # pyright: ignore[reportArgumentType] - pairs
    is_whole = len(made) == len(entries) and None not in made and None not in made.values()
    return made if is_whole else None


def _size(value: Any) -> int:
    """Characters and items of a value: an answer may repeat it for each element."""
    if isinstance(value, dict):
        return sum(1 + _size(key) + _size(each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return sum(1 + _size(each) for each in value)
    return len(value) if isinstance(value, (str, bytes)) else 0


def _filter(compiler: LambdaCompiler, node: ast.FunctionCall) -> Compute:
    collection, of_element = node.arguments
    of = compiler.type(collection)
    elements_of, place = _elements(compiler, collection), compiler.parameters.budget
    body = _body(compiler, of_element, of.arguments)
    is_wanted = compiler.failing(body.compute)

    def compute(row: Row) -> Any:
        elements = elements_of(row)
        if elements is None:
            return None
        _spend(row[place], body.work * len(elements))
        kept = [each for each in elements if is_wanted((*row, *each))]
        return [item for (item,) in kept] if of.base == "ARRAY" else _map(kept)

    return compute


def _reduce(compiler: LambdaCompiler, node: ast.FunctionCall) -> Compute:
    collection, first, of_element = node.arguments
    of, result, start_of = map(compiler.type, (collection, node, first))
    elements_of, place = _elements(compiler, collection), compiler.parameters.budget
    start = compiler.converted(compiler.argument(first), start_of, result)
    body = _body(compiler, of_element, (start_of, *of.arguments))
    step = compiler.converted(body.compute, body.type, result)

    def compute(row: Row) -> Any:
        state, elements = start(row), elements_of(row) or []
        if state is None:
            return None
        _spend(row[place], body.work * len(elements))
        try:
            for each in elements:
                state = step((*row, state, *each))
        except Failed:
            return None
        return state

    return compute


_WALKS: Final[dict[str, Callable[[LambdaCompiler, ast.FunctionCall], Compute]]] = {
    "TRANSFORM": _transform,
    "FILTER": _filter,
    "REDUCE": _reduce,
}
