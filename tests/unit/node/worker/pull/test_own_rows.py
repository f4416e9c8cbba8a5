"""Reads with a bound on their lag in time, by every path to a row: local, forwarded, many, scans.

Real stores, pages and workers of three nodes in one process; forwards without sockets.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.unit.node.worker.pull.test_slow_path import Nodes, cluster
from tests.unit.node.workers import KEYS, Worker, page, select

from standpipe.adapters.store.reader import StoreReader
from standpipe.config import lags
from standpipe.control.routing.bounds import Bounds
from standpipe.data.query.order import Pair
from standpipe.data.query.pull import computed
from standpipe.errors import BadRequest, NoReplica
from standpipe.freshness import Freshness
from standpipe.model import NO_BATCH, ReplicaState, ReplicaStatus
from standpipe.node.worker.pull import own_rows
from standpipe.node.worker.pull.forward import ForwardRefused
from standpipe.node.worker.pull.forward_checks import check_answer
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.scans import ScanRequest
from standpipe.node.worker.request.body import refuse_levels
from standpipe.node.worker.request.head import Form
from standpipe.sql.plans import PullPlan

REPLICA, SOURCE = lags.REPLICA_LAG_MAX.name, lags.SOURCE_LAG_MAX.name
ONE = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
TWO = select(0, 0)
SCAN = "SELECT * FROM USERS;"
LINES = RequestFormat(Form.LINES)
Story = Callable[[Nodes], Coroutine[Any, Any, None]]


def run(folder: Path, story: Story, placed: dict[int, list[str]] | None = None) -> None:
    async def whole() -> None:
        async with cluster(folder, placed or {0: ["a", "b"]}) as nodes, asyncio.timeout(60):
            await story(nodes)

    asyncio.run(whole())


def aged(worker: Worker, *, replica_ms: int = 0, source_ms: int = 0) -> ReplicaStatus:
    """A page as it is so many ms after both."""
    now_ms = worker.clock.boot_ms()
    return changed(page(), confirmed_boot_ms=now_ms - replica_ms, source_boot_ms=now_ms - source_ms)


def body(text: str, **bounds: object) -> bytes:
    names = {"replica": REPLICA, "source": SOURCE}
    properties = {names[name]: value for name, value in bounds.items()}
    return json.dumps({"ksql": text, "streamsProperties": properties}).encode()


async def served_by(worker: Worker, text: str, **bounds: object) -> str:
    answer = await worker.slow_path.answer(LINES, body(text, **bounds))
    if answer.pieces is not None:
        async for _ in answer.pieces:
            pass
    return answer.fresh.served_by


@pytest.mark.parametrize("entry", ["a", "b"], ids=["own", "forwarded"])
def test_the_loop_turns_while_a_costly_row_of_a_key_is_computed(
    tmp_path: Path, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned: list[bool] = []

    async def story(nodes: Nodes) -> None:
        loop = asyncio.get_running_loop()

        def waiting(plan: PullPlan, pairs: list[Pair]) -> list[bytes]:
            gate = threading.Event()
            loop.call_soon_threadsafe(gate.set)
            turned.append(gate.wait(20))
            return computed(plan, pairs)

        monkeypatch.setattr(own_rows, "computed", waiting)
        nodes["a"].hold(0, aged(nodes["a"]))
        text = f"SELECT LPAD(ID, 1, 'x') AS X FROM USERS WHERE ID = '{KEYS[0]}';"
        assert await served_by(nodes[entry], text) == "a"

    run(tmp_path, story, {0: ["a"]})
    assert turned == [True]


@pytest.mark.parametrize("text", [ONE, TWO, SCAN])
@pytest.mark.parametrize("entry", ["a", "b", "c"])
@pytest.mark.parametrize("late", [{"replica_ms": 60_000}, {"source_ms": 60_000}])
def test_the_replica_within_the_bound_answers(
    tmp_path: Path, text: str, entry: str, late: dict[str, int]
) -> None:
    async def story(nodes: Nodes) -> None:
        for number in KEYS:
            nodes["a"].hold(number, aged(nodes["a"], **late))
            nodes["b"].hold(number, aged(nodes["b"]))
        node = nodes[entry]
        kind = "replica" if "replica_ms" in late else "source"
        assert await served_by(node, text) == "a", "at level `eventual` the age is nothing"
        assert await served_by(node, text, **{kind: 90_000}) == "a"
        assert await served_by(node, text, **{kind: 30_000}) == "b"
        assert await served_by(node, text, **{kind: "30000"}) == "b", "ksqlDB's clients send texts"

    run(tmp_path, story, {number: ["a", "b"] for number in KEYS})


@pytest.mark.parametrize("text", [ONE, TWO])
def test_the_fast_path_leaves_late_rows_to_the_slow_path(tmp_path: Path, text: str) -> None:
    async def story(nodes: Nodes) -> None:
        a = nodes["a"]
        a.hold(0, aged(a, source_ms=60_000))
        a.slow_path.map.view.plans.plan(text, {})
        path = a.fast_path()
        for _ in range(3):  # the second makes a frame of it, the third has one
            assert path.answer(LINES, body(text, source=90_000)) is not None
            assert path.answer(LINES, body(text, source=30_000)) is None
            assert path.answer(LINES, body(text, replica=90_000)) is not None
        assert path.answer(LINES, body(text, replica=0, source=90_000)) is None

    run(tmp_path, story)


def test_a_known_frame_sees_the_rows_grow_old(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        a = nodes["a"]
        a.hold(0, aged(a, source_ms=5_000))
        path, ahead_ms = a.fast_path(), 0
        boot_ms = a.clock.boot_ms
        a.clock.boot_ms = lambda: boot_ms() + ahead_ms  # type: ignore[method-assign]
        for _ in range(3):
            assert path.answer(LINES, body(ONE, source=30_000)) is not None
        assert len(path._frames) == 1
        ahead_ms = 60_000
        await asyncio.sleep(0.002)  # a label holds for a millisecond
        assert path.answer(LINES, body(ONE, source=30_000)) is None

    run(tmp_path, story)


def test_each_refusal_names_its_lag(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, aged(nodes["a"], replica_ms=60_000))
        nodes["b"].hold(0, aged(nodes["b"], source_ms=60_000))
        with pytest.raises(NoReplica) as caught:
            await served_by(nodes["c"], ONE, replica=10_000, source=10_000)
        for kind in ("replica", "source"):
            assert f"exceeds maximum allowed {kind} lag 10000 ms" in caught.value.message

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (PermissionError(13, "Permission denied", "/data/state/U_1/0/data.mdb"), "Permission"),
        (OSError(5, "Input/output error", "/data/state/U_1/0"), "Input/output error"),
        (FileNotFoundError(2, "No such file", "/data/x", None, "/data/y"), "No such file"),
        (ValueError("bad row"), "bad row"),
    ],
)
def test_no_answer_says_where_a_store_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, shown: str
) -> None:
    def fails(_: StoreReader) -> None:
        raise error

    async def story(nodes: Nodes) -> None:
        for name in ("a", "b"):
            nodes[name].hold(0, aged(nodes[name]))
        monkeypatch.setattr(StoreReader, "begin", fails)
        for entry in ("a", "b"):
            with pytest.raises(NoReplica, match=f"Store cannot be read: {shown}") as caught:
                await served_by(nodes[entry], ONE)
            assert "/data" not in caught.value.message

    run(tmp_path, story)


def test_rows_of_no_batch_are_within_no_bound(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        between = changed(aged(nodes["a"]), batch=NO_BATCH, state=ReplicaState.CATCHING_UP)
        nodes["a"].hold(0, between)
        assert await served_by(nodes["a"], ONE) == "a"
        with pytest.raises(NoReplica, match="batch"):
            await served_by(nodes["a"], ONE, replica=90_000)

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "soon", None])
@pytest.mark.parametrize("kind", ["replica", "source"])
def test_what_is_no_number_of_ms(tmp_path: Path, kind: str, wrong: object) -> None:
    async def story(nodes: Nodes) -> None:
        with pytest.raises(BadRequest, match="number of ms"):
            await served_by(nodes["a"], ONE, **{kind: wrong})

    run(tmp_path, story)


def test_a_node_may_bound_all_its_reads(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        a = nodes["a"]
        a.hold(0, aged(a, source_ms=60_000))
        a.routes.own = Bounds(source_lag_ms_max=30_000)
        with pytest.raises(NoReplica):
            await served_by(a, ONE)
        assert await served_by(a, ONE, source=90_000) == "a", "a request may ask for less"

    run(tmp_path, story, {0: ["a"]})


def test_a_peer_that_knows_no_such_bound_is_not_believed() -> None:
    """A release without them ignores the property and answers."""
    bounds = Bounds(source_lag_ms_max=30_000)
    fresh = Freshness(served_by="b", role="active", state="RUNNING", batch=7)
    for source_lag_ms in (60_000, None):
        with pytest.raises(ForwardRefused, match="source lag"):
            check_answer(changed(fresh, source_lag_ms=source_lag_ms), bounds)
    check_answer(changed(fresh, source_lag_ms=30_000), bounds)


def test_a_scan_is_as_old_as_its_begin(tmp_path: Path) -> None:
    """However long it takes: its rows are of that instant."""

    async def story(nodes: Nodes) -> None:
        for number in KEYS:
            nodes["a"].hold(number, aged(nodes["a"], source_ms=20_000))
        a, ahead_ms, scans = nodes["a"], 0, 0
        boot_ms, rows = a.clock.boot_ms, a.slow_path.scans.rows
        a.clock.boot_ms = lambda: boot_ms() + ahead_ms  # type: ignore[method-assign]

        async def slow(scan: ScanRequest[Any]) -> Any:
            nonlocal ahead_ms, scans
            found, scans = await rows(scan), scans + 1
            if scans == len(KEYS):  # all have begun
                ahead_ms = 60_000
            return found

        a.slow_path.scans.rows = slow  # type: ignore[method-assign]
        assert await served_by(nodes["c"], SCAN, source=30_000) == "a"
        assert ahead_ms > 0

    run(tmp_path, story, {number: ["a"] for number in KEYS})


@pytest.mark.parametrize("name", [REPLICA, SOURCE])
def test_what_has_no_replicas_refuses_a_bound_in_time(name: str) -> None:
    with pytest.raises(BadRequest, match="not for streams"):
        refuse_levels({name: 5}, "streams")
    refuse_levels({lags.LAG_MAX.name: 5}, "streams")
