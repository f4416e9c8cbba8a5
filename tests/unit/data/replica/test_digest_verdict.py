"""What digests of replicas say."""

from __future__ import annotations

import pytest

from standpipe.data.replica.digest_verdict import (
    Agreement,
    DigestVerdict,
    ReplicaDigest,
    StoreDigest,
    answering,
    at_one_batch,
    judge,
    to_rebuild,
)
from standpipe.model import BatchId, NodeId, Offset

Said = tuple[int, int | None, int | None] | None  # (batch, digest, recomputed); None: no answer


def replica(number: int, said: Said) -> ReplicaDigest:
    node_id = NodeId(f"node-{number}")
    if said is None:
        return ReplicaDigest(node_id=node_id, partition=0, error="it is down")
    batch, digest, recomputed = said
    of = StoreDigest(
        position=Offset(10 * batch), batch=BatchId(batch), digest=digest, recomputed=recomputed
    )
    return ReplicaDigest(node_id=node_id, partition=0, of=of)


@pytest.mark.parametrize(
    ("said", "agreement", "odd", "why"),
    [
        ([(4, 7, None), (4, 7, None)], "equal", [], "one batch, one digest"),
        ([(4, 7, None), (4, 8, None)], "different", [], "which of two is right nobody knows"),
        ([(4, 7, None), (4, 8, None), (4, 7, None)], "different", [2], "two of three"),
        ([(4, 7, None), (4, 8, None), (4, 9, None)], "different", [], "no two alike"),
        ([(4, 7, None), (5, 8, None)], "apart", [], "of different batches: no news"),
        ([(4, 7, None), (4, 7, None), (5, 8, None)], "apart", [], "and one of them is enough"),
        ([(4, 7, None), None], "alone", [], "nothing to compare it with"),
        ([(4, None, 7), (4, 7, 7)], "alone", [], "a store from before digests kept none"),
        ([], "alone", [], "no replicas"),
        ([(4, 7, 7), (4, 7, 7)], "equal", [], "and the rows say the same"),
        ([(4, 7, 7), (4, 7, 6)], "different", [2], "rows that are not those that were written"),
        ([(4, 7, 7), (5, 8, 6)], "different", [2], "whatever the batch"),
    ],
)
def test_judge(said: list[Said], agreement: str, odd: list[int], why: str) -> None:
    verdict = judge(0, [replica(number, one) for number, one in enumerate(said, 1)])
    assert verdict.agreement is Agreement(agreement), why
    assert list(verdict.odd) == [f"node-{number}" for number in odd]


def test_a_row_that_cannot_be_read_is_the_odd_ones() -> None:
    of = StoreDigest(position=Offset(1), batch=BatchId(1), digest=7, damage="a row is not …")
    damaged = ReplicaDigest(node_id=NodeId("node-1"), partition=0, of=of)
    assert judge(0, [damaged, replica(2, (1, 7, 7))]).odd == ("node-1",)


def test_a_store_without_a_digest_may_be_damaged_too() -> None:
    of = StoreDigest(position=Offset(1), batch=BatchId(1), digest=None, damage="a row is not …")
    damaged = ReplicaDigest(node_id=NodeId("node-1"), partition=0, of=of)
    assert judge(0, [damaged, replica(2, (1, 7, 7))]).odd == ("node-1",)


def at(position: int, batch: int, digest: int) -> StoreDigest:
    return StoreDigest(position=Offset(position), batch=BatchId(batch), digest=digest)


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (at(10, 4, 7), at(12, 4, 8), "a repair is a commit of the same batch, further on"),
        (at(10, 4, 7), at(10, 5, 8), "a batch without records here moves the label only"),
    ],
)
def test_a_label_is_position_and_batch(one: StoreDigest, other: StoreDigest, why: str) -> None:
    node_1, node_2 = NodeId("node-1"), NodeId("node-2")
    found = [
        ReplicaDigest(node_id=node_id, partition=0, of=of)
        for node_id, of in ((node_1, one), (node_2, other))
    ]
    assert judge(0, found).agreement is Agreement.APART, why
    assert len(at_one_batch(0, {node_1: [one], node_2: [other]})) == 1, why


def test_a_replica_that_repeats_itself_has_one_vote() -> None:
    """A restart and a commit without records say the same label once more."""
    often, once = [at(10, 4, 7)] * 3, [at(20, 5, 8)]
    said = {NodeId("node-1"): [*often, *once], NodeId("node-2"): once}
    assert {one.of for one in at_one_batch(0, said)} == {once[0]}


@pytest.mark.parametrize(
    ("recent", "batch", "agreement", "odd", "why"),
    [
        (
            [{4: 7, 5: 8}, {5: 8, 6: 9}, {4: 7, 5: 8}],
            5,
            "equal",
            [],
            "the newest that all remember",
        ),
        ([{4: 7, 5: 8}, {5: 1, 6: 2}, {4: 7, 5: 8}], 5, "different", [2], "two of three"),
        ([{4: 7, 5: 8}, {4: 7, 5: 1}], 5, "different", [], "which of two, nobody knows"),
        ([{5: 8, 6: 9}, {5: 8, 6: 9}, {1: 3}], 6, "equal", [], "one that lags hinders nobody"),
        ([{5: 8, 6: 9}, {1: 2}, {3: 3}], 6, "alone", [], "none in common"),
        ([{5: 8}, {}], 5, "alone", [], "a node that is away"),
    ],
)
def test_at_one_batch(
    recent: list[dict[int, int]], batch: int, agreement: str, odd: list[int], why: str
) -> None:
    said = {
        NodeId(f"node-{number}"): [
            StoreDigest(position=Offset(10 * each), batch=BatchId(each), digest=digest)
            for each, digest in one.items()
        ]
        for number, one in enumerate(recent, 1)
    }
    found = at_one_batch(0, said)
    assert {one.of.batch for one in found if one.of} == {batch}, why
    verdict = judge(0, found)
    assert verdict.agreement is Agreement(agreement), why
    assert list(verdict.odd) == [f"node-{number}" for number in odd], why


def test_nobody_remembers_anything() -> None:
    assert at_one_batch(0, {NodeId("node-1"): []}) == []


@pytest.mark.parametrize(
    ("odd", "down", "rebuilt", "why"),
    [
        ([], [], [], "nothing to do, or nobody knows"),
        ([1], [], [1], "its peers go on"),
        ([1, 2], [], [1, 2], "one goes on"),
        ([1, 2, 3], [], [], "nobody would answer"),
        ([2, 3], [1], [], "the third is down: nobody would answer"),
        ([3], [1], [3], "the second goes on"),
        ([3], [1, 2], [], "the only one that answers"),
    ],
)
def test_to_rebuild(odd: list[int], down: list[int], rebuilt: list[int], why: str) -> None:
    nodes = {number: NodeId(f"node-{number}") for number in (1, 2, 3)}
    asked = [replica(number, None if number in down else (4, 7, None)) for number in nodes]
    verdict = DigestVerdict(
        partition=0, agreement=Agreement.DIFFERENT, odd=tuple(nodes[number] for number in odd)
    )
    assert to_rebuild(verdict, answering(asked)) == tuple(nodes[n] for n in rebuilt), why
