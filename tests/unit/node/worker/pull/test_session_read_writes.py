"""Reads of a session that has written: answered from rows that have read it, and from no others.

Real stores, pages, files of what batches cover, and workers of three nodes in one process; forwards
without sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.data.commit.test_covered_offsets import batch
from tests.unit.node.worker.pull.test_session_read import (
    FORWARD,
    LINES,
    MANY,
    ONE,
    SCAN,
    at,
    body_with,
    read,
    run,
    token,
    waiters,
)
from tests.unit.node.worker.pull.test_slow_path import Nodes
from tests.unit.node.workers import FORWARDED_MS_MAX, USERS, Worker

from standpipe.adapters.files import published
from standpipe.adapters.http.peer_client import Response
from standpipe.data.commit.covered_offsets import (
    CoveredBatch,
    CoveredBatches,
    QueryGraph,
    ToldEnds,
    TopicOffsets,
)
from standpipe.errors import NoReplica, TokenRefused
from standpipe.freshness import LEASE_EPOCH_HEADER
from standpipe.model import Snapshot
from standpipe.node.covered_files import CoveredFiles, covered_path, ends_path
from standpipe.node.worker.pull.session_read import SessionRead, SessionTokens
from standpipe.session_token import SessionToken, TopicKey, written_token

ALL = {number: ["a", "b"] for number in range(4)}


def wrote(end: int, topic: str = "S", topic_id: str = "") -> str:
    """The token of a session that has written up to this offset."""
    return written_token(topic, {0: end - 1}, topic_id).text()


def tell(node: Worker, *batches: CoveredBatch) -> None:
    """What its tailer says that batches of the table cover, by the node's own map."""
    path = covered_path(node.paths.status, ("T1", 1))
    map_ = node.slow_path.map.view.snapshot
    table = next(each for each in map_.sources if each.table_id == "T1")
    way = QueryGraph.of(map_).way_to(table.query_id or "")
    published.write(path, CoveredBatches(batches=batches, way=way, log_index=map_.log_index))


def tell_end(node: Worker, end: int, *, topic_id: str = "", asked_ms: int | None = None) -> None:
    asked_boot_ms = node.clock.boot_ms() if asked_ms is None else asked_ms
    topics = {"S": TopicOffsets(topic_id=topic_id, offsets={0: end})}
    published.write(
        ends_path(node.paths.status), ToldEnds(asked_boot_ms=asked_boot_ms, topics=topics)
    )


def hold(nodes: Nodes, number: int, epoch: int = 1, names: str = "ab") -> None:
    for name in names:
        for partition in range(4):
            nodes[name].hold(partition, at(number, epoch))


@pytest.mark.parametrize("text", [ONE, SCAN, MANY])
@pytest.mark.parametrize("entry", ["a", "c"])
def test_it_waits_for_the_batch_that_has_read_it(tmp_path: Path, entry: str, text: str) -> None:
    async def story(nodes: Nodes) -> None:
        count = {ONE: 2, SCAN: 8}.get(text, 4)
        hold(nodes, 7)
        for name in "ab":
            tell(nodes[name], batch(7, S=5))
        reading = asyncio.create_task(read(nodes[entry], text, wrote(6)))
        await waiters(nodes, count)
        hold(nodes, 8)
        await asyncio.sleep(0.03)
        assert not reading.done(), "of that batch nothing is known"
        tell(nodes["b"], batch(7, S=5), batch(8, S=5), batch(9, S=6))
        await asyncio.sleep(0.03)
        assert not reading.done(), "it is committed, and not in the rows"
        hold(nodes, 9, names="b")
        for partition in range(4):
            nodes["b"].apply(partition, batch=9, value=b"[2]")
        rows, found = await reading
        assert {row[-1] for row in rows} == {2}
        assert found is not None
        assert SessionToken.parse(found).covers(SessionToken.parse(token(9)))
        assert SessionToken.parse(found).covers(SessionToken.parse(wrote(6))), "for other tables"
        await waiters(nodes, 0)

    run(tmp_path, story, ALL)


@pytest.mark.parametrize("entry", ["a", "c"])
def test_it_waits_for_what_a_push_query_on_the_topic_has_shown(tmp_path: Path, entry: str) -> None:
    """Who has seen an event finds it counted downstream."""

    async def story(nodes: Nodes) -> None:
        hold(nodes, 7)
        for name in "ab":
            tell(nodes[name], batch(7, S=5))
        shown = SessionToken(streamed={TopicKey("S"): {0: 6}}).text()
        reading = asyncio.create_task(read(nodes[entry], ONE, shown))
        await waiters(nodes, 2)
        hold(nodes, 9, names="b")
        tell(nodes["b"], batch(7, S=5), batch(9, S=6))
        for partition in range(4):
            nodes["b"].apply(partition, batch=9, value=b"[2]")
        rows, found = await reading
        assert [row[-1] for row in rows] == [2]
        assert found is not None
        assert SessionToken.parse(found).covers(SessionToken.parse(shown))

    run(tmp_path, story, ALL)


