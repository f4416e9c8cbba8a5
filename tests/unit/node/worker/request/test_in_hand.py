"""Texts that a worker executes, and those that its node refuses."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.files.turn_page import TurnWriter, digest_of, page_of, read_turns
from standpipe.errors import TextRefused
from standpipe.node.worker.request.computing_turn import ComputingTurn
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker_report import RefusedText, WorkersReport, WorkersReportReader

BAD, GOOD = "SELECT 1;", "SELECT 2;"


class At(Clock):
    now_ms = 1_000

    def boot_ms(self) -> int:
        return self.now_ms


def refusing(folder: Path, *texts: str) -> None:
    refused = tuple(RefusedText(digest=digest_of(text), until_boot_ms=61_000) for text in texts)
    published.write(folder / "workers", WorkersReport(refused=refused))


def test_a_refused_text(tmp_path: Path) -> None:
    clock = At()
    texts = TextsInHand(None, WorkersReportReader(tmp_path / "workers"), clock)
    assert texts.admitted(BAD) == digest_of(BAD)
    assert not texts.is_refusing
    refusing(tmp_path, BAD)
    texts.turn()
    assert texts.is_refusing
    with pytest.raises(TextRefused, match="for another 60 s: simplify it") as caught:
        texts.admitted(BAD)
    assert (caught.value.status, caught.value.code) == (429, 42901)
    assert texts.admitted(GOOD) == digest_of(GOOD)
    clock.now_ms = 61_000
    assert texts.admitted(BAD), "its time is over"
    refusing(tmp_path)
    texts.turn()
    assert not texts.is_refusing


def test_a_new_worker_refuses_from_its_start(tmp_path: Path) -> None:
    refusing(tmp_path, BAD)
    assert TextsInHand(None, WorkersReportReader(tmp_path / "workers")).is_refusing


def test_what_is_in_hand_is_on_the_page(tmp_path: Path) -> None:
    path = page_of(tmp_path, 0)
    texts = TextsInHand(TurnWriter(path))
    texts.turn()
    with texts.on_loop(texts.admitted(GOOD)), texts.in_thread(texts.admitted(BAD)):
        seen = read_turns(path)
        assert seen is not None
        assert (seen.turns, seen.on_loop) == (1, digest_of(GOOD))
        assert seen.in_threads == (digest_of(BAD),)


def test_without_a_page_it_works_on() -> None:
    texts = TextsInHand()
    texts.turn()
    with texts.on_loop(texts.admitted(GOOD)), texts.in_thread(texts.admitted(BAD)):
        pass


def test_of_several_threads_one_computes_and_stands_on_the_page(tmp_path: Path) -> None:
    path, turn = tmp_path / "page", ComputingTurn()
    texts, began = TextsInHand(TurnWriter(path), computing=turn), threading.Event()

    def compute() -> None:
        with texts.in_thread(texts.admitted(GOOD)):
            began.set()

    with texts.in_thread(texts.admitted(BAD)):
        other = threading.Thread(target=compute)
        other.start()
        assert not began.wait(0.05)
        with texts.in_thread(digest_of("it waits for Kafka"), waits=True):
            seen = read_turns(path)
            assert seen is not None
            assert set(seen.in_threads) == {digest_of(BAD), digest_of("it waits for Kafka")}
    assert began.wait(60)
    other.join()
