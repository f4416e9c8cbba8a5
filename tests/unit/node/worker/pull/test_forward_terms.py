"""What a forward says beside its query, and what its target makes of it."""

from __future__ import annotations

import pytest
from tests.unit.node.workers import USERS, page

from standpipe.control.routing.route import LAG_UNBOUNDED, Bounds
from standpipe.model import NodeId, Offset, Placement
from standpipe.node.worker.pull.forward import Refused
from standpipe.node.worker.pull.forward_terms import Terms, check, furthest, lag_beyond, owners


@pytest.mark.parametrize(
    ("terms", "says", "is_not_owner", "why"),
    [
        (Terms(), None, False, "nothing was said"),
        (Terms(partition=2, table="T1-1", timeout_ms=1), None, False, "both mean the same"),
        (Terms(timeout_ms=0), "too late", False, "no time is left"),
        (Terms(partition=3), "NOT_OWNER: no key", True, "counted in another way"),
        (Terms(table="T1-2"), "NOT_OWNER: USERS is T1-1 here", True, "another generation"),
        (Terms(table="T2-1"), "NOT_OWNER: USERS is T1-1 here", True, "another table of that name"),
    ],
)
def test_check(terms: Terms, says: str | None, is_not_owner: bool, why: str) -> None:
    if says is None:
        check(terms, USERS, (1, 2))
        return
    with pytest.raises(Refused, match=says) as refused:
        check(terms, USERS, (1, 2))
    assert refused.value.is_not_owner is is_not_owner, why


def placed(table_id: str, generation: int, partition: int, *nodes: str) -> Placement:
    return Placement(
        table_id=table_id,
        generation=generation,
        partition=partition,
        replicas=tuple(map(NodeId, nodes)),
    )


@pytest.mark.parametrize(
    ("terms", "expected", "why"),
    [
        (Terms(partition=2, table="T1-1"), "ab", "as it was asked for"),
        (Terms(partition=2, table="T1-2"), "c", "a generation that is built beside"),
        (Terms(partition=2, table="T1-9"), "", "a generation that this map does not know"),
        (Terms(partition=9, table="T1-1"), "", "a partition that it does not know"),
        (Terms(), "ab", "nothing was said: of the first partition with a key"),
        (Terms(table="nonsense"), "", "no table's name"),
    ],
)
def test_owners_by_the_targets_map(terms: Terms, expected: str, why: str) -> None:
    listed = (placed("T1", 1, 2, "a", "b"), placed("T1", 2, 2, "c"))
    known = {each.replica_id: each for each in listed}
    assert "".join(owners(terms, USERS, (2,), known)) == expected, why


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
    terms = Terms(committed_end=None if sent is None else Offset(sent))
    assert furthest(terms, Offset(heard)) == end, why
    assert lag_beyond(terms, page(100), Bounds(lag_records_max=10)) == beyond, why
    assert lag_beyond(terms, page(100), Bounds(lag_records_max=LAG_UNBOUNDED)) is None
