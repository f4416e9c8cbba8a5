"""Pull queries at workers of several nodes: how fresh an answer says it is, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.unit.node.workers import KEYS, USERS, Worker, body_of, page, select

from standpipe.adapters.http.peer_client import Response
from standpipe.control.routing import route
from standpipe.data.encoding.store_keys import partition_of
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query.pull import lookup_keys
from standpipe.errors import (
    BadRequest,
    NoReplica,
    NotComputable,
    NotReady,
    StandpipeError,
    TooManyRequests,
)
from standpipe.freshness import END_HEADER
from standpipe.model import NO_BATCH, BatchId, ReplicaState, ReplicaStatus, Source
from standpipe.node.worker.pull import own_rows
from standpipe.node.worker.pull.forward_headers import (
    EPOCH_HEADER,
    FORWARDED_HEADER,
    PARTITION_HEADER,
    TABLE_HEADER,
    RequestFormat,
)
from standpipe.node.worker.pull.refusals import Unanswered
from standpipe.node.worker.pull.slow_path import SlowPath
from standpipe.node.worker.request.answer_budget import AnswerBudget
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.node.worker.request.wait_limits import COSTLY_WAITERS_MAX
from standpipe.session_token import LEVEL_PROPERTY

Nodes = dict[str, Worker]
Story = Callable[[Nodes], Coroutine[Any, Any, None]]
ONE = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
LAG = "standpipe-offset-lag"
LONG_ROWS = "SELECT RPAD(ID, 300000, 'x') AS X FROM USERS;"
LONG_LISTS = "REDUCE(GENERATE_SERIES(1, 494554), 0, (s, x) => s + x * x)"
ALL = ", ".join(f"'{key}'" for key in KEYS.values())
DEFAULTS: dict[str, Any] = route.route.__kwdefaults__ or {}
BOOTSTRAP = ReplicaState.BOOTSTRAP


@asynccontextmanager
async def cluster(folder: Path, placed: dict[int, list[str]]) -> AsyncIterator[Nodes]:
    nodes: Nodes = {}
    for name in ("a", "b", "c"):
        nodes[name] = Worker(folder, name, nodes)
        nodes[name].publish(["a", "b", "c"], placed)
    try:
        yield nodes
    finally:
        for node in nodes.values():
            await node.close()


def run(folder: Path, story: Story, placed: dict[int, list[str]] | None = None) -> None:
    async def whole() -> None:
        async with cluster(folder, placed or {0: ["a", "b"]}) as nodes, asyncio.timeout(60):
            await story(nodes)

    asyncio.run(whole())


def fast_lag(worker: Worker) -> str | None:
    answer = worker.fast(ONE)
    assert answer is not None
    head = dict(line.split(": ", 1) for line in answer.decode().split("\r\n") if ": " in line)
    assert END_HEADER not in head, "clients have no use for it"
    return head.get(LAG)


def test_a_table_that_another_worker_has_just_acknowledged_is_known(tmp_path: Path) -> None:
    """A read at once after CREATE TABLE, on another connection, was refused: "does not exist"."""

    async def story(nodes: Nodes) -> None:
        nodes["a"].publish(["a"], {0: ["a"]}, epoch=2, source=changed(USERS, name="OTHER"))
        with pytest.raises(StandpipeError, match="`USERS` does not exist"):
            await nodes["a"].answer(ONE)
        nodes["a"].hold(0, page())
        Worker(tmp_path, "a", {}).publish(["a"], {0: ["a"]}, epoch=3)  # as control does
        assert (await nodes["a"].answer(ONE)).fresh.served_by == "a"

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("own_end", "reported_end", "lag", "why"),
    [
        (100, None, 0, "nobody told more"),
        (100, 5000, 4900, "a peer told of a batch that this node's tailer has not heard of"),
        (300, 200, 200, "it knows best itself"),
        (-1, 5000, 4900, "only the peer knows"),
        (-1, None, None, "nobody knows: no header, never 0"),
    ],
)
def test_the_header_tells_the_lag_against_the_largest_end(
    tmp_path: Path, own_end: int, reported_end: int | None, lag: int | None, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page(100, own_end))
        if reported_end is not None:
            nodes["a"].hear(("b", 0, reported_end, reported_end))
        assert (await nodes["a"].answer(ONE)).fresh.offset_lag == lag, why
        assert fast_lag(nodes["a"]) == (None if lag is None else str(lag)), why

    run(tmp_path, story)


def test_the_fast_header_follows_what_is_told(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        assert fast_lag(nodes["a"]) == "0"
        nodes["a"].hear(("b", 0, 150, 150))
        assert fast_lag(nodes["a"]) == "50"

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("lag_max", "sends_end", "why"),
    [
        (None, False, "its head is the same for each batch"),
        (10_000, True, "the target is to judge"),
    ],
)
def test_a_forwards_lag_counts_against_what_the_entry_knows(
    tmp_path: Path, lag_max: int | None, sends_end: bool, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        nodes["c"].hear(("b", 0, 5000, 5000))
        answer = await nodes["c"].answer(ONE, lag_max)
        assert (answer.fresh.served_by, answer.fresh.offset_lag) == ("a", 4900)
        (sent,) = nodes["c"].wires.sent["a"]
        assert (END_HEADER in sent) is sends_end, why

    run(tmp_path, story)


@pytest.mark.parametrize("path", ["local", "forwarded", "forwarded to an older release"])
def test_rows_between_two_batches_satisfy_no_bound(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a gap that compaction left, with a lag of 3: the superseded row of a key may be there,
    and its successor may lie any number of records behind the position."""

    async def story(nodes: Nodes) -> None:
        gap = changed(page(97, 100, ReplicaState.CATCHING_UP), batch=NO_BATCH)
        nodes["a"].hold(0, gap)
        entry = nodes["a" if path == "local" else "c"]
        assert (await entry.answer(ONE)).fresh.batch is None, "without a bound it is read"
        if path == "forwarded to an older release":  # which has no such rule
            rules = tuple(rule for rule in route.RULES if rule is not route.is_of_one_batch)
            monkeypatch.setattr(route.route, "__kwdefaults__", {**DEFAULTS, "rules": rules})
        for lag_max in (3, 1_000_000):
            if path == "local":
                assert entry.fast(ONE, lag_max) is None
            with pytest.raises(NoReplica) as refused:
                await entry.answer(ONE, lag_max)
            told: Any = refused.value.body()["standpipe"]
            assert [one["why"] for one in told["verdicts"]] == [route.BETWEEN_BATCHES]
            assert [one["node"] for one in told["verdicts"]] == ["a"]

    run(tmp_path, story, {0: ["a"]})


