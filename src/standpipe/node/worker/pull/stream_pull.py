"""A pull query on a stream: its topic read once, from the beginning to its current end.

If a query of ours writes the topic, only what it committed is shown (`data/commit/committed.py`),
and nothing of a topic that was recreated since. Like ksqlDB's (KLIP-53) it reads the whole topic
each time, so it runs in its own thread and has a deadline, which includes the time that the client
takes. A record that cannot be read is left out, as in a persistent query.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from threading import Semaphore
from typing import Final

from standpipe.adapters.kafka.connection import Kafka
from standpipe.adapters.kafka.read_once import read_topic
from standpipe.adapters.kafka.tail import RecordsLost
from standpipe.adapters.kafka.topic_ids import topics_now
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.seal import NO_SEAL, ProgressReader, ProgressSeal
from standpipe.data.commit.topic_identity import TopicKnown, TopicSeen, changes
from standpipe.data.query.record_rows import RecordRows, TopicRecord, writer_of
from standpipe.data.query.scan import ROW_BYTES, laid_out
from standpipe.errors import BadRequest, TooManyRequests
from standpipe.model import Snapshot
from standpipe.node.worker.request.computing_turn import FREE, Turn
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.sql.lookup import exploded
from standpipe.sql.plans import PullPlan
from standpipe.sql.schemas.registry import Schemas
from standpipe.topics import progress_topic

READ_S_MAX: Final = 30.0
COMPLETED: Final = "Query Completed"
LIMIT_REACHED: Final = "Limit Reached"
#: queries that read their topics at a time, and those that wait for their turn
READERS: Final = 4
WAITING_MAX: Final = 16
#: of rows that a reader hands over at a time, and how many such batches wait for the client
BATCH_BYTES: Final = 64 * 1024
BATCHES_MAX: Final = 4


class _Abandoned(Exception):
    """Nobody wants the rest of the answer."""


class StreamPulls:
    """The pull queries on streams of one worker.

    A reader hands its rows over in batches. When BATCHES_MAX of them wait for the client it stops,
    and so does its consumer: what is in memory does not depend on the topic.
    """

    def __init__(
        self,
        kafka: Kafka,
        may_begin: Callable[[], None] = lambda: None,
        in_hand: TextsInHand | None = None,
        *,
        seal: ProgressSeal = NO_SEAL,
        schemas: Schemas | None = None,
    ) -> None:
        """`schemas`: the schema registry; None: there is none."""
        self._kafka, self._seal, self._schemas = kafka, seal, schemas
        #: raises TooManyRequests if the worker is short of memory
        self._may_begin = may_begin
        self._in_hand = in_hand or TextsInHand()
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="stream-pulls")
        self._pending = 0

    async def batches(
        self, plan: PullPlan, snapshot: Snapshot, digest: bytes
    ) -> AsyncGenerator[list[bytes]]:
        """Rows of the answer. Raises KafkaUnavailable, RecordsLost; TooManyRequests at first."""
        self._may_begin()
        if self._pending >= READERS + WAITING_MAX:
            raise TooManyRequests("too many queries read streams at this worker: retry in a second")
        handover = _Handover(asyncio.get_running_loop())
        self._pending += 1
        reading = self._threads.submit(self._read, plan, snapshot, digest, handover)
        reading.add_done_callback(lambda _: handover.end(self._ended))
        try:
            while (batch := await handover.next()) is not None:
                yield batch
            await asyncio.wrap_future(reading)
        finally:
            handover.abandon()

    def close(self) -> None:
        """The process ends: does not wait for what is still read."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self) -> None:
        self._pending -= 1

    def _read(self, plan: PullPlan, snapshot: Snapshot, digest: bytes, handover: _Handover) -> None:
        until_s = time.monotonic() + READ_S_MAX
        # the schema of a record may be asked for while its row is computed
        turn = FREE if self._schemas is not None else self._in_hand.computing
        rows = _rows(plan, self._kafka, self._seal, snapshot, self._schemas, turn=turn)
        try:
            while True:
                with turn, self._in_hand.in_thread(digest, waits=True):
                    batch = _batch(rows)
                if not batch:
                    return
                handover.put(batch, until_s)
        except _Abandoned:
            return
        finally:
            rows.close()


