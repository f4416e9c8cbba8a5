"""What ends the janitor's thread, and what it does for a stream; Kafka is faked.

Sweeps and repairs: `data/commit/repair.py` in simulation, and tests/e2e (test_stragglers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any, cast

import msgspec
import pytest
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.data.commit.committed import Committed
from standpipe.data.commit.progress import KEEP_MS, fence
from standpipe.data.commit.seal import Left
from standpipe.errors import KafkaUnavailable
from standpipe.model import BatchId, Commit, LeaseEpoch, Offset, Progress
from standpipe.pipeline.commit import janitor as janitors
from standpipe.pipeline.commit.janitor import (
    POLL_S,
    RESTING_POLL_S,
    Janitor,
)
from standpipe.pipeline.commit.swept_topic import SweptTopic
from standpipe.pipeline.failures import Fenced
from standpipe.pipeline.io.progress_log import ProgressLog

(WANTED,) = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
)
TABLE = WANTED.table
STREAM = msgspec.structs.replace(TABLE, kind="STREAM", partitions=2)


class Log:
    """The progress topic, and where the stream's topic begins. `then` ends a janitor's loop."""

    def __init__(self, records: list[Progress], starts: list[dict[int, int]]) -> None:
        self.kept, self.starts = records, starts
        self.ignored: list[bytes] = []
        self.gone: list[Progress] = []

    def start_offsets(self, _topic: str, partitions: int) -> dict[int, int]:
        assert partitions == STREAM.partitions
        return self.starts.pop(0)

    def left(self) -> Left:
        return Left(self.kept, [b"forged"])

    def tombstone_ignored(self, keys: list[bytes]) -> None:
        self.ignored = keys

    def tombstone(self, gone: list[Progress]) -> None:
        assert self.ignored, "the ignored ones went first"
        self.gone += gone
        self.kept = [record for record in self.kept if record not in gone]


def janitor_of(log: object, table: Any = STREAM, records: list[Progress] | None = None) -> Janitor:
    swept = SweptTopic(
        query_id="Q",
        table=table,
        lease_epoch=LeaseEpoch(1),
        kafka="",
        log=cast(ProgressLog, log),
        check_lease=lambda: None,
        ask_topics=lambda: lambda: None,
    )
    return Janitor(swept, records or [])


class Reader:
    """A topic without news; `error` ends the look."""

    error: Exception | None = None

    def __init__(self, *_: object) -> None: ...
    def close(self) -> None: ...

    def poll(self, _wait_s: float) -> list[Any]:
        assert self.error is not None, "the loop would not end"
        raise self.error


@pytest.mark.parametrize(
    ("error", "is_told", "why"),
    [
        (ValueError("no progress record"), True, "a record that is none, in `_prune`"),
        (BufferError("Local: Queue full"), True, "nobody sees a thread die"),
        (Fenced("a newer pipeline"), False, "its batches find that out by themselves"),
    ],
)
def test_what_ends_the_thread_of_a_table_is_told_to_its_run(
    monkeypatch: pytest.MonkeyPatch, error: Exception, is_told: bool, why: str
) -> None:
    monkeypatch.setattr(janitors, "TopicReader", Reader)
    monkeypatch.setattr(Reader, "error", error)
    janitor = janitor_of(None, TABLE)
    janitor.start()
    janitor._thread.join()
    assert janitor.failure is (error if is_told else None), why


def test_the_thread_of_a_stream_is_told_as_well_but_goes_on_without_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(janitors, "PRUNE_EVERY_S", 0.0)
    errors: list[Exception] = [KafkaUnavailable("away"), ValueError("no progress record")]

    class Failing:
        def start_offsets(self, *_: object) -> dict[int, int]:
            raise errors.pop(0)

    janitor = janitor_of(Failing())
    janitor.start()
    janitor._thread.join()
    assert isinstance(janitor.failure, ValueError)
    assert not errors, "Kafka may come back"


def batch(number: int, ends: dict[int, int], clean: dict[int, int] | None = None) -> Progress:
    commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(number), attempt=number)
    starts = {p: max(0, end - 5) for p, end in ends.items()}
    return Progress(
        query_id="Q", commit=commit, sinks=ends, starts=starts, clean_through=clean or {}
    )


def test_progress_of_a_stream_goes_with_what_retention_took() -> None:
    """It was kept for ever, and grew with each batch."""
    records = [fence("Q", LeaseEpoch(1), nonce=1)]
    records += [batch(number, {0: 5 * number + 5, 1: 5 * number + 5}) for number in range(3)]
    log = Log(records, [{0: 10, 1: 7}, {0: 15, 1: 15}, {0: 15, 1: 15}])
    janitor = janitor_of(log, records=records)
    janitor._follow_retention()
    assert janitor.clean_through() == {0: 0, 1: 0}, "a follower may still have them"
    janitor._follow_retention()
    assert janitor.clean_through() == {0: 10, 1: 7}

    janitor._prune()
    assert log.gone == [], "no record in the topic says so"
    log.kept.append(batch(3, {0: 20, 1: 20}, janitor.clean_through()))
    janitor._prune()
    assert [record.commit.batch for record in log.gone] == [0], "the next one has rows at 1/7"

    janitor._follow_retention()
    log.kept.append(batch(4, {0: 25, 1: 25}, janitor.clean_through()))
    janitor._prune()
    assert [record.commit.batch for record in log.gone] == [0, 1, 2]
    newcomer = Committed("Q")
    for record in log.kept:
        newcomer.take(record)
    assert newcomer.ends() == {0: 25, 1: 25}, "who begins at the log's start finds all there is"
    assert [each.low for each in newcomer.ranges(0, 15, 25)] == [15, 20]
    assert all(each.mark is not None for each in newcomer.ranges(0, 15, 25)), "exact matches only"


def test_what_a_stream_calls_gone_never_goes_back() -> None:
    """Its predecessor's word counts: readers have jumped over what that one tombstoned."""
    before = batch(7, {0: 40, 1: 40}, {0: 30, 1: 20})
    log = Log([], [{0: 3, 1: 35}, {0: 3, 1: 35}])
    janitor = janitor_of(log, records=[before])
    assert janitor.clean_through() == {0: 30, 1: 20}
    janitor._follow_retention()
    janitor._follow_retention()
    assert janitor.clean_through() == {0: Offset(30), 1: Offset(35)}