def test_only_a_token_with_writes_looks_at_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All session reads did, once for each entry of the log, in the loop of the worker."""
    looks: list[int] = []
    of = QueryGraph.of

    def counted(snapshot: Snapshot) -> QueryGraph:
        looks.append(snapshot.log_index)
        return of(snapshot)

    async def story(nodes: Nodes) -> None:
        hold(nodes, 7)
        for name in "ab":
            tell(nodes[name], batch(7, S=6))
        looks.clear()
        answered: list[bool] = []
        for given in ("", token(7), wrote(6), wrote(5)):
            for text in (ONE, SCAN, MANY):
                await read(nodes["a"], text, given)
                fast = nodes["a"].fast_path().answer(LINES, body_with(text, given))
                answered.append(fast is not None)
            map_ = nodes["a"].slow_path.map.view.snapshot.log_index
            assert looks == ([] if given in ("", token(7)) else [map_]), "once for each map"
        assert answered.count(True) == 8, "the fast path looked, too"

    monkeypatch.setattr(QueryGraph, "of", counted)
    run(tmp_path, story, {number: ["a"] for number in range(4)})


def test_a_batch_may_cover_more_later(tmp_path: Path) -> None:
    """Of a filter in the chain that let nothing pass, the rows stay as they are."""

    async def story(nodes: Nodes) -> None:
        hold(nodes, 7)
        tell(nodes["a"], batch(7, S=5))
        reading = asyncio.create_task(read(nodes["a"], ONE, wrote(6)))
        await waiters(nodes, 2)
        tell(nodes["a"], batch(7, S=6))
        hold(nodes, 7)  # the tailer writes its pages again and again
        rows, _ = await reading
        assert len(rows) == 1

    run(tmp_path, story)


def test_the_batch_that_covers_it_is_remembered(tmp_path: Path) -> None:
    """The file soon tells of newer batches only, which a slow replica has yet to show."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.slow_path.routing_timeout_ms = 100
        node.hold(0, at(7))
        tell(node, batch(8, S=6))
        with pytest.raises(NoReplica, match="wanted batch 8"):
            await read(node, ONE, wrote(6))
        node.hold(0, at(8))
        tell(node, batch(20, S=9))
        rows, _ = await read(node, ONE, wrote(6))
        assert len(rows) == 1
        with pytest.raises(NoReplica, match="wanted batch 20"):
            await read(node, ONE, wrote(5))

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize(
    ("rows", "told", "is_answered", "why"),
    [
        ((7, 1), (7, 1), True, "the batch"),
        ((8, 2), (7, 1), True, "a later one"),
        ((6, 1), (7, 1), False, "an older one"),
        ((9, 1), (7, 2), False, "it was committed by another holder of the lease, who lost it"),
    ],
)
def test_which_rows_have_it(
    tmp_path: Path, rows: tuple[int, int], told: tuple[int, int], is_answered: bool, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.slow_path.routing_timeout_ms = 60
        node.hold(0, at(*rows))
        tell(node, batch(*told, S=6))
        fast = node.fast_path().answer(LINES, body_with(ONE, wrote(6)))
        assert (fast is not None) is is_answered, why
        if is_answered:
            assert (await read(node, ONE, wrote(6)))[0], why
            return
        with pytest.raises(NoReplica):
            await read(node, ONE, wrote(6))

    run(tmp_path, story, {0: ["a"]})


def test_what_the_table_does_not_depend_on(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        hold(nodes, 7)
        nodes["a"].slow_path.routing_timeout_ms = 60
        with pytest.raises(NoReplica, match="not known yet what its rows have read"):
            await read(nodes["a"], ONE, wrote(9, "OTHER"))
        tell(nodes["a"], batch(7, S=5))
        assert (await read(nodes["a"], ONE, wrote(9, "OTHER")))[0]

    run(tmp_path, story)


@pytest.mark.parametrize("entry", ["a", "c"])
def test_a_forged_offset_is_refused_once_kafka_says_so(tmp_path: Path, entry: str) -> None:
    """Not by an end that was asked for before the read arrived: the record may have come since."""

    async def story(nodes: Nodes) -> None:
        hold(nodes, 7)
        for name in "ab":
            tell(nodes[name], batch(7, S=5))
            tell_end(nodes[name], 6, asked_ms=1)
        reading = asyncio.create_task(read(nodes[entry], ONE, wrote(10**9)))
        await waiters(nodes, 2)
        for name in "ab":
            tell_end(nodes[name], 6, asked_ms=nodes[name].clock.boot_ms() + 10**6)
        hold(nodes, 7)
        await asyncio.sleep(0.03)
        assert not reading.done(), "nor by one of another boot of the machine"
        for name in "ab":
            tell_end(nodes[name], 6)
        hold(nodes, 7)
        with pytest.raises(TokenRefused, match="After the read arrived, Kafka's partition ended"):
            await reading

    run(tmp_path, story)


def test_a_topic_that_was_created_again(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        hold(nodes, 7)
        for name in "ab":
            tell(nodes[name], batch(7, topic_id="new", S=99))
        reading = asyncio.create_task(read(nodes["a"], ONE, wrote(5, topic_id="old")))
        await waiters(nodes, 2)
        for name in "ab":
            tell_end(nodes[name], 99, topic_id="new")
        hold(nodes, 7)
        with pytest.raises(TokenRefused, match="The topic was created again since"):
            await reading
        assert (await read(nodes["a"], ONE, wrote(5, topic_id="new")))[0]

    run(tmp_path, story)


def test_no_waiter_outlives_its_time(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        hold(nodes, 7)
        nodes["c"].slow_path.routing_timeout_ms = FORWARDED_MS_MAX
        for name in "ab":
            tell(nodes[name], batch(7, S=5))
        with pytest.raises(NoReplica) as failed:
            await read(nodes["c"], ONE, wrote(6))
        told: Any = failed.value.body()["standpipe"]
        said = "Level session: wanted S, partition 0, up to offset 6, had 5."
        assert [one["why"] for one in told["verdicts"]] == [said, said]
        await waiters(nodes, 0)

    run(tmp_path, story)


@pytest.mark.parametrize("text", [ONE, MANY])
def test_by_the_fast_path(tmp_path: Path, text: str) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold(nodes, 7)
        node.slow_path.map.view.plans.plan(text, {})
        body = body_with(text, wrote(6))
        assert node.fast_path().answer(LINES, body) is None, "nothing is known"
        tell(node, batch(7, S=5))
        assert node.fast_path().answer(LINES, body) is None, "it has not read it"
        assert not node.fast_peer_lane(body, FORWARD)
        tell(node, batch(7, S=6))
        path = node.fast_path()
        for _ in range(2):
            found = path.answer(LINES, body)
            assert found is not None
            last = msgspec.json.decode(found.splitlines()[-1])["consistencyToken"]
            assert SessionToken.parse(last).covers(SessionToken.parse(wrote(6)))
        assert f"\r\n{LEASE_EPOCH_HEADER}: 1\r\n" in node.fast_peer_lane(body, FORWARD)
        for partition in range(4):
            node.apply(partition, batch=6)
        assert path.answer(LINES, body) is None, "other rows are judged again"

    run(tmp_path, story, ALL)


def test_a_release_that_knows_sessions_and_no_writes_is_not_asked_for_long(tmp_path: Path) -> None:
    """It refuses the token, and another replica is asked."""

    async def story(nodes: Nodes) -> None:
        hold(nodes, 7)
        tell(nodes["b"], batch(7, S=6))

        async def older(body: bytes, headers: Mapping[str, str]) -> Response:
            error = TokenRefused("the session token names 'S', which is no table of Standpipe")
            return Response(error.status, {}, msgspec.json.encode(error.body()))

        nodes["a"].peer_lane = older  # type: ignore[method-assign]
        rows, found = await read(nodes["c"], ONE, wrote(6))
        assert len(rows) == 1
        assert found is not None
        nodes["b"].peer_lane = older  # type: ignore[method-assign]
        with pytest.raises(NoReplica, match="no table of Standpipe"):
            await read(nodes["c"], ONE, wrote(6))

    run(tmp_path, story)


def test_which_reads_wait_for_the_same() -> None:
    """Of those, a page is due first for the one that arrived first."""
    tokens = SessionTokens()
    nothing = CoveredFiles(Path())

    def waits_for(text: str, arrived_ms: int = 1) -> object:
        known = tokens.of(text, USERS, "c", nothing)
        return SessionRead(known, arrived_ms).waits_for

    assert waits_for(token(7)) == waits_for(token(7), arrived_ms=2)
    assert waits_for(token(7)) != waits_for(token(8))
    assert waits_for(token(7)) != waits_for(token(7, 2)), "another lease epoch"
    both = [
        SessionToken.parse(token(7)).merged(SessionToken.parse(wrote(end))).text() for end in (5, 6)
    ]
    assert waits_for(both[0]) == waits_for(both[0], arrived_ms=2)
    assert len({waits_for(each) for each in (token(7), *both)}) == 3
