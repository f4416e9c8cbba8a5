"""What a batch covers through chains of queries: never more than its rows have, in the end all."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.commit.test_commit_history import Topic

from standpipe.data.commit import covered_offsets
from standpipe.data.commit.commit_history import CommitHistory, PastCommit
from standpipe.data.commit.covered_offsets import (
    BATCHES_MAX,
    Chains,
    CoveredBatch,
    CoveredBatches,
    QueryGraph,
    TopicOffsets,
)


def graph(
    reads: Mapping[str, str], writers: Mapping[str, str], copiers: Mapping[str, str] | None = None
) -> QueryGraph:
    """Of texts, with a word for each topic or query."""
    return QueryGraph(
        reads={query: frozenset(topics.split()) for query, topics in reads.items()},
        writers={topic: frozenset(queries.split()) for topic, queries in writers.items()},
        copiers={topic: frozenset(by.split()) for topic, by in (copiers or {}).items()},
        owned=frozenset(topic for topic in writers if not topic.startswith("SHARED")),
    )


#: S ──► FIRST ──► F ──► SECOND ──► G ──► THIRD; and BOTH reads S and F
CHAIN = graph(
    {"FIRST": "S", "SECOND": "F", "THIRD": "G", "BOTH": "S F"}, {"F": "FIRST", "G": "SECOND"}
)


def covered(topic: Topic, query_id: str, of: QueryGraph = CHAIN) -> dict[str, dict[int, int]]:
    newest = Chains(of, topic.history).newest(query_id)
    assert newest is not None
    return {name: each.offsets for name, each in newest.topics.items()}


def test_a_query_covers_what_it_has_read() -> None:
    topic = Topic()
    topic.commit("FIRST", 0, {"S": {0: 5, 1: 2}}, {0: 3})
    assert covered(topic, "FIRST") == {"S": {0: 5, 1: 2}}
    assert Chains(CHAIN, topic.history).newest("SECOND") is None


def test_a_chain_covers_what_its_queries_have_read_of_each_other() -> None:
    topic = Topic()
    topic.commit("FIRST", 0, {"S": {0: 5}}, {0: 3})
    topic.commit("SECOND", 0, {"F": {0: 3}}, {0: 2})
    topic.commit("FIRST", 1, {"S": {0: 9}}, {0: 7})
    topic.commit("THIRD", 0, {"G": {0: 1}}, {0: 1})
    assert covered(topic, "SECOND") == {"S": {0: 5}}, "of the older batch it has all"
    assert covered(topic, "THIRD") == {"S": {}}, "it has not all of SECOND's"
    topic.commit("THIRD", 1, {"G": {0: 2}}, {0: 1})
    assert covered(topic, "THIRD") == {"S": {0: 5}}
    topic.commit("SECOND", 1, {"F": {0: 6}}, {0: 4})
    assert covered(topic, "SECOND") == {"S": {0: 5}}, "half of a batch is none"
    topic.commit("SECOND", 2, {"F": {0: 7}}, {0: 5})
    assert covered(topic, "SECOND") == {"S": {0: 9}}


def test_a_batch_without_rows_covers_more_at_once() -> None:
    """What a filter keeps out makes no batch of the next query, and needs none."""
    topic = Topic()
    topic.commit("FIRST", 0, {"S": {0: 5}}, {0: 3})
    topic.commit("SECOND", 0, {"F": {0: 3}}, {0: 2})
    topic.commit("FIRST", 1, {"S": {0: 9}}, {0: 3})
    assert covered(topic, "SECOND") == {"S": {0: 9}}


def test_of_two_ways_the_worse_one_counts() -> None:
    topic = Topic()
    topic.commit("FIRST", 0, {"S": {0: 5, 1: 9}}, {0: 3})
    topic.commit("BOTH", 0, {"S": {0: 7, 1: 1}, "F": {0: 3}}, {0: 1})
    assert covered(topic, "BOTH") == {"S": {0: 5, 1: 1}}
    topic.commit("BOTH", 1, {"S": {0: 8, 1: 9}, "F": {0: 2}}, {0: 1})
    assert covered(topic, "BOTH") == {"S": {}}, "of FIRST it has no whole batch that is known"


def test_a_query_that_has_committed_nothing_covers_nothing_and_is_named() -> None:
    topic = Topic()
    topic.commit("SECOND", 0, {"F": {0: 0}}, {0: 0})
    assert covered(topic, "SECOND") == {"S": {}}
    topic.commit("BOTH", 0, {"S": {0: 7}}, {0: 0})
    assert covered(topic, "BOTH") == {"S": {}}, "nothing is said of F"


def test_a_topic_that_clients_and_queries_write() -> None:
    of = graph({"INTO": "S", "LAST": "SHARED"}, {"SHARED": "INTO"})
    topic = Topic()
    topic.commit("INTO", 0, {"S": {0: 5}}, {0: 4})
    topic.commit("LAST", 0, {"SHARED": {0: 3}}, {0: 1})
    assert covered(topic, "LAST", of) == {"SHARED": {0: 3}, "S": {}}
    topic.commit("LAST", 1, {"SHARED": {0: 6}}, {0: 1})
    assert covered(topic, "LAST", of) == {"SHARED": {0: 6}, "S": {0: 5}}


def test_of_a_copy_nobody_says_how_far_it_is() -> None:
    of = graph({"FIRST": "S", "LAST": "PUBLIC"}, {"F": "FIRST"}, {"PUBLIC": "FIRST"})
    topic = Topic()
    topic.commit("FIRST", 0, {"S": {0: 5}}, {0: 4})
    topic.commit("LAST", 0, {"PUBLIC": {0: 4}}, {0: 1})
    assert covered(topic, "LAST", of) == {"PUBLIC": {0: 4}, "S": {}}


def test_queries_that_read_each_other() -> None:
    of = graph({"FIRST": "SHARED", "BACK": "F"}, {"F": "FIRST", "SHARED": "BACK"})
    topic = Topic()
    topic.commit("FIRST", 0, {"SHARED": {0: 5}}, {0: 4})
    topic.commit("BACK", 0, {"F": {0: 4}}, {0: 6})
    assert covered(topic, "FIRST", of) == {"SHARED": {0: 5}}
    assert Chains(of, topic.history).before("FIRST") == {"FIRST", "BACK"}


def test_two_topics_of_one_name_are_not_compared() -> None:
    topic = Topic()
    topic.commit("FIRST", 0, {"S": {0: 5}}, {0: 3}, ids={"S": "old"})
    topic.commit("BOTH", 0, {"S": {0: 7}, "F": {0: 3}}, {0: 1}, ids={"S": "new"})
    assert covered(topic, "BOTH") == {"S": {}}


def batch(number: int, epoch: int = 1, topic_id: str = "", **ends: int) -> CoveredBatch:
    topics = {name: TopicOffsets(topic_id=topic_id, offsets={0: end}) for name, end in ends.items()}
    return CoveredBatch(batch=number, lease_epoch=epoch, topics=topics)


def told(*batches: CoveredBatch) -> list[tuple[int, int, dict[str, int]]]:
    known = CoveredBatches()
    for each in batches:
        known = known.after(each)
    return [
        (b.batch, b.lease_epoch, {t: has.offsets.get(0, 0) for t, has in b.topics.items()})
        for b in known.batches
    ]


@pytest.mark.parametrize(
    ("batches", "kept", "why"),
    [
        ([batch(1, S=5), batch(2, S=5)], [(1, 1, {"S": 5})], "an older batch covers it already"),
        ([batch(1, S=5), batch(2, S=6)], [(1, 1, {"S": 5}), (2, 1, {"S": 6})], "a newer one"),
        ([batch(1, S=5), batch(1, S=6)], [(1, 1, {"S": 6})], "more is known of the same one"),
        ([batch(1, S=5), batch(2, S=3)], [(1, 1, {"S": 5})], "less is known after a restart"),
        ([batch(4, S=5), batch(3, 2, S=3)], [(3, 2, {"S": 3})], "Kafka has lost commits"),
        (
            [batch(1, S=5), batch(2, S=5, T=1)],
            [(1, 1, {"S": 5, "T": 0}), (2, 1, {"S": 5, "T": 1})],
            "it depends on one more topic, of which the older batch may have nothing",
        ),
        (
            [batch(1, S=5, topic_id="old"), batch(2, S=3, topic_id="new")],
            [(1, 1, {"S": 5}), (2, 1, {"S": 3})],
            "the topic was created again",
        ),
    ],
)
def test_what_is_told_of_the_newest_batches(
    batches: list[CoveredBatch], kept: list[tuple[int, int, dict[str, int]]], why: str
) -> None:
    assert told(*batches) == kept, why


def test_it_is_bounded() -> None:
    many = [batch(number, S=number + 1) for number in range(50)]
    assert [each[0] for each in told(*many)] == [*range(50 - BATCHES_MAX, 50)]
    large = [
        CoveredBatch(
            batch=number,
            lease_epoch=1,
            topics={"S": TopicOffsets(offsets=dict.fromkeys(range(5_000), number + 1))},
        )
        for number in range(3)
    ]
    assert len(told(*large)) == 1


class World:
    """Records of S, in two partitions, pass through FIRST, SECOND and BOTH (see CHAIN). FIRST drops
    some. Each query keeps the set of the records whose consequences its rows show."""

    def __init__(self, seed: int) -> None:
        self.random, self.topic = Random(seed), Topic()
        self.written = [0, 0]
        self.batches: dict[str, int] = dict.fromkeys(("FIRST", "SECOND", "THIRD", "BOTH"), 0)
        #: of each query, what it has read of S, by partition
        self.of_s = {"FIRST": [0, 0], "BOTH": [0, 0]}
        #: rows of F and G: which records of S each comes from
        self.f: list[tuple[int, int]] = []
        self.g: list[tuple[int, int]] = []
        #: how many rows are committed, and how many each reader has read
        self.read = {"SECOND": 0, "BOTH": 0, "THIRD": 0}
        self.told = dict.fromkeys(self.batches, CoveredBatches())

    def write(self) -> None:
        self.written[self.random.randrange(2)] += self.random.randint(1, 3)

    def first(self, *, whole: bool = False) -> None:
        begun = self.of_s["FIRST"]
        ends = [
            w if whole else self.random.randint(r, w)
            for r, w in zip(begun, self.written, strict=True)
        ]
        for partition, (low, high) in enumerate(zip(begun, ends, strict=True)):
            self.f += [(partition, n) for n in range(low, high) if (n + partition) % 3]
        self.of_s["FIRST"] = ends
        self._commit("FIRST", {"S": dict(enumerate(ends))}, len(self.f))

    def second(self, *, whole: bool = False) -> None:
        read = self._more("SECOND", len(self.f), whole=whole)
        self.g = self.f[:read]
        self._commit("SECOND", {"F": {0: read}}, len(self.g))

    def third(self, *, whole: bool = False) -> None:
        self._commit("THIRD", {"G": {0: self._more("THIRD", len(self.g), whole=whole)}}, 1)

    def both(self, *, whole: bool = False) -> None:
        ends = [
            w if whole else self.random.randint(r, w)
            for r, w in zip(self.of_s["BOTH"], self.written, strict=True)
        ]
        self.of_s["BOTH"] = ends
        read = self._more("BOTH", len(self.f), whole=whole)
        self._commit("BOTH", {"S": dict(enumerate(ends)), "F": {0: read}}, 1)

    def restart(self) -> None:
        """A tailer that knows the newest commit of each query only: the others were removed."""
        again = Topic()
        for query_id in self.batches:
            newest = self.topic.book.newest(query_id)
            if newest is not None:
                again.write(newest)
        self.topic = again

    def _more(self, query_id: str, end: int, *, whole: bool) -> int:
        read = end if whole else self.random.randint(self.read[query_id], end)
        self.read[query_id] = read
        return read

    def _commit(self, query_id: str, sources: Mapping[str, Mapping[int, int]], end: int) -> None:
        self.batches[query_id] += 1
        self.topic.commit(query_id, self.batches[query_id], sources, {0: end})

    def missing(self, query_id: str) -> list[int]:
        """By partition of S, the first record that the rows of the newest batch lack."""
        passed = self.f[: self.read.get(query_id, 0)]
        if query_id == "THIRD":
            passed = self.g[: self.read["THIRD"]]
        first_missing: list[int] = []
        for partition in range(2):
            end = self.of_s["FIRST"][partition]  # FIRST has read so far, and so it goes on
            if query_id != "FIRST":
                kept = [n for n in range(end) if (n + partition) % 3]
                lost = [n for n in kept if (partition, n) not in passed]
                end = min(lost, default=end)
            if query_id == "BOTH":
                end = min(end, self.of_s["BOTH"][partition])
            first_missing.append(end)
        return first_missing

    def check(self) -> None:
        chains = Chains(CHAIN, self.topic.history)
        for query_id in self.batches:
            newest = chains.newest(query_id)
            if newest is None:
                continue
            self.told[query_id] = self.told[query_id].after(newest)
            shown = self.told[query_id].batches[-1].topics["S"].offsets
            for partition, missing in enumerate(self.missing(query_id)):
                assert shown.get(partition, 0) <= missing, (query_id, partition)


STEPS = ["write", "first", "second", "third", "both", "restart"]


@given(st.integers(0, 10**6), st.lists(st.sampled_from(STEPS), max_size=60))
def test_nothing_is_said_to_be_covered_that_is_missing(seed: int, steps: list[str]) -> None:
    world = World(seed)
    for step in steps:
        getattr(world, step)()
        world.check()
    world.first(whole=True)
    world.second(whole=True)
    world.third(whole=True)
    world.both(whole=True)
    world.check()
    for query_id, known in world.told.items():
        offsets = known.batches[-1].topics["S"].offsets
        assert [offsets.get(0, 0), offsets.get(1, 0)] == world.written, f"{query_id} has all"


def _better(found: dict[str, TopicOffsets], topic: str, other: TopicOffsets) -> None:
    one = found.get(topic, TopicOffsets()).offsets
    both = one.keys() | other.offsets.keys()
    most = {each: max(one.get(each, 0), other.offsets.get(each, 0)) for each in both}
    found[topic] = TopicOffsets(offsets=most)


def _newest(
    history: CommitHistory, query_id: str, offsets: Mapping[int, int], topic_id: str = ""
) -> PastCommit | None:
    return history.newest(query_id)


def _one_row_less(
    history: CommitHistory, query_id: str, offsets: Mapping[int, int], topic_id: str = ""
) -> PastCommit | None:
    return _read_by(history, query_id, {each: end + 1 for each, end in offsets.items()})


_read_by = CommitHistory.read_by


@pytest.mark.parametrize(
    ("of", "name", "planted"),
    [
        (covered_offsets, "_worse", _better),
        (CommitHistory, "read_by", _newest),
        (CommitHistory, "read_by", _one_row_less),
    ],
)
def test_planted_faults_are_found(
    monkeypatch: pytest.MonkeyPatch, of: Any, name: str, planted: Any
) -> None:
    monkeypatch.setattr(of, name, planted)
    with pytest.raises(AssertionError):
        _explore()


def _explore() -> None:
    for seed in range(200):
        world = World(seed)
        for _ in range(40):
            getattr(world, world.random.choice(STEPS))()
            world.check()