def test_records_of_the_last_hour_stay() -> None:
    young = msgspec.structs.replace(batch(0, {0: 5, 1: 5}), committed_at_ms=2**62)
    log = Log([young, batch(1, {0: 10, 1: 10}, {0: 10, 1: 10})], [])
    janitor_of(log)._prune()
    assert log.gone == [], f"not yet {KEEP_MS} ms old"


def test_it_polls_less_often_when_nothing_has_come_for_a_while() -> None:
    """But neither when there is something new, nor while it holds up batches to catch up."""
    waited: list[float] = []

    class Quiet(Reader):
        def poll(self, wait_s: float) -> list[Any]:
            waited.append(wait_s)
            if len(waited) == 5:
                raise KafkaUnavailable("enough")
            return []

    class Ends:
        def end_offsets(self, *_: object) -> dict[int, int]:
            return {0: 9}

    janitor, reader = janitor_of(Ends(), TABLE), cast(Any, Quiet())
    janitor._sweep(reader)
    janitor._rests_at = 0.0
    janitor._sweep(reader)
    janitor.committed(batch(0, {0: 5}))
    janitor._sweep(reader)
    janitor._sweep(reader)
    janitor._rests_at = 0.0
    with pytest.raises(KafkaUnavailable, match="enough"):
        janitor._catch_up(reader)
    assert waited == [POLL_S, RESTING_POLL_S, RESTING_POLL_S, POLL_S, POLL_S]


