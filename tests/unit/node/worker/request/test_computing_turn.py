"""One thread computes at a time, and each has its turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from standpipe.node.worker.request import computing_turn
from standpipe.node.worker.request.computing_turn import ComputingTurn


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def waits(turn: ComputingTurn, count: int) -> None:
    """Until so many threads wait for the turn."""
    until_s = time.monotonic() + 60
    while len(turn._waiting) < count:
        assert time.monotonic() < until_s
        time.sleep(0.001)  # a thread that begins to wait wakes nobody


def test_one_at_a_time_in_the_order_in_which_they_came() -> None:
    turn, done = ComputingTurn(), list[str]()

    def work(name: str) -> None:
        with turn:
            done.append(f"{name} begins")
            time.sleep(0.01)  # another one that computed meanwhile would show
            done.append(f"{name} ends")

    threads: list[threading.Thread] = []
    with turn:
        for number, name in enumerate("abc"):
            threads.append(started(lambda name=name: work(name)))
            waits(turn, number + 1)
        assert done == []
        assert turn.is_taken
    for thread in threads:
        thread.join()
    assert not turn.is_taken
    assert done == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
    with turn:
        done.append("it is free again")


def test_one_that_waits_for_something_else_lets_others_compute() -> None:
    turn, done, came = ComputingTurn(), list[str](), threading.Event()

    def work() -> None:
        with turn:
            done.append("the other")
        came.set()

    with turn:
        thread = started(work)
        waits(turn, 1)
        with turn.waiting():
            assert came.wait(60)
        done.append("the first again")
    thread.join()
    assert done == ["the other", "the first again"]


def test_a_long_turn_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, done = ComputingTurn(), list[str]()

    def work() -> None:
        with turn:
            done.append("the other")

    with turn:
        turn.pass_on()
        done.append("nobody waits")
        thread = started(work)
        waits(turn, 1)
        turn._until_s = time.monotonic() + 60
        turn.pass_on()
        done.append("it has just begun")
        turn._until_s = time.monotonic()
        turn.pass_on()
        done.append("the first again")
    thread.join()
    assert done == ["nobody waits", "it has just begun", "the other", "the first again"]
    assert computing_turn.TURN_S > 0


def test_an_error_gives_the_turn_back() -> None:
    turn = ComputingTurn()
    with pytest.raises(RuntimeError), turn:
        raise RuntimeError
    with pytest.raises(RuntimeError), turn, turn.waiting():
        raise RuntimeError
    with turn:
        pass
