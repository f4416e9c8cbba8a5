"""The steps of a lookup, counted: `bench/guard.py` finds a dearer one, and none is dearer."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import guard

from standpipe.adapters.metrics import Metrics


def folder_in(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_no_lookup_takes_a_tenth_more_steps_than_recorded(tmp_path: Path) -> None:
    recorded = guard.records().get(guard.build())
    if recorded is None:
        pytest.skip(f"{guard.build()} has no record")
    found = guard.measure(tmp_path)
    assert guard.beyond(recorded, found) == [], "or `python bench/guard.py --record`, and say why"


def test_they_are_the_same_in_every_run(tmp_path: Path) -> None:
    """Whatever the clocks say meanwhile: while they ran, this failed in one run of twenty."""
    first = guard.measure(folder_in(tmp_path, "a"))
    assert guard.measure(folder_in(tmp_path, "b")) == first


def test_a_dearer_step_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Metrics.answered_here

    def dearer(metrics: Metrics, seconds: float) -> None:
        sum(number for number in range(20))
        usual(metrics, seconds)

    before = guard.measure(folder_in(tmp_path, "a"))
    monkeypatch.setattr(Metrics, "answered_here", dearer)
    more = guard.beyond(before, guard.measure(folder_in(tmp_path, "b")))
    found = [each.partition(":")[0] for each in more if "bytecodes" in each]
    assert found == [
        "one text",
        "one text, columns",
        "two predicates, columns",
        "windows of a day",
        "IN of 10",
        "IN of 100",
        "one text, new ms",
        "one message",
        "one message, new ms",
        "two predicates, message",
        "two predicates, new ms",
    ], "the others take more steps anyway"


@pytest.mark.parametrize(
    ("recorded", "found", "is_beyond"),
    [(100, 110, False), (100, 111, True), (100, 50, False), (0, 1, True), (None, 1, True)],
)
def test_what_is_beyond(recorded: int | None, found: int, is_beyond: bool) -> None:
    known = {} if recorded is None else {"case": {"steps": recorded}}
    assert bool(guard.beyond(known, {"case": {"steps": found}})) is is_beyond
