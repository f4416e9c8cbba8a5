"""Which functions fail, and which are NULL for NULL: the same as what computes them."""

from __future__ import annotations

import pytest

from standpipe.sql.expressions.evaluator_functions import FUNCTIONS
from standpipe.sql.functions.failing_calls import NOT_STRICT, failing_of
from standpipe.sql.types.typed_expression import Failing
from standpipe.sql.types.types import BIGINT, DOUBLE, STRING, SqlType


def test_what_is_not_strict_is_computed_for_null() -> None:
    assert {name for name, made in FUNCTIONS.items() if not made.is_strict} == NOT_STRICT


@pytest.mark.parametrize(
    ("name", "of", "failing", "why"),
    [
        ("UCASE", STRING, Failing.STRICT_CALL, ""),
        ("COALESCE", BIGINT, Failing.CALLED, ""),
        ("ROUND", BIGINT, Failing.FAILING_CALL, "of a primitive"),
        ("ROUND", DOUBLE, Failing.STRICT_CALL, "of an object"),
        ("STRINGTOTIMESTAMP", STRING, Failing.FAILING_CALL, "it has no NULL of its own"),
        ("PARSE_TIMESTAMP", STRING, Failing.INVALID_CALL, "it has"),
    ],
)
def test_failing_of(name: str, of: SqlType, failing: Failing, why: str) -> None:
    assert failing_of(name, [of]) is failing, why
