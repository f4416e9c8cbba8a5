"""The output while a cluster starts: one line per step, with its time.

On a terminal it shows a spinner while a step runs; elsewhere plain lines, each flushed at once.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console


class Steps:
    """Prints steps to `console`. `quiet` prints only warnings (for tests)."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self.started = time.monotonic()

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line."""
        if not self.quiet or style:
            self.console.print(text, style=style, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a highlighted line: something differs from what was wanted."""
        self.say(text, style="yellow")

    @property
    def seconds(self) -> float:
        """Seconds since the first step."""
        return time.monotonic() - self.started

    @contextmanager
    def step(self, what: str) -> Generator[list[str]]:
        """Show `what` while the body runs; the body may append text about the outcome."""
        outcome: list[str] = []
        began = time.monotonic()
        if self.console.is_terminal and not self.quiet:
            with self.console.status(f"{what} …"):
                yield outcome
        else:
            yield outcome
        words = f": {', '.join(outcome)}" if outcome else ""
        self.say(f"✓ {what}{words} ({time.monotonic() - began:.1f} s)")
