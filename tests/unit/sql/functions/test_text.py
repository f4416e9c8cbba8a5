"""Delimiters as regular expressions of Spark's."""

from __future__ import annotations

import re

import pytest

from standpipe.sql.functions import registry
from standpipe.sql.functions.text import literally


def quoted(delimiter: str) -> str:
    """What the SQL of `literally` makes of a delimiter: its three literals are unescaped."""
    found = re.fullmatch(r"concat\('(.*)', replace\(x, '(.*)', '(.*)'\), '(.*)'\)", literally("x"))
    assert found is not None
    begin, end, again, last = (part.replace("\\\\", "\\") for part in found.groups())
    return begin + delimiter.replace(end, again) + last


@pytest.mark.parametrize(
    ("delimiter", "pattern", "why"),
    [
        (".", r"\Q.\E", "nothing in it means anything"),
        ("\\E(", r"\Q\E\\E\Q(\E", "nor does what would end the quotation: it ended the query"),
        ("a\\", r"\Qa\\E", "a backslash before the end is one"),
    ],
)
def test_a_delimiter_is_matched_as_it_is(delimiter: str, pattern: str, why: str) -> None:
    assert quoted(delimiter) == pattern, why


@pytest.mark.parametrize("name", ["SPLIT", "SPLIT_TO_MAP"])
def test_all_that_split_at_a_text_of_a_column_quote_it(name: str) -> None:
    for variant in registry.variants(name):
        assert variant.template.count("'\\\\Q'") == variant.template.count("'\\\\E\\\\\\\\E\\\\Q'")
