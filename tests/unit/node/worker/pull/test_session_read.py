"""Reads at level `session` by every path to a row: local, forwarded, many keys, scans.

Real stores, pages and workers of three nodes in one process; forwards without sockets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.unit.node.worker.pull.test_slow_path import Nodes, cluster
from tests.unit.node.workers import FORWARDED_MS_MAX, KEYS, USERS, Worker, page, select

from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.control.routing.route import BETWEEN_BATCHES
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.errors import BadRequest, NoReplica, StandpipeError, TokenRefused, TooManyRequests
from standpipe.freshness import LEASE_EPOCH_HEADER
from standpipe.model import (
    NO_BATCH,
    BatchId,
    LeaseEpoch,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
)
from standpipe.node.worker.pull.forward_headers import WAITS_HEADER, RequestFormat
from standpipe.node.worker.pull.session_read import NO_SESSIONS
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.session_token import (
    ENABLE_PROPERTY,
    LEVEL_PROPERTY,
    TOKEN_PROPERTY,
    SeenBatch,
    SessionToken,
    TableKey,
)

Story = Callable[[Nodes], Coroutine[Any, Any, None]]
ONE = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
SCAN = "SELECT * FROM USERS;"
LINES = RequestFormat(Form.LINES)
ALL = {0: ["a", "b"], 1: ["b", "a"]}


def run(folder: Path, story: Story, placed: dict[int, list[str]] | None = None) -> None:
    async def whole() -> None:
        async with cluster(folder, placed or {0: ["a", "b"]}) as nodes, asyncio.timeout(60):
            for node in nodes.values():
                node.slow_path.routing_timeout_ms = node.slow_path.scan_timeout_ms = 20_000
            await story(nodes)

    asyncio.run(whole())


def at(batch: int, epoch: int = 1, **changes: Any) -> ReplicaStatus:
    """A page that Kafka confirmed before any read arrived."""
    shown = changed(page(), batch=BatchId(batch), lease_epoch=LeaseEpoch(epoch))
    return changed(shown, **{"confirmed_boot_ms": 1, **changes})


def token(batch: int, epoch: int = 1, *, generation: int = 1, table: str = "T1") -> str:
    return SessionToken({TableKey("c", table): SeenBatch(generation, batch, epoch)}).text()


async def read(
    node: Worker, text: str, given: str | None = "", form: Form = Form.LINES
) -> tuple[list[Any], str | None]:
    """Rows, and the token of the answer."""
    properties = {} if given is None else {TOKEN_PROPERTY: given}
    return await read_with(node, text, properties, form)


async def read_with(
    node: Worker, text: str, properties: Mapping[str, object], form: Form = Form.LINES
) -> tuple[list[Any], str | None]:
    body = json.dumps({"ksql": text, "streamsProperties": properties}).encode()
    answer = await node.slow_path.answer(RequestFormat(form), body)
    whole = answer.body
    if answer.pieces is not None:
        whole = b"".join([piece async for piece in answer.pieces])
    assert answer.fresh.lease_epoch is None, "clients have no use for it"
    if form is Form.LINES:
        items = [json.loads(line) for line in whole.splitlines()[1:]]
    else:
        items = json.loads(whole)[1:]
    last = items[-1] if items and isinstance(items[-1], dict) else {}
    if "consistencyToken" not in last:
        return items, None
    found = last["consistencyToken"]
    return items[:-1], found["consistencyToken"] if form is Form.ARRAY else found


def seen_in(text: str | None) -> SeenBatch:
    assert text is not None
    (mark,) = SessionToken.parse(text).marks.values()
    return mark


@pytest.mark.parametrize("text", [ONE, SCAN, select(0, 1)])
@pytest.mark.parametrize("entry", ["a", "c"])
def test_an_answer_says_what_was_seen(tmp_path: Path, entry: str, text: str) -> None:
    async def story(nodes: Nodes) -> None:
        for name, numbers in (("a", (0, 2)), ("b", (1, 3))):
            for number in numbers:
                nodes[name].hold(number, at(7 + number, 2))
        _, found = await read(nodes[entry], text)
        newest = {ONE: 7, SCAN: 10}.get(text, 8)
        assert seen_in(found) == (1, newest, 2), "the newest batch of its parts"
        _, found = await read(nodes[entry], ONE, None)
        assert found is None, "nobody asked for one"

    run(tmp_path, story, {0: ["a"], 1: ["b"], 2: ["a"], 3: ["b"]})


@pytest.mark.parametrize("form", list(Form))
def test_the_token_in_each_layout(tmp_path: Path, form: Form) -> None:
    async def story(nodes: Nodes) -> None:
        for number in range(4):
            nodes["a"].hold(number, at(7))
        rows, found = await read(nodes["a"], ONE, token(5), form)
        assert (len(rows), seen_in(found)) == (1, (1, 7, 1))
        rows, found = await read(nodes["a"], "SELECT * FROM USERS WHERE ID = 'none';", "", form)
        assert (len(rows), seen_in(found)) == (0, (1, 7, 1)), "no row is an answer, too"

    run(tmp_path, story, {number: ["a"] for number in range(4)})


def test_the_token_of_a_large_answer(tmp_path: Path) -> None:
    """It is sent in pieces, and the token comes last."""

    async def story(nodes: Nodes) -> None:
        for number in range(4):
            nodes["a"].hold(number, at(7))
        big = {f"more-{n}": b"[%d]" % n for n in range(3000)}
        more = {key: pack_row(value, 5) for key, value in big.items()}
        nodes["a"].apply(0, batch=9, position=120, more=more)
        for form in Form:
            rows, found = await read(nodes["a"], SCAN, "", form)
            assert (len(rows), seen_in(found)) == (3004, (1, 9, 1))

    run(tmp_path, story, {number: ["a"] for number in range(4)})


@pytest.mark.parametrize("text", [ONE, SCAN, f"SELECT N FROM USERS WHERE ID = '{KEYS[0]}';"])
@pytest.mark.parametrize("entry", ["a", "c"])
def test_a_replica_that_covers_it_is_found(tmp_path: Path, entry: str, text: str) -> None:
    """The active is behind; nobody has to wait."""

    async def story(nodes: Nodes) -> None:
        for number in range(4):
            nodes["a"].hold(number, at(7))
            nodes["b"].hold(number, at(9))
            nodes["b"].apply(number, batch=9, value=b"[2]")
        rows, found = await read(nodes[entry], text, token(8))
        assert seen_in(found) == (1, 9, 1)
        assert {row[-1] for row in rows} == {2}
        rows, found = await read(nodes[entry], text, token(7))
        assert {row[-1] for row in rows} == {1}, "the active covers that"
        for worker in nodes.values():
            assert worker.slow_path.own.waits.count == 0
        sent = [head for heads in nodes[entry].wires.sent.values() for head in heads]
        assert not any(WAITS_HEADER in head for head in sent)

    run(tmp_path, story, {number: ["a", "b"] for number in range(4)})


async def waiters(nodes: Nodes, count: int) -> None:
    """Until so many wait. What the test does then is of a later ms than their arrival."""
    while sum(node.slow_path.own.waits.count for node in nodes.values()) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.002)


@pytest.mark.parametrize("text", [ONE, SCAN, select(0, 1)])
@pytest.mark.parametrize("entry", ["a", "c"])
def test_it_waits_for_a_replica_that_is_behind(tmp_path: Path, entry: str, text: str) -> None:
    async def story(nodes: Nodes) -> None:
        numbers = {ONE: [0], SCAN: [0, 1, 2, 3]}.get(text, [0, 1])
        for name in ("a", "b"):
            for number in range(4):
                nodes[name].hold(number, at(7))
        reading = asyncio.create_task(read(nodes[entry], text, token(9)))
        await waiters(nodes, 2 * len(numbers))
        for number in numbers:
            nodes["b"].hold(number, at(8))
        await asyncio.sleep(0.03)
        assert not reading.done(), "woken early"
        for number in numbers:
            nodes["b"].hold(number, at(9))
            nodes["b"].apply(number, batch=9, value=b"[2]")
        rows, found = await reading
        assert {row[-1] for row in rows} == {2}
        assert seen_in(found) == (1, 9, 1)
        await waiters(nodes, 0)

    run(tmp_path, story, {number: ["a", "b"] for number in range(4)})


def test_a_page_does_not_speak_for_the_rows(tmp_path: Path) -> None:
    """The token comes from the rows' transaction: the page is older, or the file is."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.hold(0, at(7))
        node.apply(0, batch=9, position=120, value=b"[2]")
        rows, found = await read(node, ONE, token(9))
        assert (rows, seen_in(found)) == ([[KEYS[0], 2]], (1, 9, 1))
        node.hold(0, at(9))
        node.apply(0, batch=7)  # a store that was replaced, whose old file is still open
        node.slow_path.routing_timeout_ms = 50
        with pytest.raises(NoReplica, match=r"wanted batch 9 \(lease epoch 1\), had batch 7"):
            await read(node, ONE, token(9))

    run(tmp_path, story, {0: ["a"]})


