"""When a worker counts as wedged: looks in, silence out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from standpipe.node.supervisor.turn_watch import LOOK_MS_MAX, ProcessSeen, TurnWatch

LIMIT_MS = 2000
#: (ms since the last look, turns, processor time since the last look, state)
Look = tuple[float, int, float, str]


def silence(*looks: Look, pid: int = 1) -> TurnWatch:
    watch, at_ms, cpu_ms = TurnWatch(LIMIT_MS), 0.0, 0.0
    for passed_ms, turns, used_ms, state in looks:
        at_ms += passed_ms
        cpu_ms += used_ms
        watch.look(ProcessSeen(at_ms=at_ms, pid=pid, turns=turns, cpu_ms=cpu_ms, state=state))
    return watch


FIRST: Look = (0, 7, 0, "S")


@pytest.mark.parametrize(
    ("looks", "silent_ms", "wedged", "why"),
    [
        ([(100, 7, 100, "R")] * 20, 2000, True, "it computes and never turns"),
        ([(100, 7, 100, "R")] * 19, 1900, False, "one look less"),
        ([(100, 7, 0, "S")] * 20, 2000, True, "it waits for a lock, or for Kafka, on the loop"),
        ([(100, 7, 0, "T")] * 20, 2000, True, "it is stopped, and the node is not"),
        ([(100, 7, 1, "R")] * 100, 100, False, "it gets 1 % of a core: starved, not wedged"),
        ([(100, 7, 30, "R")] * 66, 1980, False, "30 % of a core: its own time counts"),
        ([(100, 7, 30, "R")] * 67, 2010, True, "and adds up"),
        ([(100, 7, 0, "D")] * 100, 0, False, "the disk hangs; a kill would not reach it"),
        ([(100, 7, 0, "t")] * 100, 0, False, "a debugger holds it"),
        ([(100, 7, 0, "")] * 100, 0, False, "/proc says nothing"),
        ([(100, 7, 0, "S")] * 19 + [(100, 8, 0, "S")], 0, False, "a turn is a new beginning"),
        ([(3_600_000, 7, 0, "S")], LOOK_MS_MAX, False, "the machine was suspended for an hour"),
        ([(3_600_000, 7, 0, "T")], LOOK_MS_MAX, False, "the whole node was, and it woke last"),
        ([(60_000, 7, 60_000, "R")], LOOK_MS_MAX, False, "the watcher was starved for a minute"),
        ([(400, 7, 0, "S")] * 7, 7 * LOOK_MS_MAX, False, "a slow watcher counts what it saw"),
        ([(400, 7, 0, "S")] * 8, 8 * LOOK_MS_MAX, True, "and comes to the same end"),
    ],
)
def test_silence(looks: Sequence[Look], silent_ms: float, wedged: bool, why: str) -> None:
    watch = silence(FIRST, *looks)
    assert watch.silent_ms == pytest.approx(silent_ms), why
    assert watch.is_wedged is wedged, why


def test_a_worker_that_has_not_begun_is_starting() -> None:
    assert silence(*[(100, 0, 100, "R")] * 100).silent_ms == 0


def test_another_process_begins_anew() -> None:
    watch = silence(FIRST, *[(100, 7, 0, "S")] * 19)
    watch.look(ProcessSeen(at_ms=2000, pid=2, turns=7, cpu_ms=0, state="S"))
    assert watch.silent_ms == 0


@pytest.mark.parametrize(
    ("looks", "is_sick", "why"),
    [
        (9, False, "short silences happen"),
        (10, True, "half of the limit: reads go elsewhere first"),
        (20, True, "wedged is sick too"),
    ],
)
def test_it_is_sick_before_it_is_wedged(looks: int, is_sick: bool, why: str) -> None:
    assert silence(FIRST, *[(100, 7, 0, "S")] * looks).is_sick is is_sick, why


def test_a_limit_of_0_wedges_nobody() -> None:
    watch = TurnWatch(0)
    for number in range(100):
        watch.look(ProcessSeen(at_ms=number * 100, pid=1, turns=7, cpu_ms=0, state="S"))
    assert not watch.is_wedged
    assert not watch.is_sick
