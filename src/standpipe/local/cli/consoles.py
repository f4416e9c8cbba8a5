"""Where commands print: texts as they are, and whole where no person watches.

Rich takes `[x]` in a text for a style and `:new:` for a picture. Names, keys and rows have such
texts, and they must come out as they went in.

Not here: what is printed (the modules named `…_output`).
"""

from __future__ import annotations

import sys
from typing import IO, Final

from rich.console import Console

#: a pipe or a file has no width at which a value would be cut
UNBOUNDED_WIDTH: Final = 10**9


def data_console(file: IO[str] | None = None) -> Console:
    """A console for standard output, or `file`, in which no text is markup. Unless it is a
    terminal, no line is cut or wrapped."""
    is_terminal = (file or sys.stdout).isatty()
    width = None if is_terminal else UNBOUNDED_WIDTH
    return Console(file=file, markup=False, emoji=False, width=width)


def error_console() -> Console:
    """The same for standard error, which is for people: long lines are wrapped."""
    return Console(stderr=True, markup=False, emoji=False)
