"""The thread for rows that may take long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from standpipe.adapters.files.turn_page import DIGEST_BYTES, TurnWriter, read_turns
from standpipe.node.worker.pull import row_thread
from standpipe.node.worker.pull.row_thread import RowThread
from standpipe.node.worker.request.in_hand import TextsInHand

DIGEST = b"d" * DIGEST_BYTES


@dataclass(frozen=True)
class Time:
    """Stands for the module `time`."""

    sleep: Callable[[float], None]
    monotonic: Callable[[], float]


def test_its_text_is_in_hand_meanwhile(tmp_path: Path) -> None:
    """If the worker stops turning all the same, its parent has to know over what."""
    page = tmp_path / "turns"
    beside = RowThread(TextsInHand(TurnWriter(page)))

    def suspects() -> tuple[bytes, ...]:
        seen = read_turns(page)
        assert seen is not None
        return seen.suspects

    assert asyncio.run(beside.run(suspects, DIGEST)) == (DIGEST,)
    assert suspects() == ()
    beside.close()


def test_errors_are_the_callers() -> None:
    async def run() -> None:
        with pytest.raises(ZeroDivisionError):
            await RowThread(TextsInHand()).run(lambda: 1 // 0, DIGEST)

    asyncio.run(run())


@pytest.mark.parametrize(("lookups", "rests"), [([0, 0, 0, 0], 0), ([0, 0, 5, 5], 1)])
def test_it_rests_as_long_as_it_worked_while_lookups_come(
    lookups: list[int], rests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lookups`: what the counter says each time that it is asked."""
    rested: list[float] = []
    now_s = iter([10.0, 10.3, 20.0, 20.1])
    monkeypatch.setattr(row_thread, "time", Time(rested.append, lambda: next(now_s)))
    said = iter(lookups)

    async def run() -> None:
        beside = RowThread(TextsInHand(), lambda: next(said))
        await beside.run(lambda: None, DIGEST)
        await beside.run(lambda: None, DIGEST)

    asyncio.run(run())
    assert rested == pytest.approx([0.3] * rests)


def test_one_at_a_time_in_the_order_of_their_arrival() -> None:
    order: list[int] = []
    gate = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            gate.wait(20)
        order.append(number)

    async def run() -> None:
        beside = RowThread(TextsInHand())
        tasks = [
            asyncio.create_task(beside.run(lambda number=number: work(number), DIGEST))
            for number in range(4)
        ]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.wait([tasks[2]])
        gate.set()
        await asyncio.wait(tasks)

    asyncio.run(run())
    assert order == [0, 1, 3], "one whose caller is gone does not begin"
