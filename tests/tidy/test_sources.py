"""docs/sources.md: every module and every test that it names is there."""

from __future__ import annotations

import re

from tests.tidy.source import ROOT

NAMED = re.findall(r"`((?:src|tests|docs)/[^`]+)`", (ROOT / "docs" / "sources.md").read_text())


def test_the_page_names_modules_and_tests() -> None:
    assert len(NAMED) > 20


def test_what_is_named_exists() -> None:
    assert [path for path in sorted(set(NAMED)) if not (ROOT / path).exists()] == []


QUORUM = (
    "src/standpipe/control/raft/[!_]*.py",
    "src/standpipe/adapters/raft/[!_]*.py",
    "src/standpipe/node/controller/quorum_*.py",
)


def test_every_module_of_the_quorum_has_its_source() -> None:
    """A part that no section asks for would not be missed."""
    modules = {str(path.relative_to(ROOT)) for glob in QUORUM for path in ROOT.glob(glob)}
    assert len(modules) > 15
    assert sorted(modules - set(NAMED)) == []