def test_a_page_that_does_not_fit_the_rows_is_waited_for(tmp_path: Path) -> None:
    """Its next version follows within milliseconds."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.hold(0, at(8))
        reading = asyncio.create_task(read(node, ONE, token(9)))
        await waiters(nodes, 1)
        shown = StatusWriter(page_path(node.paths.run, ReplicaId("T1", 1, 0)))
        node.apply(0, batch=NO_BATCH, position=130)
        shown.write(at(9, position=120))  # the rows have gone on meanwhile, into a gap
        await asyncio.sleep(0.05)
        assert not reading.done()
        node.apply(0, batch=9, position=140, value=b"[3]")
        shown.write(at(9, position=140))
        rows, found = await reading
        assert (rows, seen_in(found)) == ([[KEYS[0], 3]], (1, 9, 1))

    run(tmp_path, story, {0: ["a"]})


def test_a_refused_try_charges_nothing(tmp_path: Path) -> None:
    """Its rows are not kept: a read that waits would else fill the memory of all answers."""

    async def story(nodes: Nodes) -> None:
        node, held = nodes["a"], list[int]()
        node.hold(0, at(7))
        requester = ScanRequester()
        requester.hold = held.append  # type: ignore[method-assign]
        node.slow_path.routing_timeout_ms = 60
        body = json.dumps({"ksql": ONE, "streamsProperties": {TOKEN_PROPERTY: token(9)}}).encode()
        with pytest.raises(NoReplica):
            await node.slow_path.answer(LINES, body, requester)
        assert held == []

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize("entry", ["a", "c"])
@pytest.mark.parametrize(
    ("shown", "wanted", "said"),
    [
        (at(7), token(9), "Level session: wanted batch 9 (lease epoch 1), had batch 7"),
        (at(9, 1), token(9, 2), "wanted batch 9 (lease epoch 2), had batch 9 (lease epoch 1)"),
        (at(7), token(3, 1, generation=0), ""),
        (changed(at(7, state=ReplicaState.CATCHING_UP), batch=NO_BATCH), "", "between two batches"),
    ],
)
def test_out_of_time(
    tmp_path: Path, entry: str, shown: ReplicaStatus, wanted: str, said: str
) -> None:
    async def story(nodes: Nodes) -> None:
        for name in ("a", "b"):
            nodes[name].hold(0, shown)
        nodes[entry].slow_path.routing_timeout_ms = FORWARDED_MS_MAX
        if not said:
            with pytest.raises(TokenRefused):
                await read(nodes[entry], ONE, wanted)
            return
        with pytest.raises(NoReplica) as failed:
            await read(nodes[entry], ONE, wanted)
        told: Any = failed.value.body()["standpipe"]
        assert [one["node"] for one in told["verdicts"]] == ["a", "b"]
        assert all(said in one["why"] for one in told["verdicts"])
        assert BETWEEN_BATCHES not in failed.value.message
        await waiters(nodes, 0)
        rows, _ = await read(nodes[entry], ONE, None)
        assert len(rows) == 1, "level eventual still answers"

    run(tmp_path, story)


@pytest.mark.parametrize("entry", ["a", "c"])
def test_a_token_ahead_of_all_is_refused_once_kafka_says_so(tmp_path: Path, entry: str) -> None:
    """Not before: an end that was asked for earlier proves nothing."""

    async def story(nodes: Nodes) -> None:
        for name in ("a", "b"):
            nodes[name].hold(0, at(7))
        reading = asyncio.create_task(read(nodes[entry], ONE, token(10**9)))
        await waiters(nodes, 2)
        confirm(nodes["a"], 0, at(7))
        await waiters(nodes, 1)
        assert not reading.done(), "the other replica may know more"
        confirm(nodes["b"], 0, at(7))
        with pytest.raises(TokenRefused, match="Kafka had nothing newer after the read arrived"):
            await reading

    run(tmp_path, story)


def confirm(node: Worker, number: int, shown: ReplicaStatus) -> None:
    node.hold(number, changed(shown, confirmed_boot_ms=node.clock.boot_ms()))


@pytest.mark.parametrize("entry", ["a", "c"])
def test_lost_commits_are_told_at_once(tmp_path: Path, entry: str) -> None:
    async def story(nodes: Nodes) -> None:
        for name in ("a", "b"):
            nodes[name].hold(0, at(8, 2))
        with pytest.raises(TokenRefused, match="DATA_LOSS"):
            await read(nodes[entry], ONE, token(9, 1))
        nodes["b"].hold(0, at(9, 2))
        assert seen_in((await read(nodes[entry], ONE, token(9, 1)))[1]) == (1, 9, 2)

    run(tmp_path, story)


@pytest.mark.parametrize("entry", ["a", "c"])
def test_after_create_or_replace_a_replica_must_be_current(tmp_path: Path, entry: str) -> None:
    """Generation 2's batches cannot be compared with those that the session has seen."""
    source = changed(USERS, generation=2)

    async def story(nodes: Nodes) -> None:
        for node in nodes.values():
            node.publish(["a", "b", "c"], {0: ["a", "b"]}, epoch=2, source=source)
        for name in ("a", "b"):
            nodes[name].hold(0, at(1, 5), generation=2)
        reading = asyncio.create_task(read(nodes[entry], ONE, token(900, 4)))
        await waiters(nodes, 2)
        nodes["b"].hold(0, at(2, 5), generation=2)
        await asyncio.sleep(0.03)
        assert not reading.done(), "newer, but perhaps not past the switch"
        await asyncio.sleep(0.002)
        now_ms = nodes["b"].clock.boot_ms()
        nodes["b"].hold(0, at(3, 5, confirmed_boot_ms=now_ms), generation=2)
        _, found = await reading
        assert seen_in(found) == (2, 3, 5)
        _, found = await read(nodes[entry], ONE, found)
        assert seen_in(found) == (2, 3, 5), "from then on its batches count"

    run(tmp_path, story)


