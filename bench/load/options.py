"""The command line of a benchmark: its docstring is the help."""

from __future__ import annotations

import argparse


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser that shows the question of a program first, and the rest at the end of its help."""
    question, _, rest = (doc or "").partition("\n\n")
    return argparse.ArgumentParser(
        description=question,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
