"""What the Kafka client says becomes events of an apply machine."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, Message
from tests.unit.kafka_client import Client, message, scripted

from standpipe.adapters.kafka import reader as kafka
from standpipe.adapters.kafka.reader import FetchEvent, Partition, PartitionReader
from standpipe.data.replica.events import EndReached, RecordsFetched, RecordsGone
from standpipe.model import Offset


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    return scripted(monkeypatch)


END, GONE = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET
T0, T1, U0 = Partition("T", 0), Partition("T", 1), Partition("U", 0)


Read = tuple[Partition, FetchEvent]


def records(of: Partition, *offsets: int) -> Read:
    fetched = [(offset, b"k", b"v", None) for offset in offsets]
    return of, RecordsFetched(fetched, Offset(offsets[-1] + 1))


def plain(read: Read) -> Read:
    """With records that are compared one by one."""
    of, event = read
    is_records = isinstance(event, RecordsFetched)
    return of, replace(event, records=[*event.records]) if is_records else event


@pytest.mark.parametrize(
    ("messages", "facts", "why"),
    [
        ([], [], ""),
        ([message(0), message(1)], [records(T0, 0, 1)], "one run, one fact"),
        ([message(n) for n in (3, 4, 7)], [records(T0, 3, 4, 7)], "compaction took some"),
        (
            [message(0), message(5, part=1), message(1), message(0, on="U")],
            [records(T0, 0), records(T1, 5), records(T0, 1), records(U0, 0)],
            "each partition in its order",
        ),
        (
            [message(0), message(1, code=END), message(1)],
            [records(T0, 0), (T0, EndReached(Offset(1))), records(T0, 1)],
            "an end between records stays between them",
        ),
        ([message(9, code=GONE)], [(T0, RecordsGone())], ""),
        ([message(9, code=KafkaError.OFFSET_OUT_OF_RANGE)], [(T0, RecordsGone())], ""),
        ([message(9, code=KafkaError._LOG_TRUNCATION)], [(T0, RecordsGone())], "KIP-320"),
        ([message(9, code=KafkaError.UNKNOWN_TOPIC_OR_PART)], [], "it may appear later"),
        ([message(9, code=KafkaError._ALL_BROKERS_DOWN), message(0)], [records(T0, 0)], ""),
    ],
)
def test_facts(client: Client, messages: list[Message], facts: list[Read], why: str) -> None:
    client.script = [messages]
    assert [*map(plain, PartitionReader("b").poll(0))] == facts, why


def test_partitions_are_read_from_their_offsets(client: Client) -> None:
    reader = PartitionReader("b")
    reader.start(T0, 0)
    reader.start(T1, 5)
    reader.pause(T0)
    reader.resume(T0)
    reader.stop(T1)
    assert [(name, part) for name, _, part, _ in client.told] == [
        ("incremental_assign", 0),
        ("incremental_assign", 1),
        ("pause", 0),
        ("resume", 0),
        ("resume", 1),  # the client keeps a pause over stop and start: nothing was fetched again
        ("incremental_unassign", 1),
    ]
    assert [offset for *_, offset in client.told[:2]] == [0, 5]
    assert reader.log_end(T0) == 7


def test_the_beginning_is_where_retention_has_left_it(client: Client) -> None:
    reader = PartitionReader("b")
    for of in (T0, T1, U0):
        reader.start(of, 0)
    reader.stop(U0)
    client.told.clear()
    client.script = [[message(0, code=GONE), message(0, part=1)]]
    assert [*map(plain, reader.poll(0))] == [records(T1, 0)], (
        "that there is no offset 0 is no event"
    )
    assert client.told == [
        ("incremental_unassign", "T", 0, kafka._kafka.OFFSET_INVALID),
        ("incremental_assign", "T", 0, kafka._kafka.OFFSET_BEGINNING),
    ]
    client.script = [[message(7)], [message(8, code=GONE), message(1, part=1, code=GONE)]]
    assert [*map(plain, reader.poll(0))] == [records(T0, 7)]
    assert [*map(plain, reader.poll(0))] == [(T0, RecordsGone()), (T1, RecordsGone())], (
        "from then on it is"
    )


def test_an_error_is_said_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now = SimpleNamespace(monotonic=lambda: 1.0)
    monkeypatch.setattr(
        kafka, "_log", SimpleNamespace(warning=lambda *_, error: said.append(error))
    )
    monkeypatch.setattr(kafka, "time", now)
    say = kafka.throttled_error_logger()
    down, refused = KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaError(KafkaError._TRANSPORT)
    for error in (down, refused, down, refused):
        say(error)
    assert len(said) == 2
    now.monotonic = lambda: 1.0 + kafka.LOG_EVERY_S
    say(down)
    assert len(said) == 3


def test_timestamps_of_those_that_were_asked_for(client: Client) -> None:
    reader = PartitionReader("b")
    reader.start(T0, 5, is_timed=True)
    reader.start(T1, 5)
    client.script = [[message(5), message(5, part=1)]]
    (_, timed), (_, plain_one) = reader.poll(0)
    assert isinstance(timed, RecordsFetched)
    assert isinstance(plain_one, RecordsFetched)
    assert len(timed.times_ms) == 1
    assert plain_one.times_ms == ()
    reader.start(T0, 6)
    client.script = [[message(6)]]
    ((_, again),) = reader.poll(0)
    assert isinstance(again, RecordsFetched)
    assert again.times_ms == (), "it was started once more, without"