def test_a_node_with_an_older_map_refuses(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, at(7))
        with pytest.raises(NoReplica, match="this node's map has generation 1"):
            await read(nodes["a"], ONE, token(1, generation=2))

    run(tmp_path, story)


def test_a_target_of_an_older_release_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ignores the token, answers, and names no lease epoch."""

    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, at(7))
        nodes["b"].hold(0, at(9))
        ask = nodes["a"].peer_lane

        async def older(body: bytes, headers: Mapping[str, str]) -> Any:
            plain = json.loads(body)
            plain["streamsProperties"].pop(TOKEN_PROPERTY, None)
            answer = await ask(json.dumps(plain).encode(), headers)
            assert LEASE_EPOCH_HEADER not in answer.headers
            return answer

        monkeypatch.setattr(nodes["a"], "peer_lane", older)
        _, found = await read(nodes["c"], ONE, token(3))
        assert seen_in(found) == (1, 9, 1), "the other one knows sessions"
        nodes["b"].hold(0, at(2))
        nodes["c"].slow_path.routing_timeout_ms = FORWARDED_MS_MAX
        with pytest.raises(NoReplica) as failed:
            await read(nodes["c"], ONE, token(3))
        assert NO_SESSIONS in failed.value.message
        rows, _ = await read(nodes["c"], ONE, None)
        assert rows, "and serves reads without a token"

    run(tmp_path, story)


def test_a_target_that_answers_with_older_rows_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, at(7))
        ask = nodes["a"].peer_lane

        async def careless(body: bytes, headers: Mapping[str, str]) -> Any:
            plain = json.loads(body)
            plain["streamsProperties"][TOKEN_PROPERTY] = ""
            return await ask(json.dumps(plain).encode(), headers)

        monkeypatch.setattr(nodes["a"], "peer_lane", careless)
        nodes["c"].slow_path.routing_timeout_ms = FORWARDED_MS_MAX
        with pytest.raises(NoReplica, match="wanted batch 9"):
            await read(nodes["c"], ONE, token(9))

    run(tmp_path, story, {0: ["a"]})


def test_too_many_waiters(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, at(7))
        nodes["a"].slow_path.limits.session.waiters_max = 1
        first = asyncio.create_task(read(nodes["a"], ONE, token(9)))
        await waiters(nodes, 1)
        with pytest.raises(TooManyRequests):
            await read(nodes["a"], ONE, token(9))
        assert (await read(nodes["a"], ONE, token(7)))[0], "who need not wait is served"
        nodes["a"].hold(0, at(9))
        assert (await first)[0]

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize(
    ("properties", "has_token", "why"),
    [
        ({TOKEN_PROPERTY: ""}, True, "a first read"),
        ({ENABLE_PROPERTY: True}, True, "ksqlDB's switch"),
        ({ENABLE_PROPERTY: "true"}, True, "as ksqlDB's clients send it"),
        ({LEVEL_PROPERTY: "session"}, True, "ours"),
        ({LEVEL_PROPERTY: "eventual"}, False, "as without"),
        ({ENABLE_PROPERTY: "false"}, False, "as without"),
        ({LEVEL_PROPERTY: "session", TOKEN_PROPERTY: token(7)}, True, "both"),
    ],
)
def test_how_it_is_asked_for(
    tmp_path: Path, properties: dict[str, object], has_token: bool, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, at(7))
        _, found = await read_with(nodes["a"], ONE, properties)
        assert (found is not None) is has_token, why
        body = json.dumps({"ksql": ONE, "requestProperties": properties}).encode()
        answer = await nodes["a"].slow_path.answer(LINES, body)
        assert (b"consistencyToken" in answer.body) is has_token, why

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("properties", "error", "why"),
    [
        ({TOKEN_PROPERTY: "%"}, TokenRefused, "no token"),
        ({TOKEN_PROPERTY: None}, TokenRefused, "no text"),
        ({LEVEL_PROPERTY: "linear"}, BadRequest, "no level"),
        ({LEVEL_PROPERTY: "eventual", TOKEN_PROPERTY: ""}, BadRequest, "a contradiction"),
        ({ENABLE_PROPERTY: "false", TOKEN_PROPERTY: ""}, BadRequest, "a contradiction"),
        ({ENABLE_PROPERTY: "yes"}, BadRequest, "neither true nor false"),
        ({"standpipe.read.consistancy": "session"}, BadRequest, "misspelt"),
    ],
)
def test_what_is_not_understood_is_refused(
    tmp_path: Path, properties: dict[str, object], error: type[StandpipeError], why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, at(7))
        with pytest.raises(error) as refused:
            await read_with(nodes["a"], ONE, properties)
        assert refused.value.status == 400, why

    run(tmp_path, story)


def body_with(text: str, given: str | None) -> bytes:
    properties = {} if given is None else {TOKEN_PROPERTY: given}
    return json.dumps({"ksql": text, "streamsProperties": properties}).encode()


MANY = select(0, 1)
FORWARD = {
    "standpipe-forwarded": "1",
    "standpipe-partition": "0",
    "standpipe-table": "T1-1",
    "accept": "application/vnd.ksqlapi.delimited.v1",
}


@pytest.mark.parametrize("text", [ONE, MANY])
@pytest.mark.parametrize(
    ("given", "is_answered", "why"),
    [
        ("", True, "a first read"),
        (token(7), True, "covered"),
        (token(8), False, "not yet: the slow path waits"),
        (token(7, 2), False, "of a later lease epoch"),
        (token(1, generation=2), False, "an older map: the slow path says so"),
        ("%", False, "no token: the slow path says so"),
        (token(7, table="ELSE_4"), True, "of another table"),
    ],
)
def test_the_fast_path(tmp_path: Path, text: str, given: str, is_answered: bool, why: str) -> None:
    """It answers as the slow path does, or leaves the read to it."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in (0, 1):
            node.hold(number, at(7))
        node.slow_path.map.view.plans.plan(text, {})
        for form in Form:
            found = node.fast_path().answer(RequestFormat(form), body_with(text, given))
            assert (found is not None) is is_answered, why
            if found is None:
                continue
            answer = await node.slow_path.answer(RequestFormat(form), body_with(text, given))
            _, _, content = found.partition(b"\r\n\r\n")
            assert without_id(content) == without_id(answer.body)
            assert b"consistencyToken" in content
        plain = node.fast_path().answer(LINES, body_with(text, None))
        assert plain is not None
        assert b"consistencyToken" not in plain
        assert LEASE_EPOCH_HEADER.encode() not in plain
        assert not node.metrics.counts["standpipe_pull_fast_path_faults"]

    run(tmp_path, story, {0: ["a"], 1: ["a"]})


