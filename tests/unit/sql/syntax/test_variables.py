"""DEFINE and what it does to the statements after it."""

from __future__ import annotations

import pytest

from standpipe.errors import StatementError
from standpipe.sql.syntax import variables
from standpipe.sql.syntax.ast import LiteralValue, Query
from standpipe.sql.syntax.ast_statements import CreateSource

KNOWN = {"N": "3", "NAME": "it's", "TABLE": '"my ; table"', "BAD": "1; DROP TABLE t", "MORE": "a b"}


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        ("LIMIT ${n}", "LIMIT 3", "names have no case"),
        ("'${NAME}'", "'it''s'", "quotes are doubled in quoted text"),
        ('"${NAME}"', '"it\'s"', "of the same kind"),
        ("'${bad}'", "'1; DROP TABLE t'", "in quoted text anything may stand"),
        ("FROM ${table};", 'FROM "my ; table";', "a quoted name is one token"),
        ("${unknown}", "${unknown}", "what nobody defined stays"),
        ("$${n}", "${n}", "a doubled sign is the sign"),
        ("-- ${n}\n${n}", "-- ${n}\n3", "a comment stays"),
        ("${n} /* ${n}", "3 /* ${n}", "also one that is not closed"),
        ("${n} /* /* ${n} 'a", "3 /* /* ${n} 'a", "which is one, whatever it holds"),
        (
            "/* ${n} ' */ ${n} - ${n} / ${n}",
            "/* ${n} ' */ 3 - 3 / 3",
            "and its quotes open nothing",
        ),
    ],
)
def test_substituted(text: str, expected: str, why: str) -> None:
    assert variables.substituted(text, KNOWN) == expected, why


@pytest.mark.parametrize("name", ["bad", "more"])
def test_a_value_cannot_end_the_statement_that_it_stands_in(name: str) -> None:
    with pytest.raises(StatementError, match="is not a single name, number or text"):
        variables.substituted(f"SELECT ${{{name}}} FROM t;", KNOWN)


@pytest.mark.parametrize(
    "text",
    ["SELECT '" + "${v}" * 70 + "' FROM t;", "SELECT " + "${v} + " * 70 + "1 FROM t;"],
    ids=["within one quoted text", "as words"],
)
def test_values_together_are_no_longer_than_a_text(text: str) -> None:
    """Half a megabyte of names became 1.9 GB."""
    with pytest.raises(StatementError, match="longer than 65536 characters together"):
        variables.substituted(text, {"V": "v" * 1_000})


def test_a_request_with_variables_has_no_more_statements_than_another() -> None:
    """It was cut into statements first, and each of them is within any limit."""
    with pytest.raises(StatementError, match="this one has 4001"):
        variables.parse("DEFINE a = 'x';" + "SHOW ${a};" * 4_000, {})


def test_statements_share_the_room_for_values() -> None:
    text = "DEFINE b = '${v}';" * 66
    with pytest.raises(StatementError, match="longer than 65536 characters together"):
        variables.parse(text, {"V": "v" * 1_000})


def test_definitions_that_double_each_other_end_at_the_limit() -> None:
    text = "DEFINE a = 'aaaaaaaa';" + "DEFINE a = '${a}${a}';" * 30
    with pytest.raises(StatementError, match="longer than 65536 characters together"):
        variables.parse(text, {})


@pytest.mark.parametrize(
    "text", ["SHOW ${a} /* ; SHOW b;", "SHOW ${a} /* /* ; /* ;", "SHOW ${a}; /* ' ; -- ; \n ;"]
)
def test_a_comment_that_is_not_closed_is_searched_once(text: str) -> None:
    """The rest was searched for its end at each `/*`: 60 KB of them took a worker 35 s."""
    assert [piece.count("/*") for piece in variables.split(text)][-1] == text.count("/*")
    with pytest.raises(StatementError, match="yntax"):
        variables.parse(text, {"A": "tables"})


def test_each_statement_sees_the_definitions_before_it() -> None:
    text = (
        "DEFINE format = 'JSON'; DEFINE n = '2';\n"
        "CREATE STREAM s (k STRING KEY) WITH (KAFKA_TOPIC='s', FORMAT='${format}',"
        " PARTITIONS=${n});"
        "\nUNDEFINE n; SELECT '${n}' AS a, ${m} AS b FROM s;"
    )
    _, _, made, _, query = variables.parse(text, {"M": "7"})
    assert isinstance(made, CreateSource)
    assert [each.value.value for each in made.properties] == ["s", "JSON", 2]
    assert isinstance(query, Query)
    values = [item.expression for item in query.items]  # type: ignore[union-attr]
    assert [each.value for each in values if isinstance(each, LiteralValue)] == ["${n}", 7]
    assert (made.at.line, query.at.line) == (2, 3), "positions count over the request"


def test_substitution_can_be_turned_off() -> None:
    (query,) = variables.parse("SELECT '${n}' FROM s;", {"N": "1"}, is_on=False)
    assert query.text == "SELECT '${n}' FROM s;"
