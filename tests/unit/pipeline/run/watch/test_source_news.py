"""What is news about the topics of queries: each record is told of once, by whichever witness."""

from __future__ import annotations

import pytest

from standpipe.pipeline.run.watch.source_news import Offsets, SourceNews

A, B = {"a": {0: 5, 1: 0}}, {"b": {0: 7}}


@pytest.mark.parametrize(
    ("then", "news", "why"),
    [
        ({**A, **B}, set[str](), "nothing has changed"),
        ({"a": {0: 5, 1: 1}, **B}, {"a"}, "a partition grew"),
        ({"a": {0: 5, 1: 0, 2: 0}, **B}, {"a"}, "a partition was added"),
        ({"a": {0: 2, 1: 0}, **B}, {"a"}, "it ends earlier: it was created again"),
        ({**A, **B, "c": {0: 0}}, {"c"}, "seen first: its query may have read it before"),
        (B, set[str](), "a topic that is gone is nobody's news"),
    ],
)
def test_ends(then: Offsets, news: set[str], why: str) -> None:
    known = SourceNews()
    assert known.ends({**A, **B}) == {"a", "b"}
    assert known.ends(then) == news, why
    assert known.ends(then) == set(), "told once"


def test_a_topic_that_was_away_is_news_though_it_ends_where_it_did() -> None:
    known = SourceNews()
    known.ends({**A, **B})
    known.ends(B)
    assert known.ends({**A, **B}) == {"a"}


def test_what_a_record_told_is_no_news_from_the_ends() -> None:
    known = SourceNews()
    known.ends(A)
    assert not known.record("a", 0, 4), "it was below the end"
    assert known.record("a", 0, 5)
    assert not known.record("a", 0, 5), "told once"
    assert known.ends({"a": {0: 6, 1: 0}}) == set()
    assert known.ends({"a": {0: 7, 1: 0}}) == {"a"}, "and one more, which was not heard of"
    assert known.record("new", 0, 0), "before the first answer"
