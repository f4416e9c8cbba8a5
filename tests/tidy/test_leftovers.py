"""What must not be in the repository: paths of one machine, registry hosts, leftovers."""

import re
from pathlib import Path

import pytest
from tests.tidy.source import ROOT, modules, name_of, tracked_files

#: built from pieces, so that this file does not find itself
MACHINE_PATH = re.compile("(?<![\\w.$}/])/" + "(work|root|home)/")
REGISTRY = re.compile(
    "pypi" + r"\.org|files\.pythonhosted|repo1?\." + "maven|registry" + r"\.npmjs"
)
LATER = re.compile("TO" + "DO|FIX" + "ME|XX" + "X")

TEXT = (".py", ".md", ".toml", ".lark", ".xml", ".sh", ".json", ".txt", ".lock", ".yml", "")


def texts() -> list[Path]:
    return [path for path in tracked_files() if path.suffix in TEXT]


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY], ids=["machine path", "registry host"])
def test_no_trace_of_one_machine(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in texts()
        if (match := pattern.search(path.read_text(errors="replace")))
    ]
    assert found == []


def test_nothing_is_left_for_later() -> None:
    assert [name_of(path) for path in modules() if LATER.search(path.read_text())] == []


def test_no_large_file() -> None:
    large = [path for path in tracked_files() if path.stat().st_size > 1_048_576]
    assert large == []
