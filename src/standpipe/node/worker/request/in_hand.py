"""The texts that a worker executes now, and those that it refuses to.

    admitted(text) ─► digest ─► on_loop(digest) around each piece of work of the loop
                             └► in_thread(digest) around work beside it

What is in hand stands on the worker's page of turns (`adapters/files/turn_page.py`). If the worker
stops turning, the parent reads there what it was doing, kills it, and publishes the text as refused
(`node.worker_report`). All workers of the node then refuse it for a while, before any work is done
for it. The fast path writes nothing there: it only runs shapes that were executed before. While any
text `is_refusing`, it asks whether its own is.

Not here: when a worker counts as wedged (`node.supervisor.turn_watch`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from standpipe.adapters.clock import Clock
from standpipe.adapters.files.turn_page import TurnWriter, digest_of
from standpipe.errors import TextRefused
from standpipe.node.worker.request.computing_turn import FREE, Turn
from standpipe.node.worker_report import WorkersReportReader

#: How often the loop turns for the page: well within the shortest limit.
TURN_MS: Final = 50


class TextsInHand:
    """Those of one worker. Without a page (tests, a full disk) nothing is written."""

    def __init__(
        self,
        page: TurnWriter | None = None,
        reports: WorkersReportReader | None = None,
        clock: Clock | None = None,
        computing: Turn = FREE,
    ) -> None:
        """`computing`: which thread computes, when several want to."""
        self._page, self._reports = page, reports
        self._clock = clock or Clock()
        self.computing: Final = computing
        #: digest of a refused text -> until when
        self._refused: Mapping[bytes, int] = {}
        #: whether any text is refused now; a field, for the fast path
        self.is_refusing = False
        self.refresh()

    def turn(self) -> None:
        """Called every TURN_MS by the loop."""
        if self._page is not None:
            self._page.turn()
        self.refresh()

    def refresh(self) -> None:
        """Read which texts are refused, if that has changed."""
        if self._reports is not None and self._reports.refresh():
            refused = self._reports.report.refused
            self._refused = {text.digest: text.until_boot_ms for text in refused}
            self.is_refusing = bool(refused)

    def admitted(self, text: str) -> bytes:
        """The digest by which the text is in hand. Raises TextRefused."""
        digest = digest_of(text)
        if (left_s := self._left_s(digest)) > 0:
            raise TextRefused(
                "a worker of this node stopped while it executed this text, so the node "
                f"refuses it for another {left_s:.0f} s: simplify it"
            )
        return digest

    def refused_for_s(self, text: str) -> float:
        """For how long the text is still refused; 0: it is not."""
        return self._left_s(digest_of(text))

    @property
    def heavy_workers(self) -> Sequence[int]:
        """Numbers of the heavy workers that the parent has started; empty: it has not said so."""
        return self._reports.report.heavy if self._reports else ()

    def has_heavy_ended(self) -> bool:
        """Whether the parent ended a heavy worker lately."""
        return self._reports is not None and self._reports.report.has_heavy_ended(
            self._clock.boot_ms()
        )

    def _left_s(self, digest: bytes) -> float:
        until_ms = self._refused.get(digest)
        return 0.0 if until_ms is None else max(0.0, (until_ms - self._clock.boot_ms()) / 1000)

    def on_loop(self, digest: bytes) -> AbstractContextManager[None]:
        """Around work on the loop, in which nothing is awaited."""
        return nullcontext() if self._page is None else self._page.on_loop(digest)

    @contextmanager
    def in_thread(self, digest: bytes, *, waits: bool = False) -> Generator[None]:
        """Around work in a thread, when its turn has come. `waits`: it has none, as it may wait for
        others, or takes its turns itself."""
        with FREE if waits else self.computing:
            if self._page is None:
                yield
                return
            with self._page.in_thread(digest):
                yield