@pytest.mark.parametrize("when", ["lock", "finder", "reader", "ends"])
def test_it_commits_nothing_once_it_is_stopped(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Wherever it is then. What it committed was among the batches of the query's next run."""
    stop: dict[str, Callable[[], None]] = {}

    class Asked:
        """Has no room for a commit."""

        def end_offsets(self, *_: object) -> dict[int, int]:
            if len(ends) == 1:  # after the repair
                stop["ends"]()
            return {0: ends.pop(0)}

        def write_rows(self, _topic: str, _partition: int, rows: list[object]) -> None:
            assert rows == []

        def append(self, _: Progress) -> None:
            pytest.fail("it was committed")

    class Reading(Reader):
        def poll(self, _wait_s: float) -> list[Any]:
            stop["reader"]()
            return [(0, [], Offset(9))]

    def read_once(*_: object) -> Iterator[list[Any]]:
        stop["finder"]()
        yield []

    ends = [9, 9]
    janitor = janitor_of(Asked(), TABLE, [fence("Q", LeaseEpoch(1), nonce=1), batch(0, {0: 5})])
    stop |= dict.fromkeys(("finder", "reader", "ends"), lambda: None)
    if when in stop:
        stop[when] = janitor.stop
    reader = cast(Any, Reading())
    monkeypatch.setattr(janitors, "read_once", read_once)
    monkeypatch.setattr(janitor, "_due", lambda: {0: {}})
    monkeypatch.setattr(janitor, "_has_news", lambda quiet_ms=0: True)
    if when == "lock":
        with janitor.lock:
            thread = Thread(target=janitor._repair, args=(reader,))
            thread.start()
            janitor.stop()
        thread.join()
    else:
        janitor._repair(reader)
    assert janitor.is_stopped(), "the step was reached"
    assert janitor.newest == batch(0, {0: 5})


def test_whoever_waits_for_its_end_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    janitor_of(None, TABLE).wait_until_ended()  # it never began
    polled, may_end = Event(), Event()

    class Slow(Reader):
        def poll(self, _wait_s: float) -> list[Any]:
            polled.set()
            assert may_end.wait(30)
            return []

    monkeypatch.setattr(janitors, "TopicReader", Slow)
    janitor = janitor_of(None, TABLE)
    janitor.start()
    assert polled.wait(30)
    janitor.stop()
    waiting = Thread(target=janitor.wait_until_ended)
    waiting.start()
    assert waiting.is_alive()
    may_end.set()
    waiting.join(30)
    assert not janitor._thread.is_alive()


def test_whoever_waits_for_its_end_waits_for_a_batch() -> None:
    """Spark's stop gives a batch 5 s, and its append may take 30 s."""
    janitor, has_begun, may_end = janitor_of(None, TABLE), Event(), Event()

    def batch_in_flight() -> None:
        with janitor.lock:
            has_begun.set()
            assert may_end.wait(30)

    Thread(target=batch_in_flight).start()
    assert has_begun.wait(30)
    janitor.stop()
    waiting = Thread(target=janitor.wait_until_ended)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    may_end.set()
    waiting.join(30)
    assert not waiting.is_alive()


def test_no_ends_below_those_of_a_repair_without_an_answer() -> None:
    """It may be committed: a batch that says less would begin before its rows, and end there."""

    class Silent:
        def end_offsets(self, *_: object) -> dict[int, int]:
            return {0: 12}

        def append(self, _: Progress) -> None:
            raise KafkaUnavailable("no answer")

    janitor = janitor_of(Silent(), TABLE, [fence("Q", LeaseEpoch(1), nonce=1), batch(0, {0: 10})])
    janitor._sweeps[0].records([], Offset(12))
    janitor._has_news = lambda quiet_ms=0: True
    with pytest.raises(KafkaUnavailable, match="no answer"):
        janitor._append(cast(Any, None), {})
    with pytest.raises(KafkaUnavailable, match="12 was committed"):
        janitor.refuse({0: 11})
    janitor.refuse({0: 12})


def test_it_repairs_nothing_once_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop came while it polled: its query's next run may hold batches by another lock."""
    janitor = janitor_of(None, TABLE)

    class Stopping(Reader):
        def poll(self, _wait_s: float) -> list[Any]:
            janitor.stop()
            return []

    monkeypatch.setattr(janitors, "TopicReader", Stopping)
    monkeypatch.setattr(janitors, "LOOK_EVERY_S", 0.0)
    repairs: list[object] = []
    monkeypatch.setattr(janitor, "_repair", repairs.append)
    janitor.start()
    janitor._thread.join()
    assert (repairs, janitor.failure) == ([], None)
