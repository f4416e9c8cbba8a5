"""Which expressions are NULL as a whole because a part of them fails.

ksqlDB makes one Java method of each column and each condition. What throws in it, as arithmetic
with NULL does, makes NULL of the whole column, and drops the row of a WHERE: `COALESCE(N + 1, 0)`
is NULL if N is. CAST, ARRAY[…], MAP(…), STRUCT(…), and a call or a field as an argument of a call
have handlers of their own: NULL stands in their place, and the rest goes on.

Spark has no exceptions in expressions. So a second expression, a test, says whether one fails, and
both become ``if(test, NULL, expression)``. No test is made where the expression is NULL anyway. The
evaluator raises an exception instead (`evaluator.py`).

Source: ksqlDB's SqlToJavaVisitor, whose `evaluateOrReturnNull` are these handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from standpipe.sql.types.typed_expression import (
    Aggregate,
    Constant,
    Failing,
    Operation,
    Typed,
    aggregates_in,
    rewrite,
)
from standpipe.sql.types.types import BOOLEAN

_CALLS: Final = frozenset(
    {Failing.CALLED, Failing.STRICT_CALL, Failing.FAILING_CALL, Failing.INVALID_CALL}
)
_NEVER_NULL: Final = frozenset({Failing.TESTED, Failing.COMPARED})
_CONNECTED: Final = frozenset({Failing.ALL, Failing.ANY, Failing.NOT})


def whole(typed: Typed) -> Typed:
    """A column's expression: NULL where it fails. The arguments of aggregates are columns, too."""
    if aggregates_in(typed):
        typed = rewrite(typed, _with_whole_arguments)
    found = Failures()
    test = found.test(typed)
    if test is None or found.shows(typed):
        return typed
    return Operation(typed.type, "if({0}, NULL, {1})", (test, typed))


def kept(condition: Typed) -> Typed:
    """The condition of a WHERE or HAVING: not true where it fails."""
    if aggregates_in(condition):
        condition = rewrite(condition, _with_whole_arguments)
    return _kept(condition, Failures())


def test_of(typed: Typed) -> Typed | None:
    """Whether an expression fails, as an expression; None if it never does."""
    return Failures().test(typed)


def undecided(condition: Typed) -> Typed | None:
    """Whether a condition fails or is NULL; None if it never is."""
    return Failures().undecided(condition)


def shows(typed: Typed) -> bool:
    """Whether an expression is NULL wherever it fails."""
    return Failures().shows(typed)


def _with_whole_arguments(node: Typed) -> Typed | None:
    if not isinstance(node, Aggregate):
        return None
    return replace(node, arguments=tuple(map(whole, node.arguments)))


def _kept(condition: Typed, found: Failures) -> Typed:
    if isinstance(condition, Operation) and condition.failing is Failing.ALL:
        parts = tuple(_kept(each, found) for each in condition.arguments)
        return replace(condition, arguments=parts)
    test = found.test(condition)
    if test is None or found.shows(condition) or found.is_false(condition):
        return condition
    return Operation(BOOLEAN, "if({0}, false, {1})", (test, condition))


