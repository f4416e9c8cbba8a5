"""The demo's live status: one screen on a terminal, a plain line every 5 s elsewhere.

Not here: what is shown (`main.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

PLAIN_EVERY_S = 5.0


class LiveScreen:
    """Shows a mapping of label → text, replaced as a whole."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._said_at = 0.0
        self._live = (
            Live(console=console, auto_refresh=False, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, lines: Mapping[str, str]) -> None:
        """Replace the screen, or print a line if 5 s have passed."""
        if self._live is not None:
            table = Table("", "", box=box.ROUNDED, title=self._title, show_header=False)
            for label, text in lines.items():
                table.add_row(label, text)
            self._live.update(table, refresh=True)
        elif time.monotonic() - self._said_at >= PLAIN_EVERY_S:
            self._said_at = time.monotonic()
            text = " · ".join(f"{label} {text}" for label, text in lines.items())
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def event(self, text: str) -> None:
        """Print a one-off event, which stays on the screen above the status."""
        console = self._live.console if self._live is not None else self._console
        console.print(text, highlight=False, style="bold yellow", soft_wrap=True)


class LoadBar:
    """Progress of a load: a bar on a terminal, a plain line every 5 s elsewhere."""

    def __init__(self, console: Console, what: str, total: int) -> None:
        self._console = console
        self._what = what
        self._total = total
        self._started = self._said_at = time.monotonic()
        self._bar = Progress(
            TextColumn("  {task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task(what, total=total, rate="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, done: int) -> None:
        """Show that `done` items are done."""
        now = time.monotonic()
        rate = done / max(0.001, now - self._started)
        self._bar.update(self._task, completed=done, rate=f"{rate:,.0f} events/s")
        if not self._console.is_terminal and now - self._said_at >= PLAIN_EVERY_S:
            self._said_at = now
            self._console.print(
                f"  {self._what}: {done:,} of {self._total:,} ({rate:,.0f} events/s)",
                highlight=False,
            )
