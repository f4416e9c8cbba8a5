"""Forwards in packs: each lookup gets what a forward of its own gets, whatever its pack meets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.unit.node.worker.pull.known.test_frames_numbers import (
    BIGINT_MAX,
    INT_MAX,
    by,
    hold_numbers,
    source_of,
)
from tests.unit.node.worker.pull.test_fast_forward import (
    LINES,
    OTHER,
    THERE,
    Nodes,
    ended,
    one,
    same_id,
    until,
)
from tests.unit.node.worker.pull.test_fast_many import OTHERS, by_slow_path, run
from tests.unit.node.workers import PARTITIONS, USERS, body_of

from standpipe.adapters.http.fast_path import Awaited
from standpipe.data.encoding.store_keys import partition_of
from standpipe.data.query.lookup_pack import LEFT, PACKED_MAX
from standpipe.model import NodeId, Offset
from standpipe.node.worker.pull import fast_forward, fast_path
from standpipe.node.worker.pull.fast_forward import FastForward
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.known.packed_forwards import PackedForward, PackedLookup

#: rows of all partitions
MANY = OTHERS[:100]


def message_for(key: str) -> bytes:
    body = body_of(one(key))
    return b"POST /query HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def knowing(path: LookupFastPath, form: RequestFormat = LINES) -> None:
    """It has forwarded two messages like the others, of each length."""
    for key in (OTHERS[0], OTHERS[10], OTHERS[100]):
        message = message_for(key)
        head_bytes = message.index(b"\r\n\r\n") + 4
        for _ in range(2):
            found = path.answer(form, message[head_bytes:])
            assert found is not None
            assert not isinstance(found, bytes)
            assert await ended(found)
        assert path.learn_message(form, message, head_bytes)


async def all_ended(lookups: Iterable[Awaited]) -> list[bytes | None]:
    """Each has somebody who takes it before the first is answered."""
    return await asyncio.gather(*map(ended, lookups))


def begun(path: LookupFastPath, key: str) -> Awaited | None:
    found = path.answer_message(message_for(key))
    assert not isinstance(found, bytes)
    return found


def packed(path: LookupFastPath, key: str) -> PackedLookup:
    found = begun(path, key)
    assert isinstance(found, PackedLookup)
    return found


def pack_of(path: LookupFastPath) -> PackedForward:
    """The one that is not written yet."""
    assert path._frames.packs is not None
    known = [each.meaning.packs for each in path._frames.messages.values() if each]
    return next(pack for packs in known for pack in packs.values())


async def slow(nodes: Nodes, key: str) -> str:
    accept = {"accept": LINES.form.value.decode()}
    return same_id(await by_slow_path(nodes["a"], LINES, accept, body_of(one(key))))


def test_those_of_one_turn_share_a_message_and_get_what_the_slow_path_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        node, packs = nodes["a"], nodes["b"].packs
        path = node.forwarding_path()
        await knowing(path)
        expected = {key: await slow(nodes, key) for key in MANY}
        monkeypatch.setattr(fast_path, "parse_lookup", None)
        packs.clear()
        answered = node.metrics.counts["standpipe_pull_forwards"]["answered"]
        found = [packed(path, key) for key in MANY]
        monkeypatch.undo()  # the target has no frame yet
        for key, answer in zip(MANY, await all_ended(found), strict=True):
            assert same_id(answer) == expected[key]
        assert [len(pack.lookups) for pack in packs] == [PACKED_MAX, len(MANY) - PACKED_MAX]
        assert {partition for pack in packs for partition, _ in pack.lookups} == {
            *range(PARTITIONS)
        }
        counts = node.metrics.counts
        assert counts["standpipe_pull_forwards"]["answered"] == answered + len(MANY)
        assert not counts["standpipe_pull_fast_path_faults"]

    run(tmp_path, story, THERE)


def test_what_a_target_leaves_takes_the_slow_path_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        left = OTHERS[1]
        beside = next(
            key
            for key in MANY
            if partition_of(key.encode(), PARTITIONS) != partition_of(left.encode(), PARTITIONS)
        )
        target, answer = nodes["b"].peer_path, nodes["b"].peer_path.answer

        def refusing(token: RequestFormat, body: bytes) -> bytes | Awaited | None:
            return None if left.encode() in body else answer(token, body)

        monkeypatch.setattr(target, "answer", refusing)
        monkeypatch.setattr(target, "_known", lambda *_: None)
        answers = await all_ended([packed(path, left), packed(path, beside)])
        assert answers[0] is None
        assert same_id(answers[1]) == await slow(nodes, beside)
        assert begun(path, left) is None, "its partition was left"
        assert await ended(packed(path, beside))
        assert path.forwards is not None
        path.forwards.refused.add(USERS.replica_id(partition_of(left.encode(), PARTITIONS)), 0, 0)
        assert isinstance(begun(path, left), PackedLookup), "not for ever"

    run(tmp_path, story, THERE)


def test_a_peer_that_knows_no_packs_gets_forwards_of_their_own(tmp_path: Path) -> None:
    """It has an older release, and gets another pack once it may have a newer one."""

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        nodes["b"].is_packless = True
        assert await ended(packed(path, OTHERS[1])) is None
        found = begun(path, OTHERS[1])
        assert isinstance(found, FastForward)
        assert same_id(await ended(found)) == await slow(nodes, OTHERS[1])
        assert path._frames.packs is not None
        path._frames.packs.packless.add(NodeId("b"), 0, 0)
        nodes["b"].is_packless = False
        assert same_id(await ended(packed(path, OTHERS[1]))) == await slow(nodes, OTHERS[1])
        assert isinstance(begun(path, OTHERS[1]), PackedLookup)

    run(tmp_path, story, THERE)


def test_they_follow_the_map(tmp_path: Path) -> None:
    """To another node, and back to this one once it has a replica."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.forwarding_path()
        await knowing(path)
        node.publish(["a", "b", "c"], {number: ["c"] for number in range(PARTITIONS)}, epoch=2)
        answer = await ended(packed(path, OTHERS[1]))
        assert answer is not None
        assert b"standpipe-served-by: c\r\n" in answer
        node.publish(["a", "b", "c"], {number: ["a", "c"] for number in range(PARTITIONS)}, epoch=3)
        assert isinstance(path.answer_message(message_for(OTHERS[1])), bytes)

    run(tmp_path, story, {**THERE, 0: ["b", "c"]})


