"""Answers as a person reads them."""

import io
from decimal import Decimal

import pytest
from rich.console import Console

from standpipe.client.core.answers import ServerRefused, error_of
from standpipe.errors import ConfigError, StatementError
from standpipe.freshness import Freshness
from standpipe.local.cli import sql_output
from standpipe.local.client.rest_client import PullAnswer

FRESH = Freshness(
    served_by="node-2", role="active", state="RUNNING", offset_lag=0, replica_lag_ms=12, batch=41
)


def shown(print_it: object, *arguments: object, **options: object) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_it(console, *arguments, **options)  # type: ignore[operator]
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("rows", "fresh", "text"),
    [
        (1, FRESH, "1 row · served by node-2 (active, RUNNING) · lag 0 records, 12 ms · batch 41"),
        (0, Freshness(served_by="", role="", state=""), "0 rows"),
        (
            2,
            Freshness(served_by="node-1", role="standby", state="CATCHING_UP", source_lag_ms=900),
            "2 rows · served by node-1 (standby, CATCHING_UP) · source 900 ms ago",
        ),
    ],
)
def test_footer_leaves_out_what_is_unknown(rows: int, fresh: Freshness, text: str) -> None:
    assert sql_output.footer(rows, fresh) == text


LIVE = (
    '[{"header":{"queryId":"q","schema":"`K` STRING, `N` BIGINT"}},',
    '{"row":{"columns":["a",1]}},',
    '{"row":{"columns":["a",null],"tombstone":true}},',
    '{"finalMessage":"Limit Reached"}]',
)


def live(console: Console, lines: tuple[str, ...], *, as_json: bool = False) -> None:
    output = sql_output.LiveOutput(console, "SELECT", as_json=as_json)
    for line in lines:
        output.line(line)


def test_rows_of_a_push_query_as_they_come() -> None:
    assert [line.split() for line in shown(live, LIVE).splitlines()] == [
        ["K", "N"],
        ["a", "1"],
        ["a", "null"],
        ["Limit", "Reached"],
    ]
    assert shown(live, LIVE, as_json=True).splitlines() == [
        '{"K":"a","N":1}',
        '{"K":"a","N":null,"@tombstone":true}',
    ]


def test_decimals_of_a_push_query_are_exact() -> None:
    lines = (
        '[{"header":{"queryId":"q","schema":"`D` DECIMAL(38, 2), `F` DOUBLE, `A` ARRAY<DOUBLE>"}},',
        '{"row":{"columns":[12345678901234567890.1,1.50,[2.0]]}},',
    )
    words = shown(live, lines).splitlines()[1].split()
    assert words == ["12345678901234567890.10", "1.5", "[2.0]"]
    assert shown(live, lines, as_json=True) == '{"D":12345678901234567890.10,"F":1.5,"A":[2.0]}\n'


def test_decimals_have_their_digits() -> None:
    row = (Decimal("0E-8"), Decimal("1.10"), {"X": [Decimal("1E-8"), None]})
    types = ("DECIMAL(9, 8)", "DECIMAL(4, 2)", "STRUCT<X ARRAY<DECIMAL(9, 8)>>")
    answer = PullAnswer(("A", "B", "C"), types, (row,), FRESH)
    line = shown(sql_output.print_pull, answer, as_json=False).splitlines()[2]
    assert line.split() == ["0.00000000", "1.10", '{"X":[0.00000001,null]}']
    line = shown(sql_output.print_pull, answer, as_json=True)
    assert line == '{"A":0.00000000,"B":1.10,"C":{"X":[0.00000001,null]}}\n'


def test_lines_of_print_as_they_are() -> None:
    lines = ("Key format: KAFKA_STRING", "rowtime: N/A, key: [a], value: {}, partition: 0")
    assert shown(live, lines).splitlines() == list(lines)


def test_an_error_in_a_live_answer_is_raised() -> None:
    error = '{"errorMessage":{"@type":"generic_error","error_code":50000,"message":"S is gone"}}]'
    with pytest.raises(ServerRefused, match="S is gone"):
        shown(live, (LIVE[0], error))


def test_rows_as_table_and_as_json() -> None:
    answer = PullAnswer(("ID", "N"), ("STRING", "BIGINT"), (("a", 1), ("b", None)), FRESH)
    table = shown(sql_output.print_pull, answer, as_json=False)
    assert "ID" in table
    assert "null" in table
    assert "2 rows · served by node-2" in table
    lines = shown(sql_output.print_pull, answer, as_json=True)
    assert lines.splitlines() == ['{"ID":"a","N":1}', '{"ID":"b","N":null}']


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ({"commandStatus": {"status": "SUCCESS", "message": "Stream created"}}, "Stream created"),
        ({"@type": "tables", "tables": []}, "no tables"),
        ({"@type": "tables", "tables": [{"name": "T", "isWindowed": True}]}, "true"),
        (
            {"sourceDescription": {"name": "T", "type": "TABLE", "fields": []}},
            "T (TABLE)",
        ),
        ({"commandStatus": {"message": "ok"}, "warnings": [{"message": "old"}]}, "warning: old"),
    ],
)
def test_entity(entity: dict[str, object], words: str) -> None:
    assert words in shown(sql_output.print_entity, entity, as_json=False)


def test_error_points_at_the_place() -> None:
    body = {
        "@type": "statement_error",
        "message": "unknown column NAM",
        "statementText": "SELECT NAM FROM T;",
        "standpipe": {"line": 1, "column": 8, "hint": "did you mean NAME?"},
    }
    error = error_of(body, "")
    assert isinstance(error, StatementError)
    assert shown(sql_output.print_error, error).splitlines() == [
        "unknown column NAM",
        "  SELECT NAM FROM T;",
        "         ^",
        "did you mean NAME?",
    ]


def test_setup_error_says_the_next_step() -> None:
    text = shown(sql_output.print_error, ConfigError("unknown key x", next_step="did you mean y?"))
    assert text.splitlines() == ["E-CONFIG-001 unknown key x", "  Next: did you mean y?"]
