"""Reading one's own writes through Spark: each insert is read back with its token, at other nodes.

Real Kafka, Spark and three nodes. A table is one query away from the stream, another one three, of
which one leaves rows out. Sessions insert and read side by side. The tailer of a node is killed
meanwhile.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.e2e.cluster import WAIT_S_MAX, TestCluster, wait_until
from tests.e2e.topic_ends import end_offset

import standpipe
from standpipe.adapters import process
from standpipe.client import Client, ServerRefused, token_of_writes
from standpipe.data.commit.progress import parse
from standpipe.errors import NoReplica, NotReady, TokenRefused
from standpipe.local.client.rest_client import NodesClient, PullAnswer
from standpipe.session_token import TOKEN_PROPERTY, SessionToken, TopicKey
from standpipe.topics import progress_topic

STATEMENTS = """
CREATE STREAM W_EVENTS (K STRING KEY, V BIGINT)
    WITH (KAFKA_TOPIC='w_events', VALUE_FORMAT='JSON', PARTITIONS=4);
CREATE TABLE W_ONE AS SELECT K, COUNT(*) AS N FROM W_EVENTS GROUP BY K EMIT CHANGES;
CREATE STREAM W_CHOSEN AS SELECT * FROM W_EVENTS WHERE V >= 0 EMIT CHANGES;
CREATE STREAM W_MADE AS SELECT K, V + 1 AS V FROM W_CHOSEN EMIT CHANGES;
CREATE TABLE W_THREE AS SELECT K, COUNT(*) AS N FROM W_MADE GROUP BY K EMIT CHANGES;
"""
#: few, since each waits for three queries: `make read-your-writes` has 10,000
SESSIONS, INSERTS = 16, 2
TABLES = ("W_ONE", "W_THREE")


@dataclass
class ReadBack:
    """One insert that was read back. Times are of the wall clock, in ms."""

    table: str
    batch: int
    asked_ms: float
    answered_ms: float


@dataclass
class History:
    """What all sessions saw. `misses`: rows without what was written."""

    read: list[ReadBack] = field(default_factory=list[ReadBack])
    misses: list[str] = field(default_factory=list[str])
    refused: int = 0


def text_of(table: str, key: str) -> str:
    return f"SELECT N FROM {table} WHERE K = '{key}';"


def answered(pull: Callable[[], PullAnswer], history: History) -> PullAnswer:
    """Ask again while no replica covers the token in time: Spark shares two cores with all this."""

    def once() -> PullAnswer | None:
        try:
            return pull()
        except ServerRefused as refused:
            if refused.error_code not in (NotReady.code, NoReplica.code):
                raise
            history.refused += 1
            return None

    found = wait_until(once, "an answer that covers the token")
    assert found is not None
    return found


def session(cluster: TestCluster, number: int, history: History, *, inserts: int = INSERTS) -> None:
    """Insert a row at one node, read it at others, again and again."""
    chance, key = random.Random(number), f"s{number}"
    addresses = [address for _, address in cluster.addresses]
    wanted = dict.fromkeys(TABLES, 0)
    with ExitStack() as stack:
        client = stack.enter_context(
            standpipe.connect(
                addresses[number % 3], session=True, finds_members=False, timeout_s=60
            )
        )
        others = [addresses[(number + step) % 3] for step in (1, 2)]
        # kept, as an application's: to connect for each read takes processor from what is measured
        entries = [stack.enter_context(NodesClient([other])) for other in others]
        for step in range(inserts):
            is_left_out = step % 2 == 1
            client.insert("W_EVENTS", {"k": key, "v": -1 if is_left_out else step})
            wanted["W_ONE"] += 1
            wanted["W_THREE"] += not is_left_out
            token = client.session_token
            assert token
            for table in chance.sample(TABLES, 2):
                ask = chance.choice(entries).pull
                asked_ms = time.time() * 1000
                answer = answered(
                    partial(ask, text_of(table, key), {TOKEN_PROPERTY: token}), history
                )
                answered_ms = time.time() * 1000
                rows = [row[0] for row in answer.rows]
                if rows != [wanted[table]]:
                    history.misses.append(f"{table} {key}: {rows}, not {wanted[table]}")
                assert answer.fresh.batch is not None
                done = ReadBack(table, answer.fresh.batch, asked_ms, answered_ms)
                history.read.append(done)
                assert answer.token is not None
                assert SessionToken.parse(answer.token).covers(SessionToken.parse(token))


def committed_ms(cluster: TestCluster, table: str) -> dict[int, int]:
    """{batch: when its progress record was written} of a table's query."""
    query_id, topic = cluster.query_of(table), progress_topic("default_")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "w"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    end = end_offset(consumer, TopicPartition(topic, 0))
    found: dict[int, int] = {}
    while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
        message = consumer.poll(1.0)
        value = None if message is None or message.error() else message.value()
        if value:
            record = parse(value)
            if record.query_id == query_id:
                found.setdefault(record.commit.batch, record.committed_at_ms)
    consumer.close()
    return found


