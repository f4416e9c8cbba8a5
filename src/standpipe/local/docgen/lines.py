"""Wraps text of the generated pages at 100 characters, as `tests/tidy` requires.

A cell of a Markdown table cannot be wrapped, so text that may be long goes into list items.
"""

from __future__ import annotations

import textwrap

WIDTH = 100


def paragraph(text: str, *, first: str = "", rest: str = "") -> str:
    """`text` in lines; `first` and `rest` are the prefixes of the first line and of the others.

    Never breaks a word or a text in back-ticks that has no space.
    """
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def item(text: str) -> str:
    """`text` as a list item."""
    return paragraph(text, first="- ", rest="  ")


def items(texts: list[str]) -> str:
    """A list, with a line end after its last item."""
    return "".join(f"{item(text)}\n" for text in texts)


def ended(text: str) -> str:
    """`text` as a sentence: adds a full stop if it has no end punctuation."""
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
