"""Ways to a table that the catalog no longer has, that are many, or that lead in circles."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.unit.data.commit.test_commit_history import Topic
from tests.unit.data.commit.test_covered_offsets import covered, graph

from standpipe.data.commit.commit_history import CommitHistory
from standpipe.data.commit.covered_offsets import ROUNDS_MAX, Chains

#: INTO was INSERT INTO SHARED SELECT … FROM X
RUNNING = graph(
    {"FIRST": "S", "LAST": "SHARED", "INTO": "X"}, {"SHARED": "FIRST INTO", "L": "LAST"}
)
TERMINATED = graph({"FIRST": "S", "LAST": "SHARED"}, {"SHARED": "FIRST", "L": "LAST"})


def shared(*, end: int, read: int) -> Topic:
    """INTO has read X up to 5, and SHARED ends at `end` by it; LAST has read up to `read`."""
    topic = Topic()
    topic.commit("FIRST", 0, {"S": {0: 9}}, {0: 1}, own_id="shared")
    topic.commit("INTO", 0, {"X": {0: 3}}, {0: 2}, own_id="shared")
    topic.commit("INTO", 1, {"X": {0: 5}}, {0: end}, own_id="shared")
    topic.commit("LAST", 0, {"SHARED": {0: read}}, {0: 1}, ids={"SHARED": "shared"})
    return topic


def test_rows_of_a_terminated_query_that_are_yet_to_be_read() -> None:
    """One of X was committed as the 11th of SHARED, and LAST has read up to 9."""
    topic = shared(end=11, read=9)
    assert covered(topic, "LAST", RUNNING)["X"] == {0: 3}
    assert covered(topic, "LAST", TERMINATED)["X"] == {0: 3}, "it will come"
    assert Chains(TERMINATED, topic.history).before("LAST") == {"FIRST", "INTO", "LAST"}
    topic.commit("LAST", 1, {"SHARED": {0: 11}}, {0: 1}, ids={"SHARED": "shared"})
    assert covered(topic, "LAST", RUNNING)["X"] == {0: 5}
    assert "X" not in covered(topic, "LAST", TERMINATED), "no more of X will ever come"


def test_of_a_reader_that_has_committed_nothing_as_far_as_is_known() -> None:
    """The ids of what LAST reads are those of its newest commit."""
    of = graph({"FIRST": "S", "LAST": "SHARED", "END": "L"}, {"SHARED": "FIRST", "L": "LAST"})
    topic = shared(end=11, read=9)
    topic.commit("END", 0, {"L": {0: 0}}, {0: 1})
    assert covered(topic, "END", of)["X"] == {}


def test_a_stream_that_was_dropped_after_its_only_reader_was_terminated() -> None:
    """S ──► FIRST ──► F ──► INTO ──► SHARED ──► LAST, of which the catalog has LAST only."""
    topic = Topic()
    topic.commit("FIRST", 0, {"S": {0: 5}}, {0: 2}, own_id="f")
    topic.commit("INTO", 0, {"F": {0: 2}}, {0: 4}, ids={"F": "f"}, own_id="shared")
    topic.commit("FIRST", 1, {"S": {0: 9}}, {0: 3}, own_id="f")
    topic.commit("INTO", 1, {"F": {0: 3}}, {0: 8}, ids={"F": "f"}, own_id="shared")
    topic.commit("LAST", 0, {"SHARED": {0: 7}}, {0: 1}, ids={"SHARED": "shared"})
    of = graph({"LAST": "SHARED"}, {"L": "LAST"})
    assert covered(topic, "LAST", of)["S"] == {0: 5}
    topic.commit("LAST", 1, {"SHARED": {0: 8}}, {0: 1}, ids={"SHARED": "shared"})
    assert covered(topic, "LAST", of) == {"SHARED": {0: 8}}


def test_a_terminated_query_whose_stream_is_there_is_on_the_way() -> None:
    """Its stream may be read, and says to depend on S: a session that writes there is told so."""
    of = graph({"LAST": "F"}, {"F": "FIRST", "L": "LAST"})
    topic = Topic()
    topic.commit("FIRST", 0, {"S": {0: 5}}, {0: 2}, own_id="f")
    topic.commit("LAST", 0, {"F": {0: 2}}, {0: 1}, ids={"F": "f"})
    assert covered(topic, "LAST", of) == {"S": {0: 5}}


def test_a_topic_that_was_created_again_has_other_writers() -> None:
    topic = shared(end=11, read=9)
    topic.commit("LAST", 1, {"SHARED": {0: 3}}, {0: 1}, ids={"SHARED": "again"})
    assert "X" not in covered(topic, "LAST", TERMINATED)


def test_many_ways_cost_no_more_than_their_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 shared topics, each written by two queries that read the one before: 2^24 ways."""
    depth, asked = 24, list[str]()
    reads = {f"{side}{level}": f"SHARED{level}" for level in range(depth) for side in "ab"}
    writers = {f"SHARED{level + 1}": f"a{level} b{level}" for level in range(depth)}
    topic = Topic()
    for level in range(depth):
        for side in "ab":
            topic.commit(f"{side}{level}", 0, {f"SHARED{level}": {0: 5}}, {0: 5})
    topic.commit("LAST", 0, {f"SHARED{depth}": {0: 5}}, {0: 5})
    read_by = CommitHistory.read_by

    def noted(self: CommitHistory, query_id: str, *given: Any) -> object:
        asked.append(query_id)
        assert len(asked) < 1_000
        return read_by(self, query_id, *given)

    monkeypatch.setattr(CommitHistory, "read_by", noted)
    of = graph({**reads, "LAST": f"SHARED{depth}"}, writers)
    assert covered(topic, "LAST", of)["SHARED0"] == {0: 5}


