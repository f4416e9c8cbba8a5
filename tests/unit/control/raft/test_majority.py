"""Majorities, against their dull twins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.raft_bench import key, voters
from tests.unit.control.scenarios import covers

from standpipe.control.raft.majority import Tally, VoteOutcome, VoterSet, majority_value, reached


@covers("HW-03")
@pytest.mark.parametrize(
    ("values", "expected", "why"),
    [
        ([5], 5, "one voter decides alone"),
        ([5, 3], 3, "two voters: both"),
        ([15, 15, 10], 15, "two of three"),
        ([20, 20, 15], 20, "two of three, later"),
        ([9, 8, 7, 6], 7, "three of four"),
        ([9, 8, 7, 6, 5], 7, "three of five"),
    ],
)
def test_majority_value(values: list[int], expected: int, why: str) -> None:
    assert majority_value(values) == expected, why


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7))
def test_majority_value_agrees_with_counting(values: list[int]) -> None:
    counted = [v for v in values if 2 * sum(other >= v for other in values) > len(values)]
    assert majority_value(values) == max(counted)


def test_no_voters_have_no_majority() -> None:
    with pytest.raises(ValueError, match="no voters"):
        majority_value([])


def test_only_voters_are_asked() -> None:
    assert reached(voters(1, 2), {key(1): 4, key(2): 6}.__getitem__) == 4


@covers("RC-24")
@pytest.mark.parametrize(
    ("before", "after", "ok", "why"),
    [
        ((1, 2, 3), (1, 2, 3, 4), True, "one added"),
        ((1, 2, 3), (1, 2), True, "one removed"),
        ((1, 2, 3), (1, 2, 3), False, "no change"),
        ((1, 2, 3), (1, 2, 4), False, "one swapped: majorities {3,2} and {4,1} do not meet"),
        ((1, 2, 3), (1,), False, "two removed"),
    ],
)
def test_consecutive_sets_overlap(before, after, ok: bool, why: str) -> None:
    assert voters(*before).differs_by_one(voters(*after)) is ok, why


@given(st.sets(st.integers(1, 7), min_size=1, max_size=6), st.integers(1, 7))
def test_sets_that_differ_by_one_have_meeting_majorities(nodes: set[int], other: int) -> None:
    one = voters(*nodes)
    changed = one.removing(key(other)) if key(other) in one else one.adding(key(other))
    if not changed.keys:
        return
    union = {*one.keys, *changed.keys}
    assert one.majority + changed.majority > len(union)
    assert one.differs_by_one(changed)


@covers("EL-09", "EL-07")
def test_a_repeated_answer_counts_once() -> None:
    tally = Tally(voters(1, 2, 3, 4, 5))
    for _ in range(3):
        tally.count(key(2), granted=True)
        tally.count(key(3), granted=False)
    assert tally.outcome is VoteOutcome.OPEN
    assert tally.open == (key(1), key(4), key(5))


@covers("EL-10")
@pytest.mark.parametrize("first", [True, False])
def test_the_first_answer_stands(first: bool) -> None:
    tally = Tally(voters(1, 2, 3))
    tally.count(key(2), granted=first)
    with pytest.raises(ValueError, match="had answered"):
        tally.count(key(2), granted=not first)


@covers("EL-11")
@pytest.mark.parametrize("stranger", [key(4), key(2, "b")], ids=["another node", "another disk"])
def test_only_voters_count(stranger) -> None:
    with pytest.raises(ValueError, match="is not a voter"):
        Tally(voters(1, 2, 3)).count(stranger, granted=True)


@pytest.mark.parametrize(
    ("size", "yes", "no", "outcome"),
    [
        (1, 1, 0, VoteOutcome.WON),
        (2, 1, 0, VoteOutcome.OPEN),
        (2, 1, 1, VoteOutcome.LOST),
        (3, 2, 0, VoteOutcome.WON),
        (3, 1, 1, VoteOutcome.OPEN),
        (3, 1, 2, VoteOutcome.LOST),
        (4, 2, 1, VoteOutcome.OPEN),
        (4, 2, 2, VoteOutcome.LOST),
    ],
)
def test_outcome(size: int, yes: int, no: int, outcome: VoteOutcome) -> None:
    tally = Tally(voters(*range(1, size + 1)))
    for node in range(1, yes + 1):
        tally.count(key(node), granted=True)
    for node in range(yes + 1, yes + no + 1):
        tally.count(key(node), granted=False)
    assert tally.outcome is outcome


def test_a_node_votes_once() -> None:
    with pytest.raises(AssertionError, match="twice"):
        VoterSet.of([key(1), key(1, "b")])