class Failures:
    """Tests of the nodes of one expression. Each node is looked at once: the tests of those above
    ask for it several times."""

    def __init__(self) -> None:
        #: by id, as the expression keeps its nodes
        self._tests: dict[int, Typed | None] = {}
        self._shown: dict[int, bool] = {}

    def test(self, node: Typed) -> Typed | None:
        """Whether computing a node fails; None: it never does."""
        if not isinstance(node, Operation) or isinstance(node, Aggregate):
            return None
        if id(node) not in self._tests:
            self._tests[id(node)] = _TESTS[node.failing](self, node)
        return self._tests[id(node)]

    def shows(self, node: Typed) -> bool:
        """Whether the node is NULL wherever it fails, so that no test is needed."""
        if self.test(node) is None:
            return True
        assert isinstance(node, Operation)
        if id(node) not in self._shown:
            self._shown[id(node)] = self._is_shown(node)
        return self._shown[id(node)]

    def is_false(self, node: Typed) -> bool:
        """Whether the node is false wherever it fails."""
        if not isinstance(node, Operation) or node.failing is not Failing.COMPARED:
            return False
        return all(map(self.shows, node.arguments))

    def _is_shown(self, node: Operation) -> bool:
        parts = node.arguments
        if node.failing is Failing.CALLED:
            return False
        if node.failing in _CALLS:
            return all(map(self.shows, self._uncaught(node)))
        if node.failing is Failing.CASE:
            conditions, results = _branches(node)
            return all(self.undecided(each) is None for each in conditions) and all(
                map(self.shows, results)
            )
        if node.failing is Failing.TOO_LONG:
            return all(self.test(each) is None for each in parts)
        if node.failing is Failing.PASSED and len(parts) > 1:
            return False  # a conversion has one argument, and is NULL for NULL
        return node.failing not in _NEVER_NULL | _CONNECTED and all(map(self.shows, parts))

    # --------------------------------------------------------------------------------- by kind

    def passed(self, node: Operation) -> Typed | None:
        """Fails as its arguments do."""
        return _any(map(self.test, node.arguments))

    def caught(self, node: Operation) -> None:
        """Never fails."""

    def if_null(self, node: Operation) -> Typed | None:
        """Fails if it is NULL, and as arguments whose failure does not make it NULL."""
        hidden = [each for each in node.arguments if not self.shows(each)]
        return _any([*map(self.test, hidden), _is_null(node)])

    def too_long(self, node: Operation) -> Typed | None:
        """Fails if it is NULL, and as its arguments, none of which makes it NULL."""
        return _any([*map(self.test, node.arguments), _is_null(node)])

    def not_(self, node: Operation) -> Typed | None:
        """NOT of NULL fails."""
        return self.undecided(node.arguments[0])

    def element(self, node: Operation) -> Typed | None:
        """An index that fails or is NULL, unless there is no array: then it is not computed."""
        array, index = node.arguments
        no_index = self.undecided(index)
        if no_index is None:
            return self.test(array)
        test = Operation(BOOLEAN, "({0} IS NOT NULL AND {1})", (array, no_index))
        return _any([self.test(array), test])

    def in_lambda(self, node: Operation) -> Typed | None:
        """Its first argument says whether a lambda fails for an element."""
        fails, plain = node.arguments
        return _any([self.test(plain), fails])

    def connected(self, node: Operation) -> Typed | None:
        """AND and OR: one argument after the other, until one decides."""
        decides = "WHEN NOT {} THEN false" if node.failing is Failing.ALL else "WHEN {} THEN false"
        chosen: list[tuple[str, Typed]] = []
        for part in node.arguments:
            test = self.undecided(part)
            if test is not None:
                chosen.append(("WHEN {} THEN true", test))
            chosen.append((decides, part))
        return _first(chosen, None)

    def case(self, node: Operation) -> Typed | None:
        """The conditions before the result that is chosen, and that result."""
        conditions, results = _branches(node)
        chosen: list[tuple[str, Typed]] = []
        for condition, result in zip(conditions, results, strict=False):
            undecided, test = self.undecided(condition), self.test(result)
            if undecided is not None:
                chosen.append(("WHEN {} THEN true", undecided))
            if test is None:
                chosen.append(("WHEN {} THEN false", condition))
            else:
                both = Operation(BOOLEAN, "({0} AND {1})", (condition, test))
                chosen += [("WHEN {} THEN true", both), ("WHEN {} THEN false", condition)]
        otherwise = self.test(results[-1]) if len(results) > len(conditions) else None
        return _first(chosen, otherwise)

    def called(self, node: Operation) -> Typed | None:
        """Fails as those of its arguments that have no handler."""
        return _any(map(self.test, self._uncaught(node)))

    def failing_call(self, node: Operation) -> Typed | None:
        """Fails if it is NULL."""
        return _any([*map(self.test, self._uncaught(node)), _is_null(node)])

    def invalid_call(self, node: Operation) -> Typed | None:
        """Fails if it is NULL of what is not."""
        places = "".join(f" AND {{{n + 1}}} IS NOT NULL" for n in range(len(node.arguments)))
        made = Operation(BOOLEAN, f"({{0}} IS NULL{places})", (node, *node.arguments))
        return _any([*map(self.test, self._uncaught(node)), made])

    # ----------------------------------------------------------------------------------- parts

    def _uncaught(self, node: Operation) -> list[Typed]:
        return [each for each in node.arguments if not _is_caught(each)]

    def undecided(self, condition: Typed) -> Typed | None:
        """Whether an operand of AND, OR or NOT, a condition of CASE, or an index, fails or is
        NULL."""
        test = self.test(condition)
        kinds = (Failing.IF_NULL, Failing.TOO_LONG)
        is_null = isinstance(condition, Operation) and condition.failing in kinds
        return _any([test, None if is_null or not _may_be_null(condition) else _is_null(condition)])


