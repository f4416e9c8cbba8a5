"""The pure parts of /ksql: errors that control sent, partial failures."""

from __future__ import annotations

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
from standpipe.node.worker.statements.control_client import error_of
from standpipe.node.worker.statements.execute import StatementFailed


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
