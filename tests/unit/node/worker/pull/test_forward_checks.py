"""What a forward says beside its query, and what its target makes of it."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.unit.node.workers import USERS, page

from standpipe.control.routing.bounds import LAG_UNBOUNDED, Bounds
from standpipe.model import Column, NodeId, Offset, Placement
from standpipe.node.worker.pull.forward import ForwardRefused
from standpipe.node.worker.pull.forward_checks import (
    check,
    excess_lag,
    furthest,
    owners,
    table_name,
)
from standpipe.node.worker.pull.forward_headers import ForwardHeaders


@pytest.mark.parametrize(
    ("forward", "says", "is_not_owner", "why"),
    [
        (ForwardHeaders(), None, False, "nothing was said"),
        (
            ForwardHeaders(partition=2, table="T1-1", timeout_ms=1),
            None,
            False,
            "both mean the same",
        ),
        (ForwardHeaders(timeout_ms=0), "after its deadline", False, "no time is left"),
        (ForwardHeaders(partition=3), "NOT_OWNER: no key", True, "counted in another way"),
        (ForwardHeaders(table="T1-2"), "NOT_OWNER: USERS is T1-1 here", True, "another generation"),
        (
            ForwardHeaders(table="T2-1"),
            "NOT_OWNER: USERS is T1-1 here",
            True,
            "another table of that name",
        ),
    ],
)
def test_check(forward: ForwardHeaders, says: str | None, is_not_owner: bool, why: str) -> None:
    if says is None:
        check(forward, USERS, (1, 2))
        return
    with pytest.raises(ForwardRefused, match=says) as refused:
        check(forward, USERS, (1, 2))
    assert refused.value.is_not_owner is is_not_owner, why


def test_nodes_that_know_other_columns_do_not_answer_for_each_other() -> None:
    before = structs.replace(USERS, columns_first=len(USERS.value_columns))
    grown = structs.replace(before, columns=(*USERS.columns, Column(name="NEW", type="STRING")))
    assert table_name(before) == table_name(USERS) == "T1-1"
    assert table_name(grown) == "T1-1+1"
    for asked, known in ((before, grown), (grown, before)):
        with pytest.raises(ForwardRefused, match="NOT_OWNER") as refused:
            check(ForwardHeaders(partition=2, table=table_name(asked)), known, (1, 2))
        assert refused.value.is_not_owner
    forward = ForwardHeaders(partition=2, table=table_name(grown))
    there = placed("T1", 1, 2, "a", "b")
    assert list(owners(forward, before, (2,), {there.replica_id: there})) == ["a", "b"]


def placed(table_id: str, generation: int, partition: int, *nodes: str) -> Placement:
    return Placement(
        table_id=table_id,
        generation=generation,
        partition=partition,
        replicas=tuple(map(NodeId, nodes)),
    )


@pytest.mark.parametrize(
    ("forward", "expected", "why"),
    [
        (ForwardHeaders(partition=2, table="T1-1"), "ab", "as it was asked for"),
        (ForwardHeaders(partition=2, table="T1-2"), "c", "a generation that is built beside"),
        (ForwardHeaders(partition=2, table="T1-9"), "", "a generation that this map does not know"),
        (ForwardHeaders(partition=9, table="T1-1"), "", "a partition that it does not know"),
        (ForwardHeaders(), "ab", "nothing was said: of the first partition with a key"),
        (ForwardHeaders(table="nonsense"), "", "no table's name"),
    ],
)
def test_owners_by_the_targets_map(forward: ForwardHeaders, expected: str, why: str) -> None:
    listed = (placed("T1", 1, 2, "a", "b"), placed("T1", 2, 2, "c"))
    known = {each.replica_id: each for each in listed}
    assert "".join(owners(forward, USERS, (2,), known)) == expected, why


@pytest.mark.parametrize(
    ("sent", "heard", "end", "beyond", "why"),
    [
        (None, 100, 100, None, "the sender said none"),
        (111, 100, 111, 11, "the sender knows more"),
        (110, 100, 110, None, "lag = bound is allowed"),
        (90, 100, 100, None, "the sender knows less"),
    ],
)
def test_the_senders_end(
    sent: int | None, heard: int, end: int, beyond: int | None, why: str
) -> None:
    forward = ForwardHeaders(committed_end=None if sent is None else Offset(sent))
    assert furthest(forward, Offset(heard)) == end, why
    assert excess_lag(forward, page(100), Bounds(lag_records_max=10)) == beyond, why
    assert excess_lag(forward, page(100), Bounds(lag_records_max=LAG_UNBOUNDED)) is None
