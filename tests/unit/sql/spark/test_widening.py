"""INSERT INTO … SELECT of numbers into a DECIMAL column."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import InsertIntoPlan, Plan

SETUP = (
    "CREATE STREAM S (K STRING KEY, A INT, D DECIMAL(4, 2))"
    " WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
    "CREATE STREAM I (K STRING KEY, D DECIMAL(6, 3)) WITH (KAFKA_TOPIC='i', VALUE_FORMAT='JSON',"
    " PARTITIONS=1);"
)


@pytest.mark.parametrize(
    ("item", "computed", "why"),
    [
        (
            "D",
            "CAST(`D` AS DECIMAL(6, 3))",
            "one more digit behind the point",
        ),
        ("5 AS D", "5.000BD", "a number as written"),
        ("-123.456 AS D", "-123.456BD", "all digits there are"),
        ("1E2 AS D", "100.000BD", "a DOUBLE as written is one as well"),
    ],
)
def test_what_fits_becomes_the_decimal_of_the_stream(
    plan: Callable[..., Plan], item: str, computed: str, why: str
) -> None:
    found = plan(f"{SETUP}INSERT INTO I SELECT K, {item} FROM S;")
    assert isinstance(found, InsertIntoPlan)
    assert computed.lower() in found.query.plan.sql.lower(), why


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ("A AS D", "a column of another type"),
        ("1 + 1 AS D", "an expression of numbers"),
        ("5.2501 AS D", "a digit behind the point would be lost"),
        ("1234 AS D", "a digit before the point would be lost"),
        ("CAST(A AS DECIMAL(7, 3)) AS D", "one digit too many"),
        ("D AS E", "another name"),
    ],
)
def test_what_does_not_fit_is_refused(plan: Callable[..., Plan], item: str, why: str) -> None:
    with pytest.raises(StatementError, match="Incompatible schema between results and sink"):
        plan(f"{SETUP}INSERT INTO I SELECT K, {item} FROM S;")
    assert why
