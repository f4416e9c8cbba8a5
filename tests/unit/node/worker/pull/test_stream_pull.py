"""Records of a stream as rows of an answer; the reading itself is tested with a real Kafka."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import msgspec
import pytest
from tests.samples import sample_stream

from standpipe.adapters.files.turn_page import digest_of
from standpipe.adapters.kafka.tail import RecordsLost
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.data.query.record_rows import TopicRecord
from standpipe.errors import BadRequest, TooManyRequests
from standpipe.model import Column
from standpipe.node.worker.pull import stream_pull
from standpipe.node.worker.pull.stream_pull import (
    StreamPulls,
    check_topic,
    final_message,
    rows_of_stream,
)
from standpipe.node.worker.request.computing_turn import ComputingTurn
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.sql.plans import PullPlan

STREAM = sample_stream(
    columns=(
        Column(name="K", type="INTEGER", is_key=True),
        Column(name="V", type="STRING"),
        Column(name="H", type="BYTES", header="abc"),
    )
)
PLAN = PullPlan(
    source=STREAM, keys=(), schema="", is_scan=True, column_names=("K", "V", "H"),
    column_types=("INTEGER", "STRING", "BYTES"),
)  # fmt: skip
RECORDS = [
    TopicRecord(b"\0\0\0\1", b'{"v":"a"}', 5, (("abc", b"!"),)),
    TopicRecord(None, b'{"V":"b"}', 6, ()),
    TopicRecord(b"\0\0\0\1", None, 7, ()),
    TopicRecord(b"\0\0\0\1", b"no JSON", 8, ()),
]


def test_rows_of_a_stream() -> None:
    """A null value is no event, and what cannot be read is left out."""
    rows = list(rows_of_stream(PLAN, iter(RECORDS)))
    assert rows == [b'[1,"a","IQ=="]', b'[null,"b",null]']


def test_a_filter_sees_rowtime() -> None:
    plan = msgspec.structs.replace(PLAN, where=lambda row: row[PLAN.rowtime_index] == 6)
    assert list(rows_of_stream(plan, iter(RECORDS))) == [b'[null,"b",null]']


def test_a_record_becomes_a_row_for_each_element() -> None:
    plan = msgspec.structs.replace(
        PLAN, arrays=(lambda row: [row[1], "x"] if row[0] else [],), projection=(0, 6, 2)
    )
    assert list(rows_of_stream(plan, iter(RECORDS))) == [b'[1,"a","IQ=="]', b'[1,"x","IQ=="]']


@pytest.mark.parametrize(
    ("seen", "is_lost", "why"),
    [
        ({"s": TopicSeen("S1", 1)}, False, "it is the one that was committed to"),
        ({"s": TopicSeen("", 1)}, False, "brokers without ids say nothing"),
        ({"s": TopicSeen("S2", 1)}, True, "made anew: few rows, or strange ones"),
        ({}, True, "deleted"),
    ],
)
def test_a_topic_that_was_made_anew_is_not_answered_from(
    seen: dict[str, TopicSeen], is_lost: bool, why: str
) -> None:
    if is_lost:
        with pytest.raises(RecordsLost, match="topic s was deleted"):
            check_topic("s", "S1", seen)
    else:
        check_topic("s", "S1", seen)


def endless_rows(made: list[int]) -> Iterator[bytes]:
    for number in itertools.count():
        made.append(number)
        yield b"[%d]" % number


def reading(monkeypatch: pytest.MonkeyPatch, rows: Callable[[], Iterator[bytes]]) -> StreamPulls:
    """Kafka is left out."""

    def of(*_: object, **__: object) -> Generator[bytes]:
        yield from rows()

    monkeypatch.setattr(stream_pull, "_rows", of)
    monkeypatch.setattr(stream_pull, "BATCH_BYTES", 1)
    return StreamPulls("")


DIGEST = digest_of("SELECT * FROM S;")
SNAPSHOT: Any = None


def test_a_reader_waits_for_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull query on a stream collected the whole topic, however large, before its first byte."""
    made: list[int] = []
    pulls = reading(monkeypatch, lambda: endless_rows(made))

    async def story() -> None:
        batches = pulls.batches(PLAN, SNAPSHOT, DIGEST)
        for number in range(20):
            assert await anext(batches) == [b"[%d]" % number]
            before = -1
            while before != len(made):  # until it makes no more
                before = len(made)
                await asyncio.sleep(0.01)
            assert len(made) <= number + 2 + stream_pull.BATCHES_MAX
        await batches.aclose()  # its client has left
        while pulls._pending:  # noqa: ASYNC110 no event tells it
            await asyncio.sleep(0.001)
        pulls.close()

    asyncio.run(story())


