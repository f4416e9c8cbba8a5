"""Texts that are refused for their size, before any of them is parsed."""

from __future__ import annotations

import pytest

from standpipe.errors import StatementError
from standpipe.sql.syntax.limits import STATEMENTS_MAX, TEXT_CHARS_MAX, TOKENS_MAX, check


@pytest.mark.parametrize(
    ("text", "refusal", "why"),
    [
        ("a" * TEXT_CHARS_MAX, None, "one long word"),
        ("a" * (TEXT_CHARS_MAX + 1), "too long", ""),
        ("a " * TOKENS_MAX, None, "as many words as there may be"),
        ("a " * (TOKENS_MAX + 1), "too large", ""),
        ("a " * TOKENS_MAX + ";" + "a " * TOKENS_MAX, None, "of each statement"),
        ("(" * (TOKENS_MAX + 1), "too large", "marks count"),
        ("'a''b' " * (TOKENS_MAX + 1), "too large", "so do quoted texts"),
        ("'" + "a " * TOKENS_MAX + " b", None, "a text that is not closed is one"),
        ("/* a ; */" * (TOKENS_MAX + 1), None, "comments are free"),
        ("/* " * 20_000, None, "one comment, which is not closed"),
        ("-- a ; \n" * (STATEMENTS_MAX + 1), None, ""),
        (";" * STATEMENTS_MAX, None, ""),
        (";" * (STATEMENTS_MAX + 1), "201", ""),
        ("SHOW FUNCTIONS;" * 4_000, "4000", "its answer took 18 GB"),
        ("x IN (" + ",".join(["1"] * 20_000) + ")", "too large", "it took a worker 14 s"),
    ],
)
def test_sizes(text: str, refusal: str | None, why: str) -> None:
    if refusal is None:
        check(text)
        return
    with pytest.raises(StatementError, match=refusal):
        check(text)
