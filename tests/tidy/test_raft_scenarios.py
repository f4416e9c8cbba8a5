"""Every behaviour of raft_scenarios.json is named by a test, or is not adopted for a reason."""

import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("STANDPIPE_SHARED", ROOT.parent / "shared"))
NOT_ADOPTED = ROOT / "docs" / "sources.md"
NOT_ADOPTED_MAX = 45
TRANSCRIPTS_MIN = 25
ID = r"\b[A-Z]{2}-\d\d\b"


def known() -> list[str]:
    path = SHARED / "quorum" / "raft_scenarios.json"
    if not SHARED.is_dir():
        pytest.skip(f"no shared directory at {SHARED}")
    return [scenario["id"] for scenario in json.loads(path.read_text())["scenarios"]]


def covered() -> dict[str, set[str]]:
    """Which files name each id, by `@covers(…)` or by a transcript's `# covers` line."""
    named: dict[str, set[str]] = {}
    for folder in ("tests/unit", "tests/sim", "tests/contract", "tests/chaos"):
        for path in (ROOT / folder).rglob("test_*.py"):
            for call in re.findall(r"@covers\((.*?)\)\n", path.read_text(), re.DOTALL):
                for one in re.findall(ID, call):
                    named.setdefault(one, set()).add(path.name)
    for path in (ROOT / "tests/transcripts").glob("*.txt"):
        for line in re.findall(r"^# covers (.*)$", path.read_text(), re.MULTILINE):
            for one in re.findall(ID, line):
                named.setdefault(one, set()).add(path.name)
    return named


def not_adopted() -> dict[str, str]:
    """id → reason, from the items `- **id** what. *Why not:* reason`, over several lines."""
    items = re.findall(rf"^- \*\*({ID})\*\* (.*(?:\n  .*)*)", NOT_ADOPTED.read_text(), re.MULTILINE)
    return {one: " ".join(text.split()).partition("*Why not:* ")[2] for one, text in items}


def test_every_scenario_has_a_test_or_a_reason() -> None:
    accounted = {*covered(), *not_adopted()}
    assert [one for one in known() if one not in accounted] == []


def test_nothing_is_both_covered_and_not_adopted() -> None:
    assert sorted(set(covered()) & set(not_adopted())) == []


def test_names_are_real() -> None:
    names = set(known())
    assert sorted((set(covered()) | set(not_adopted())) - names) == []


def test_few_are_not_adopted_and_each_says_why() -> None:
    reasons = not_adopted()
    assert len(reasons) <= NOT_ADOPTED_MAX
    assert [one for one, why in reasons.items() if len(why.split()) < 5] == []


def test_many_are_stories_that_can_be_read() -> None:
    told = list((ROOT / "tests/transcripts").glob("*.txt"))
    covering = [path for path in told if "\n# covers " in "\n" + path.read_text()]
    assert len(covering) >= TRANSCRIPTS_MIN
