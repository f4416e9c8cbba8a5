"""Reads at level `snapshot` by every path to a row: a key, many keys, scans, batches, forwards.

Real stores, pages and workers of three nodes in one process; forwards without sockets. The value of
each row is the batch that wrote it, so an answer that mixes two batches shows two values.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.unit.node.worker.pull.test_session_read import FORWARD, at, waiters, without_id
from tests.unit.node.worker.pull.test_slow_path import Nodes, cluster
from tests.unit.node.worker.query_batch.test_endpoint import post
from tests.unit.node.workers import FORWARDED_MS_MAX, KEYS, PARTITIONS, USERS, Worker, page, select

from standpipe.adapters.http.peer_client import Response
from standpipe.adapters.kafka.producer import RowProducer
from standpipe.adapters.metrics import Metrics
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.config import lags
from standpipe.control.routing.session import Stamp
from standpipe.control.routing.snapshot import NEXT_STEP, ROUNDS_MAX
from standpipe.data.query.scan import rows_bytes
from standpipe.errors import BadRequest, NoReplica, StandpipeError, TooManyRequests
from standpipe.freshness import LEASE_EPOCH_HEADER, Freshness
from standpipe.model import NO_BATCH, OF_LOG, BatchId, LeaseEpoch, ReplicaId, ReplicaState
from standpipe.node.worker.pull.forward import PartitionAnswer
from standpipe.node.worker.pull.forward_headers import WAITS_HEADER, WANTED_HEADER, RequestFormat
from standpipe.node.worker.pull.own_rows import OwnRows
from standpipe.node.worker.pull.refusals import Unanswered
from standpipe.node.worker.pull.snapshot_read import NO_SNAPSHOTS, of_one_batch
from standpipe.node.worker.request.body import parse_lookup, refuse_levels
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.node.worker.request.session_writes import session_writes
from standpipe.session_token import ENABLE_PROPERTY, LEVEL_PROPERTY, TOKEN_PROPERTY

Story = Callable[[Nodes], Coroutine[Any, Any, None]]
ONE = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
SCAN = "SELECT * FROM USERS;"
ORDERED = "SELECT ID, N * 2 AS M, N FROM USERS WHERE ID > 'k' ORDER BY ID LIMIT 3;"
MANY = select(0, 1, 2, 3)
LINES = RequestFormat(Form.LINES)
LEVEL: dict[str, object] = {LEVEL_PROPERTY: "snapshot"}
HERE = {number: ["a", "b"] for number in range(PARTITIONS)}
APART = {0: ["a"], 1: ["b"], 2: ["a"], 3: ["b"]}


def run(folder: Path, story: Story, placed: dict[int, list[str]] | None = None) -> None:
    async def whole() -> None:
        async with cluster(folder, placed or HERE) as nodes, asyncio.timeout(60):
            for node in nodes.values():
                node.slow_path.routing_timeout_ms = node.slow_path.scan_timeout_ms = 20_000
            await story(nodes)

    asyncio.run(whole())


def body(text: str, properties: Mapping[str, object] = LEVEL) -> bytes:
    return json.dumps({"ksql": text, "streamsProperties": dict(properties)}).encode()


async def read(
    node: Worker,
    text: str,
    properties: Mapping[str, object] = LEVEL,
    requester: ScanRequester | None = None,
) -> tuple[list[Any], int | None]:
    """Rows, and the batch that the answer says it is of."""
    answer = await node.slow_path.answer(LINES, body(text, properties), requester)
    assert answer.fresh.lease_epoch is None, "clients have no use for it"
    whole = answer.body
    if answer.pieces is not None:
        whole = b"".join([piece async for piece in answer.pieces])
    return [json.loads(line) for line in whole.splitlines()[1:]], answer.fresh.batch


def show(node: Worker, number: int, batch: int, epoch: int = 1) -> None:
    """The tailer has applied a batch, and its page says so."""
    node.hold(number, at(batch, epoch))
    node.apply(number, batch=batch, epoch=epoch, value=b"[%d]" % batch)


def show_all(nodes: Nodes, batch: int, names: str = "ab") -> None:
    for name in names:
        for number in range(PARTITIONS):
            show(nodes[name], number, batch)


def rounds(node: Worker) -> dict[str, int]:
    return dict(node.metrics.counts["standpipe_snapshot_reads"])


# ------------------------------------------------------------------------- without waiting


@pytest.mark.parametrize("entry", ["a", "c"])
@pytest.mark.parametrize("text", [ONE, MANY, SCAN, ORDERED])
def test_parts_that_agree_take_one_round(tmp_path: Path, entry: str, text: str) -> None:
    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        rows, batch = await read(nodes[entry], text)
        assert rows
        assert batch == 7
        assert rounds(nodes[entry]) == ({} if text == ONE else {"1": 1})
        sent = [head for heads in nodes[entry].wires.sent.values() for head in heads]
        assert not any(WANTED_HEADER in head or WAITS_HEADER in head for head in sent)
        assert len(sent) == (0 if entry == "a" else 1 if text == ONE else PARTITIONS)

    run(tmp_path, story)


@pytest.mark.parametrize("entry", ["a", "c"])
@pytest.mark.parametrize("text", [MANY, SCAN])
def test_another_replica_that_has_the_batch_is_found(tmp_path: Path, entry: str, text: str) -> None:
    """The active of one partition is ahead of the others; a standby has that batch of each."""

    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        show(nodes["a"], 2, 9)
        mixed, _ = await read(nodes[entry], text, {})
        assert {row[-1] for row in mixed} == {7, 9}, "without the level, the answer mixes them"
        show_all(nodes, 9, "b")
        rows, batch = await read(nodes[entry], text)
        assert ({row[-1] for row in rows}, batch) == ({9}, 9)
        assert len(rows) == PARTITIONS, "each part once"
        assert rounds(nodes[entry]) == {"2": 1}
        for worker in nodes.values():
            assert worker.slow_path.own.waits.count == 0
        wanted = [head.get(WANTED_HEADER) for head in nodes[entry].wires.sent["b"]]
        assert wanted == ["9,1"] * 3, "only those that were behind are asked again"

    run(tmp_path, story)


@pytest.mark.parametrize("entry", ["a", "c"])
@pytest.mark.parametrize("text", [MANY, SCAN, ORDERED])
def test_a_part_that_is_behind_waits(tmp_path: Path, entry: str, text: str) -> None:
    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        show(nodes["a"], 2, 9)
        reading = asyncio.create_task(read(nodes[entry], text))
        await waiters(nodes, 6)  # three parts, at two replicas each
        for number in (0, 1, 3):
            show(nodes["a"], number, 8)
        await asyncio.sleep(0.03)
        assert not reading.done(), "woken early"
        for number in (0, 1, 3):
            show(nodes["b"], number, 9)
        rows, batch = await reading
        assert batch == 9
        assert {row[-1] for row in rows} == {9}
        if text == ORDERED:
            assert [row[0] for row in rows] == sorted(KEYS.values())[:3]
        await waiters(nodes, 0)

    run(tmp_path, story)


def test_a_part_that_went_past_the_batch_takes_the_others_along(tmp_path: Path) -> None:
    """A replica keeps no older rows, so what it has by then is wanted next."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(PARTITIONS):
            show(node, number, 7)
        show(node, 2, 9)
        reading = asyncio.create_task(read(node, MANY))
        await waiters(nodes, 3)
        for number in (0, 1, 3):
            show(node, number, 10)
        await waiters(nodes, 1)
        show(node, 2, 10)
        rows, batch = await reading
        assert ({row[-1] for row in rows}, batch) == ({10}, 10)
        assert rounds(node) == {"3": 1}

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})


