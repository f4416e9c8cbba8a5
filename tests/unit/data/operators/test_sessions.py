"""data/operators/sessions.py: which events of a key belong together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.operators.sessions import Lateness, Session, merge

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


# ---------------------------------------------------------------------------------------- lateness

GRACE = 5


def lateness(times: list[int], *, others: dict[int, int] | None = None) -> Lateness:
    """Of events that are numbered. `others`: the stream time that events of other keys made."""
    newest: list[int] = []
    for number, at_ms in enumerate(times):
        before = newest[-1] if newest else -1
        newest.append(max(before, at_ms, (others or {}).get(number, -1)))
    return Lateness(
        lambda number: newest[number], gap_ms=GAP, grace_ms=GRACE, retention_ms=GAP + GRACE
    )


@pytest.mark.parametrize(
    ("times", "bounds", "why"),
    [
        ([0, 30, 15], [(0, 0), (15, 15), (30, 30)], "15 + gap + grace: just in time"),
        ([0, 30, 14], [(0, 0), (30, 30)], "its session is over at stream time 30"),
        ([0, 30, 20], [(0, 0), (20, 30)], "with an event that is not over it never is"),
        ([0, 15, 10], [(0, 0), (10, 15)], "the session from 0 is not kept any longer"),
        ([0, 14, 10], [(0, 14)], "... and one ms before it is"),
        ([0, 10, 20, 5], [(0, 20)], "an old event within a session that goes on is not late"),
        ([37, 52, 37], [(37, 37), (52, 52)], "a new session replaces an expired one of its bounds"),
        ([7, 7, 7], [(7, 7)], "what does not come behind stream time is not judged"),
    ],
)
def test_late_events_by_the_stream_time_at_each(
    times: list[int], bounds: list[tuple[int, int]], why: str
) -> None:
    events = [(at_ms, number) for number, at_ms in enumerate(times)]
    merged = merge((), events, GAP, lateness(times))
    assert [session.bounds for session in merged.sessions] == bounds, why


def test_events_of_other_keys_move_stream_time() -> None:
    merged = merge((), [(0, 0), (9, 1)], GAP, lateness([0, 9], others={0: 1000}))
    assert merged.sessions == (), "both are late, the first as well"


@given(st.lists(st.integers(0, 60), max_size=12))
def test_agrees_with_bounds_that_are_moved_one_by_one(times: list[int]) -> None:
    newest, ranges = -1, list[tuple[int, int]]()
    for at_ms in times:
        old, newest = at_ms < newest, max(newest, at_ms)
        near = [
            (low, high)
            for low, high in ranges
            if low - GAP <= at_ms <= high + GAP and not (old and high + GAP + GRACE <= newest)
        ]
        low = min([at_ms, *(each[0] for each in near)])
        high = max([at_ms, *(each[1] for each in near)])
        if high + GAP + GRACE >= newest:
            ranges = [each for each in ranges if each not in near] + [(low, high)]
    merged = merge((), [(at_ms, n) for n, at_ms in enumerate(times)], GAP, lateness(times))
    found = [session.bounds for session in merged.sessions]
    assert found == sorted(set(ranges))
    assert len(set(found)) == len(found), "bounds are a key"
