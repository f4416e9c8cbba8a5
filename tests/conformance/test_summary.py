"""tests/conformance/summary.py: what a result file says of several runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance import summary
from tests.conformance.cases import Case


def _report(shard: str, total: dict[str, int], cases: int, *failed: str, only: str = "*") -> Any:
    return {
        "shard": shard,
        "only": only,
        "cases": cases,
        "total": total,
        "commit": "abc",
        "seconds": 5,
        "not_passed": [{"case": id_, "kind": "failed", "reason": "x"} for id_ in failed],
    }


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    cases = [{"id": f"a/{n}", "emission_sensitive": n == 2} for n in range(4)]
    (tmp_path / "a.json").write_text(json.dumps({"cases": cases}))
    return tmp_path


def test_a_later_report_stands_for_an_earlier_one(suite: Path) -> None:
    reports = [
        _report("1/2", {"passed": 1, "failed": 1}, 2, "a/2"),
        _report("2/2", {"failed": 2}, 2, "a/1", "a/3"),
        _report("1/1", {"passed": 1}, 1, only="a/3"),
    ]
    made = summary.summary(summary.verdicts(suite, reports).values(), reports)
    assert (made["cases"], made["passed"], made["failed"]) == (4, 2, 2)
    assert made["not_emission_sensitive"]["passed"] == 2
    assert made["seconds"] == 15
    assert sum(each["cases"] for each in made["left"]) == 2


def test_a_run_that_was_stopped_is_no_result(suite: Path) -> None:
    with pytest.raises(ValueError, match="was stopped"):
        summary.verdicts(suite, [_report("1/1", {"passed": 3}, 4)])


@pytest.mark.parametrize(
    ("data", "said", "reason"),
    [
        (
            {},
            "refused: DECIMAL(50, 30): precision must be 1..38",
            "Spark's decimals have 38 digits",
        ),
        ({}, "SELECT …: rows [], expected [1]", summary.UNEXPLAINED),
        (
            {"emission_sensitive": True, "emission_reasons": ["emit_final"]},
            "something new",
            summary.SENSITIVE["emit_final"],
        ),
    ],
)
def test_reasons(data: dict[str, Any], said: str, reason: str) -> None:
    verdict = summary.Verdict(Case("a.json", {"id": "a/0", **data}), "failed", said)
    assert summary.reason_of(verdict) == reason
