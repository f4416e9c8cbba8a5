"""The progress topic as a tailer follows it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message
from tests.unit.kafka_client import Client, message, scripted

from standpipe.adapters.kafka.reader import Partition
from standpipe.data.commit.progress import serialise
from standpipe.data.commit.seal import NO_SEAL
from standpipe.data.replica.barrier import BARRIER_KEY
from standpipe.data.replica.events import ProgressCaughtUp
from standpipe.model import BatchId, Commit, LeaseEpoch, Offset, Progress
from standpipe.node.tailer.progress import ProgressFollower

END, GONE = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    return scripted(monkeypatch)


def progress(at: int, lease_epoch: int, batch: int, end: int) -> Message:
    commit = Commit(lease_epoch=LeaseEpoch(lease_epoch), batch=BatchId(batch), attempt=1)
    record = Progress(query_id="Q", commit=commit, sinks={0: Offset(end)})
    return message(at, on="p", payload=serialise(record)[1])


def test_the_progress_topic_is_followed(client: Client) -> None:
    follower = ProgressFollower("b", "p", NO_SEAL)
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
    follower = ProgressFollower("b", "p", NO_SEAL)
    client.script = [[progress(0, 1, 0, 5), message(1, on="p", code=END)]]
    follower.poll()
    assert follower.confirmed_ms(1000) is None
    client.asked[0].set_result({Partition("p", 0): end})
    assert follower.confirmed_ms(1050) == confirmed, why


def test_an_end_that_is_read_a_moment_later_confirms_the_instant_of_the_request(
    client: Client,
) -> None:
    """With barriers all the time, hardly any end is read already when it is told."""
    follower = ProgressFollower("b", "p", NO_SEAL)
    client.script = [[progress(0, 1, 0, 5), message(1, on="p", code=END)]]
    follower.poll()
    assert follower.confirmed_ms(1000) is None
    client.asked[0].set_result({Partition("p", 0): 2})
    assert follower.confirmed_ms(1050) is None
    client.script = [[message(1, on="p", payload=None)]]
    assert follower.poll() == []
    assert follower.confirmed_ms(1090) == 1000, "not when it was read"
    assert follower.confirmed_ms(1095) is None, "once"


def test_the_newest_barrier_is_known_until_the_topic_is_read_again(client: Client) -> None:
    follower = ProgressFollower("b", "p", NO_SEAL)
    tombstone = message(0, key=b'["Q","ck",0]', on="p", payload=None)
    barriers = [message(at, key=BARRIER_KEY, on="p", payload=None) for at in (1, 2)]
    client.script = [[tombstone, message(3, on="p", code=END)]]
    assert follower.poll() == [ProgressCaughtUp()]
    assert follower.barrier_end == 0, "the tombstone of a record is none"
    client.script = [[*barriers, progress(3, 1, 0, 5)]]
    follower.poll()
    assert follower.barrier_end == 3
    follower.read_again()
    assert follower.barrier_end == 0


@pytest.mark.parametrize(
    ("told", "is_read_again", "known"),
    [
        (["X"], False, "X"),
        (["X", "X"], False, "X"),
        (["X", ""], False, "X"),
        (["X", "Y"], True, "Y"),
    ],
)
def test_another_topic_is_read_from_its_beginning(
    client: Client, told: list[str], is_read_again: bool, known: str
) -> None:
    """Its offsets may be as high as those that were read: no error of Kafka says so."""
    follower = ProgressFollower("b", "p", NO_SEAL)
    client.script = [[progress(0, 1, 0, 5), message(1, on="p", code=END)]]
    follower.poll()
    for topic_id in told:
        follower.heard(topic_id)
    assert follower.topic_id == known
    assert (follower.position, follower.knows_all) == ((0, False) if is_read_again else (1, True))


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_topic_that_was_cut_is_read_again(client: Client, by_itself: bool) -> None:
    follower = ProgressFollower("b", "p", NO_SEAL)
    client.script = [[progress(0, 1, 0, 5), message(1, on="p", code=END)]]
    follower.poll()
    if by_itself:
        client.script = [[message(1, on="p", code=GONE)]]
        assert follower.poll() == []
    else:
        follower.read_again()
    assert (follower.position, follower.knows_all) == (0, False)
    assert follower.book.committed_end("Q", 0) == -1
    assert [name for name, *_ in client.told][-2:] == ["incremental_unassign", "incremental_assign"]
