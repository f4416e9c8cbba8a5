"""Which WITH clauses fit the columns and formats of a source."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateSourcePlan, CreateTableAsPlan, Plan

HEADERS = "ARRAY<STRUCT<key STRING, value BYTES>>"
CREATE = "CREATE STREAM s {} WITH (KAFKA_TOPIC='here', {});"


@pytest.mark.parametrize(
    ("columns", "clause", "message"),
    [
        ("", "VALUE_FORMAT='DELIMITED', VALUE_DELIMITER='ab'", "Invalid delimiter value: 'ab'."),
        (
            "(v INT)",
            "VALUE_FORMAT='DELIMITED', VALUE_DELIMITER=' '",
            "please use the special values 'TAB' or 'SPACE'. Invalid delimiter value: ' '.",
        ),
        (
            "(k INT KEY, v INT)",
            "FORMAT='DELIMITED', KEY_DELIMITER=''",
            "Delimiter cannot be empty, if you meant to have a tab or space for delimiter,",
        ),
        (
            "(v INT)",
            "VALUE_FORMAT='JSON', VALUE_DELIMITER='|'",
            "JSON does not support the following",
        ),
        (
            "(k INT KEY, v INT)",
            "VALUE_FORMAT='JSON', KEY_DELIMITER='|'",
            "KAFKA does not support the",
        ),
        ("(v INT)", "FORMAT='JSON', FOO='a', BAR=1", "in the WITH clause: FOO,BAR"),
        (
            "(t STRING)",
            "FORMAT='JSON', TIMESTAMP='t'",
            "has been specified without also specifying the timestamp_format: T is a STRING.",
        ),
        (
            "(t INT)",
            "FORMAT='JSON', TIMESTAMP='t'",
            "should be LONG(INT64), TIMESTAMP, or a String with a timestamp_format specified.",
        ),
        ("", "FORMAT='JSON'", "The statement does not define any columns."),
        (
            "(t STRING)",
            "FORMAT='JSON', TIMESTAMP='t', TIMESTAMP_FORMAT='yyyy bb'",
            "Invalid TIMESTAMP_FORMAT 'yyyy bb': bb in the pattern is not supported here.",
        ),
        (
            "(t BIGINT)",
            "FORMAT='JSON', TIMESTAMP='t', TIMESTAMP_FORMAT='yyyy'",
            "can only be used when the timestamp column is of type STRING",
        ),
        (
            "(a BYTES HEADER('k'), b BYTES HEADER('k'), v INT)",
            "FORMAT='JSON'",
            "Schema already contains a HEADER('k') column.",
        ),
        (
            f"(a {HEADERS} HEADERS, b {HEADERS} HEADERS)",
            "FORMAT='JSON'",
            "Schema already contains a HEADERS column.",
        ),
    ],
)
def test_refusals(plan: Callable[..., Plan], columns: str, clause: str, message: str) -> None:
    with pytest.raises(StatementError) as refused:
        plan(CREATE.format(columns, clause))
    assert message in refused.value.message
    assert refused.value.line == 1


@pytest.mark.parametrize(
    ("columns", "clause"),
    [
        ("(k INT KEY, v INT)", "FORMAT='DELIMITED', KEY_DELIMITER='|', VALUE_DELIMITER='TAB'"),
        ("(t STRING)", "FORMAT='JSON', TIMESTAMP='t', TIMESTAMP_FORMAT='yyyy-MM-dd''T''HH:mm:ssX'"),
        ("(t TIMESTAMP)", "FORMAT='JSON', TIMESTAMP='t'"),
    ],
)
def test_what_fits(plan: Callable[..., Plan], columns: str, clause: str) -> None:
    assert isinstance(plan(CREATE.format(columns, clause)), CreateSourcePlan)


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("VALUE_DELIMITER='|'", "JSON does not support the following configs: [delimiter]"),
        ("KEY_DELIMITER='|'", "KAFKA does not support the following configs: [delimiter]"),
        ("TIMESTAMP='tail', TIMESTAMP_FORMAT='f'", "Invalid TIMESTAMP_FORMAT 'f'"),
    ],
)
def test_refusals_of_results(plan: Callable[..., Plan], clause: str, message: str) -> None:
    with pytest.raises(StatementError) as refused:
        plan(f"CREATE STREAM s WITH ({clause}) AS SELECT tail, seats FROM flights;")
    assert message in refused.value.message


def test_a_result_takes_its_source_s_delimiter_along(plan: Callable[..., Plan]) -> None:
    clause = "KAFKA_TOPIC='here', FORMAT='DELIMITED', VALUE_DELIMITER='|'"
    source = f"CREATE STREAM d (v INT) WITH ({clause});"
    made = plan(f"{source} CREATE STREAM e AS SELECT * FROM d;")
    assert isinstance(made, CreateTableAsPlan)
    assert made.source.value_delimiter == "|"