def test_parts_that_never_meet_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch comes between any two parts: an answer would mix them."""
    asked: list[int] = []

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(PARTITIONS):
            show(node, number, 7)
        own_read = OwnRows.read

        async def overtaken(
            self: OwnRows, query: Any, partition: int, *rest: Any, **more: Any
        ) -> Any:
            asked.append(partition)
            show(node, partition, 7 + len(asked))
            return await own_read(self, query, partition, *rest, **more)

        monkeypatch.setattr(OwnRows, "read", overtaken)
        with pytest.raises(NoReplica) as refused:
            await read(node, MANY)
        said = refused.value.message
        assert f"did not show one batch in any of {ROUNDS_MAX} rounds" in said
        assert said.endswith(NEXT_STEP)
        assert len(asked) == PARTITIONS + 3 * (ROUNDS_MAX - 1), "the newest is not asked again"
        newest = 7 + len(asked)
        assert f"had batch {newest} (lease epoch 1)" in said
        assert rounds(node) == {"refused": 1}

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})


@pytest.mark.parametrize("entry", ["a", "c"])
@pytest.mark.parametrize("text", [MANY, SCAN])
def test_out_of_time(tmp_path: Path, entry: str, text: str) -> None:
    """The error names the level, the batch that was wanted, what each replica had, and a way on."""

    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        show(nodes["a"], 2, 9)
        slow_path = nodes[entry].slow_path
        slow_path.routing_timeout_ms = slow_path.scan_timeout_ms = FORWARDED_MS_MAX
        with pytest.raises(NoReplica) as failed:
            await read(nodes[entry], text)
        said, told = failed.value.message, failed.value.body()["standpipe"]
        assert isinstance(told, dict)
        assert told["partitions"] == [0, 1, 3]
        for one in told["verdicts"]:
            assert one["why"] == (
                "Level snapshot: wanted batch 9 (lease epoch 1), had batch 7 (lease epoch 1)."
            )
        assert "round 2 wanted batch 9 (lease epoch 1), which another partition had" in said
        assert said.endswith(NEXT_STEP)
        assert rounds(nodes[entry]) == {"refused": 1}
        await waiters(nodes, 0)
        rows, _ = await read(nodes[entry], text, {})
        assert len(rows) == PARTITIONS, "level eventual still answers"
        assert (await read(nodes[entry], ONE))[1] == 7, "and so does the level, of one partition"

    run(tmp_path, story)


# ------------------------------------------------------------------- what is never a part


GAP = changed(page(130, 130, ReplicaState.CATCHING_UP), batch=NO_BATCH)


@pytest.mark.parametrize("entry", ["a", "c"])
@pytest.mark.parametrize("text", [ONE, MANY, SCAN])
def test_rows_between_two_batches_are_no_part(tmp_path: Path, entry: str, text: str) -> None:
    """After a gap that compaction left. Another replica is asked; then both are waited for."""

    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        nodes["a"].hold(0, GAP)
        rows, batch = await read(nodes[entry], text)
        assert ({row[-1] for row in rows}, batch) == ({7}, 7)
        nodes["b"].hold(0, GAP)
        reading = asyncio.create_task(read(nodes[entry], text))
        await waiters(nodes, 2)
        show(nodes["a"], 0, 7)
        rows, batch = await reading
        assert ({row[-1] for row in rows}, batch) == ({7}, 7)

    run(tmp_path, story)


def test_the_stamp_is_of_the_rows_transaction(tmp_path: Path) -> None:
    """The page of one partition is older than its rows: they are of batch 9, whatever it says."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(PARTITIONS):
            show(node, number, 7)
        node.apply(2, batch=9, position=120, value=b"[9]")  # no page yet
        reading = asyncio.create_task(read(node, MANY))
        await waiters(nodes, 3)
        for number in (0, 1, 3):
            node.apply(number, batch=9, position=120, value=b"[9]")
            shown = StatusWriter(page_path(node.paths.run, ReplicaId("T1", 1, number)))
            shown.write(changed(at(9), position=120))
        rows, batch = await reading
        assert ({row[-1] for row in rows}, batch) == ({9}, 9)

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})


