"""The watch over real processes: those that hang, in four ways, and one that grows, are ended."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from standpipe.adapters.files.turn_page import TurnWriter, digest_of, page_of
from standpipe.config import registry
from standpipe.config.workers import MEMORY_MAX, REFUSED_TEXT_MS, TURN_TIMEOUT
from standpipe.node.configuration import NodePaths
from standpipe.node.supervisor.child import Child, end, wait
from standpipe.node.supervisor.worker_watch import WorkersWatch
from standpipe.node.worker_report import WorkersReport, WorkersReportReader

TEXT = "SELECT * FROM T WHERE K LIKE '%%';"
#: no match, found by trying each way to cut a text; it gives back neither loop nor interpreter
WORK = re.compile(r"(a+)+$"), "a" * 34 + "b"


def steady(page: TurnWriter) -> None:
    while True:
        page.turn()
        time.sleep(0.01)


def computing(page: TurnWriter) -> None:
    """A pattern that backtracks, on the loop."""
    page.turn()
    with page.on_loop(digest_of(TEXT)):
        WORK[0].match(WORK[1])


def computing_beside(page: TurnWriter) -> None:
    """The same in a thread, which does not let the loop's thread run."""

    def compute() -> None:
        with page.in_thread(digest_of(TEXT)):
            WORK[0].match(WORK[1])

    page.turn()
    threading.Thread(target=compute).start()
    steady(page)


def blocked(page: TurnWriter) -> None:
    """A lock that nobody gives back."""
    page.turn()
    with page.on_loop(digest_of(TEXT)):
        threading.Event().wait()


def growing(page: TurnWriter) -> None:
    kept: list[bytearray] = []
    while True:
        page.turn()
        if len(kept) < 20:
            kept.append(bytearray(os.urandom(1)) * 10_000_000)
        time.sleep(0.01)


class Watched:
    """One worker that does `first` in its first life, and is well in the next."""

    def __init__(self, folder: Path, first: Callable[[TurnWriter], None], **config: object) -> None:
        self.paths = NodePaths(folder)
        self.paths.make()
        pids = folder / "pids"

        def run() -> int:
            with pids.open("a") as file:
                file.write(f"{os.getpid()}\n")
            page = TurnWriter(page_of(self.paths.run, 0))
            (first if len(pids.read_text().split()) == 1 else steady)(page)
            return 0

        self.pids = pids
        self.child = Child("worker-0", run, self.paths)
        settings = registry.load({TURN_TIMEOUT.name: 600, **config})
        self.watch = WorkersWatch((self.child,), self.paths, settings)
        self.reader = WorkersReportReader(self.paths.workers)

    def live_until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline_s, self.report()
            self.child.tend()
            self.watch.look()
            wait((self.child,), 0.02)

    def report(self) -> WorkersReport:
        self.reader.refresh()
        return self.reader.report

    def is_begun(self) -> bool:
        """The watch has seen it turn; before that it is starting, and not watched."""
        return self.watch._watched[0].turns.seen_turns > 0

    def is_replaced(self) -> bool:
        """The second process turns, and nobody is silent."""
        lives = self.lives()
        return len(lives) == 2 and self.child.pid == int(lives[1]) and not self.report().silent

    def lives(self) -> list[str]:
        """The process ids of those that have begun."""
        return self.pids.read_text().split() if self.pids.exists() else []

    def end(self) -> None:
        self.child.signal(signal.SIGKILL)
        end((self.child,), 1.0)


@pytest.mark.parametrize(
    ("first", "is_text_blamed"),
    [(computing, True), (computing_beside, True), (blocked, True)],
    ids=["computes on the loop", "computes in a thread", "waits for a lock"],
)
def test_a_wedged_worker_is_replaced_and_its_text_refused(
    tmp_path: Path, first: Callable[[TurnWriter], None], is_text_blamed: bool
) -> None:
    """133 bytes of SQL held all workers of two nodes for minutes, and the node was well."""
    watched = Watched(tmp_path, first)
    try:
        watched.live_until(lambda: bool(watched.report().silent))
        assert watched.report().complaint(0) == "worker-0: no turn of the event loop"
        watched.live_until(watched.is_replaced)
        report = watched.report()
        assert [(each.reason, each.count) for each in report.ended] == [("wedged", 1)]
        assert [text.digest for text in report.refused] == [digest_of(TEXT)] * is_text_blamed
        at_ms = report.ended[0].at_boot_ms
        assert "was ended 3 s ago: its event loop" in (report.complaint(at_ms + 3000) or "")
        assert report.complaint(at_ms + 10_000) is None
    finally:
        watched.end()


def test_a_stopped_worker_is_replaced_and_no_text_refused(tmp_path: Path) -> None:
    watched = Watched(tmp_path, steady)
    try:
        watched.live_until(watched.is_begun)
        watched.child.signal(signal.SIGSTOP)
        watched.live_until(watched.is_replaced)
        assert watched.report().refused == ()
    finally:
        watched.end()


def test_a_worker_that_takes_too_much_memory_is_replaced(tmp_path: Path) -> None:
    """`SHOW FUNCTIONS;` 20,000 times took 18.5 GB, and the kernel chose whom to kill."""
    watched = Watched(tmp_path, growing, **{MEMORY_MAX.name: MEMORY_MAX.low})
    try:
        watched.live_until(watched.is_replaced)
        assert [each.reason for each in watched.report().ended] == ["memory"]
        assert watched.report().refused == (), "many texts may have a part in it"
    finally:
        watched.end()


def test_a_refusal_ends(tmp_path: Path) -> None:
    watched = Watched(tmp_path, blocked, **{REFUSED_TEXT_MS.name: 1})
    try:
        watched.live_until(watched.is_replaced)
        watched.live_until(lambda: not watched.report().refused)
    finally:
        watched.end()


def test_a_full_disk_does_not_end_the_watch(tmp_path: Path) -> None:
    watched = Watched(tmp_path, steady)
    (tmp_path / "run" / "workers.new").mkdir()  # OSError, as ENOSPC is one
    try:
        watched.live_until(watched.is_begun)
        watched.child.signal(signal.SIGSTOP)
        watched.live_until(lambda: len(watched.lives()) == 2)
        (tmp_path / "run" / "workers.new").rmdir()
        watched.live_until(lambda: bool(watched.report().ended))
    finally:
        watched.end()
