"""The queries of a node as its workers see them: bounds, closing, what a dead worker left."""

from __future__ import annotations

from pathlib import Path

import pytest

from standpipe.errors import TooManyPushQueries
from standpipe.node.push_registry import PushRegistry, clear


def test_the_bound_is_the_nodes(tmp_path: Path) -> None:
    one, two = (PushRegistry(tmp_path / "push", number, 2) for number in range(2))
    one.begin("a")
    two.begin("b")
    with pytest.raises(TooManyPushQueries):
        one.begin("c")
    two.end("b")
    one.begin("c")


def test_any_worker_closes_any_query(tmp_path: Path) -> None:
    one, two = (PushRegistry(tmp_path, number, 9) for number in range(2))
    one.begin("a")
    one.begin("b")
    assert two.close("a")
    assert one.ended(["a", "b"]) == {"a"}
    one.end("a")
    assert not two.close("a"), "once"


@pytest.mark.parametrize("query_id", ["", ".", "..", "../outside", "*", "worker-0", "a/b", "\0"])
def test_an_id_is_never_a_path(tmp_path: Path, query_id: str) -> None:
    (tmp_path / "outside").touch()
    board = PushRegistry(tmp_path / "push", 0, 9)
    board.begin("a")
    assert not board.close(query_id)
    assert (tmp_path / "outside").exists()
    assert board.ended(["a"]) == set()


def test_the_next_worker_of_a_number_begins_with_none(tmp_path: Path) -> None:
    PushRegistry(tmp_path, 0, 1).begin("a")
    other = PushRegistry(tmp_path, 1, 1)
    with pytest.raises(TooManyPushQueries):
        other.begin("b")
    PushRegistry(tmp_path, 0, 1)
    other.begin("b")
    clear(tmp_path)
    clear(tmp_path)
    assert not tmp_path.exists()
