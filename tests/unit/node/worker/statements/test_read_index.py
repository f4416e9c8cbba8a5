"""What a request may ask for. The reads themselves are in tests/e2e/test_control_node.py."""

from __future__ import annotations

import pytest

from standpipe.errors import BadRequest
from standpipe.node.worker.statements.read_index import is_linearizable


@pytest.mark.parametrize(
    ("properties", "is_asked"),
    [
        ({}, False),
        ({"standpipe.consistency": "local"}, False),
        ({"standpipe.consistency": "linearizable"}, True),
        ({"standpipe.consistency": "Linearizable"}, True),
    ],
)
def test_which_is_asked_for(properties: dict[str, str], is_asked: bool) -> None:
    assert is_linearizable(properties) is is_asked


def test_nothing_else_is_guessed() -> None:
    with pytest.raises(BadRequest, match="local or linearizable, not 'strong'"):
        is_linearizable({"standpipe.consistency": "strong"})
