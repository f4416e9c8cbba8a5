"""What the Kafka client says becomes facts; a scripted client stands for the real one.

The real one is met in tests/e2e.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from standpipe.adapters.kafka import reader as kafka
from standpipe.adapters.kafka.reader import (
    EndHeard,
    EndProbe,
    Heard,
    OffsetGone,
    Partition,
    PartitionReader,
    ProgressFollower,
    RecordsHeard,
)
from standpipe.data.commit.progress import serialise
from standpipe.data.replica.events import ProgressCaughtUp
from standpipe.model import BatchId, Commit, LeaseEpoch, Offset, Progress


def message(
    at: int,
    *,
    on: str = "T",
    part: int = 0,
    payload: bytes | None = b"v",
    code: int | None = None,
) -> Message:
    """One of the client's own, as `consume` hands it out."""
    error = None if code is None else KafkaError(code)
    return Message(topic=on, partition=part, offset=at, key=b"k", value=payload, error=error)


@dataclass
class Client:
    """Consumer and admin client in one; notes what it is told."""

    script: list[list[Message]] = field(default_factory=list[list[Message]])
    told: list[tuple[str, str, int, int]] = field(default_factory=list[tuple[str, str, int, int]])
    asked: list[Future[Any]] = field(default_factory=list[Future[Any]])

    def consume(self, _count: int, _wait_s: float) -> list[Message]:
        return self.script.pop(0) if self.script else []

    def __getattr__(self, name: str) -> Any:
        def note(partitions: list[Any]) -> None:
            self.told += [(name, p.topic, p.partition, p.offset) for p in partitions]

        return note

    def get_watermark_offsets(self, _of: object, *, cached: bool) -> tuple[int, int]:
        assert cached
        return (0, -1001 if self.asked else 7)

    def list_offsets(self, asked: dict[Any, object], *, request_timeout: float) -> dict[Any, Any]:
        assert request_timeout > 0
        self.asked.append(Future())
        return dict.fromkeys(asked, self.asked[-1])

    def list_topics(self, topic: str, *, timeout: float) -> None:
        assert timeout < 1
        self.told.append(("list_topics", topic, 0, 0))

    def poll(self, _wait_s: float) -> None:
        return None


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    one = Client()
    monkeypatch.setattr(kafka._kafka, "Consumer", lambda _options: one)
    monkeypatch.setattr(kafka._admin, "AdminClient", lambda _options: one)
    return one


END, GONE = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET
T0, T1, U0 = Partition("T", 0), Partition("T", 1), Partition("U", 0)


def records(of: Partition, *offsets: int) -> RecordsHeard:
    return RecordsHeard(of, [(offset, b"k", b"v", None) for offset in offsets])


def plain(heard: Heard) -> Heard:
    """With records that are compared one by one."""
    return replace(heard, records=[*heard.records]) if isinstance(heard, RecordsHeard) else heard


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
            [records(T0, 0), EndHeard(T0, 1), records(T0, 1)],
            "an end between records stays between them",
        ),
        ([message(9, code=GONE)], [OffsetGone(T0)], ""),
        ([message(9, code=KafkaError.OFFSET_OUT_OF_RANGE)], [OffsetGone(T0)], ""),
        ([message(9, code=KafkaError._LOG_TRUNCATION)], [OffsetGone(T0)], "KIP-320"),
        ([message(9, code=KafkaError.UNKNOWN_TOPIC_OR_PART)], [], "it may appear later"),
        ([message(9, code=KafkaError._ALL_BROKERS_DOWN), message(0)], [records(T0, 0)], ""),
    ],
)
def test_facts(client: Client, messages: list[Message], facts: list[Heard], why: str) -> None:
    client.script = [messages]
    assert [plain(heard) for heard in PartitionReader("b").poll(0)] == facts, why


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
    assert [*map(plain, reader.poll(0))] == [records(T1, 0)], "that there is no offset 0 is no news"
    assert client.told == [
        ("incremental_unassign", "T", 0, kafka._kafka.OFFSET_INVALID),
        ("incremental_assign", "T", 0, kafka._kafka.OFFSET_BEGINNING),
    ]
    client.script = [[message(7)], [message(8, code=GONE), message(1, part=1, code=GONE)]]
    assert [*map(plain, reader.poll(0))] == [records(T0, 7)]
    assert [*map(plain, reader.poll(0))] == [OffsetGone(T0), OffsetGone(T1)], "from then on it is"


