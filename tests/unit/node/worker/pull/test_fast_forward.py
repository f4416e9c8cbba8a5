"""Forwards without a task: what the slow path sends, or nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.node.worker.pull.test_fast_many import OTHERS, by_slow_path, rows_of, run
from tests.unit.node.workers import KEYS, PARTITIONS, USERS, Worker, body_of, page, peer_format

from standpipe.adapters.http.fast_path import Awaited
from standpipe.config import lags
from standpipe.model import NodeId, ReplicaState, Source
from standpipe.node.worker.pull import fast_forward
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.request.head import Form
from standpipe.session_token import LEVEL_PROPERTY

Nodes = dict[str, Worker]
#: the other node has all rows
THERE = {number: ["b"] for number in range(PARTITIONS)}
LINES = RequestFormat(Form.LINES)
OTHER: Source = replace(USERS, table_id="T2")


def one(key: str, columns: str = "*", more: str = ";") -> str:
    return f"SELECT {columns} FROM USERS WHERE ID = '" + key.replace("'", "''") + f"'{more}"


def begun(path: LookupFastPath, text: str, form: RequestFormat = LINES) -> Awaited | None:
    found = path.answer(form, body_of(text))
    assert not isinstance(found, bytes), "nothing is here"
    return found


async def ended(forward: Awaited) -> bytes | None:
    answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    forward.then(answer.set_result)
    return await answer


async def until(took: list[float]) -> None:
    """The target has answered."""
    while not took:  # noqa: ASYNC110 what tells it is called by the loop
        await asyncio.sleep(0)


def same_id(answer: bytes | None) -> str:
    """Without the query's id, which is the time."""
    assert answer is not None
    head, _, tail = answer.decode().partition("query_")
    return head + tail.lstrip("0123456789")


@pytest.mark.parametrize("form", list(Form))
def test_both_ways_send_the_same(tmp_path: Path, form: Form) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, known = node.forwarding_path(), peer_format({"accept": form.value.decode()})
        asked_for, packs = list[str](), 0
        for key in (*KEYS.values(), *OTHERS, "nobody"):
            slow = await by_slow_path(
                node, known, {"accept": form.value.decode()}, body_of(one(key))
            )
            before = node.wires.fast_count
            found = begun(path, one(key), known)
            assert found is not None
            assert same_id(await ended(found)) == same_id(slow), key
            assert node.wires.fast_count == before + 1
            of_slow, of_fast = node.wires.sent["b"][-2:]
            for one_way in (of_fast, of_slow):  # the slow path counts what is left of its time
                assert 0 < int(one_way.pop("standpipe-deadline-ms")) <= 20_000
            of_fast.pop("host"), of_fast.pop("content-length")
            asked_for.append(of_fast["accept"])
            assert of_slow["accept"] == Form.LINES.value.decode()
            if len(nodes["b"].packs) > packs:  # which says each lookup's partition in its body
                packs += 1
                of_slow.pop("standpipe-partition")
            assert of_fast == {**of_slow, "accept": asked_for[-1]}, "the target sees the same head"
        # the first with a frame, and the second, which is learnt; then the client's own layout
        first = [Form.LINES.value.decode()] * 2
        assert asked_for[: len(KEYS)] == first + [known.form.value.decode()] * (len(KEYS) - 2)
        assert packs >= len(OTHERS) // 2, "those in a frame"
        asked = len(KEYS) + len(OTHERS) + 1
        assert node.metrics.counts["standpipe_pull_forwards"] == {"answered": 2 * asked}
        assert node.metrics.counts["standpipe_pull_requests"] == {"remote": 2 * asked}

    run(tmp_path, story, THERE)