class _Handover:
    """Batches on their way from a reader's thread to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[list[bytes] | None] = asyncio.Queue()
        self._room = Semaphore(BATCHES_MAX)
        self._is_abandoned = False

    def put(self, batch: list[bytes], until_s: float) -> None:
        """In the thread: waits until there is room. Raises _Abandoned, and BadRequest when the
        client has not made room by then: others wait for the thread."""
        if not self._room.acquire(timeout=max(0.0, until_s - time.monotonic())):
            raise BadRequest(
                f"the rows were not taken within {READ_S_MAX:.0f} s: add a LIMIT, or read faster"
            )
        if self._is_abandoned:
            raise _Abandoned
        self._loop.call_soon_threadsafe(self._queue.put_nowait, batch)

    def end(self, then: Callable[[], None]) -> None:
        """In the thread: there are no more batches."""

        def ended() -> None:
            self._queue.put_nowait(None)
            then()

        with suppress(RuntimeError):  # the worker's loop has ended
            self._loop.call_soon_threadsafe(ended)

    async def next(self) -> list[bytes] | None:
        """On the loop: None after the last one."""
        batch = await self._queue.get()
        self._room.release()
        return batch

    def abandon(self) -> None:
        """On the loop: the reader ends with its next batch."""
        self._is_abandoned = True
        self._room.release()


def final_message(plan: PullPlan, count: int) -> str:
    """The last message of an answer with so many rows."""
    return LIMIT_REACHED if plan.limit is not None and count >= plan.limit else COMPLETED


def _batch(rows: Iterator[bytes]) -> list[bytes]:
    batch: list[bytes] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row) + ROW_BYTES
        if size >= BATCH_BYTES:
            break
    return batch


def _rows(
    plan: PullPlan,
    kafka: Kafka,
    seal: ProgressSeal,
    snapshot: Snapshot,
    schemas: Schemas | None,
    *,
    turn: Turn,
) -> Generator[bytes]:
    if plan.limit == 0:
        return
    source = plan.source
    deadline = time.monotonic() + READ_S_MAX
    committed_id = ""
    writer = writer_of(source.topic, snapshot)
    records: Iterator[TopicRecord]
    if writer is None:
        records = read_topic(kafka, source.topic, source.partitions, deadline, turn.waiting)
    else:
        committed, progress = Committed(writer), ProgressReader(seal)
        topic = progress_topic(snapshot.service_id)
        for record in read_topic(kafka, topic, 1, deadline, turn.waiting):
            if record.value is not None:
                found = progress.read(record.key, record.value, record.headers)
                if found is not None:
                    committed.take(found)
        committed_id = committed.topic_id
        # read after the progress: what is committed by now is in the topic
        records = read_topic(kafka, source.topic, source.partitions, deadline, turn.waiting)
        records = committed_records(committed, records)
    yield from islice(rows_of_stream(plan, _in_turns(records, turn), schemas), plan.limit)
    if committed_id:  # after the rows: they are of no other topic, since ids are never reused
        with turn.waiting():
            seen = topics_now(kafka, [source.topic])
        check_topic(source.topic, committed_id, seen)


def _in_turns(records: Iterator[TopicRecord], turn: Turn) -> Iterator[TopicRecord]:
    for record in records:
        turn.pass_on()
        yield record


def check_topic(topic: str, committed_id: str, seen: Mapping[str, TopicSeen]) -> None:
    """Raises RecordsLost unless it is the topic that commits name."""
    known = TopicKnown(committed_id, 0)
    if found := changes({topic: known}, seen):
        raise RecordsLost(f"{found[0]}: what was committed to it is gone. SHOW QUERIES says more")


def committed_records(
    committed: Committed, records: Iterator[TopicRecord]
) -> Iterator[TopicRecord]:
    """The records that the progress topic names."""
    for record in records:
        if committed.shows(record.partition, record.offset, record.headers):
            yield record


def rows_of_stream(
    plan: PullPlan, records: Iterator[TopicRecord], schemas: Schemas | None = None
) -> Iterator[bytes]:
    """JSON arrays of the records that satisfy the plan, in the order of the records."""
    rows = RecordRows(plan.source, schemas)
    for record in records:
        row = rows.row(record)
        if row is not None and (plan.where is None or plan.where(row.cells)):
            for each in exploded.rows(row.cells, plan.arrays):
                yield laid_out(plan, each)
