"""A benchmark ends if an answer is not the one that was to be measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import lookups
from bench.load import machine
from bench.load.cases import CASES, POINT, WrongAnswer, judge
from bench.load.wrk import Run
from bench.peers.postgres import _Ran


def run_of(answer_bytes: float) -> Run:
    return Run(1000, 0, 100, 200, 10, answer_bytes)


def test_answers_of_another_size_are_no_answers() -> None:
    assert judge("point", run_of(402), 400) == run_of(402)
    with pytest.raises(WrongAnswer):
        judge("point", run_of(250), 400)


def test_half_of_the_answers_without_a_row_are_noticed() -> None:
    with pytest.raises(WrongAnswer):
        judge("point", run_of((400 + 330) / 2), 400)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_requests_differ_and_stand_on_one_line(case: object) -> None:
    assert isinstance(case, type(POINT))
    bodies = [case.body(numbers) for numbers in case.draws(10_000, seed=1, count=20)]
    assert len({*bodies}) > 10
    assert not any(b"\n" in body for body in bodies)


def test_processor_time_is_that_of_children_too() -> None:
    # the child itself counts its time, so neither a quick machine nor Linux's ticks of 10 ms matter
    spend = "import time\nwhile time.process_time() < 0.3: pass"
    before = machine.processor_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", spend], check=True)
    assert machine.processor_seconds(os.getpid()) - before > 0.2


def test_what_pgbench_prints_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.1"
    log.write_text("0 1 250 0 1700000000 500000\n1 1 350 0 1700000001 0 17\n")
    text = (
        "number of transactions actually processed: 10\n"
        "number of failed transactions: {} (0.000%)\n"
    )
    assert _Ran.of(text.format(0), log) == _Ran(10, [250.0, 350.0], 0.5)
    with pytest.raises(RuntimeError):
        _Ran.of(text.format(2), log)


def test_a_round_that_misses_a_goal_says_so() -> None:
    found = {**lookups.GOALS, **dict.fromkeys(lookups.LIMITS, 0.0)}
    assert lookups.missed(found) == []
    assert len(lookups.missed({**found, "tls_to_point": 0.1, "point_p99_us": 1001})) == 2