@pytest.mark.parametrize("entry", ["a", "c"])
def test_another_lease_epoch_is_another_commit(tmp_path: Path, entry: str) -> None:
    """A program may have made other rows of batch 7 the second time."""

    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        show(nodes["a"], 1, 7, 2)
        reading = asyncio.create_task(read(nodes[entry], MANY))
        await waiters(nodes, 6)
        for number in (0, 2, 3):
            show(nodes["b"], number, 7, 2)
        rows, batch = await reading
        assert ({row[-1] for row in rows}, batch) == ({7}, 7)

    run(tmp_path, story)


def test_another_generation_is_never_mixed_in(tmp_path: Path) -> None:
    """The entry's map has generation 2, a peer still has generation 1 of the same batch number."""
    source = changed(USERS, generation=2)

    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        nodes["a"].publish(["a", "b", "c"], APART, epoch=2, source=source)
        for number in (0, 2):
            nodes["a"].hold(number, at(7), generation=2)
            nodes["a"].apply(number, batch=7, generation=2, value=b"[70]")
        nodes["a"].slow_path.routing_timeout_ms = FORWARDED_MS_MAX
        with pytest.raises(StandpipeError, match="NOT_OWNER: USERS is T1-1 here, not T1-2"):
            await read(nodes["a"], MANY)
        nodes["b"].publish(["a", "b", "c"], APART, epoch=2, source=source)
        for number in (1, 3):
            nodes["b"].hold(number, at(7), generation=2)
            nodes["b"].apply(number, batch=7, generation=2, value=b"[70]")
        rows, _ = await read(nodes["a"], MANY)
        assert {row[-1] for row in rows} == {70}

    run(tmp_path, story, APART)


