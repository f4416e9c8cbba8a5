"""Many keys on both paths: the same bytes, or nothing from the fast one."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.unit.node.workers import KEYS, PARTITIONS, Worker, body_of, page, peer_format, select

from standpipe.adapters.clock import Clock
from standpipe.adapters.store.folders import store_path
from standpipe.config import lags
from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import partition_of
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.errors import NoReplica
from standpipe.freshness import END_HEADER
from standpipe.model import NO_BATCH, ReplicaId, ReplicaState
from standpipe.node.worker.pull import fast_many
from standpipe.node.worker.pull.forward_headers import (
    FORWARDED_HEADER,
    PARTITION_HEADER,
    TABLE_HEADER,
    RequestFormat,
)
from standpipe.node.worker.query_endpoint import QueryEndpoint
from standpipe.node.worker.request.answer_budget import AnswerBudget
from standpipe.node.worker.request.answer_pieces import PIECE_BYTES
from standpipe.node.worker.request.head import Form

Nodes = dict[str, Worker]
Story = Callable[[Nodes], Coroutine[Any, Any, None]]
HERE = {number: ["a", "b"] for number in range(PARTITIONS)}
#: rows besides those of KEYS; the last needs a shortened key in the store
OTHERS = [*(f"x{number}" for number in range(120)), "it's", 'q"\\', "é€", "", "long" * 200]
LAG_MAX = lags.LAG_MAX.name


class StoppedClock(Clock):
    """The boot clock at one instant."""

    def __init__(self) -> None:
        self.at_ms = Clock().boot_ms()

    def boot_ms(self) -> int:
        return self.at_ms


def run(folder: Path, story: Story, placed: Mapping[int, list[str]] = HERE) -> None:
    names = sorted({"a", "b", *(name for each in placed.values() for name in each)})

    async def whole() -> None:
        nodes: Nodes = {}
        for name in names:
            nodes[name] = Worker(folder, name, nodes)
            nodes[name].clock = StoppedClock()  # ages are headers, too
            nodes[name].publish(names, dict(placed))
            for number in range(PARTITIONS):
                nodes[name].hold(number, page(), more=rows_of(number))
        try:
            async with asyncio.timeout(60):
                await story(nodes)
        finally:
            for node in nodes.values():
                await node.close()

    asyncio.run(whole())


@cache
def rows_of(number: int) -> dict[str, bytes]:
    """The stored rows of a partition. Those of the shortened key, and of another, hold it whole."""
    return {
        key: pack_row(b"[%d]" % place, 5, full_key(key))
        for place, key in enumerate(OTHERS)
        if partition_of(key.encode(), PARTITIONS) == number
    }


def full_key(key: str) -> bytes:
    return key.encode() + b"\0\1" if len(key) > 500 else b""


def listed(*names: str) -> str:
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)


def in_list(*names: str) -> str:
    return f"SELECT * FROM USERS WHERE ID IN ({listed(*names)});"


async def by_slow_path(
    worker: Worker,
    form: RequestFormat,
    headers: Mapping[str, str],
    body: bytes,
    answers: AnswerBudget | None = None,
) -> bytes:
    """What the listener sends on the slow path, with the head as the fast path writes it."""
    sent: list[dict[str, Any]] = []

    whole = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not whole:
            await asyncio.Event().wait()  # the client stays
        return whole.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    is_peer = form.forward is not None
    endpoint = QueryEndpoint(worker.slow_path, 1_000_000, is_peer, answers or AnswerBudget())
    scope = {"type": "http", "path": "/query", "headers": lines}
    await endpoint(scope, receive, send)
    start, *parts = sent
    head = b"".join(b"%b: %b\r\n" % pair for pair in start["headers"])
    return b"HTTP/1.1 %d OK\r\n%b\r\n%b" % (
        start["status"],
        head,
        b"".join(part["body"] for part in parts),
    )


def same_id(answer: bytes) -> bytes:
    """With the digits of its query's id, which are the time, cut out; the length is theirs, too."""
    return re.sub(rb"query_\d+", b"query_", answer)


