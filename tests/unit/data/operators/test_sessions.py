"""data/operators/sessions.py: which events of a key belong together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.operators.sessions import Session, merge

GAP = 10


@pytest.mark.parametrize(
    ("times", "bounds", "why"),
    [
        ([0], [(0, 0)], "one event is a session that ends with it"),
        ([0, 10], [(0, 10)], "the gap itself still joins"),
        ([0, 11], [(0, 0), (11, 11)], "one more does not"),
        ([0, 20, 10], [(0, 20)], "an event between two sessions makes one of them"),
        ([20, 0], [(0, 0), (20, 20)], "order of arrival does not matter"),
        ([5, 5], [(5, 5)], "two events of one instant"),
    ],
)
def test_bounds(times: list[int], bounds: list[tuple[int, int]], why: str) -> None:
    merged = merge((), [(at_ms, None) for at_ms in times], GAP)
    assert [session.bounds for session in merged.sessions] == bounds, why


def test_an_extended_session_is_gone_under_its_old_bounds() -> None:
    first = merge((), [(0, "a"), (100, "b")], GAP)
    second = merge(first.sessions, [(5, "c")], GAP)
    assert second.gone == ((0, 0),)
    assert second.changed == (Session(0, 5, ((0, "a"), (5, "c"))),)
    assert [session.bounds for session in second.sessions] == [(0, 5), (100, 100)]


def test_an_event_inside_a_session_changes_it_and_nothing_is_gone() -> None:
    first = merge((), [(0, "a"), (10, "b")], GAP)
    second = merge(first.sessions, [(5, "c")], GAP)
    assert second.gone == ()
    assert [session.bounds for session in second.changed] == [(0, 10)]


@given(st.lists(st.lists(st.integers(0, 100), max_size=8), max_size=4))
def test_agrees_with_splitting_the_sorted_instants(batches: list[list[int]]) -> None:
    """However the events are cut into batches: sort them all, cut where the gap is exceeded."""
    sessions: tuple[Session, ...] = ()
    for batch in batches:
        sessions = merge(sessions, [(at_ms, None) for at_ms in batch], GAP).sessions
    expected: list[list[int]] = []
    for at_ms in sorted(at_ms for batch in batches for at_ms in batch):
        if expected and at_ms - expected[-1][-1] <= GAP:
            expected[-1].append(at_ms)
        else:
            expected.append([at_ms])
    assert [s.bounds for s in sessions] == [(each[0], each[-1]) for each in expected]
    assert [len(s.events) for s in sessions] == [len(each) for each in expected]