def test_the_loser_of_a_hedge_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are dropped, and its stamp with them: the answer is of the winner's batch."""

    async def story(nodes: Nodes) -> None:
        entry = nodes["c"]
        show_all(nodes, 7)
        show_all(nodes, 9, "b")
        late = asyncio.Event()
        real = Worker.peer_lane

        async def slow(self: Worker, body_: bytes, headers: Mapping[str, str]) -> Response:
            is_slow = self.name == "a" and headers["standpipe-partition"] == "0"
            answer = await real(self, body_, headers)
            if is_slow:
                await late.wait()
            return answer

        monkeypatch.setattr(Worker, "peer_lane", slow)
        entry.hedged_reads.hedges = type(entry.hedged_reads.hedges)(100)  # per cent of reads
        for _ in range(5):
            entry.hedged_reads.hedges.read(asyncio.get_running_loop().time())
        # partition 0 is answered by the hedge, at batch 9; the others first say 7, then 9
        reading = asyncio.create_task(read(entry, MANY))
        rows, batch = await reading
        assert ({row[-1] for row in rows}, batch) == ({9}, 9)
        late.set()
        await asyncio.sleep(0)

    run(tmp_path, story)


# ------------------------------------------------------------------------------- limits


def test_too_many_waiters(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(PARTITIONS):
            show(node, number, 7)
        show(node, 2, 9)
        node.slow_path.limits.snapshot.waiters_max = 3
        first = asyncio.create_task(read(node, MANY))
        await waiters(nodes, 3)
        with pytest.raises(TooManyRequests, match="reach the batch of their other parts"):
            await read(node, MANY)
        assert (await read(node, ONE))[0], "who need not wait is served"
        for number in (0, 1, 3):
            show(node, number, 9)
        assert (await first)[1] == 9

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})


def test_a_client_that_goes_is_not_waited_for(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(PARTITIONS):
            show(node, number, 7)
        show(node, 2, 9)
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        reading = asyncio.create_task(read(node, MANY, requester=ScanRequester(receive)))
        await waiters(nodes, 3)
        gone.set()
        with pytest.raises(BadRequest, match="the client disconnected"):
            await reading
        await waiters(nodes, 0)

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})


@pytest.mark.parametrize("entry", ["a", "c"])
@pytest.mark.parametrize("text", [MANY, SCAN])
def test_rows_that_are_read_again_are_charged_once(tmp_path: Path, entry: str, text: str) -> None:
    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        show(nodes["a"], 2, 9)
        show_all(nodes, 9, "b")
        requester, held = ScanRequester(), list[int]()
        requester.hold = held.append  # type: ignore[method-assign]
        rows, _ = await read(nodes[entry], text, requester=requester)
        assert len([more for more in held if more < 0]) >= 3, "three parts were read again"
        laid_out = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
        assert sum(held) == rows_bytes(laid_out)

    run(tmp_path, story)


