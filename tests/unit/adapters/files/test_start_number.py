"""Numbers of starts: each is larger than the one before it."""

from __future__ import annotations

from pathlib import Path

from standpipe.adapters.files.start_number import next_number

HOUR_MS = 3_600_000


def test_it_is_the_time_and_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "run" / "session"
    assert next_number(path, 1000) == 1000
    assert next_number(path, 2000) == 2000


def test_a_clock_that_was_set_back_makes_no_number_smaller(tmp_path: Path) -> None:
    path = tmp_path / "session"
    first = next_number(path, 10 * HOUR_MS)
    assert next_number(path, 9 * HOUR_MS) == first + 1
    assert next_number(path, 9 * HOUR_MS) == first + 2


def test_half_a_file_is_none(tmp_path: Path) -> None:
    path = tmp_path / "session"
    path.write_text("")
    assert next_number(path, 1000) == 1000


def test_a_disk_that_takes_nothing_stops_no_start(tmp_path: Path) -> None:
    path = tmp_path / "session"
    next_number(path, 1000)
    path.with_name("session.new").mkdir()  # so that nothing can be written aside
    assert next_number(path, 500) == 1001