def test_a_probe_asks_one_question_at_a_time_and_never_waits(client: Client) -> None:
    probe = EndProbe("b", T0)
    assert probe.tick(1000, 100) is None
    assert probe.tick(1200, 100) is None
    assert len(client.asked) == 1, "no answer yet, no second question"
    client.asked[0].set_result(SimpleNamespace(offset=7))
    assert probe.tick(1300, 100) == (1000, 7), "the instant of the question, not of the answer"
    assert probe.tick(1301, 100) is None
    client.asked[1].set_exception(failure(KafkaError._TIMED_OUT))
    assert probe.tick(1500, 100) is None
    assert len(client.asked) == 3, "asked again"
    assert client.told == []


def failure(code: int) -> Exception:
    return kafka._kafka.KafkaException(KafkaError(code))


@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_probe_learns_of_a_leader_that_came_back(client: Client, code: int) -> None:
    probe = EndProbe("b", T0)
    probe.tick(1000, 100)
    client.asked[0].set_exception(failure(code))
    probe.tick(1100, 100)
    assert client.told == [("list_topics", "T", 0, 0)]


def test_an_error_is_said_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now = SimpleNamespace(monotonic=lambda: 1.0)
    monkeypatch.setattr(
        kafka, "_log", SimpleNamespace(warning=lambda *_, error: said.append(error))
    )
    monkeypatch.setattr(kafka, "time", now)
    say = kafka.say_rarely()
    down, refused = KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaError(KafkaError._TRANSPORT)
    for error in (down, refused, down, refused):
        say(error)
    assert len(said) == 2
    now.monotonic = lambda: 1.0 + kafka.SAY_EVERY_S
    say(down)
    assert len(said) == 3


def progress(at: int, lease_epoch: int, batch: int, end: int) -> Message:
    commit = Commit(lease_epoch=LeaseEpoch(lease_epoch), batch=BatchId(batch), attempt=1)
    record = Progress(query_id="Q", commit=commit, sinks={0: Offset(end)})
    return message(at, on="p", payload=serialise(record)[1])


def test_the_progress_topic_is_followed(client: Client) -> None:
    follower = ProgressFollower("b", "p")
    tombstone, rubbish = message(1, on="p", payload=None), message(2, on="p", payload=b"{")
    end = message(4, on="p", code=END)
    client.script = [[progress(0, 2, 0, 5), tombstone, rubbish, progress(3, 1, 9, 9), end]]
    news = follower.poll()
    assert [type(each).__name__ for each in news] == ["ValidTarget", "ProgressCaughtUp"]
    assert news[-1] == ProgressCaughtUp()
    assert (follower.position, follower.knows_all) == (4, True)
    assert follower.book.committed_end("Q", 0) == 5, "a zombie's record is not valid"


@pytest.mark.parametrize(
    ("end", "confirmed", "why"),
    [(1, 1000, "nothing that was not read"), (2, None, "something newer is there")],
)
def test_kafka_is_confirmed_by_an_end_that_was_read(
    client: Client, end: int, confirmed: int | None, why: str
) -> None:
    follower = ProgressFollower("b", "p")
    client.script = [[progress(0, 1, 0, 5), message(1, on="p", code=END)]]
    follower.poll()
    assert follower.confirmed_ms(1000) is None
    client.asked[0].set_result(SimpleNamespace(offset=end))
    assert follower.confirmed_ms(1050) == confirmed, why


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_topic_that_was_cut_is_read_anew(client: Client, by_itself: bool) -> None:
    follower = ProgressFollower("b", "p")
    client.script = [[progress(0, 1, 0, 5), message(1, on="p", code=END)]]
    follower.poll()
    if by_itself:
        client.script = [[message(1, on="p", code=GONE)]]
        assert follower.poll() == []
    else:
        follower.read_anew()
    assert (follower.position, follower.knows_all) == (0, False)
    assert follower.book.committed_end("Q", 0) == -1
    assert [name for name, *_ in client.told][-2:] == ["incremental_unassign", "incremental_assign"]
