"""Forwards without a task: what the slow path sends, or nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.node.worker.pull.test_fast_many import OTHERS, by_slow_path, rows_of, run
from tests.unit.node.workers import KEYS, PARTITIONS, USERS, Worker, body_of, page, peer_format

from standpipe.config import lags
from standpipe.data.encoding.store_keys import partition_of
from standpipe.model import NodeId, Offset, ReplicaState, Source
from standpipe.node.worker.pull import fast_forward, fast_path
from standpipe.node.worker.pull.fast_forward import FastForward
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


def begun(path: LookupFastPath, text: str, form: RequestFormat = LINES) -> FastForward | None:
    found = path.answer(form, body_of(text))
    assert found is None or isinstance(found, FastForward), "nothing is here"
    return found


async def ended(forward: FastForward) -> bytes | None:
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
        asked_for = list[str]()
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
            assert of_fast == {**of_slow, "accept": asked_for[-1]}, "the target sees the same head"
        # the first with a frame, and the second, which is learnt; then the client's own layout
        first = [Form.LINES.value.decode()] * 2
        assert asked_for[: len(KEYS)] == first + [known.form.value.decode()] * (len(KEYS) - 2)
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
        path.forwards.refused(USERS.replica_id(0), -fast_forward.REFUSED_S)
        found = begun(path, text)
        assert found is not None, "not for ever"
        assert await ended(found) is None
        path.forwards._refused.clear()
        nodes["a"].forwarder._failed(path.map.view.nodes[NodeId("b")])
        assert begun(path, text) is None, "the path has failed, and was not tried since"
        nodes["a"].forwarder.answered("b", None)
        assert begun(path, text) is not None
        del nodes["b"]
        assert begun(path, text) is None, "nobody is there"

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
        node.hedged_reads.latency.slow_ms = 5
        path = node.forwarding_path()
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


# ----------------------------------------------------------------- in known frames


def message_for(key: str) -> bytes:
    body = body_of(one(key))
    return b"POST /query HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def knowing(path: LookupFastPath, form: RequestFormat = LINES) -> None:
    """It has forwarded two messages like the others."""
    message = message_for(OTHERS[0])
    head_bytes = message.index(b"\r\n\r\n") + 4
    for _ in range(2):
        found = path.answer(form, message[head_bytes:])
        assert isinstance(found, FastForward)
        assert await ended(found)
    assert path.learn_message(form, message, head_bytes)


def known(path: LookupFastPath, key: str) -> FastForward:
    found = path.answer_message(message_for(key))
    assert isinstance(found, FastForward)
    return found


def test_known_messages_are_forwarded_without_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.forwarding_path()
        await knowing(path)
        monkeypatch.setattr(fast_path, "parse_lookup", None)
        for key in OTHERS[:10]:
            slow = await by_slow_path(
                node, LINES, {"accept": LINES.form.value.decode()}, body_of(one(key))
            )
            assert same_id(await ended(known(path, key))) == same_id(slow)
        assert not node.metrics.counts["standpipe_pull_fast_path_faults"]

    run(tmp_path, story, THERE)


def test_they_follow_the_map(tmp_path: Path) -> None:
    """To another node, and back to this one once it has a replica."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.forwarding_path()
        await knowing(path)
        node.publish(["a", "b", "c"], {number: ["c"] for number in range(PARTITIONS)}, epoch=2)
        answer = await ended(known(path, OTHERS[1]))
        assert answer is not None
        assert b"standpipe-served-by: c\r\n" in answer
        node.publish(["a", "b", "c"], {number: ["a", "c"] for number in range(PARTITIONS)}, epoch=3)
        assert isinstance(path.answer_message(message_for(OTHERS[1])), bytes)

    run(tmp_path, story, {**THERE, 0: ["b", "c"]})


def test_they_leave_a_failed_path_and_a_refused_partition(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.forwarding_path()
        await knowing(path)
        node.forwarder._failed(path.map.view.nodes[NodeId("b")])
        assert path.answer_message(message_for(OTHERS[1])) is None
        node.forwarder.answered("b", None)
        nodes["b"].publish(["a", "b"], {0: ["c"]}, epoch=2, source=OTHER)
        assert await ended(known(path, OTHERS[1])) is None, "the target has another table"
        assert path.answer_message(message_for(OTHERS[1])) is None

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
            answer = await ended(known(path, "x1"))
            assert answer is not None
            assert b"standpipe-offset-lag: %d\r\n" % lag in answer

    run(tmp_path, story, THERE)


@pytest.mark.parametrize(
    ("head", "body", "why"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", b"[]", "another layout"),
        (b"HTTP/1.1 500 Oh\r\ncontent-type: text/plain\r\n", b"", "a fault"),
    ],
)
def test_what_is_no_answer_is_left_to_the_slow_path(
    tmp_path: Path, head: bytes, body: bytes, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        found, got = known(path, OTHERS[1]), list[bytes | None]()
        found.then(got.append)
        found.answered(head + b"content-length: %d\r\n" % len(body), body)
        assert got == [None], why

    run(tmp_path, story, THERE)


def test_a_fault_of_this_program_leaves_no_client_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].forwarding_path()
        await knowing(path)
        found, got = known(path, OTHERS[1]), list[bytes | None]()
        found.then(got.append)
        monkeypatch.setattr(FastForward, "_answer", None)
        with pytest.raises(TypeError):
            found.answered(b"HTTP/1.1 200 OK\r\n", b"")
        assert got == [None]

    run(tmp_path, story, THERE)