FORWARD = {
    FORWARDED_HEADER: "1",
    PARTITION_HEADER: "0",
    TABLE_HEADER: "T1-1",
    "accept": "application/vnd.ksqlapi.delimited.v1",
}
SCAN = "SELECT * FROM USERS;"


async def read_by(path: str, node: Worker, lag_max: int | None = None) -> dict[str, str] | None:
    """Headers of the answer by one of the paths to this node's rows; None: it is refused."""
    if "fast" in path:
        if path == "fast":
            whole = (node.fast(ONE, lag_max) or b"").decode()
        else:
            whole = node.fast_peer_lane(body_of(ONE, lag_max), FORWARD)
        head = dict(line.split(": ", 1) for line in whole.split("\r\n") if ": " in line)
        return head or None
    response = await node.peer_lane(body_of(SCAN if "scan" in path else ONE, lag_max), FORWARD)
    return response.headers if response.status == 200 else None


PATHS = ("fast", "fast, forwarded", "slow, forwarded", "scan, forwarded")


@pytest.mark.parametrize("path", PATHS)
def test_the_label_is_that_of_the_rows(tmp_path: Path, path: str) -> None:
    """The tailer applied batch 9 between the read of its page and the read of the row."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.hold(0, page(100, 100))
        node.hear(("b", 0, 130, 130))
        found = await read_by(path, node)
        assert found is not None
        assert (found["standpipe-batch"], found[LAG]) == ("7", "30")
        node.apply(0, position=120, batch=9, value=b"[2]")
        found = await read_by(path, node)
        assert found is not None
        assert (found["standpipe-batch"], found[LAG]) == ("9", "10")
        assert found["standpipe-source-lag-ms"] == "0", "of the same transaction, too"

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("position", "batch", "why"),
    [
        (120, NO_BATCH, "a gap put them between two batches, perhaps with foreign rows among them"),
        (90, 7, "the store was replaced, and its old file is still open"),
        (90, NO_BATCH, "both"),
    ],
)
def test_a_page_that_does_not_fit_the_rows_decides_nothing(
    tmp_path: Path, path: str, position: int, batch: int, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.hold(0, page(100, 100))
        node.apply(0, position=position, batch=batch)
        for lag_max in (None, 1_000_000):
            assert await read_by(path, node, lag_max) is None, why
        state = ReplicaState.CATCHING_UP if batch == NO_BATCH else ReplicaState.RUNNING
        node.hold(0, changed(page(position, 100, state), batch=BatchId(batch)))
        assert await read_by(path, node) is not None, "the page follows"
        is_served = await read_by(path, node, 1_000_000) is not None
        assert is_served is (batch != NO_BATCH)

    run(tmp_path, story, {0: ["a"]})


def test_the_target_tells_what_its_lag_counts_against(tmp_path: Path) -> None:
    """By both paths of the peer lane."""

    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        for sent, told in ((None, "100"), ("50", "100"), ("700", "700")):
            headers = {FORWARDED_HEADER: "1", PARTITION_HEADER: "0", TABLE_HEADER: "T1-1"}
            headers |= {} if sent is None else {END_HEADER: sent}
            headers |= {"accept": "application/vnd.ksqlapi.delimited.v1"}
            response = await nodes["a"].peer_lane(body_of(ONE), headers)
            assert response.headers[END_HEADER] == told
            assert response.headers[LAG] == str(int(told) - 100)
            fast = nodes["a"].fast_peer_lane(body_of(ONE), headers)
            assert f"\r\n{END_HEADER}: {told}\r\n" in fast
            assert f"\r\n{LAG}: {int(told) - 100}\r\n" in fast

    run(tmp_path, story)


def test_a_gathered_answer_says_no_end(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        nodes["b"].hold(1, page(90, 100))
        fresh = (await nodes["c"].answer(select(0, 1))).fresh
        assert (fresh.offset_lag, fresh.committed_end) == (10, None)

    run(tmp_path, story, {0: ["a"], 1: ["b"]})


EVERY = {0: ["a"], 1: ["b"], 2: ["a"], 3: ["b"]}


@pytest.mark.parametrize(
    ("pages", "lag_max", "error", "failed", "why"),
    [
        ({1: page(end=500), 2: page(end=700)}, 10, NoReplica, [1, 2], "two are too stale"),
        (
            {2: page(state=BOOTSTRAP), 3: page(end=500)},
            10,
            NotReady,
            [2, 3],
            "not ready first",
        ),
        ({0: page(state=BOOTSTRAP)}, None, NotReady, [0], "one alone"),
        ({0: page(end=500)}, 10, NoReplica, [0], "one alone"),
    ],
)
def test_an_error_tells_of_every_partition_that_failed(
    tmp_path: Path,
    pages: dict[int, ReplicaStatus],
    lag_max: int | None,
    error: type[StandpipeError],
    failed: list[int],
    why: str,
) -> None:
    async def story(nodes: Nodes) -> None:
        for number, (holder,) in EVERY.items():
            nodes[holder].hold(number, pages.get(number, page()))
        for entry in nodes.values():
            with pytest.raises(error) as refused:
                await entry.answer(select(0, 1, 2, 3), lag_max)
            told: Any = refused.value.body()["standpipe"]
            assert told["partitions"] == failed, why
            tried = [(one["partition"], one["node"]) for one in told["verdicts"]]
            assert tried == [(number, EVERY[number][0]) for number in failed], why
            assert len(asyncio.all_tasks()) == 1, "nothing goes on behind the answer"

    run(tmp_path, story, EVERY)


def test_who_goes_away_calls_off_what_was_asked(tmp_path: Path) -> None:
    """Of several partitions: no part is waited for by anybody."""

    async def story(nodes: Nodes) -> None:
        asked, ended = asyncio.Event(), [0]

        async def never(address: str, target: str, **terms: object) -> Response:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended[0] += 1
            raise AssertionError("unreachable")

        nodes["c"].wires.request = never  # pyright: ignore[reportAttributeAccessIssue]
        reading = asyncio.create_task(nodes["c"].answer(select(0, 1, 2, 3)))
        await asked.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert len(asyncio.all_tasks()) == 5, "four forwards, and this test"
        nodes[
            "c"
        ].hedged_reads.close()  # forwards under way teach their breakers; a worker that ends
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 until all have ended
            await asyncio.sleep(0)
        assert ended == [4]

    run(tmp_path, story, EVERY)


NEXT = changed(USERS, generation=2)


@pytest.mark.parametrize(
    ("successors", "routing_timeout_ms", "tries", "why"),
    [
        ((NEXT,), 60_000, 2, "its table moves: it is tried again"),
        ((), 60_000, 1, "nothing moves"),
        ((changed(NEXT, name="OTHER"),), 60_000, 1, "another table moves"),
        ((NEXT,), 50, 1, "its time is over before the next try"),
    ],
)
def test_a_read_is_tried_again_while_its_table_moves(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    successors: tuple[Source, ...],
    routing_timeout_ms: int,
    tries: int,
    why: str,
) -> None:
    """The stores of the old generation are gone at the nodes that have moved, and their workers do
    not know it yet: nobody is ready. After the first try, all know."""
    seen: list[int] = []
    part = SlowPath._part

    async def story(nodes: Nodes) -> None:
        names, placed = list(nodes), {0: ["b", "c"]}
        for node in nodes.values():
            node.publish(names, placed, epoch=2, successors=successors)

        async def move_after(self: SlowPath, query: Any, partition: int) -> Any:
            seen.append(partition)
            try:
                return await part(self, query, partition)
            finally:
                for name, node in nodes.items():
                    if name != "a":
                        node.hold(0, page(), generation=2)
                    node.publish(names, placed, epoch=3, source=NEXT)

        monkeypatch.setattr(SlowPath, "_part", move_after)
        # the map knows of a move for a while: this is about what it knew when the try failed
        moving = nodes["a"].slow_path.map.moving_tables()
        monkeypatch.setattr(nodes["a"].slow_path.map, "moving_tables", lambda: moving)
        nodes["a"].slow_path.routing_timeout_ms = routing_timeout_ms
        if tries > 1:
            assert (await nodes["a"].answer(ONE)).fresh.served_by in ("b", "c"), why
        else:
            with pytest.raises((NotReady, NoReplica)):
                await nodes["a"].answer(ONE)
        assert len(seen) == tries, why

    run(tmp_path, story)


def test_a_fault_in_one_partition_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        async def broken(self: SlowPath, query: Any, partition: int) -> Any:
            raise ZeroDivisionError if partition == 2 else Unanswered(USERS, [])

        monkeypatch.setattr(SlowPath, "_part", broken)
        with pytest.raises(ZeroDivisionError):
            await nodes["c"].answer(select(0, 1, 2, 3))

    run(tmp_path, story, EVERY)


@pytest.mark.parametrize(
    ("terms", "epoch", "told", "why"),
    [
        ({}, 1, {}, "it holds the replica and answers"),
        ({}, 0, {}, "it answers a sender with an older map all the same"),
        ({}, 9, {}, "and one with a newer map"),
        ({TABLE_HEADER: "T1-2"}, 1, {"replicas": [], "assignment_epoch": 1}, "another generation"),
        (
            {PARTITION_HEADER: "3"},
            1,
            {"replicas": ["b"], "assignment_epoch": 1},
            "other partition",
        ),
    ],
)
def test_the_target_and_the_senders_map(
    tmp_path: Path, terms: dict[str, str], epoch: int, told: dict[str, object], why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        headers = {
            "accept": "application/vnd.ksqlapi.delimited.v1",
            FORWARDED_HEADER: "1",
            PARTITION_HEADER: "0",
            TABLE_HEADER: "T1-1",
            EPOCH_HEADER: str(epoch),
            **terms,
        }
        response = await nodes["a"].peer_lane(body_of(ONE), headers)
        assert response.status == (503 if told else 200), why
        said = json.loads(response.body)["standpipe"] if told else {}
        assert {name: said[name] for name in told} == told, why
        assert bool(nodes["a"].fast_peer_lane(body_of(ONE), headers)) is not bool(told), why

    run(tmp_path, story, {0: ["a"], 3: ["b"]})


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (None, "NOT_OWNER: the replica was moved"),
        (BOOTSTRAP, "it holds it again, from its start: not ready, and its map is newer"),
    ],
)
def test_a_sender_with_an_older_map_learns_the_newer_one(
    tmp_path: Path, state: ReplicaState | None, why: str
) -> None:
    """c knows of no replica but a's."""

    async def story(nodes: Nodes) -> None:
        now = ["b"] if state is None else ["a", "b"]
        for name in ("a", "b"):
            nodes[name].publish(["a", "b", "c"], {0: now}, epoch=2)
        if state is not None:
            nodes["a"].hold(0, page(state=state))
        nodes["b"].hold(0, page())
        answer = await nodes["c"].answer(ONE)
        assert answer.fresh.served_by == "b", why
        assert [len(sent) for sent in nodes["c"].wires.sent.values()] == [1, 1]

    run(tmp_path, story, {0: ["a"]})


