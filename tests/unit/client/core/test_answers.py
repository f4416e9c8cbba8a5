"""Answers as rows and errors; the layouts are written by the nodes' own code."""

from __future__ import annotations

import json

import pytest

from standpipe.client.core.answers import (
    ServerRefused,
    again_after,
    columns_of_schema,
    entities_of,
    error_of_answer,
    head_of,
    lines_of,
    rows_of,
)
from standpipe.client.core.exchange import HttpAnswer
from standpipe.client.core.rows import Columns
from standpipe.errors import (
    BadRequest,
    KafkaUnavailable,
    NoReplica,
    StandpipeError,
    StatementError,
)
from standpipe.freshness import Freshness, parse_headers
from standpipe.node.worker.statements.execute import StatementFailed

HEAD = b'{"queryId":"query_1","columnNames":["ID","N"],"columnTypes":["STRING","BIGINT"]}\n'
FRESH = {"standpipe-served-by": "n1", "standpipe-role": "active", "standpipe-batch": "7"}


def test_rows_and_their_freshness() -> None:
    rows = rows_of(HttpAnswer(200, FRESH, HEAD + b'["a",1]\n["b",null]\n'), "")
    assert [dict(row) for row in rows] == [{"ID": "a", "N": 1}, {"ID": "b", "N": None}]
    assert rows.columns == Columns(("ID", "N"), ("STRING", "BIGINT"))
    assert rows.freshness == parse_headers(FRESH)
    assert rows[1].freshness is rows.freshness
    assert isinstance(rows.freshness, Freshness)
    assert rows[:1].tuples == [("a", 1)]


def test_lines_are_as_they_came() -> None:
    found = lines_of(HttpAnswer(200, FRESH, HEAD + b'["a",1]\n["b",null]\n'), "")
    assert found.columns == Columns(("ID", "N"), ("STRING", "BIGINT"))
    assert found.lines == [b'["a",1]', b'["b",null]']
    assert lines_of(HttpAnswer(200, {}, HEAD), "").lines == []


def test_no_rows() -> None:
    assert rows_of(HttpAnswer(200, {}, HEAD), "").tuples == []


def test_an_error_after_the_first_rows() -> None:
    last = json.dumps(NoReplica("gone", verdicts=[]).body()).encode()
    with pytest.raises(ServerRefused, match="gone") as raised:
        rows_of(HttpAnswer(200, {}, HEAD + b'["a",1]\n' + last + b"\n"), "SELECT")
    assert raised.value.error_code == NoReplica.code
    with pytest.raises(ServerRefused, match="gone"):
        lines_of(HttpAnswer(200, {}, HEAD + b'["a",1]\n' + last + b"\n"), "SELECT")


def test_heads_differ_by_their_query_only() -> None:
    assert head_of(HEAD)[0] is head_of(HEAD.replace(b"query_1", b"query_2"))[0]
    with pytest.raises(ServerRefused, match="no answer of a node"):
        head_of(b"<html>")


def test_columns_are_found_in_any_case() -> None:
    row = rows_of(HttpAnswer(200, {}, HEAD + b'["a",1]\n'), "")[0]
    assert (row["id"], row["N"], row.as_tuple) == ("a", 1, ("a", 1))
    with pytest.raises(KeyError):
        row["M"]
    assert "M" not in row
    assert repr(row) == "Row(ID='a', N=1)"


@pytest.mark.parametrize(
    ("schema", "names", "types"),
    [
        ("`ID` STRING KEY, `N` BIGINT", ("ID", "N"), ("STRING", "BIGINT")),
        ("`a``,b` DECIMAL(4, 2)", ("a`,b",), ("DECIMAL(4, 2)",)),
        (
            "`S` STRUCT<`x,>y` MAP<STRING, INTEGER>, `z` STRING> KEY, `T` TIME",
            ("S", "T"),
            ("STRUCT<`x,>y` MAP<STRING, INTEGER>, `z` STRING>", "TIME"),
        ),
        ("", (), ()),
    ],
)
def test_the_schema_of_a_header(
    schema: str, names: tuple[str, ...], types: tuple[str, ...]
) -> None:
    assert columns_of_schema(schema) == Columns(names, types)


def test_a_schema_that_cannot_be_read() -> None:
    with pytest.raises(ServerRefused, match="schema"):
        columns_of_schema("ID STRING")


def test_an_error_points_into_the_statement() -> None:
    body = StatementError("no", statement="SELECT X", line=1, column=8, hint="Y?").body()
    error = error_of_answer(HttpAnswer(400, {}, json.dumps(body).encode()))
    assert isinstance(error, StatementError)
    assert (error.line, error.column, error.hint, error.statement) == (1, 8, "Y?", "SELECT X")


def test_a_right_statement_that_was_not_carried_out_is_not_called_wrong() -> None:
    """Kafka is away: the same text may be sent again."""
    text = "INSERT INTO S (K) VALUES ('a');"
    cause = KafkaUnavailable("Kafka did not acknowledge the row")
    body = json.dumps(StatementFailed(cause, text, []).body()).encode()
    error = error_of_answer(HttpAnswer(503, {"retry-after": "1"}, body), "INSERT …")
    assert isinstance(error, ServerRefused)
    assert (error.http_status, error.error_code) == (503, KafkaUnavailable.code)
    assert (error.again_after_s, error.details["statement"]) == (1.0, text)


@pytest.mark.parametrize("cause", [StatementError("no"), BadRequest("no")])
def test_a_wrong_statement_among_others_is_called_wrong(cause: StandpipeError) -> None:
    body = json.dumps(StatementFailed(cause, "DROP STREAM S;", []).body()).encode()
    error = error_of_answer(HttpAnswer(400, {}, body), "")
    assert isinstance(error, StatementError)
    assert error.statement == "DROP STREAM S;"


def test_an_error_without_json() -> None:
    error = error_of_answer(HttpAnswer(502, {"retry-after": "soon"}, b"<html>"))
    assert isinstance(error, ServerRefused)
    assert (error.http_status, error.again_after_s) == (502, None)
    assert "<html>" in error.message


@pytest.mark.parametrize(("text", "seconds"), [("3", 3.0), ("", None), ("-1", None), ("1.5", None)])
def test_retry_after(text: str, seconds: float | None) -> None:
    assert again_after(HttpAnswer(503, {"retry-after": text}, b"")) == seconds


def test_entities() -> None:
    assert entities_of(HttpAnswer(200, {}, b'[{"@type":"x"}]')) == [{"@type": "x"}]
    with pytest.raises(ServerRefused):
        entities_of(HttpAnswer(200, {}, b"{}"))