def test_they_leave_a_failed_path_and_another_table(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.forwarding_path()
        await knowing(path)
        node.forwarder._failed(path.map.view.nodes[NodeId("b")])
        assert begun(path, OTHERS[1]) is None
        node.forwarder.answered("b", None)
        nodes["b"].publish(["a", "b"], {0: ["c"]}, epoch=2, source=OTHER)
        assert await ended(packed(path, OTHERS[1])) is None, "the target has another table"
        assert begun(path, OTHERS[1]) is None
        del nodes["b"]
        assert begun(path, OTHERS[2]) is None, "nobody is there"

    run(tmp_path, story, THERE)


def test_what_others_know_of_the_end_is_in_the_lag(tmp_path: Path) -> None:
    """It changes while the peer says the same."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.forwarding_path()
        await knowing(path)
        replica_id = USERS.replica_id(partition_of(b"x1", PARTITIONS))
        for end, lag in ((100, 0), (100, 0), (130, 30), (120, 20)):
            node.routes.reported_end = {replica_id: Offset(end)}.__getitem__  # type: ignore[method-assign]
            answer = await ended(packed(path, "x1"))
            assert answer is not None
            assert b"standpipe-offset-lag: %d\r\n" % lag in answer

    run(tmp_path, story, THERE)


@pytest.mark.parametrize(
    ("head", "body", "why"),
    [
        (b"HTTP/1.1 500 Oh\r\n", b"", "a fault"),
        (b"HTTP/1.1 404 Not Found\r\n", b"Not Found", "an older release"),
        (b"HTTP/1.1 200 OK\r\n", LEFT + LEFT, "left"),
    ],
)
def test_what_is_no_answer_is_left_to_the_slow_path(
    tmp_path: Path, head: bytes, body: bytes, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        found, got = [packed(path, key) for key in OTHERS[1:3]], list[bytes | None]()
        for lookup in found:
            lookup.then(got.append)
        pack_of(path).answered(head, body)
        assert got == [None, None], why
        assert not isinstance(begun(path, OTHERS[1]), PackedLookup)

    run(tmp_path, story, THERE)


@pytest.mark.parametrize("body", [b"", LEFT, LEFT * 3, b"content-length: 9\r\n\r\n", b"oh"])
def test_an_answer_that_does_not_fit_leaves_no_client_waiting(tmp_path: Path, body: bytes) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        found, got = [packed(path, key) for key in OTHERS[1:3]], list[bytes | None]()
        for lookup in found:
            lookup.then(got.append)
        with pytest.raises(ValueError, match=r"not found|shorter|longer|cut off"):
            pack_of(path).answered(b"HTTP/1.1 200 OK\r\n", body)
        assert got == [None, None]

    run(tmp_path, story, THERE)


def test_a_client_that_leaves_gets_nothing_and_others_do(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        gone, got = packed(path, OTHERS[1]), list[bytes | None]()
        stays = packed(path, OTHERS[2])
        gone.then(got.append)
        gone.leave()
        assert same_id(await ended(stays)) == await slow(nodes, OTHERS[2])
        assert got == []

    run(tmp_path, story, THERE)


def test_a_pack_that_is_late_is_left_to_the_slow_path_and_its_time_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.forwarding_path()
        await knowing(path)
        go_on, silent, took = asyncio.Event(), list[str](), list[float]()
        pack_lane = nodes["b"].pack_lane

        async def late(*given: object) -> object:
            await go_on.wait()
            return await pack_lane(*given)

        monkeypatch.setattr(nodes["b"], "pack_lane", late)
        node.hedged_reads.silent = lambda peer: silent.append(peer.node_id)
        node.forwarder.took = took.append
        node.hedged_reads.latency.slow_ms = 5
        before = dict(node.metrics.counts["standpipe_pull_forwards"])
        found = [packed(path, key) for key in OTHERS[1:4]]
        assert await ended(found[0]) is None
        assert (silent, took) == (["b"], [])
        go_on.set()
        await until(took)
        assert took[0] >= fast_forward.LATE_WAITS * 5
        assert node.metrics.counts["standpipe_pull_forwards"] == before, "nobody got that answer"

    run(tmp_path, story, THERE)


def test_a_pack_that_is_late_before_it_is_written_asks_for_nothing(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        found, got = packed(path, OTHERS[1]), list[bytes | None]()
        found.then(got.append)
        pack = pack_of(path)
        pack.give(None)
        assert got == [None]
        second = packed(path, OTHERS[2])
        assert pack_of(path) is not pack
        nodes["b"].packs.clear()
        assert await ended(second)
        assert [len(each.lookups) for each in nodes["b"].packs] == [0, 1]

    run(tmp_path, story, THERE)


def test_the_budgets_count_lookups(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.forwarding_path()
        await knowing(path)
        before = node.hedged_reads.retries._reads
        assert all(await all_ended([packed(path, key) for key in OTHERS[1:6]]))
        assert node.hedged_reads.retries._reads == before + 5

    run(tmp_path, story, THERE)


def test_a_large_answer_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        monkeypatch.setattr(fast_path, "ANSWER_BYTES_MAX", 100)
        assert await ended(packed(path, OTHERS[1])) is None

    run(tmp_path, story, THERE)


def test_a_pack_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond it is left."""

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        monkeypatch.setattr(fast_path, "PACK_BYTES_MAX", 2_000)
        keys = [key for key in MANY if partition_of(key.encode(), PARTITIONS) == 0][:9]
        answers = await all_ended([packed(path, key) for key in keys])
        given = [answer is not None for answer in answers]
        assert given == sorted(given, reverse=True)
        assert 0 < sum(given) < len(keys)

    run(tmp_path, story, THERE)


@pytest.mark.parametrize("type_", ["INTEGER", "BIGINT"])
def test_numbers_are_packed_too(tmp_path: Path, type_: str) -> None:
    async def story(nodes: Nodes) -> None:
        hold_numbers(nodes["b"], type_)
        nodes["a"].planned = nodes["b"].planned
        for node in (nodes["a"], nodes["b"]):
            node.publish(["a", "b"], THERE, epoch=3, source=source_of(type_))
        path, accept = nodes["a"].forwarding_path(), {"accept": LINES.form.value.decode()}
        bound = INT_MAX if type_ == "INTEGER" else BIGINT_MAX
        packs = 0
        for number in (*range(1, 40), *range(-9, 0), 0, bound, -bound):
            body = body_of(by(number))
            slow = await by_slow_path(nodes["a"], LINES, accept, body)
            found = path.answer(LINES, body)
            assert found is not None, number
            assert not isinstance(found, bytes)
            packs += isinstance(found, PackedLookup)
            answer = await ended(found)
            assert answer is not None, number
            assert same_id(answer) == same_id(slow), number
            assert b"\n[%d," % number in slow
        assert packs > 30

    run(tmp_path, story, THERE)
