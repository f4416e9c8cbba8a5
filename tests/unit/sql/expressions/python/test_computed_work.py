"""What a function of long texts counts as its work. What that is for: `make abuse`."""

from __future__ import annotations

import json

import pytest

from standpipe.sql.expressions.evaluator import WORK_MAX
from standpipe.sql.expressions.evaluator_functions import FUNCTIONS

CHARS = 1_000


def work(name: str, *given: object) -> int:
    counted = FUNCTIONS[name].work
    assert counted is not None
    return counted(*given)


@pytest.mark.parametrize("name", ["INITCAP", "MASK", "URL_DECODE_PARAM"])
def test_what_makes_many_objects_counts_more_than_what_copies(name: str) -> None:
    """INITCAP of 4 MB held the interpreter, and so the loop of its worker, for 0.12 s."""
    text = "a " * CHARS
    assert work(name, text) >= 4 * work("UCASE", text)


@pytest.mark.parametrize(
    "name", ["IS_JSON_STRING", "JSON_ARRAY_LENGTH", "JSON_ITEMS", "JSON_CONCAT"]
)
def test_json_counts_its_values(name: str) -> None:
    """A text of four megabytes is one value, or two million."""
    long, many = json.dumps("x" * CHARS), json.dumps([1] * CHARS)
    assert len(long) <= work(name, long) < 2 * len(long), "an ordinary document is not refused"
    assert work(name, many) > 5 * len(many)
    assert work(name, json.dumps("x" * (WORK_MAX // 2))) < WORK_MAX


def test_a_missing_text_is_no_work() -> None:
    assert work("IS_JSON_STRING", None) == 0
    assert work("MASK", None) == 0


@pytest.mark.parametrize("around", [-1, 0, 1])
def test_a_mask_is_the_same_at_the_ends_of_its_parts(around: int) -> None:
    text = "aZ7 \U0001f600" * 4_096
    text = text[: 4_096 + around] + "\U0001f600b"
    marks = {"a": "x", "Z": "X", "7": "n", " ": "-", "\U0001f600": "--", "b": "x"}
    assert FUNCTIONS["MASK"].compute(text) == "".join(marks[each] for each in text)


def test_words_begin_behind_any_blank() -> None:
    assert FUNCTIONS["INITCAP"].compute("  ab\tCD\n\u00dfx  'ef ") == "Ab\tCd\nSSx  'ef "
    assert FUNCTIONS["INITCAP"].compute(" \t") == ""
