"""Flags of a session may be text or not there."""

from __future__ import annotations

import pytest

from standpipe.sql.context import Context


@pytest.mark.parametrize(
    ("text", "default", "flag"),
    [(None, True, True), (None, False, False), ("false", True, False), ("TRUE", False, True)],
)
def test_flag(text: str | None, default: bool, flag: bool) -> None:
    properties = {} if text is None else {"a.b": text}
    assert Context(properties=properties).flag("a.b", default=default) is flag