@pytest.mark.parametrize(
    ("text", "properties", "why"),
    [
        (one("k1"), {lags.LAG_MAX.name: "1"}, "a bound in records"),
        (one("k1"), {lags.REPLICA_LAG_MAX.name: "60000"}, "a bound in time"),
        (one("k1"), {LEVEL_PROPERTY: "snapshot"}, "one batch"),
        (one("k1"), {LEVEL_PROPERTY: "linearizable"}, "a barrier"),
        ("SELECT * FROM USERS WHERE ID IN ('k1', 'k2');", {}, "two keys"),
        ("SELECT * FROM USERS;", {}, "all keys"),
        (one("k1", "N" + ", N + 1" * 70), {}, "it may be what silences a peer"),
        (one("k1", more=" EMIT CHANGES;"), {}, "no pull query"),
    ],
)
def test_what_is_not_usual_takes_the_slow_path(
    tmp_path: Path, text: str, properties: dict[str, str], why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.forwarding_path()
        try:
            path.map.view.plans.plan(text, properties)
        except Exception:
            assert why == "no pull query"
        body = json.dumps({"ksql": text, "streamsProperties": properties}).encode()
        assert path.answer(LINES, body) is None, why
        assert node.wires.sent == {}
        assert not node.metrics.counts["standpipe_pull_fast_path_faults"]

    run(tmp_path, story, THERE)


def test_a_node_that_may_answer_itself_does(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        key = KEYS[0]
        assert isinstance(path.answer(LINES, body_of(one(key))), bytes)
        nodes["a"].hold(0, page(state=ReplicaState.BOOTSTRAP), more=rows_of(0))
        found = begun(path, one(key))
        assert found is not None, "not its own any more"
        assert await ended(found)

    run(tmp_path, story, {number: ["a", "b"] for number in range(PARTITIONS)})


def test_without_a_connection_or_a_map_that_fits_the_slow_path_answers(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path, text = nodes["a"].forwarding_path(), one(KEYS[0])
        nodes["b"].publish(["a", "b"], {0: ["c"]}, source=OTHER)
        found = begun(path, text)
        assert found is not None
        assert await ended(found) is None, "the target has another table"
        assert begun(path, text) is None, "the slow path would ask it again"
        assert path.forwards is not None
        path.forwards.refused.add(USERS.replica_id(0), 0, 0)
        found = begun(path, text)
        assert found is not None, "not for ever"
        assert await ended(found) is None
        path.forwards.refused.add(USERS.replica_id(0), 0, 0)
        nodes["a"].forwarder._failed(path.map.view.nodes[NodeId("b")])
        assert begun(path, text) is None, "the path has failed, and was not tried since"
        nodes["a"].forwarder.answered("b", None)
        assert begun(path, text) is not None
        del nodes["b"]
        assert begun(path, text) is None, "nobody is there"

    run(tmp_path, story, THERE)


def test_only_ways_of_the_newest_map_are_kept(tmp_path: Path) -> None:
    """Each way keeps its map: of partitions that were asked for once, a worker kept 1,024 maps."""

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        for number in range(PARTITIONS):
            nodes["a"].publish(
                ["a", "b"], {0: ["b"], 1: ["b"], 2: ["b"], 3: ["b"]}, epoch=9 + number
            )
            found = begun(path, one(KEYS[number]))
            assert found is not None
            assert await ended(found) is not None
        assert path.forwards is not None
        views = {id(way.route.view) for way in path.forwards._ways.values()}
        assert views == {id(path.map.view)}

    run(tmp_path, story, THERE)


def test_a_late_answer_is_left_to_the_slow_path_and_its_time_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        go_on, silent = asyncio.Event(), list[str]()
        peer_lane, took = nodes["b"].peer_lane, list[float]()

        async def slow(*given: object) -> object:
            await go_on.wait()
            return await peer_lane(*given)

        monkeypatch.setattr(nodes["b"], "peer_lane", slow)
        node.hedged_reads.silent = lambda peer: silent.append(peer.node_id)
        node.forwarder.took = took.append
        path = node.forwarding_path()
        node.hedged_reads.latency.slow_ms = 5
        found = begun(path, one(KEYS[0]))
        assert found is not None
        assert await ended(found) is None
        assert (silent, took) == (["b"], [])
        go_on.set()
        await until(took)
        assert took[0] >= fast_forward.LATE_WAITS * 5
        assert not node.metrics.counts["standpipe_pull_forwards"], "nobody got that answer"

    run(tmp_path, story, THERE)


def test_what_is_never_answered_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        withdrawn = asyncio.Event()

        async def never(*_: object) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                withdrawn.set()

        monkeypatch.setattr(nodes["b"], "peer_lane", never)
        path = nodes["a"].forwarding_path()
        assert path.forwards is not None
        path.forwards.timeout_ms = 5
        found = begun(path, one(KEYS[0]))
        assert found is not None
        assert await ended(found) is None
        await withdrawn.wait()

    run(tmp_path, story, THERE)


def test_a_client_that_leaves_gets_nothing(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node, took, got = nodes["a"], list[float](), list[bytes | None]()
        node.forwarder.took = took.append
        found = begun(node.forwarding_path(), one(KEYS[0]))
        assert found is not None
        found.then(got.append)
        found.leave()
        await until(took)
        assert got == []

    run(tmp_path, story, THERE)
