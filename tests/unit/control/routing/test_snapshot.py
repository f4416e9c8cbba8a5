"""Which parts of an answer are read again: properties of the rounds, and boundary rows in pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.control.routing.session import Stamp
from standpipe.control.routing.snapshot import (
    NEXT_STEP,
    ROUNDS_MAX,
    NextRound,
    differing,
    is_reached,
    lack,
    next_round,
    unreached,
)
from standpipe.model import NO_BATCH, OF_LOG

BATCHES = st.integers(0, 3)
STAMPS = st.builds(Stamp, BATCHES, st.integers(0, 2))
ANY_STAMPS = st.builds(Stamp, st.sampled_from([OF_LOG, NO_BATCH, 0, 1, 2, 3]), st.integers(0, 2))


@pytest.mark.parametrize(
    ("had", "expected", "why"),
    [
        ([], None, "no key has a partition"),
        ([(7, 1)], None, "a lone part"),
        ([(7, 1), (7, 1)], None, "one batch"),
        ([(7, 1), (8, 1)], ((8, 1), (0,)), "one is behind"),
        ([(8, 1), (7, 1), (7, 1)], ((8, 1), (1, 2)), "two are"),
        ([(7, 1), (7, 2)], ((7, 2), (0,)), "replayed by the next holder of the lease"),
        ([(9, 1), (7, 2)], ((7, 2), (0,)), "a later holder went on from an older batch"),
        ([(NO_BATCH, 9), (7, 1)], ((7, 1), (0,)), "between two batches"),
        ([(OF_LOG, 0), (7, 1)], ((7, 1), (0,)), "of a table without batches"),
        ([(NO_BATCH, 1), (NO_BATCH, 1)], ((NO_BATCH, 1), (0, 1)), "no batch is no one batch"),
    ],
)
def test_what_is_read_again(
    had: list[tuple[int, int]], expected: tuple[tuple[int, int], tuple[int, ...]] | None, why: str
) -> None:
    found = next_round([Stamp(*each) for each in had])
    assert found == (None if expected is None else NextRound(Stamp(*expected[0]), expected[1])), why


@given(had=st.lists(ANY_STAMPS, min_size=1))
def test_it_is_over_exactly_when_all_show_one_batch(had: list[Stamp]) -> None:
    is_over = next_round(had) is None
    assert is_over == (len(set(had)) == 1 and had[0].batch >= 0)


@given(had=st.lists(STAMPS, min_size=1))
def test_nobody_who_has_the_newest_batch_is_asked_again(had: list[Stamp]) -> None:
    found = next_round(had)
    if found is None:
        return
    assert found.wanted in had, "some part has it, so it is committed"
    assert {*range(len(had))} - {*found.behind} == {
        place for place, stamp in enumerate(had) if stamp == found.wanted
    }
    for stamp in had:
        assert is_reached(found.wanted, stamp) == (stamp == found.wanted)
        assert (lack(found.wanted, stamp) is None) == (stamp == found.wanted)


@given(had=st.lists(STAMPS, min_size=2), ahead=st.lists(st.integers(0, 2), min_size=2))
def test_parts_that_answer_exactly_what_was_wanted_meet_in_the_second_round(
    had: list[Stamp], ahead: list[int]
) -> None:
    """And parts that have gone on meanwhile are never wanted to go back."""
    found = next_round(had)
    if found is None:
        return
    exact, later = list(had), list(had)
    for place in found.behind:
        exact[place] = found.wanted
        later[place] = Stamp(found.wanted.batch + ahead[place % len(ahead)], found.wanted.epoch)
    assert next_round(exact) is None
    again = next_round(later)
    if again is not None:
        assert is_reached(found.wanted, again.wanted)
        assert all(is_reached(found.wanted, stamp) for stamp in later)


@given(wanted=STAMPS, stamp=STAMPS, other=STAMPS)
def test_the_order_of_stamps_is_total(wanted: Stamp, stamp: Stamp, other: Stamp) -> None:
    assert is_reached(wanted, wanted)
    assert is_reached(wanted, stamp) or is_reached(stamp, wanted)
    if is_reached(wanted, stamp) and is_reached(stamp, wanted):
        assert stamp == wanted
    if is_reached(wanted, stamp) and is_reached(stamp, other):
        assert is_reached(wanted, other)


@pytest.mark.parametrize(
    ("wanted", "stamp", "said"),
    [
        (None, (0, 0), None),
        (None, (NO_BATCH, 5), "wanted a whole batch, had rows between two batches."),
        (None, (OF_LOG, 0), "wanted a whole batch, had rows between two batches."),
        ((8, 2), (8, 2), None),
        ((8, 2), (9, 2), None),
        ((8, 2), (7, 2), "wanted batch 8 (lease epoch 2), had batch 7 (lease epoch 2)."),
        ((8, 2), (8, 1), "wanted batch 8 (lease epoch 2), had batch 8 (lease epoch 1)."),
        ((8, 2), (9, 1), "wanted batch 8 (lease epoch 2), had batch 9 (lease epoch 1)."),
        ((8, 2), (NO_BATCH, 9), "wanted batch 8 (lease epoch 2), had rows between two batches."),
    ],
)
def test_what_a_replica_lacks(
    wanted: tuple[int, int] | None, stamp: tuple[int, int], said: str | None
) -> None:
    found = lack(None if wanted is None else Stamp(*wanted), Stamp(*stamp))
    assert found == (None if said is None else f"Level snapshot: {said}")


def test_what_an_error_says() -> None:
    last = differing({2: [Stamp(8, 1)], 0: [Stamp(7, 1)], 1: [Stamp(7, 1), Stamp(7, 1)]})
    assert last.startswith(
        f"Level snapshot: the parts of the answer did not show one batch in any of {ROUNDS_MAX} "
        "rounds. In the last one, partitions 0, 1 had batch 7 (lease epoch 1); partition 2 had "
        "batch 8 (lease epoch 1). Ask again; "
    )
    many = differing({number: [Stamp(number, 1)] for number in range(100)})
    assert "partition 0 had batch 0 (lease epoch 1); partition 99 had batch 99 (" in many
    assert "batch 50" not in many, "it is not as long as the table is wide"
    wide = differing({number: [Stamp(number % 2, 1)] for number in range(100)})
    assert "partitions 0, 2, 4, 6, 8, 10, 12, 14, … had batch 0" in wide
    late = unreached(Stamp(8, 1), 2)
    assert late.startswith("Level snapshot: round 2 wanted batch 8 (lease epoch 1), which another ")
    assert late.endswith(NEXT_STEP)
