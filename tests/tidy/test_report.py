"""tests/report.py: what a summary keeps of the runs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.report import spread, summary


@pytest.mark.parametrize(
    ("values", "wanted", "why"),
    [
        ([3, 1, 2], {"median": 2, "min": 1, "max": 3}, "numbers"),
        ([0.1, 0.3], {"median": 0.2, "min": 0.1, "max": 0.3}, "between two"),
        ([5, 5], 5, "no spread"),
        ([{"ms": 1, "why": "x"}, {"ms": 3}], {"ms": {"median": 2, "min": 1, "max": 3}}, "records"),
        ([{"load": 1.0}, {"load": 2.0}], {}, "the load says where, not how much"),
        (
            [{"k": [{"ms": 1}]}, {"k": [{"ms": 3}]}],
            {"k": {"count": 2, "ms": {"median": 2, "min": 1, "max": 3}}},
            "lists in records",
        ),
        ([True, False], None, "no figures"),
    ],
)
def test_spread(values: list[Any], wanted: Any, why: str) -> None:
    assert spread(values) == wanted, why


def test_a_summary_has_the_runs_of_each_case() -> None:
    runs = {"ours": [{"per_s": 1}, {"per_s": 2}], "peer": [{"per_s": 4}, {"per_s": 4}]}
    assert summary({"rate": 7, "load": [1.0, 2.0], "runs": runs, "took_s": [1, 3]}) == {
        "rate": 7,
        "load": [1.0, 2.0],
        "runs": {
            "ours": {"count": 2, "per_s": {"median": 1.5, "min": 1, "max": 2}},
            "peer": {"count": 2, "per_s": 4},
        },
        "took_s": {"median": 2, "min": 1, "max": 3},
    }


def test_a_summary_of_a_summary_is_the_same() -> None:
    once = summary({"rounds": [{"ms": 1}, {"ms": 2}], "results": [{"core_s": [1, 2]}]})
    assert summary(once) == once