def test_between_two_lookups_of_many_keys_the_loop_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of keys take a millisecond, and fifty clients ask at once."""
    looked_up = 0

    def counted(*arguments: Any) -> list[bytes]:
        nonlocal looked_up
        looked_up += 1
        return lookup_keys(*arguments)

    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        monkeypatch.setattr(own_rows, "lookup_keys", counted)
        others = [f"x{n}" for n in range(400) if partition_of(f"x{n}".encode(), 4) == 0]
        keys = ", ".join(f"'{key}'" for key in (KEYS[0], *others))
        asked = [
            asyncio.create_task(nodes["a"].answer(f"SELECT * FROM USERS WHERE ID IN ({keys});"))
            for _ in range(20)
        ]
        seen = [0]
        while not all(task.done() for task in asked):
            await asyncio.sleep(0)
            seen.append(looked_up)
        assert looked_up == len(asked)
        assert max(after - before for before, after in pairwise(seen)) == 1
        assert all(b'["' + KEYS[0].encode() in task.result().body for task in asked)

    run(tmp_path, story)


def test_reads_that_wait_for_costly_rows_are_bounded(tmp_path: Path) -> None:
    """They wait for one thread, and each holds its rows meanwhile. Lookups pass them."""
    computes = threading.Event()

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.hold(0, page())
        node.slow_path.scans.beside.submit(computes.wait)
        budget = AnswerBudget()
        requester = ScanRequester(budget=budget)
        costly = body_of(f"SELECT LPAD(ID, 9, 'x') FROM USERS WHERE ID = '{KEYS[0]}';")
        waiting = [
            asyncio.create_task(node.slow_path.answer(RequestFormat(Form.LINES), costly, requester))
            for _ in range(COSTLY_WAITERS_MAX)
        ]
        while node.slow_path.limits.costly_rows.count < COSTLY_WAITERS_MAX:  # noqa: ASYNC110 no event tells it
            await asyncio.sleep(0)
        with pytest.raises(TooManyRequests, match="100 reads wait for rows whose computation"):
            await node.slow_path.answer(RequestFormat(Form.LINES), costly)
        assert b"[" in (await node.answer(ONE)).body
        held_bytes = budget.held_bytes
        computes.set()
        answers = await asyncio.gather(*waiting)
        assert len({answer.body.split(b"\n")[1] for answer in answers}) == 1
        assert held_bytes > 0, "what waits is charged"
        assert node.slow_path.limits.costly_rows.count == 0

    try:
        run(tmp_path, story)
    finally:
        computes.set()


@pytest.mark.parametrize(
    ("held", "budget_bytes", "text", "error"),
    [
        (4, 20 << 20, LONG_ROWS, BadRequest),
        (3, 1 << 30, LONG_ROWS, NotReady),
        (4, 1 << 30, f"SELECT {LONG_LISTS} AS X FROM USERS;", NotComputable),
        (4, 1 << 30, f"SELECT {LONG_LISTS} AS X FROM USERS WHERE ID IN ({ALL});", NotComputable),
    ],
    ids=["a scan midway", "whole parts beside one that failed", "computed rows", "those of keys"],
)
def test_an_error_keeps_no_rows(
    tmp_path: Path, held: int, budget_bytes: int, text: str, error: type[StandpipeError]
) -> None:
    """An error and the frames of its traceback refer to each other, so what these hold stays until
    the next collection of garbage, which a few rows of megabytes do not cause."""
    rows = {f"x{number}": pack_row(b"[1]", 5) for number in range(120)}

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(held):
            node.hold(number, page())
            own = {key: row for key, row in rows.items() if partition_of(key.encode(), 4) == number}
            node.apply(number, more=own)
        requester = ScanRequester(budget=AnswerBudget(budget_bytes))
        form = RequestFormat(Form.LINES)
        await node.answer(ONE)  # the parser has its tables from then on
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            with pytest.raises(error):
                await node.slow_path.answer(form, body_of(text), requester)
            await asyncio.sleep(0)
            kept_bytes, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
        assert peak_bytes > 15 << 20, "there were rows to keep"
        assert kept_bytes < 5 << 20

    run(tmp_path, story, {number: ["a"] for number in range(4)})


@pytest.mark.parametrize("properties", [{}, {LEVEL_PROPERTY: "snapshot"}])
def test_rows_beside_a_part_that_failed_are_charged_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    """Each try while a table moved charged for the rows of the other parts once more: the answer
    became one that takes too much memory."""
    held: list[int] = []

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(3):
            node.hold(number, page())
        slow_path, budget = node.slow_path, AnswerBudget()
        answer = slow_path._answer

        async def counted(*given: Any, **named: Any) -> Any:
            held.append(budget.held_bytes)
            if len(held) == 3:
                node.hold(3, page())
            return await answer(*given, **named)

        monkeypatch.setattr(slow_path, "_answer", counted)
        monkeypatch.setattr(slow_path.map, "moving_tables", lambda: {"USERS"})
        requester = ScanRequester(budget=budget)
        body = json.dumps(
            {"ksql": "SELECT * FROM USERS;", "streamsProperties": properties}
        ).encode()
        await slow_path.answer(RequestFormat(Form.LINES), body, requester)
        assert held == [0, 0, 0]
        assert budget.held_bytes > 0, "the answer's"

    run(tmp_path, story, {number: ["a"] for number in range(4)})