@pytest.mark.parametrize("refusal", [None, Unanswered(USERS, []), TooManyRequests("full")])
def test_a_refusal_keeps_no_rows(tmp_path: Path, refusal: Exception | None) -> None:
    """Its traceback refers to the frame that has collected them."""
    metrics, newest, dropped = Metrics(0, tmp_path), [7], list[PartitionAnswer]()

    async def ask(places: Sequence[int], wanted: Stamp | None, _: int) -> list[PartitionAnswer]:
        if wanted is not None and refusal is not None:
            raise refusal
        newest[0] += 1
        fresh = Freshness(served_by="a", role="active", state="RUNNING")
        stamps = [Stamp(newest[0] + (place == 0), 1) for place in places]
        return [PartitionAnswer(rows=[b"[1]"], fresh=fresh, stamps=(each,)) for each in stamps]

    async def story() -> list[PartitionAnswer]:
        return await of_one_batch(ask, [0, 1], 1000, dropped.append, metrics)

    if refusal is None:
        assert [part.stamps for part in asyncio.run(story())] == [((9, 1),)] * 2
        return
    with pytest.raises(type(refusal)) as refused:
        asyncio.run(story())
    (frame,) = [one for one in refused.traceback if one.name == "of_one_batch"]
    assert frame.locals["parts"] == []
    assert [part.rows for part in dropped] == [[b"[1]"]] * 2, "their charge is given back"
    count = dict(metrics.counts["standpipe_snapshot_reads"])
    assert count == ({"refused": 1} if isinstance(refusal, Unanswered) else {})


# ------------------------------------------------------------------------- older releases


def test_a_target_of_an_older_release_refuses_and_another_one_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no such level, which the client's own body names (no feature level is needed)."""

    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        show_all(nodes, 9, "b")

        async def older(body_: bytes, _: Mapping[str, str]) -> Response:
            assert json.loads(body_)["streamsProperties"] == LEVEL
            text = "standpipe.read.consistency = 'snapshot' is none of eventual, session"
            return Response(400, {}, json.dumps({"error_code": 40000, "message": text}).encode())

        monkeypatch.setattr(nodes["a"], "peer_lane", older)
        rows, batch = await read(nodes["c"], MANY)
        assert ({row[-1] for row in rows}, batch) == ({9}, 9)
        del nodes["b"]  # nothing listens there any more
        nodes["c"].slow_path.routing_timeout_ms = FORWARDED_MS_MAX
        with pytest.raises(NoReplica, match="'snapshot' is none of eventual, session"):
            await read(nodes["c"], MANY)

    run(tmp_path, story)


@pytest.mark.parametrize("text", [ONE, MANY, SCAN])
def test_an_answer_without_a_lease_epoch_is_not_believed(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a peer that answers as if no level was asked for."""

    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        show_all(nodes, 9, "b")
        ask = nodes["a"].peer_lane

        async def careless(body_: bytes, headers: Mapping[str, str]) -> Response:
            plain = json.loads(body_)
            plain["streamsProperties"].pop(LEVEL_PROPERTY)
            answer = await ask(json.dumps(plain).encode(), headers)
            assert LEASE_EPOCH_HEADER not in answer.headers
            return answer

        monkeypatch.setattr(nodes["a"], "peer_lane", careless)
        assert (await read(nodes["c"], text))[1] == 9, "the other one says it"
        del nodes["b"]
        nodes["c"].slow_path.routing_timeout_ms = FORWARDED_MS_MAX
        nodes["c"].slow_path.scan_timeout_ms = FORWARDED_MS_MAX
        with pytest.raises(NoReplica) as refused:
            await read(nodes["c"], text)
        assert NO_SNAPSHOTS in refused.value.message

    run(tmp_path, story)


def test_a_target_that_ignores_what_is_wanted_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        show_all(nodes, 7)
        show(nodes["a"], 2, 9)
        ask = nodes["a"].peer_lane

        async def careless(body_: bytes, headers: Mapping[str, str]) -> Response:
            plain = {name: text for name, text in headers.items() if name != WANTED_HEADER}
            return await ask(body_, plain)

        monkeypatch.setattr(nodes["a"], "peer_lane", careless)
        nodes["c"].slow_path.routing_timeout_ms = FORWARDED_MS_MAX
        with pytest.raises(NoReplica, match=r"wanted batch 9 \(lease epoch 1\), had batch 7"):
            await read(nodes["c"], MANY)

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})


# ------------------------------------------------------------------------ the fast path


@pytest.mark.parametrize(
    ("text", "stamps", "is_answered", "why"),
    [
        (ONE, [(7, 1)] * 4, True, "a key"),
        (ONE, [(7, 1), (9, 1), (9, 1), (9, 1)], True, "one partition is enough"),
        (ONE, [(NO_BATCH, 1), (7, 1), (7, 1), (7, 1)], False, "between two batches"),
        (ONE, [(OF_LOG, 1), (7, 1), (7, 1), (7, 1)], False, "of no batch at all"),
        (MANY, [(7, 1)] * 4, True, "all agree"),
        (MANY, [(7, 1), (7, 1), (9, 1), (7, 1)], False, "one is ahead: the slow path's rounds"),
        (MANY, [(7, 1), (7, 1), (7, 2), (7, 1)], False, "committed again"),
        (MANY, [(NO_BATCH, 1)] * 4, False, "all between two batches"),
        (select(0, 2), [(7, 1), (9, 1), (7, 1), (9, 1)], True, "the others are not asked"),
    ],
)
def test_the_fast_path(
    tmp_path: Path, text: str, stamps: list[tuple[int, int]], is_answered: bool, why: str
) -> None:
    """It answers as the slow path does, or leaves the read to it."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number, (batch, epoch) in enumerate(stamps):
            state = ReplicaState.RUNNING if batch >= 0 else ReplicaState.CATCHING_UP
            shown = changed(at(7, epoch), batch=BatchId(batch), lease_epoch=LeaseEpoch(epoch))
            node.hold(number, changed(shown, state=state))
        node.slow_path.map.view.plans.plan(text, {LEVEL_PROPERTY: "snapshot"})
        path = node.fast_path()
        for form in Form:
            for _ in range(3):  # the third time by a known frame, if it has one
                found = path.answer(RequestFormat(form), body(text))
                assert (found is not None) is is_answered, why
                if found is None:
                    continue
                answer = await node.slow_path.answer(RequestFormat(form), body(text))
                head, content = found.split(b"\r\n\r\n", 1)
                assert without_id(content) == without_id(answer.body)
                assert b"\r\nstandpipe-batch: 7" in head
                assert LEASE_EPOCH_HEADER.encode() not in head
        assert not node.metrics.counts["standpipe_pull_fast_path_faults"]

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})


