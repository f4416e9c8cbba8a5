"""What a program may give as `nodes`."""

from __future__ import annotations

from typing import Any

import pytest

from standpipe.spark.cluster import addresses
from standpipe.spark.errors import ServeRefused


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("n1:8088", ("n1:8088",)),
        ("n1:8088, n2:8088,", ("n1:8088", "n2:8088")),
        (["n1:8088", "n2:8088"], ("n1:8088", "n2:8088")),
        ("http://n1:8088/", ("http://n1:8088",)),
    ],
)
def test_nodes_as_a_text_or_a_list(nodes: Any, found: tuple[str, ...]) -> None:
    assert addresses(nodes) == found


@pytest.mark.parametrize(
    ("nodes", "words"),
    [("", "name at least one node"), (" , ", "at least one"), ("n1", "'n1' is not host:port")],
)
def test_what_is_no_address(nodes: str, words: str) -> None:
    """Else it is a traceback of a socket, or `no node answers` without a reason."""
    with pytest.raises(ServeRefused, match=words):
        addresses(nodes)
