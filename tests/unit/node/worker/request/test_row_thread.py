"""The thread for rows that may take long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from standpipe.node.worker.request import row_thread
from standpipe.node.worker.request.row_thread import RowThread


@dataclass(frozen=True)
class Time:
    """Stands for the module `time`."""

    sleep: Callable[[float], None]
    monotonic: Callable[[], float]


def test_errors_are_the_callers() -> None:
    async def run() -> None:
        with pytest.raises(ZeroDivisionError):
            await RowThread().run(lambda: 1 // 0)

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
        beside = RowThread(lambda: next(said))
        await beside.run(lambda: None)
        await beside.run(lambda: None)

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
        beside = RowThread()
        tasks = [
            asyncio.create_task(beside.run(lambda number=number: work(number)))
            for number in range(4)
        ]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.wait([tasks[2]])
        gate.set()
        await asyncio.wait(tasks)

    asyncio.run(run())
    assert order == [0, 1, 3], "one whose caller is gone does not begin"