def without_id(body: bytes) -> bytes:
    head, mark, rest = body.partition(b'"query_')
    return head + mark + rest.lstrip(b"0123456789")


@pytest.mark.parametrize("text", [ONE, MANY])
def test_a_peers_read_by_the_fast_path(tmp_path: Path, text: str) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in (0, 1):
            node.hold(number, at(7, 3))
        node.slow_path.map.view.plans.plan(text, {})
        fast = node.fast_peer_lane(body_with(text, token(7, 3)), FORWARD)
        assert f"\r\n{LEASE_EPOCH_HEADER}: 3\r\n" in fast
        assert "consistencyToken" not in fast, "the node that was asked makes it"
        slow = await node.peer_lane(body_with(text, token(7, 3)), FORWARD)
        assert slow.headers[LEASE_EPOCH_HEADER] == "3"
        assert b"consistencyToken" not in slow.body
        assert not node.fast_peer_lane(body_with(text, token(8, 3)), FORWARD)
        assert LEASE_EPOCH_HEADER not in node.fast_peer_lane(body_with(text, None), FORWARD)

    run(tmp_path, story, {0: ["a"], 1: ["a"]})


def test_rows_of_no_batch_by_the_fast_path(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        gap = changed(at(7, state=ReplicaState.CATCHING_UP), batch=NO_BATCH)
        nodes["a"].hold(0, gap)
        assert nodes["a"].fast(ONE) is not None, "level eventual"
        assert nodes["a"].fast_path().answer(LINES, body_with(ONE, "")) is None

    run(tmp_path, story, {0: ["a"]})


def test_a_fast_answer_is_of_the_rows_transaction(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.hold(0, at(7))
        node.apply(0, batch=9, position=120, value=b"[2]")
        found = node.fast_path().answer(LINES, body_with(ONE, token(8)))
        assert found is not None
        assert b",2]" in found
        last = json.loads(found.splitlines()[-1])
        assert seen_in(last["consistencyToken"]) == (1, 9, 1)

    run(tmp_path, story, {0: ["a"]})