def test_circles_cost_a_bounded_number_of_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 queries between two streams, in both directions. Where it is too much, nothing is taken to
    be covered; the topic is named."""
    names = [f"q{number}" for number in range(20)]
    reads = {each: "AB"[number % 2] for number, each in enumerate(names)}
    writers = {"A": " ".join(names[1::2]), "B": " ".join([*names[::2], "FIRST"])}
    topic, looks = Topic(), list[str]()
    topic.commit("FIRST", 0, {"S": {0: 5}}, {0: 5})
    for each in names:
        topic.commit(each, 0, {reads[each]: {0: 5}}, {0: 5})
    topic.commit("LAST", 0, {"A": {0: 5}}, {0: 5})
    find = Chains._find

    def noted(self: Chains, query_id: str, *given: Any) -> Any:
        looks.append(query_id)
        return find(self, query_id, *given)

    monkeypatch.setattr(Chains, "_find", noted)
    of = graph({**reads, "FIRST": "S", "LAST": "A"}, writers)
    assert covered(topic, "LAST", of) == {"S": {}}
    assert len(looks) < 2 * ROUNDS_MAX


@pytest.mark.parametrize("seed", range(60))
def test_what_is_remembered_of_a_way_holds_on_others(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """In chains with and without circles, it is what is found by going each way anew."""
    random, queries = Random(seed), [f"q{number}" for number in range(6)]
    reads = {each: " ".join(random.sample("ABCDE", 2)) for each in queries}
    writers = {
        f"SHARED{topic}" if random.random() < 0.5 else topic: " ".join(random.sample(queries, 2))
        for topic in "ABC"
    }
    of, topic = graph(reads, writers), Topic()
    for number in range(12):
        query = random.choice(queries)
        sources = {each: {0: random.randint(0, 9)} for each in reads[query].split()}
        topic.commit(query, number, sources, {0: random.randint(0, 9)})
    chains = Chains(of, topic.history)
    found = {each: chains.newest(each) for each in queries}
    monkeypatch.setattr(Chains, "_covered", Chains._find)
    assert found == {each: Chains(of, topic.history).newest(each) for each in queries}
