"""A worker's page of turns: what its parent reads there."""

from __future__ import annotations

import os
from pathlib import Path

from standpipe.adapters.files.turn_page import (
    THREADS_MAX,
    TurnsSeen,
    TurnWriter,
    digest_of,
    page_of,
    read_turns,
)

ONE, OTHER = digest_of("SELECT 1;"), digest_of("SELECT 2;")


def test_turns_and_texts(tmp_path: Path) -> None:
    path = page_of(tmp_path, 3)
    assert read_turns(path) is None
    page = TurnWriter(path)
    assert read_turns(path) == TurnsSeen(os.getpid(), 0, None, ())
    page.turn()
    page.turn()
    with page.in_thread(ONE), page.in_thread(OTHER), page.in_thread(OTHER):
        seen = read_turns(path)
        assert seen is not None
        assert (seen.turns, seen.on_loop, set(seen.in_threads)) == (2, None, {ONE, OTHER})
        assert set(seen.suspects) == {ONE, OTHER}, "a thread that holds the interpreter"
        with page.on_loop(ONE):
            seen = read_turns(path)
            assert seen is not None
            assert seen.suspects == (ONE,), "the loop stands in this one, whatever threads do"
    assert read_turns(path) == TurnsSeen(os.getpid(), 2, None, ())


def test_a_new_worker_begins_a_new_page(tmp_path: Path) -> None:
    path = page_of(tmp_path, 0)
    before = TurnWriter(path)
    before.turn()
    before.on_loop(ONE).__enter__()  # it was killed there
    TurnWriter(path)
    assert read_turns(path) == TurnsSeen(os.getpid(), 0, None, ())


def test_more_threads_than_places(tmp_path: Path) -> None:
    page = TurnWriter(page_of(tmp_path, 0))
    held = [page.in_thread(digest_of(str(number))) for number in range(THREADS_MAX + 2)]
    for each in held:
        each.__enter__()
    seen = read_turns(page_of(tmp_path, 0))
    assert seen is not None
    assert len(seen.in_threads) == THREADS_MAX
    for each in held:
        each.__exit__(None, None, None)
    assert read_turns(page_of(tmp_path, 0)) == TurnsSeen(os.getpid(), 0, None, ())


def test_a_page_of_another_version_says_nothing(tmp_path: Path) -> None:
    path = page_of(tmp_path, 0)
    path.write_bytes(b"x" * 7)
    assert read_turns(path) is None
    TurnWriter(path).turn()
    seen = read_turns(path)
    assert seen is not None
    assert seen.turns == 1