def test_a_key_has_a_known_frame_until_its_rows_are_of_no_batch(tmp_path: Path) -> None:
    """So it costs no more than at level `eventual`; and the frame of one is not the other's."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        show(node, 0, 7)
        path = node.fast_path()
        for properties in (LEVEL, {}):
            for _ in range(3):
                assert path.answer(LINES, body(ONE, properties)) is not None
        assert len(path._frames) == 2
        node.apply(0, batch=8, position=120)
        assert b"standpipe-batch: 8\r\n" in (path.answer(LINES, body(ONE)) or b"")
        node.hold(0, GAP)
        assert path.answer(LINES, body(ONE)) is None
        assert path.answer(LINES, body(ONE, {})) is not None
        show(node, 0, 9)
        assert b"standpipe-batch: 9\r\n" in (path.answer(LINES, body(ONE)) or b"")

    run(tmp_path, story, {0: ["a"]})


@pytest.mark.parametrize("text", [ONE, MANY])
@pytest.mark.parametrize(
    ("wanted", "is_answered"),
    [(None, True), ("7,3", True), ("8,3", False), ("7,4", False), ("9,2", True)],
)
def test_a_peers_read_by_the_fast_path(
    tmp_path: Path, text: str, wanted: str | None, is_answered: bool
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(PARTITIONS):
            node.hold(number, at(7, 3))
        node.slow_path.map.view.plans.plan(text, {LEVEL_PROPERTY: "snapshot"})
        head = {**FORWARD, **({} if wanted is None else {WANTED_HEADER: wanted})}
        fast = node.fast_peer_lane(body(text), head)
        assert (f"\r\n{LEASE_EPOCH_HEADER}: 3\r\n" in fast) is is_answered
        slow = await node.peer_lane(body(text), head)
        assert (slow.status == 200) is is_answered
        if is_answered:
            assert slow.headers[LEASE_EPOCH_HEADER] == "3"
            assert slow.headers["standpipe-batch"] == "7"

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})


@pytest.mark.parametrize("wanted", ["7", "7,1,1", "-1,1", "7,-1", "x,1", ""])
def test_a_malformed_header_is_refused(tmp_path: Path, wanted: str) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, at(7))
        head = {**FORWARD, WANTED_HEADER: wanted}
        answer = await nodes["a"].peer_lane(body(ONE), head)
        if wanted:
            assert answer.status == 400
            assert b"a header of the forward is malformed" in answer.body
        else:
            assert answer.status == 200, "as without it"

    run(tmp_path, story, {0: ["a"]})


# ---------------------------------------------------------------------------- query-batch


@pytest.mark.parametrize("entry", ["a", "c"])
def test_a_batch_of_keys_is_of_one_batch(tmp_path: Path, entry: str) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes[entry]
        show_all(nodes, 7)
        show(nodes["a"], 2, 9)
        asked = {"table": "users", "keys": list(KEYS.values())}
        mixed = await post(node, asked)
        assert {row[-1] for row in mixed.json["rows"]} == {7, 9}
        show_all(nodes, 9, "b")
        answer = await post(node, {**asked, "properties": LEVEL})
        assert {row[-1] for row in answer.json["rows"]} == {9}
        assert {part["batch"] for part in answer.json["freshness"]} == {9}
        assert answer.headers["standpipe-batch"] == "9"
        assert (await post(node, {**asked, "keys": [], "properties": LEVEL})).json["rows"] == []

    run(tmp_path, story)


def test_statements_of_one_partition_are_of_one_batch_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of many keys takes several statements for a partition."""
    monkeypatch.setattr("standpipe.node.worker.query_batch.request_body.STATEMENT_KEYS_MAX", 1)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(PARTITIONS):
            show(node, number, 7)
        own_read, asked = OwnRows.read, list[int]()

        async def overtaken(self: OwnRows, *given: Any, **more: Any) -> Any:
            asked.append(1)
            if len(asked) == 2:
                for number in range(PARTITIONS):
                    show(node, number, 8)
            return await own_read(self, *given, **more)

        monkeypatch.setattr(OwnRows, "read", overtaken)
        keys = [KEYS[0], *(f"n{number}" for number in range(40))]
        answer = await post(node, {"table": "users", "keys": keys, "properties": LEVEL})
        assert answer.json["rows"][0] == [KEYS[0], 8], "read again, with the others"
        assert rounds(node) == {"2": 1}

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})