def test_a_client_that_takes_nothing_does_not_hold_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four of them stopped all pull queries on streams of a worker."""
    pulls = reading(monkeypatch, lambda: endless_rows([]))
    monkeypatch.setattr(stream_pull, "READ_S_MAX", 0.1)

    async def story() -> None:
        batches = pulls.batches(PLAN, SNAPSHOT, DIGEST)
        await anext(batches)
        while pulls._pending:  # noqa: ASYNC110 no event tells it
            await asyncio.sleep(0.001)
        with pytest.raises(BadRequest, match="not taken within"):
            async for _ in batches:
                pass
        pulls.close()

    asyncio.run(story())


def test_an_error_of_a_reader_comes_after_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> Iterator[bytes]:
        yield b"[1]"
        raise RecordsLost("gone")

    async def story() -> None:
        batches = reading(monkeypatch, failing).batches(PLAN, SNAPSHOT, DIGEST)
        assert await anext(batches) == [b"[1]"]
        with pytest.raises(RecordsLost):
            await anext(batches)

    asyncio.run(story())


def test_others_compute_while_a_reader_waits_for_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, done = ComputingTurn(), list[str]()

    def compute() -> None:
        with turn:
            done.append("another thread")

    def read(*asked: Any) -> Iterator[TopicRecord]:
        *_, waiting = asked
        other = threading.Thread(target=compute)
        other.start()
        with waiting():
            other.join()
        done.append("the reader")
        yield from RECORDS

    monkeypatch.setattr(stream_pull, "read_topic", read)
    monkeypatch.setattr(stream_pull, "writer_of", lambda *_: None)
    pulls = StreamPulls("", in_hand=TextsInHand(computing=turn))

    async def story() -> list[list[bytes]]:
        return [batch async for batch in pulls.batches(PLAN, SNAPSHOT, DIGEST)]

    assert asyncio.run(story()) == [[b'[1,"a","IQ=="]', b'[null,"b",null]']]
    assert done == ["another thread", "the reader"]
    pulls.close()


def test_readers_are_few_and_so_are_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    pulls = reading(monkeypatch, lambda: endless_rows(made))

    async def story() -> None:
        room = stream_pull.READERS + stream_pull.WAITING_MAX
        held = [pulls.batches(PLAN, SNAPSHOT, DIGEST) for _ in range(room)]
        asked = [asyncio.create_task(anext(batches)) for batches in held]
        await asyncio.wait(asked[: stream_pull.READERS])
        with pytest.raises(TooManyRequests, match="too many queries read streams"):
            await anext(pulls.batches(PLAN, SNAPSHOT, DIGEST))
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        for batches in held:
            await batches.aclose()
        while pulls._pending:  # noqa: ASYNC110 no event tells it
            await asyncio.sleep(0.001)
        pulls.close()

    asyncio.run(story())


def test_a_worker_that_is_short_of_memory_reads_no_stream() -> None:
    def full() -> None:
        raise TooManyRequests("short of memory")

    async def story() -> None:
        with pytest.raises(TooManyRequests, match="short of memory"):
            await anext(StreamPulls("", full).batches(PLAN, SNAPSHOT, DIGEST))

    asyncio.run(story())


@pytest.mark.parametrize(
    ("limit", "count", "message"),
    [(None, 5, "Query Completed"), (5, 5, "Limit Reached"), (6, 5, "Query Completed")],
)
def test_final_message(limit: int | None, count: int, message: str) -> None:
    assert final_message(msgspec.structs.replace(PLAN, limit=limit), count) == message
