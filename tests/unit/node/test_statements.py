"""The pure parts of /ksql: bytes of an inserted row, errors that control sent, partial failures."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from standpipe.errors import (
    BadRequest,
    KafkaUnavailable,
    LogUnavailable,
    ServerError,
    StandpipeError,
    StatementError,
)
from standpipe.model import Column, Source
from standpipe.node.control_answers import error_of
from standpipe.node.statements import StatementFailed, encode_value
from standpipe.sql.plans import Value

SOURCE = Source(
    name="S",
    kind="STREAM",
    columns=(),
    topic="s",
    partitions=1,
    key_format="KAFKA",
    value_format="JSON",
    statement="",
)
A, P = Column(name="A", type="STRING"), Column(name="P", type="DECIMAL(6, 2)")


@pytest.mark.parametrize(
    ("changes", "columns", "values", "expected", "why"),
    [
        ({}, (A, P), ("x", Decimal("1.50")), b'{"A":"x","P":1.50}', "the scale is kept"),
        ({}, (A, P), (None, None), b'{"A":null,"P":null}', "all columns are there"),
        ({}, (A,), ("x",), b'{"A":"x"}', "a single value is wrapped"),
        ({"wrap_single_value": False}, (A,), ("x",), b'"x"', "or not"),
        ({}, (), (), None, "no value columns"),
        ({"value_format": "KAFKA"}, (A,), ("x",), b"x", "bare"),
        ({"value_format": "DELIMITED"}, (A, P), ("x", Decimal("1.50")), b"x,1.50", "CSV"),
        ({"value_format": "NONE"}, (), (), None, "none"),
    ],
)
def test_encode_value(
    changes: dict[str, object],
    columns: tuple[Column, ...],
    values: tuple[Value, ...],
    expected: bytes | None,
    why: str,
) -> None:
    source = msgspec.structs.replace(SOURCE, **changes)
    assert encode_value(source, values, columns) == expected, why


def test_values_are_quoted_where_they_hold_their_delimiter() -> None:
    source = msgspec.structs.replace(SOURCE, value_format="DELIMITED", value_delimiter="|")
    assert encode_value(source, ("x|", Decimal("1.50")), (A, P)) == b'"x|"|1.50'


@pytest.mark.parametrize(
    "sent",
    [
        StatementError("no", statement="S;", line=2, column=3, hint="try"),
        LogUnavailable("away"),
        KafkaUnavailable("away"),
        BadRequest("bad"),
    ],
)
def test_errors_survive_the_way_from_control(sent: StandpipeError) -> None:
    body = msgspec.json.decode(msgspec.json.encode(sent.body()))
    received = error_of(body, "S;")
    assert received.body() == sent.body()
    assert (received.status, received.retry_after_s) == (sent.status, sent.retry_after_s)


@pytest.mark.parametrize("body", [{}, {"error_code": 99999}, {"error_code": "x", "message": 1}])
def test_errors_of_unknown_kinds(body: dict[str, object]) -> None:
    assert type(error_of(body, "")) is ServerError


def test_partial_failure_names_what_was_done() -> None:
    done = [{"@type": "streams"}]
    body = StatementFailed(KafkaUnavailable("away"), "INSERT …;", done).body()
    assert body == {
        "@type": "statement_error",
        "error_code": 50308,
        "message": "away",
        "statementText": "INSERT …;",
        "entities": done,
    }