# -------------------------------------------------------------------------- how it is asked


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({**LEVEL, TOKEN_PROPERTY: ""}, "a session's token"),
        ({**LEVEL, ENABLE_PROPERTY: "true"}, "tokens asked for"),
        ({LEVEL_PROPERTY: "Snapshot"}, "no such level"),
    ],
)
def test_what_contradicts_it(properties: dict[str, object], why: str) -> None:
    with pytest.raises(BadRequest, match=r"[Ss]napshot"):
        parse_lookup(body(ONE, properties))
    assert why


def test_who_has_no_such_level() -> None:
    with pytest.raises(BadRequest, match="read level snapshot is for pull queries on tables, not "):
        session_writes({LEVEL_PROPERTY: "snapshot"}, RowProducer(""))
    with pytest.raises(BadRequest, match="read level snapshot is for pull queries on tables, not "):
        refuse_levels(LEVEL, "streams")


def test_it_is_read_from_both_kinds_of_properties() -> None:
    assert parse_lookup(body(ONE)).is_snapshot
    request = {"ksql": ONE, "requestProperties": dict(LEVEL)}
    assert parse_lookup(json.dumps(request).encode()).is_snapshot
    assert not parse_lookup(body(ONE, {LEVEL_PROPERTY: "linearizable"})).is_snapshot
    assert not parse_lookup(body(ONE, {})).is_snapshot


@pytest.mark.parametrize("text", [ONE, MANY, SCAN])
def test_a_bound_holds_for_each_part(tmp_path: Path, text: str) -> None:
    """Bounds and the level may be combined."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for number in range(PARTITIONS):
            node.hold(number, page())
        bounded: dict[str, object] = {**LEVEL, lags.LAG_MAX.name: 5}
        assert (await read(node, text, bounded))[1] == 7
        node.hold(0, page(100, 106))
        with pytest.raises(NoReplica, match=r"lag 6 |lag of 6"):
            await read(node, text, bounded)

    run(tmp_path, story, {number: ["a"] for number in range(PARTITIONS)})
