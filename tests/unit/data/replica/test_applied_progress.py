"""Up to which offset of progress a replica's rows have all that is committed."""

from __future__ import annotations

import random

import pytest

from standpipe.data.commit.progress import Rank
from standpipe.data.replica.applied_progress import PAIRS_MAX, AppliedProgress

ONE, TWO, THREE = (10, 1, 0), (20, 1, 1), (20, 2, 2)


@pytest.mark.parametrize(
    ("notes", "end", "why"),
    [
        ([(5, None, ONE)], 0, "not all progress is known, so a target may be missing"),
        ([(5, ONE, None)], 0, "rows of no batch"),
        ([(5, ONE, ONE)], 5, "all that was committed is there"),
        ([(5, ONE, ONE), (9, ONE, ONE)], 9, "nothing new for this replica"),
        ([(5, ONE, ONE), (9, TWO, ONE)], 5, "a batch is not applied yet"),
        ([(5, ONE, None), (9, TWO, ONE)], 5, "always a batch behind, and getting on"),
        ([(5, TWO, ONE), (9, TWO, ONE)], 0, "the second reading says nothing more"),
        ([(5, ONE, ONE), (9, TWO, ONE), (12, THREE, THREE)], 12, "two at once"),
        ([(5, ONE, TWO)], 5, "the rows have gone on"),
        ([(9, ONE, ONE), (3, ONE, None)], 0, "read again: it may be another topic"),
        ([(9, ONE, ONE), (0, None, ONE), (4, ONE, ONE)], 4, "read again, and found the same"),
    ],
)
def test_how_far_the_rows_are(
    notes: list[tuple[int, Rank | None, Rank | None]], end: int, why: str
) -> None:
    found = AppliedProgress()
    for note in notes:
        found.note(*note)
    assert found.end == end, why


def test_a_replica_that_is_far_behind_gets_on_later() -> None:
    found = AppliedProgress()
    for number in range(1, PAIRS_MAX + 11):
        found.note(number, (number, 1, number), (0, 1, 0))
    found.note(PAIRS_MAX + 10, (PAIRS_MAX + 10, 1, PAIRS_MAX + 10), (10, 1, 10))
    assert found.end == 0, "its pairs are gone"
    found.note(PAIRS_MAX + 10, (PAIRS_MAX + 10, 1, PAIRS_MAX + 10), (11, 1, 11))
    assert found.end == 11


def test_it_never_says_more_than_is_applied() -> None:
    """Any order of reading, applying and noting, against what the topic says."""
    for seed in range(300):
        draw = random.Random(seed)
        #: offset of each progress record -> whether it is this replica's
        topic = [draw.random() < 0.5 for _ in range(40)]
        found, read, applied, newest = AppliedProgress(), 0, 0, 0
        while read < len(topic):
            step = draw.randrange(3)
            if step == 0:
                for at in range(read, min(len(topic), read + draw.randrange(1, 5))):
                    newest = at + 1 if topic[at] else newest
                    read = at + 1
            elif step == 1 and newest > applied:
                later = range(applied, newest)
                applied = draw.choice([at + 1 for at in later if topic[at]])
            else:
                rank, shown = (newest, 1, newest), (applied, 1, applied)
                found.note(read, rank if newest else None, shown if applied else None)
                assert not any(topic[applied : found.end]), (seed, found.end, applied)
        found.note(read, (newest, 1, newest), (newest, 1, newest))
        assert found.end == read, "and it gets on"


@pytest.mark.parametrize(
    ("told", "end", "barrier_end", "is_awaited", "why"),
    [
        (5, 9, 0, False, "nobody waits"),
        (5, 9, 5, False, "the page has that barrier"),
        (5, 9, 6, True, "the rows have it, and the page does not say so"),
        (5, 9, 12, True, "a newer one; but an older one may be between them"),
        (5, 5, 6, False, "the rows do not have it"),
        (9, 3, 12, False, "the topic is read again"),
    ],
)
def test_which_page_a_read_may_wait_for(
    told: int, end: int, barrier_end: int, is_awaited: bool, why: str
) -> None:
    found = AppliedProgress()
    found.end, found.told = end, told
    assert found.is_awaited(barrier_end) is is_awaited, why


@pytest.mark.parametrize(
    ("before", "now", "end", "why"),
    [
        ("X", "X", 9, "the same topic"),
        ("", "X", 9, "its id is known now: it may be the same"),
        ("X", "", 9, "not known: likewise"),
        ("X", "Y", 0, "another one: below 9, it may commit what that one did not"),
    ],
)
def test_what_was_found_in_another_topic_is_forgotten(
    before: str, now: str, end: int, why: str
) -> None:
    """Also if as much of it was read since: then no offset says so."""
    found = AppliedProgress()
    found.note(9, ONE, ONE, before)
    found.note(9, TWO, ONE, now)
    assert (found.end, found.topic_id) == (end, now or before), why
    found.note(12, TWO, TWO, now)
    assert found.end == 12
