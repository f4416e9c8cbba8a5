"""docs/sources.md: every module and every test that it names is there."""

from __future__ import annotations

import re

import pytest
from tests.tidy.source import ROOT

NAMED = re.findall(r"`((?:src|tests|docs)/[^`]+)`", (ROOT / "docs" / "sources.md").read_text())


def test_the_page_names_modules_and_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize("path", sorted(set(NAMED)))
def test_what_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()
