"""Who may found a cluster, as a table; and where nodes are dialled."""

from __future__ import annotations

import pytest

from standpipe.errors import DataDirectoryRefused
from standpipe.node.controller.bootstrap import Knowledge, TooFewMembers, addresses_of, may_found

NEW = Knowledge(node_id="a")
B, C = Knowledge(node_id="b"), Knowledge(node_id="c")
IN_QUORUM = Knowledge(node_id="b", cluster_id="c1", has_quorum=True)
LOST = Knowledge(node_id="a", cluster_id="c1")


@pytest.mark.parametrize(
    ("mine", "others", "voters", "outcome", "why"),
    [
        (NEW, [], "a", True, "alone it is a majority"),
        (NEW, [], "abc", TooFewMembers, "one of three"),
        (NEW, [B], "abc", True, "two of three know of no cluster"),
        (NEW, [B], "abcd", TooFewMembers, "two of four are none"),
        (NEW, [B, C], "abcd", True, "three of four"),
        (NEW, [IN_QUORUM], "abc", False, "there is a cluster: it was wiped, or is new"),
        (NEW, [C, IN_QUORUM], "abc", False, "one that knows is enough"),
        (LOST, [], "a", DataDirectoryRefused, "its log is gone, its cluster was not new"),
        (LOST, [], "abc", TooFewMembers, "others may have it"),
        (LOST, [IN_QUORUM], "abc", False, "another has it"),
    ],
)
def test_may_found(
    mine: Knowledge, others: list[Knowledge], voters: str, outcome: object, why: str
) -> None:
    if isinstance(outcome, bool):
        assert may_found(mine, others, list(voters)) is outcome, why
    else:
        with pytest.raises(outcome):  # type: ignore[call-overload]
            may_found(mine, others, list(voters))


@pytest.mark.parametrize(
    ("by_log", "by_file", "dialled"),
    [
        ({"a": "x:1"}, {"a": "y:1"}, ["x:1", "y:1"]),
        ({"a": "x:1"}, {"a": "x:1"}, ["x:1"]),
        ({}, {"a": "y:1"}, ["y:1"]),
        ({"b": "x:1"}, {}, []),
    ],
)
def test_addresses(by_log: dict[str, str], by_file: dict[str, str], dialled: list[str]) -> None:
    assert addresses_of("a", by_log=by_log, by_file=by_file) == dialled  # type: ignore[arg-type]