def beyond_the_batch_ms(history: History, table: str, committed: dict[int, int]) -> list[float]:
    """Of reads that waited: by how much the answer came after the batch was committed."""
    return [
        one.answered_ms - committed[one.batch]
        for one in history.read
        if one.table == table and committed.get(one.batch, 0) > one.asked_ms
    ]


@pytest.mark.timeout(900)
def test_inserts_are_read_back_at_other_nodes(cluster: TestCluster) -> None:
    cluster.sql(STATEMENTS)
    first = "INSERT INTO W_EVENTS (K, V) VALUES ('first', 1);"
    cluster.sql(first)
    for table in TABLES:
        cluster.wait_for_rows(text_of(table, "first"), [[1]])
    histories = [History() for _ in range(SESSIONS)]
    threads = [
        threading.Thread(target=session, args=(cluster, number, histories[number]))
        for number in range(SESSIONS)
    ]
    for thread in threads:
        thread.start()
    time.sleep(5)
    run = cluster.local.plans[1].data_directory / "run"
    tailer = process.read_pid(run / "tailer.pid")
    assert tailer is not None
    os.kill(tailer, signal.SIGKILL)
    for thread in threads:
        thread.join()
    whole = History(
        [one for history in histories for one in history.read],
        [one for history in histories for one in history.misses],
        sum(history.refused for history in histories),
    )
    assert whole.misses == []
    assert len(whole.read) == SESSIONS * INSERTS * len(TABLES), "each session went to its end"
    for table in TABLES:
        waits = beyond_the_batch_ms(whole, table, committed_ms(cluster, table))
        took = [one.answered_ms - one.asked_ms for one in whole.read if one.table == table]
        print(  # figures, which no test asserts
            f"{table}: {len(took)} read back, p50 {statistics.median(took):.0f} ms; "
            f"{len(waits)} waited, beyond the batch p50 {statistics.median(waits or [0]):.0f} ms, "
            f"max {max(waits, default=0):.0f} ms; asked again {whole.refused} times"
        )


@pytest.mark.timeout(600)
def test_a_table_is_replaced_meanwhile(cluster: TestCluster) -> None:
    """Each insert is read back, whichever generation answers."""
    cluster.sql(
        "CREATE STREAM W_STEPS (K STRING KEY, V BIGINT)"
        " WITH (KAFKA_TOPIC='w_steps', VALUE_FORMAT='JSON', PARTITIONS=2);"
        "CREATE TABLE W_COUNTED AS SELECT K, COUNT(*) AS N FROM W_STEPS GROUP BY K EMIT CHANGES;"
    )
    addresses = [address for _, address in cluster.addresses]
    generation, inserted, history = 1, 0, History()
    with ExitStack() as opened:
        entries = [opened.enter_context(NodesClient([each])) for each in addresses]
        client = opened.enter_context(standpipe.connect(addresses, session=True, timeout_s=60))
        client.insert("W_STEPS", {"k": "a", "v": 1})
        inserted = 1
        cluster.wait_for_rows(text_of("W_COUNTED", "a"), [[1]])
        cluster.sql(
            "CREATE OR REPLACE TABLE W_COUNTED AS"
            " SELECT K, COUNT(*) AS N, MAX(V) AS M FROM W_STEPS GROUP BY K EMIT CHANGES;"
        )
        until_s = time.monotonic() + WAIT_S_MAX
        after_switch = 0
        while after_switch < 3:
            assert time.monotonic() < until_s, "generation 2 never answered"
            client.insert("W_STEPS", {"k": "a", "v": inserted})
            inserted += 1
            token = client.session_token or ""
            ask = partial(
                entries[inserted % 3].pull, text_of("W_COUNTED", "a"), {TOKEN_PROPERTY: token}
            )
            answer = answered(ask, history)
            assert answer.rows == ((inserted,),)
            assert answer.token is not None
            client.join_session(answer.token)
            (mark,) = SessionToken.parse(answer.token).marks.values()
            assert mark.generation >= generation
            generation = mark.generation
            after_switch += generation > 1


