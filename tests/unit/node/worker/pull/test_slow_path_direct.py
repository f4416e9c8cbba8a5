"""Reads of a direct table: rows without a batch, bounded by their lag, and at no other level."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.node.workers import KEYS, USERS, Worker, page

from standpipe.errors import BadRequest, NoReplica
from standpipe.model import NO_BATCH, OF_LOG, BatchId, ReplicaStatus
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.request.body import parse_lookup
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.session_token import LEVEL_PROPERTY, TOKEN_PROPERTY

DIRECT = msgspec.structs.replace(USERS, query_id=None, is_direct=True)
ONE = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
LINES = RequestFormat(Form.LINES)


def of(batch: BatchId, end: int = 100) -> ReplicaStatus:
    return msgspec.structs.replace(page(end=end), batch=batch)


def with_worker(
    folder: Path, status: ReplicaStatus, story: Callable[[Worker], Coroutine[Any, Any, None]]
) -> None:
    async def whole() -> None:
        worker = Worker(folder, "a", {})
        worker.publish(["a"], {0: ["a"]}, source=DIRECT, feature_level=14)
        worker.hold(0, status)
        try:
            await story(worker)
        finally:
            await worker.close()

    asyncio.run(whole())


def test_a_row_shows_no_batch_and_its_lag(tmp_path: Path) -> None:
    async def story(worker: Worker) -> None:
        found = await worker.answer(ONE, 5)
        assert found.body.splitlines()[1] == json.dumps([KEYS[0], 1]).replace(" ", "").encode()
        assert (found.fresh.batch, found.fresh.offset_lag) == (None, 5)
        fast = worker.fast(ONE, 5)
        assert fast is not None
        assert b"standpipe-offset-lag: 5\r\n" in fast
        assert b"standpipe-batch" not in fast

    with_worker(tmp_path, of(OF_LOG, end=105), story)


def test_a_bound_in_records_holds(tmp_path: Path) -> None:
    async def story(worker: Worker) -> None:
        assert worker.fast(ONE, 4) is None
        with pytest.raises(NoReplica):
            await worker.answer(ONE, 4)

    with_worker(tmp_path, of(OF_LOG, end=105), story)


def test_rows_after_a_gap_satisfy_no_bound(tmp_path: Path) -> None:
    async def story(worker: Worker) -> None:
        assert (await worker.answer(ONE)).fresh.batch is None
        with pytest.raises(NoReplica):
            await worker.answer(ONE, 1000)

    with_worker(tmp_path, of(NO_BATCH), story)


@pytest.mark.parametrize(
    ("properties", "level"),
    [
        ({LEVEL_PROPERTY: "session"}, "session"),
        ({TOKEN_PROPERTY: ""}, "session"),
        ({LEVEL_PROPERTY: "snapshot"}, "snapshot"),
        ({LEVEL_PROPERTY: "linearizable"}, "linearizable"),
    ],
)
def test_levels_that_compare_batches_are_refused(
    tmp_path: Path, properties: dict[str, str], level: str
) -> None:
    async def story(worker: Worker) -> None:
        body = json.dumps({"ksql": ONE, "streamsProperties": properties}).encode()
        assert worker.fast_path().answer(LINES, body) is None
        slow_path, asked = worker.slow_path, parse_lookup(body)
        with pytest.raises(BadRequest, match=f"read level {level} is not for USERS"):
            # behind the barrier that a linearizable read waits for, which needs Kafka
            await slow_path._answer(
                LINES, asked, body, slow_path.map.view, ScanRequester(), linear=None
            )

    with_worker(tmp_path, of(OF_LOG), story)


def test_a_level_that_every_table_has(tmp_path: Path) -> None:
    async def story(worker: Worker) -> None:
        body = json.dumps({"ksql": ONE, "streamsProperties": {LEVEL_PROPERTY: "eventual"}}).encode()
        assert (await worker.slow_path.answer(LINES, body)).body

    with_worker(tmp_path, of(OF_LOG), story)