async def both(
    worker: Worker,
    text: str,
    *,
    form: Form = Form.LINES,
    lag_max: int | None = None,
    forward: Mapping[str, str] | None = None,
) -> tuple[bytes, bytes | None]:
    """Of the slow path, and of the fast one after it, when the shape is known."""
    headers = {"accept": form.value.decode(), **(forward or {})}
    known = peer_format(headers)
    body = body_of(text, lag_max)
    slow = await by_slow_path(worker, known, headers, body)
    fast = worker.fast_path(is_peer=forward is not None).answer(known, body)
    assert dict(worker.metrics.counts["standpipe_pull_fast_path_faults"]) == {}
    return same_id(slow), None if fast is None else same_id(fast)


TEXTS = [
    (select(0, 1, 2, 3), "a key of each partition"),
    (select(3, 1), "of two"),
    (in_list(*OTHERS), "many, some of which JSON escapes, and one whose key is shortened"),
    (in_list(*OTHERS[:3], *OTHERS[:3]), "named twice"),
    (in_list("nobody", "else"), "without a row"),
    (in_list("nobody", OTHERS[5], "x9999"), "some without a row"),
    (in_list("a\0b", OTHERS[5]), "with a null character"),
    (f"SELECT N, ID FROM USERS WHERE ID IN ({listed(*OTHERS)});", "columns"),
    (f"SELECT ROWTIME, ID FROM USERS WHERE ID IN ({listed('x1', 'x2')});", "and ROWTIME"),
    (f"SELECT * FROM USERS WHERE ID IN ({listed('x1', 'x2', 'x3')}) LIMIT 2;", "a limit"),
    (f"SELECT * FROM USERS WHERE ID IN ({listed('x1', 'x2')}) LIMIT 0;", "of none"),
    (f"select * from USERS where ID in ({listed('x1', 'x2')})", "in other words"),
]


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("form", list(Form))
def test_both_paths_send_the_same(
    tmp_path: Path, form: Form, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        for text, why in TEXTS:
            slow, fast = await both(nodes["a"], text, form=form)
            assert slow.startswith(b"HTTP/1.1 200"), why
            assert (fast or b"").decode() == slow.decode(), why

    run(tmp_path, story)


def test_what_is_compiled_answers_as_python_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        compiled = [(await both(nodes["a"], text))[1] for text, _ in TEXTS]
        monkeypatch.setattr(native, "_native", None)
        assert [(await both(nodes["a"], text))[1] for text, _ in TEXTS] == compiled
        assert all(compiled)

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        (f"SELECT * FROM USERS WHERE ID IN ({listed('x1', 'x2')}, NULL);", 400, "a null key"),
        (f"SELECT * FROM USERS WHERE ID IN (NULL, {listed('x1', 'x2')});", 400, "the first"),
        ("SELECT * FROM USERS WHERE ID IN ('x1', NULL, 'x2');", 400, "in the middle"),
        ("SELECT * FROM USERS WHERE ID IN ('x1', 7);", 400, "a key of another type"),
        ("SELECT * FROM USERS WHERE ID IN (7, 8);", 400, "all are"),
        (in_list(*(f"x{n}" for n in range(1001))), 400, "1,001 keys"),
        (in_list(*(["x1"] * 2500)), 400, "2,500 items, though one key: more than 5,000 tokens"),
        (in_list("x1", "y" * 66_000), 400, "a text beyond what the parser reads"),
        (in_list(*(f"x{n}" for n in range(1000))), 200, "1,000 keys: in turns with others"),
        (in_list(*(["x1"] * 1500)), 200, "one key, but so often that the parser judges"),
        (f"SELECT N + 1 FROM USERS WHERE ID IN ({listed('x1', 'x2')});", 200, "computed"),
        (f"SELECT * FROM USERS WHERE ID IN ({listed('x1', 'x2')}) AND N > 0;", 200, "filtered"),
        (f"SELECT COUNT(*) FROM USERS WHERE ID IN ({listed('x1', 'x2')});", 200, "merged"),
    ],
)
def test_what_is_left_to_the_slow_path(tmp_path: Path, text: str, error: int, why: str) -> None:
    async def story(nodes: Nodes) -> None:
        slow, fast = await both(nodes["a"], in_list("x1", "x2"))
        assert fast == slow, "the shape of the list is known"
        slow, fast = await both(nodes["a"], text)
        assert slow.startswith(b"HTTP/1.1 %d" % error), slow[:600]
        assert fast is None, why

    run(tmp_path, story)


