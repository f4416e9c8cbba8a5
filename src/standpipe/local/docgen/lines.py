"""Text of the generated pages in lines of at most 100 characters, as `tests/tidy` asks of them.

A cell of a Markdown table cannot be wrapped, so what may be long is an item of a list.
"""

from __future__ import annotations

import textwrap

WIDTH = 100


def paragraph(text: str, *, first: str = "", rest: str = "") -> str:
    """`text` in lines; `first` and `rest` stand before the first line and before the others.

    Never breaks a word, nor what stands in back-ticks without a space.
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
    """`text` as an item of a list."""
    return paragraph(text, first="- ", rest="  ")


def items(texts: list[str]) -> str:
    """A list, with a line end after its last item."""
    return "".join(f"{item(text)}\n" for text in texts)


def ended(text: str) -> str:
    """`text` as a sentence: with a full stop where it has no end of its own."""
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
