"""Literals and bound statements, as the parser of the nodes reads them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.client.core.literals import (
    UnfitParameter,
    bound,
    literal,
    moment_text,
)
from standpipe.errors import SqlSyntaxError, StatementError
from standpipe.sql.syntax import ast, parser
from standpipe.sql.syntax.ast_statements import InsertValues
from standpipe.sql.types.names import RESERVED, folded, name_literal
from standpipe.sql.types.types import parse_type

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
#: characters with which a text could leave its literal, or a statement its place
WILD = st.text(st.sampled_from("'\"`?;-*/\\${}\n\0 aA1.()["), max_size=20)
NUMBER = st.one_of(
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**18), max_value=10**18),
)
SCALAR = st.one_of(st.none(), st.booleans(), TEXT, WILD, NUMBER)
VALUE = st.recursive(
    SCALAR, lambda part: st.one_of(st.lists(part, min_size=1, max_size=3)), max_leaves=6
)


def inserted(text: str) -> list[Any]:
    """The values of an INSERT, as the parser reads them; fails if it is not one statement."""
    (statement,) = parser.parse(text)
    assert isinstance(statement, InsertValues)
    return [meant(each) for each in statement.values]


def meant(node: Any) -> Any:
    """A constant expression's value."""
    match node:
        case ast.LiteralValue():
            return node.value
        case ast.Negative():
            return -meant(node.operand)
        case ast.MakeArray():
            return [meant(each) for each in node.items]
    raise AssertionError(f"{node!r} is no constant")


@settings(max_examples=examples(100, thorough=900), deadline=None)
@given(st.lists(VALUE, min_size=1, max_size=5))
def test_a_value_survives_the_parser(values: list[Any]) -> None:
    marks = ", ".join("?" * len(values))
    assert inserted(bound(f"INSERT INTO T VALUES ({marks});", values)) == values


@settings(max_examples=examples(100, thorough=900), deadline=None)
@given(st.lists(st.one_of(WILD, NUMBER), min_size=2, max_size=2))
def test_neighbours_stay_apart(values: list[Any]) -> None:
    """A minus, a text and a word right beside a parameter."""
    before, after = values
    text = bound("INSERT INTO T VALUES (-?, 'a', ?);-- ?'", [1, after])
    assert inserted(text) == [-1, "a", after]
    both = parser.parse(bound("SELECT*FROM T WHERE A=?AND B=?;", [before, after]))
    assert len(both) == 1, "one statement"


@settings(max_examples=examples(100, thorough=900), deadline=None)
@given(st.text(st.sampled_from("?'\"`-*/ \n;aB1"), max_size=25), WILD)
def test_parameters_are_where_the_grammar_has_room_for_one(text: str, value: str) -> None:
    """With a `?` replaced by a word, any text gives as many statements as with the value bound.

    The word stands for what is bound; where the parser takes it for a part of a text or a comment,
    no parameter is.
    """
    count = sum(mark is not None for mark in marks_of(text))
    with_value = bound(f"SELECT * FROM T WHERE A = 1 {text}", [value] * count)
    with_word = bound(f"SELECT * FROM T WHERE A = 1 {text}", ["word"] * count)
    assert shape(with_value) == shape(with_word)


def marks_of(text: str) -> list[int | None]:
    """Where a simple reader, one character at a time, finds parameters."""
    found: list[int | None] = []
    at = 0
    while at < len(text):
        if text[at] in "'\"`":
            at = past(text, text[at], at + 1)
        elif text.startswith("--", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            at = len(text) if end < 0 else end + 2
        else:
            found += [at] if text[at] == "?" else []
            at += 1
    return found


def past(text: str, quote: str, at: int) -> int:
    """After the end of what the quote began; a doubled quote is none."""
    while at < len(text):
        if text[at] == quote:
            if text[at : at + 2] != quote * 2:
                return at + 1
            at += 1
        at += 1
    return at


def shape(text: str) -> object:
    """Which statements the parser finds; an error's place is no matter."""
    try:
        return [type(each).__name__ for each in parser.parse(text)]
    except StatementError:
        return "refused"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-5, "-5"),
        (1.5, "1.5E0"),
        (1e300, "1e+300"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+3"), "1000"),
        ("it's", "'it''s'"),
        (b"\x00\xff", "'AP8='"),
        (bytearray(b"a"), "'YQ=='"),
        (date(2020, 2, 29), "'2020-02-29'"),
        (time(1, 2, 3, 4000), "'01:02:03.004'"),
        (
            datetime(2020, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))),
            "'2020-01-01T10:00:00.000'",
        ),
        (datetime(2020, 1, 1, 12), "'2020-01-01T12:00:00.000'"),  # noqa: DTZ001 counts as UTC
        ([1, "a"], "ARRAY[1, 'a']"),
        ({"a": 1}, "MAP('a' := 1)"),
    ],
)
def test_how_a_literal_looks(value: object, text: str) -> None:
    assert literal(value) == text


