"""Who gets which query, and who has been silent for too long."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.control.metadata.leases import (
    LOAD_DIFFERENCE_MAX,
    Renewals,
    due,
    granted,
)
from standpipe.model import LeaseEpoch, QueryLease


def leases(**held: str) -> dict[str, QueryLease]:
    return {
        query: QueryLease(pipeline_id=pipeline, lease_epoch=LeaseEpoch(number))
        for number, (query, pipeline) in enumerate(held.items(), 1)
    }


@pytest.mark.parametrize(
    ("queries", "pipelines", "held", "grants", "why"),
    [
        ("ab", [], {}, [], "nobody is there"),
        ("ab", ["x"], {}, [("a", "x"), ("b", "x")], "the only one has all"),
        ("ab", ["x"], {"a": "x", "b": "x"}, [], "nothing to do"),
        ("abc", ["x"], {"a": "x", "b": "x"}, [("c", "x")], "a new query"),
        ("ab", ["x", "y"], {}, [("a", "x"), ("b", "y")], "shared"),
        ("ab", ["x", "y"], {"a": "x", "b": "x"}, [("b", "y")], "a newcomer gets its share"),
        ("a", ["x", "y"], {"a": "x"}, [], "one query stays: the newcomer is warm"),
        ("abc", ["y", "x"], {"a": "x", "b": "x", "c": "y"}, [], "a move would gain nothing"),
        ("ab", ["y"], {"a": "x", "b": "y"}, [("a", "y")], "x has ended"),
        ("b", ["y"], {"a": "x", "b": "y"}, [], "what does not run needs no holder"),
    ],
)
def test_due(
    queries: str, pipelines: list[str], held: dict[str, str], grants: list[object], why: str
) -> None:
    assert list(due(list(queries), pipelines, leases(**held))) == grants, why


NAMES = st.sampled_from("abcdefgh")
PIPELINES = st.sampled_from(["w", "x", "y", "z"])


@given(
    st.lists(NAMES, unique=True),
    st.sets(PIPELINES, min_size=1),
    st.dictionaries(NAMES, PIPELINES),
)
def test_all_have_a_holder_that_lives_and_nobody_has_too_many(
    queries: list[str], pipelines: set[str], held: dict[str, str]
) -> None:
    before = leases(**held)
    grants = due(queries, pipelines, before)
    after, newest = granted(
        grants, leases=before, queries=queries, pipelines=pipelines, newest=LeaseEpoch(100)
    )
    load = Counter(dict.fromkeys(pipelines, 0))
    load.update(after[query].pipeline_id for query in queries)
    assert set(load) == pipelines
    assert max(load.values()) - min(load.values()) <= LOAD_DIFFERENCE_MAX
    assert due(queries, pipelines, after) == (), "it settles in one step"
    epochs = [after[query].lease_epoch for query, _ in grants]
    assert epochs == list(range(101, newest + 1)), "each grant fences its predecessor"
    kept = [query for query in queries if query in held and held[query] in pipelines]
    fair = -(-len(queries) // len(pipelines))
    too_many = sum(max(0, n - fair) for n in Counter(held[query] for query in kept).values())
    moved = {query for query, _ in grants} & set(kept)
    assert len(moved) <= too_many + len(pipelines), "few moves"


def test_who_is_silent_ends_when_another_one_is_not() -> None:
    live = Renewals(timeout_ms=1000, look_ms=100)
    live.begin(["x", "y"], 0)
    for now_ms in range(100, 1001, 100):
        live.heard("y", now_ms)
        assert live.silent(["x", "y"], now_ms) == ()
    live.heard("y", 1100)
    assert live.silent(["x", "y"], 1100) == ("x",)


def test_the_only_one_is_not_ended() -> None:
    """Nobody could take over, and it may come back."""
    live = Renewals(timeout_ms=1000, look_ms=100)
    live.begin(["x"], 0)
    for now_ms in range(100, 5000, 100):
        assert live.silent(["x"], now_ms) == ()


def test_a_leader_that_stood_still_blames_nobody() -> None:
    live = Renewals(timeout_ms=1000, look_ms=100)
    live.begin(["x", "y"], 0)
    assert live.silent(["x", "y"], 100) == ()
    live.heard("y", 5000)  # the leader was stopped; this one's renewal is read first
    assert live.silent(["x", "y"], 5000) == ()
    live.heard("x", 5010)
    assert live.silent(["x", "y"], 5100) == ()


def test_a_newcomer_has_a_whole_timeout() -> None:
    live = Renewals(timeout_ms=1000, look_ms=100)
    live.begin([], 0)
    for now_ms in range(100, 1101, 100):
        live.heard("y", now_ms)
        assert live.silent(["x", "y"], now_ms) == ()


def test_transient_queries_end_even_if_none_is_renewed() -> None:
    """Unlike a pipeline's queries, nobody has to take them over."""
    live = Renewals(timeout_ms=1000, look_ms=100)
    live.begin(["x", "y"], 0)
    for now_ms in range(100, 1001, 100):
        live.heard("y", now_ms)
        live.heard("of a query that the catalog does not have", now_ms)
        assert live.overdue(["x", "y"], now_ms) == ()
    assert live.overdue(["x", "y"], 1100) == ("x",)
    for now_ms in range(1200, 2001, 100):
        assert live.overdue(["y"], now_ms) == ()
    assert live.overdue(["y"], 2100) == ("y",)