def test_records_of_a_producer_are_read_back(cluster: TestCluster) -> None:
    """Not written through Standpipe; the token has no topic id."""
    cluster.sql(
        "CREATE STREAM W_OTHER (K STRING KEY, V BIGINT)"
        " WITH (KAFKA_TOPIC='w_other', VALUE_FORMAT='JSON', PARTITIONS=4);"
        "CREATE TABLE W_COUNTS AS SELECT K, COUNT(*) AS N FROM W_OTHER GROUP BY K EMIT CHANGES;"
    )
    acknowledged: list[tuple[str, int, int]] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None
        acknowledged.append((message.topic(), message.partition(), message.offset()))

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    keys = [f"p{number}" for number in range(10)]
    addresses = [address for _, address in cluster.addresses]
    with standpipe.connect(addresses, session=True, timeout_s=60) as client:
        for step in range(1, 4):
            for key in keys:
                producer.produce("w_other", b'{"V":1}', key, on_delivery=delivered)
            assert producer.flush(30) == 0
            client.join_session(token_of_writes(acknowledged))

            def found(of: Client = client) -> list[int] | None:
                try:
                    rows = of.get_many("W_COUNTS", keys)
                except ServerRefused:
                    return None
                return [row["N"] if row else 0 for row in rows]

            assert wait_until(found, "all are read back") == [step] * len(keys)


def is_refused(cluster: TestCluster, query: str, token: SessionToken) -> bool | None:
    """Whether no replica will ever cover it. None: not each of them knows yet."""
    try:
        cluster.pull(query, {TOKEN_PROPERTY: token.text()})
    except TokenRefused:
        return True
    except ServerRefused:
        return None
    return False


def test_tokens_of_writes_that_cannot_be_covered(cluster: TestCluster) -> None:
    """Refused at once, not after the time of a read; what is of no account is not looked at."""
    cluster.sql(
        "CREATE STREAM W_FEW (K STRING KEY, V BIGINT)"
        " WITH (KAFKA_TOPIC='w_few', VALUE_FORMAT='JSON', PARTITIONS=1);"
        "CREATE TABLE W_FEWS AS SELECT K, COUNT(*) AS N FROM W_FEW GROUP BY K EMIT CHANGES;"
    )
    with standpipe.connect([address for _, address in cluster.addresses], session=True) as client:
        client.insert("W_FEW", {"k": "a", "v": 1})
        token = client.session_token
    assert token
    ((key, ends),) = SessionToken.parse(token).writes.items()
    assert (key.topic, ends) == ("w_few", {0: 1})
    assert len(key.topic_id) == 22, "Kafka's id of the topic"
    query = text_of("W_FEWS", "a")
    cluster.wait_for_rows(query, [[1]])
    assert cluster.pull(query, {TOKEN_PROPERTY: token}).rows == ((1,),)
    other = SessionToken(writes={TopicKey("w_nowhere"): {0: 99}})
    assert cluster.pull(query, {TOKEN_PROPERTY: other.text()}).rows == ((1,),)
    assert wait_until(
        lambda: is_refused(cluster, query, SessionToken(writes={key: {0: 10**9}})),
        "every replica says so, also the one that has just begun",
    )
    for forged, said in (
        (SessionToken(writes={key: {0: 10**9}}), "ended at 1"),
        (SessionToken(writes={key: {7: 1}}), "ended at 0"),
        (SessionToken(writes={TopicKey("w_few", "x" * 22): {0: 1}}), "created again"),
    ):
        with pytest.raises(TokenRefused, match=said):
            cluster.pull(query, {TOKEN_PROPERTY: forged.text()})