_TESTS: Final[dict[Failing, Callable[[Failures, Operation], Typed | None]]] = {
    Failing.PASSED: Failures.passed,
    Failing.CAUGHT: Failures.caught,
    Failing.IF_NULL: Failures.if_null,
    Failing.TOO_LONG: Failures.too_long,
    Failing.TESTED: Failures.passed,
    Failing.COMPARED: Failures.passed,
    Failing.ALL: Failures.connected,
    Failing.ANY: Failures.connected,
    Failing.NOT: Failures.not_,
    Failing.CASE: Failures.case,
    Failing.FIELD: Failures.passed,
    Failing.ELEMENT: Failures.element,
    Failing.IN_LAMBDA: Failures.in_lambda,
    Failing.CALLED: Failures.called,
    Failing.STRICT_CALL: Failures.called,
    Failing.FAILING_CALL: Failures.failing_call,
    Failing.INVALID_CALL: Failures.invalid_call,
}


def _is_caught(argument: Typed) -> bool:
    """Whether an argument of a call has a handler: it is a call or a field itself, whatever
    converts it."""
    while isinstance(argument, Operation) and argument.failing is Failing.PASSED:
        if len(argument.arguments) != 1:
            return False
        (argument,) = argument.arguments
    return isinstance(argument, Operation) and (
        argument.failing in _CALLS or argument.failing in (Failing.FIELD, Failing.IN_LAMBDA)
    )


def _may_be_null(condition: Typed) -> bool:
    if isinstance(condition, Constant):
        return condition.value is None
    if not isinstance(condition, Operation):
        return True
    if condition.failing in _CONNECTED:
        return any(map(_may_be_null, condition.arguments))
    return condition.failing not in _NEVER_NULL


def _branches(node: Operation) -> tuple[Sequence[Typed], Sequence[Typed]]:
    """The conditions of a CASE, and its results, of which ELSE's is the last."""
    count = len(node.arguments) // 2
    return node.arguments[:count], node.arguments[count:]


def _is_null(node: Typed) -> Typed:
    return Operation(BOOLEAN, "({0} IS NULL)", (node,))


def _any(tests: Iterable[Typed | None]) -> Typed | None:
    found = tuple(each for each in tests if each is not None)
    if len(found) < 2:
        return found[0] if found else None
    places = " OR ".join(f"{{{index}}}" for index in range(len(found)))
    return Operation(BOOLEAN, f"({places})", found)


def _first(chosen: Sequence[tuple[str, Typed]], otherwise: Typed | None) -> Typed | None:
    """A CASE of the branches that come before one that fails, and of that; None: none fails."""
    last = len(chosen)
    while otherwise is None and last and chosen[last - 1][0].endswith("false"):
        last -= 1
    if not last:
        return otherwise
    texts = [text.format(f"{{{place}}}") for place, (text, _) in enumerate(chosen[:last])]
    parts = [part for _, part in chosen[:last]]
    text = f"{{{last}}}" if otherwise is not None else "false"
    arguments = (*parts, otherwise) if otherwise is not None else tuple(parts)
    return Operation(BOOLEAN, f"(CASE {' '.join(texts)} ELSE {text} END)", arguments)
