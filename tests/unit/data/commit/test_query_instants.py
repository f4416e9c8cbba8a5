"""How far a node dates its rows by where the source topics end: never newer than they are."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.commit.progress import ProgressBook
from standpipe.data.commit.query_instants import EndsAnswer, QueryInstants, root_topics
from standpipe.model import BatchId, Commit, LeaseEpoch, Offset, Progress

#: S ──► FIRST ──► F ──► SECOND
WRITERS = {"F": "FIRST"}
BOTH = {"FIRST", "SECOND"}


def commit(
    book: ProgressBook,
    query_id: str,
    batch: int,
    sources: Mapping[str, Mapping[int, int]],
    end: int = 0,
    ids: Mapping[str, str] | None = None,
) -> None:
    progress = Progress(
        query_id=query_id,
        commit=Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(batch), attempt=batch),
        sources={topic: dict(ends) for topic, ends in sources.items()},
        sinks={0: Offset(end)},
        source_topic_ids=dict(ids or {}),
    )
    book.take(progress)


def answer(at_ms: int, *ends: int, topic: str = "S", topic_id: str = "") -> EndsAnswer:
    return EndsAnswer(at_ms, {topic: dict(enumerate(ends))}, {topic: topic_id})


def test_an_idle_source_is_known_to_be_idle() -> None:
    book, instants = ProgressBook(), QueryInstants()
    commit(book, "FIRST", 0, {"S": {0: 5}})
    assert instants.covered("FIRST", book) == 0
    for at_ms in (10, 20, 30):
        instants.take(answer(at_ms, 5), book, {"FIRST"}, {})
        assert instants.covered("FIRST", book) == at_ms
    instants.take(answer(40, 6), book, {"FIRST"}, {})
    assert instants.covered("FIRST", book) == 30, "a record has come"
    commit(book, "FIRST", 1, {"S": {0: 6}})
    assert instants.covered("FIRST", book) == 40, "and is in the newest batch"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (answer(10, 5, topic_id="new"), "the topic was created again"),
        (answer(10, 4, topic_id="old"), "Kafka lost a record, or the answer is older"),
        (answer(10, 5, topic="OTHER"), "nothing is said of the topic"),
        (EndsAnswer(10, {"S": {1: 9}}, {}), "nor of its partition"),
    ],
)
def test_answers_that_prove_nothing(told: EndsAnswer, why: str) -> None:
    book, instants = ProgressBook(), QueryInstants()
    commit(book, "FIRST", 0, {"S": {0: 5}}, ids={"S": "old"})
    instants.take(told, book, {"FIRST"}, {})
    assert instants.covered("FIRST", book) == 0, why
    instants.take(answer(20, 5, topic_id="old"), book, {"FIRST"}, {})
    assert instants.covered("FIRST", book) == 20


def test_a_partition_that_was_added_counts() -> None:
    book, instants = ProgressBook(), QueryInstants()
    commit(book, "FIRST", 0, {"S": {0: 5}})
    instants.take(answer(10, 5, 0), book, {"FIRST"}, {})
    assert instants.covered("FIRST", book) == 10, "it has no record yet"
    instants.take(answer(20, 5, 1), book, {"FIRST"}, {})
    assert instants.covered("FIRST", book) == 10


def test_a_query_without_sources_is_of_no_age() -> None:
    """The rows of a DataFrame: only its own program knows what they come from."""
    book, instants = ProgressBook(), QueryInstants()
    commit(book, "FIRST", 0, {})
    instants.take(answer(10, 5), book, {"FIRST"}, {})
    assert instants.covered("FIRST", book) == 0


def test_a_chain_is_as_old_as_what_its_first_query_has_read() -> None:
    book, instants = ProgressBook(), QueryInstants()
    commit(book, "FIRST", 0, {"S": {0: 5}}, end=3)
    commit(book, "SECOND", 0, {"F": {0: 3}})
    assert root_topics(book, {"SECOND"}, WRITERS) == {"S"}
    instants.take(answer(10, 5), book, {"SECOND"}, WRITERS)
    assert instants.covered("SECOND", book) == 10
    instants.take(answer(20, 6), book, {"SECOND"}, WRITERS)
    instants.take(answer(30, 6), book, {"SECOND"}, WRITERS)
    assert instants.covered("SECOND", book) == 10, "the first query has not read it"
    commit(book, "FIRST", 1, {"S": {0: 6}}, end=4)
    instants.take(answer(40, 6), book, {"SECOND"}, WRITERS)
    assert instants.covered("FIRST", book) == 40
    assert instants.covered("SECOND", book) == 10, "the second has not read its row"
    commit(book, "SECOND", 1, {"F": {0: 4}})
    instants.take(answer(50, 6), book, {"SECOND"}, WRITERS)
    assert instants.covered("SECOND", book) == 50


def test_of_two_sources_the_older_one_counts() -> None:
    book, instants = ProgressBook(), QueryInstants()
    commit(book, "FIRST", 0, {"S": {0: 5}}, end=3)
    commit(book, "SECOND", 0, {"F": {0: 3}, "S": {0: 6}})
    instants.take(answer(10, 5), book, BOTH, WRITERS)
    instants.take(answer(20, 6), book, BOTH, WRITERS)
    assert instants.covered("SECOND", book) == 10


def test_queries_that_read_each_other_end_the_search() -> None:
    book = ProgressBook()
    commit(book, "FIRST", 0, {"F": {0: 1}})
    assert root_topics(book, {"FIRST", "UNKNOWN"}, WRITERS) == frozenset()


@given(st.lists(st.sampled_from(["write", "ask", "first", "second", "idle"]), max_size=60))
def test_no_instant_is_newer_than_a_record_that_is_missing(steps: list[str]) -> None:
    """A world of one clock: each record of S is written at a time, passes FIRST, then SECOND."""
    book, instants = ProgressBook(), QueryInstants()
    written, first, second = list[int](), 0, 0
    batches = 0
    commit(book, "FIRST", 0, {"S": {0: 0}}, end=0)
    commit(book, "SECOND", 0, {"F": {0: 0}})
    for now_ms, step in enumerate(steps, 1):
        if step == "write":
            written.append(now_ms)
        elif step == "ask":
            instants.take(answer(now_ms, len(written)), book, BOTH, WRITERS)
        elif step == "first":
            batches, first = batches + 1, len(written)
            commit(book, "FIRST", batches, {"S": {0: first}}, end=first)
        elif step == "second":
            batches, second = batches + 1, first
            commit(book, "SECOND", batches, {"F": {0: second}})
        for query_id, has in (("FIRST", first), ("SECOND", second)):
            missing = written[has:]
            assert instants.covered(query_id, book) <= min(missing, default=now_ms)