def test_a_dict_is_what_its_column_is() -> None:
    of = parse_type("STRUCT<`A` INTEGER, `b` MAP<STRING, STRUCT<`C` STRING>>>")
    value = {"a": 1, "b": {"k": {"c": "x"}}}
    assert literal(value, of) == "STRUCT(`A` := 1, `b` := MAP('k' := STRUCT(`C` := 'x')))"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "give None for NULL"),
        (float("inf"), "no SQL literal"),
        (Decimal("NaN"), "fits no DECIMAL"),
        (object(), "no SQL literal: give a text, a number"),
        ("\ud800", "no UTF-8"),
        ({1, 2}, "set {1, 2} has no SQL literal"),
        (pd.NaT, "NaT has no SQL literal: give None for NULL"),
        (pd.NA, "NAType <NA> has no SQL literal"),
        (np.datetime64("2020-01-01T00:00:00", "ns"), "datetime64"),
    ],
)
def test_what_has_no_literal(value: object, words: str) -> None:
    with pytest.raises(UnfitParameter, match=words):
        literal(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(-5), "-5"),
        (np.uint8(5), "5"),
        (np.bool_(True), "TRUE"),
        (np.float32(0.5), "0.5E0"),
        (np.float64(0.5), "0.5E0"),
        (np.str_("it's"), "'it''s'"),
        ([np.int64(1)], "ARRAY[1]"),
        (pd.Timestamp("2020-01-01T12:00:00Z"), "'2020-01-01T12:00:00.000'"),
    ],
)
def test_numbers_of_numpy_and_pandas(value: object, text: str) -> None:
    """As they come out of a DataFrame of pandas."""
    assert literal(value) == text


@pytest.mark.parametrize("parameters", ["a", b"a", {"id": "a"}], ids=repr)
def test_parameters_that_are_no_list(parameters: Any) -> None:
    """A text of one character would pass for a list of one."""
    with pytest.raises(UnfitParameter, match="the parameters are a list"):
        bound("SELECT * FROM T WHERE ID = ?;", parameters)


@pytest.mark.parametrize(
    ("text", "given_"), [("SELECT ?", []), ("SELECT 1", [1]), ("SELECT '?'", [1])]
)
def test_as_many_values_as_marks(text: str, given_: list[object]) -> None:
    with pytest.raises(UnfitParameter, match="parameters"):
        bound(text, given_)


def test_a_text_without_marks_is_unchanged() -> None:
    assert bound("SELECT '?' FROM T;", []) == "SELECT '?' FROM T;"


def words_of_the_grammar() -> set[str]:
    grammar = Path(parser.__file__ or "").with_name("ksql.lark").read_text()
    lines = [line for line in grammar.splitlines() if line.startswith("%declare")]
    return {word.lstrip("_") for line in lines for word in re.findall(r"[A-Z_]+", line)}


def test_reserved_words_are_the_grammars() -> None:
    found = set()
    for word in words_of_the_grammar():
        try:
            parser.parse(f"SELECT {word} FROM {word} WHERE {word} = 1;")
        except SqlSyntaxError:
            found.add(word)
    assert found == RESERVED


@settings(max_examples=examples(50, thorough=300), deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=10))
def test_a_name_survives_the_parser(name: str) -> None:
    (statement,) = parser.parse(f"DESCRIBE {name_literal(name)};")
    assert vars_of(statement)["name"] == name


def vars_of(statement: object) -> dict[str, Any]:
    return {name: getattr(statement, name) for name in statement.__slots__}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given_", "name"), [("users", "USERS"), ("`users`", "users"), ('"a""b"', 'a"b'), ("U", "U")]
)
def test_names_fold(given_: str, name: str) -> None:
    assert folded(given_) == name


def test_moments_are_in_utc() -> None:
    assert moment_text(datetime(2020, 1, 1, 0, 0, 0, 1999, tzinfo=UTC)) == "2020-01-01T00:00:00.001"
