"""The nearest name, and ksqlDB's hint where only the case differs."""

from __future__ import annotations

import pytest

from standpipe.sql.syntax.errors import nearest


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("FLIGHT", ["FLIGHTS", "PLANES"], "Did you mean FLIGHTS?"),
        ("ZZZ", ["FLIGHTS"], ""),
        ("INPUT", ["input"], 'Did you mean "input"? Hint: wrap the source name in double quotes'),
        ("input", ["INPUT"], "Did you mean INPUT? Hint: try removing double quotes"),
        ("A", [], ""),
        ("N" * 249, ["N" * 248], "Did you mean N"),
        ("N" * 250, ["N" * 249], ""),
    ],
)
def test_nearest(name: str, known: list[str], hint: str) -> None:
    assert nearest(name, known).startswith(hint)
    assert bool(nearest(name, known)) is bool(hint)