def test_as_many_keys_as_a_slice_may_read(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        for count, is_fast in ((fast_many.KEYS_MAX, True), (fast_many.KEYS_MAX + 1, False)):
            slow, fast = await both(nodes["a"], in_list(*(f"x{n}" for n in range(count))))
            assert fast == (slow if is_fast else None)

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("lag", "lag_max", "is_fast", "why"),
    [
        (5, None, True, "no bound"),
        (5, 5, True, "as many as are allowed"),
        (5, 4, False, "one more: the other replica is behind the same end"),
    ],
)
def test_the_bound_on_the_lag_holds_for_each_partition(
    tmp_path: Path, lag: int, lag_max: int | None, is_fast: bool, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.hold(1, page(100, 100 + lag))
        slow, fast = await both(node, select(0, 1, 2), lag_max=lag_max)
        assert fast == (slow if is_fast else None), why
        if is_fast:
            assert b"standpipe-offset-lag: 5\r\n" in slow
        else:
            assert slow.startswith(b"HTTP/1.1 503")
            assert b'"partitions":[1]' in slow
        assert (await both(node, select(0, 2), lag_max=lag_max))[1] is not None, "without it"

    run(tmp_path, story)


def test_the_labels_are_those_of_the_stalest_part(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.hold(1, changed(page(90, 100, ReplicaState.CATCHING_UP), batch=6))
        node.hear(("b", 2, 107, 107))
        slow, fast = await both(node, select(0, 1, 2, 3))
        assert fast == slow
        for line in ("state: CATCHING_UP", "offset-lag: 10", "batch: 6", "role: active"):
            assert f"\r\nstandpipe-{line}\r\n".encode() in slow
        node.hold(1, changed(page(90, 100, ReplicaState.CATCHING_UP), batch=NO_BATCH))
        slow, fast = await both(node, select(0, 1, 2, 3))
        assert fast == slow
        assert b"standpipe-batch" not in slow, "one part is of no batch"

    run(tmp_path, story)


def test_a_page_that_does_not_fit_the_rows_of_one_partition(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        assert (await both(node, select(0, 1)))[1] is not None
        node.apply(1, position=120, batch=NO_BATCH)
        slow, fast = await both(node, select(0, 1))
        assert fast is None
        assert b"standpipe-served-by: a, b\r\n" in slow
        assert (await both(node, select(0, 2)))[1] is not None, "the others are as they were"

    run(tmp_path, story)


def test_a_partition_without_a_live_replica(tmp_path: Path) -> None:
    """The error names that partition, and the others' rows are not an answer."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        assert (await both(node, select(0, 1)))[1] is not None
        del nodes["b"]
        node.publish(["a", "b"], {0: ["a"], 1: ["b"], 2: ["a"], 3: ["a"]}, epoch=2)
        slow, fast = await both(node, select(0, 1, 2))
        assert fast is None
        assert slow.startswith(b"HTTP/1.1 503")
        assert b'"partitions":[1]' in slow
        with pytest.raises(NoReplica):
            await node.answer(select(1, 2))
        slow, fast = await both(node, select(0, 2))
        assert fast == slow
        assert slow.startswith(b"HTTP/1.1 200")

    run(tmp_path, story)


def test_a_partition_that_moves_away(tmp_path: Path) -> None:
    """First its store is gone, while map and page still say that it is here; then the map knows."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        before, fast = await both(node, select(0, 1, 2))
        assert fast == before
        node.replicas.close()
        shutil.rmtree(store_path(node.paths.state, ReplicaId("T1", 1, 1)))
        for epoch in (1, 2):
            slow, fast = await both(node, select(0, 1, 2))
            assert fast is None
            assert b"standpipe-served-by: a, b\r\n" in slow
            assert slow.partition(b"\r\n\r\n")[2] == before.partition(b"\r\n\r\n")[2], "its rows"
            node.publish(["a", "b"], {**HERE, 1: ["b"]}, epoch=epoch + 1)

    run(tmp_path, story)


def test_a_damaged_row_is_nobodys_answer(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        key, data = next(iter(rows_of(1).items()))
        node.apply(1, more={key: data[:-2] + b"9]"})
        slow, fast = await both(node, in_list(KEYS[0], key))
        assert fast is None
        assert b"standpipe-served-by: a, b\r\n" in slow, "another replica is sound"

    run(tmp_path, story)


def test_a_large_answer_is_sent_in_pieces(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        slow, fast = await both(node, select(0, 1))
        assert fast == slow
        half = PIECE_BYTES // 2
        for number, extra, is_fast in ((0, -20, True), (1, -20, True), (1, 20, False)):
            node.apply(number, value=b'["%b"]' % (b"x" * (half + extra)))
            slow, fast = await both(node, select(0, 1))
            assert fast == (slow if is_fast else None)
            assert (b"content-length" in slow) is is_fast
            assert len(slow) > half

    run(tmp_path, story)


def test_an_answer_above_the_limit_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        value = pack_row(b'["%b"]' % (b"x" * 40_000), 5)
        names = [f"x{n}" for n in range(400) if partition_of(b"x%d" % n, PARTITIONS) == 0]
        node.apply(0, more=dict.fromkeys(names, value))
        budget = AnswerBudget(bytes_max=1_000_000)
        form = RequestFormat(Form.LINES)
        headers = {"accept": form.form.value.decode()}
        body = body_of(in_list(*names))
        answer = await by_slow_path(node, form, headers, body, budget)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"the answer would take more than 1000000 bytes" in answer
        assert node.fast_path().answer(form, body) is None
        assert budget.held_bytes == 0, "given back"

    run(tmp_path, story)


def forward_to(partition: int | None, **more: str) -> dict[str, str]:
    headers = {FORWARDED_HEADER: "1", TABLE_HEADER: "T1-1", **more}
    return headers if partition is None else {**headers, PARTITION_HEADER: str(partition)}


@pytest.mark.parametrize(
    ("headers", "is_fast", "keys", "why"),
    [
        (forward_to(1), True, [1], "one partition of the statement's keys"),
        (forward_to(1, **{END_HEADER: "140"}), True, [1], "whose end the sender knows better"),
        (forward_to(None), True, [0, 1, 2], "of all"),
        (forward_to(3), False, [], "no key is in it"),
        (forward_to(1, **{TABLE_HEADER: "T1-2"}), False, [], "another generation"),
    ],
)
def test_what_a_peer_asks_for(
    tmp_path: Path, headers: dict[str, str], is_fast: bool, keys: list[int], why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["b"]
        await node.answer(select(0, 1, 2))
        slow, fast = await both(node, select(0, 1, 2), forward=headers)
        assert fast == (slow if is_fast else None), why
        assert [n for n in range(PARTITIONS) if f'["{KEYS[n]}"'.encode() in slow] == keys

    run(tmp_path, story)


def test_a_forward_beyond_the_senders_bound_is_left(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        headers = forward_to(1, **{END_HEADER: "140"})
        for lag_max, is_fast in ((40, True), (39, False)):
            slow, fast = await both(nodes["b"], select(0, 1), lag_max=lag_max, forward=headers)
            assert fast == (slow if is_fast else None)
            assert slow.startswith(b"HTTP/1.1 200" if is_fast else b"HTTP/1.1 503")

    run(tmp_path, story)


def test_a_fault_is_counted_and_left_to_the_slow_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> list[bytes]:
        raise ZeroDivisionError

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        assert (await both(node, select(0, 1)))[1] is not None
        monkeypatch.setattr(fast_many, "lookup_keys", broken)
        assert node.fast_path().answer(RequestFormat(Form.LINES), body_of(select(0, 1))) is None
        faults = node.metrics.counts["standpipe_pull_fast_path_faults"]
        assert dict(faults) == {"ZeroDivisionError": 1}
        assert (await node.answer(select(0, 1))).body.count(b"\n") == 3

    run(tmp_path, story)
    assert "fault on the fast path" in capsys.readouterr().out
