"""Both clients on a whole cluster (Kafka, three nodes, Spark), whose nodes are killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from tests.e2e.client_drivers import KINDS, opened
from tests.e2e.cluster import WAIT_S_MAX, TestCluster, wait_until

import standpipe
from standpipe.client import AnswerLost, AsyncClient, ServerRefused
from standpipe.client.core import push
from standpipe.local.client.rest_client import NodesClient
from standpipe.model import NodeId
from standpipe.node.configuration import NodePaths
from standpipe.session_token import TOKEN_PROPERTY

pytestmark = pytest.mark.e2e

TYPED = {
    "id": "o'Hara",
    "b": True,
    "i": -5,
    "l": 2**40,
    "f": 1.5,
    "m": Decimal("12.30"),
    "raw": b"\x00\xff",
    "d": date(2020, 2, 29),
    "t": time(12, 30, 15),
    "ts": datetime(2020, 1, 1, 12, 0, 0, 1000, UTC),
    "a": ["x", "it's"],
    "kv": {"k'": 1},
    "s": {"x": Decimal("1.50"), "y": "z"},
}
COLUMNS = (
    "ID STRING KEY, B BOOLEAN, I INTEGER, L BIGINT, F DOUBLE, M DECIMAL(6, 2), RAW BYTES, D DATE, "
    "T TIME, TS TIMESTAMP, A ARRAY<STRING>, KV MAP<STRING, INTEGER>, "
    "S STRUCT<X DECIMAL(4, 2), Y STRING>"
)
KEYS = [f"u{number}" for number in range(12)]
STEPS = 8


def nodes(cluster: TestCluster) -> list[str]:
    return [address for _, address in cluster.addresses]


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_there_and_back(cluster: TestCluster, kind: str) -> None:
    """Inserted by the client, through Kafka, and read by a push and a pull query."""
    name = f"TYPED_{kind.upper()}"
    with opened(kind, nodes(cluster)) as client:
        topic = f"KAFKA_TOPIC='{name.lower()}', VALUE_FORMAT='JSON', PARTITIONS=2"
        client.execute(f"CREATE STREAM {name} ({COLUMNS}) WITH ({topic});")
        assert client.insert(name, TYPED) == 1
        assert client.insert(name, [{"id": "nulls"}, {"ID": "2", "L": 2}]) == 2
        text = f"SELECT * FROM {name} EMIT CHANGES LIMIT 3;"
        pushed = {row["ID"]: row for row in client.stream(text, from_beginning=True)}
        pulled = {row["ID"]: row for row in client.query(f"SELECT * FROM {name};")}
    wanted = {key.upper(): value for key, value in TYPED.items()}
    wanted["S"] = {"X": Decimal("1.50"), "Y": "z"}
    for found in (pushed, pulled):
        assert {key: found["o'Hara"][key] for key in wanted} == wanted
        assert found["nulls"].as_tuple == ("nulls", *[None] * 12)
        assert (found["2"]["L"], set(found)) == (2, {"o'Hara", "nulls", "2"})


def test_a_session_goes_on_through_other_nodes(cluster: TestCluster) -> None:
    """A row grows while it is read through each node in turn, with the token of the read before:
    none shows less than the one before it, and the row is not held back."""
    steps = "KAFKA_TOPIC='steps_c', VALUE_FORMAT='JSON', PARTITIONS=4"
    cluster.sql(
        f"CREATE STREAM STEPS_C (ID STRING KEY, N BIGINT) WITH ({steps});"
        "CREATE TABLE COUNTS_C AS SELECT ID, COUNT(*) AS N FROM STEPS_C GROUP BY ID EMIT CHANGES;"
    )
    one = {"id": "k", "n": 1}
    text = "SELECT N FROM COUNTS_C WHERE ID = 'k';"
    token, shown = "", [1]
    with standpipe.connect(nodes(cluster)) as client, ExitStack() as opened_ones:
        entries = [opened_ones.enter_context(NodesClient([each])) for each in nodes(cluster)]
        client.insert("STEPS_C", one)
        cluster.wait_for_rows(text, [[1]])
        for step in range(2, STEPS + 2):
            client.insert("STEPS_C", one)
            while shown[-1] < step:
                entry = entries[len(shown) % len(entries)]
                answer = entry.pull(text, {TOKEN_PROPERTY: token})
                assert answer.token is not None
                token = answer.token
                shown += [row[0] for row in answer.rows]
    assert shown == sorted(shown)
    assert len(shown) > STEPS * len(entries), "each node was asked meanwhile"


@pytest.mark.parametrize("kind", KINDS)
def test_from_a_read_to_a_push_query_and_back(cluster: TestCluster, kind: str) -> None:
    """Each step reads a row, changes it, and follows the table from what was read: the first change
    is that one, and the next read shows it. No query says where to begin."""
    topic, table = f"turns_{kind}", f"TURNS_T_{kind.upper()}"
    stream = topic.upper()
    cluster.sql(
        f"CREATE STREAM {stream} (ID STRING KEY, N BIGINT)"
        f" WITH (KAFKA_TOPIC='{topic}', VALUE_FORMAT='JSON', PARTITIONS=4);"
        f"CREATE TABLE {table} AS SELECT ID, SUM(N) AS TOTAL FROM {stream} GROUP BY ID"
        " EMIT CHANGES;"
    )
    with opened(kind, nodes(cluster), session=True, timeout_s=60) as client:
        client.insert(stream, {"id": "k", "n": 1})

        def is_there() -> bool:
            try:
                return client.get(table, id="k") is not None
            except ServerRefused:  # before the first batch
                return False

        wait_until(is_there, "the first row")
        for total in range(2, STEPS + 2):
            assert client.get(table, id="k")["TOTAL"] == total - 1
            with standpipe.connect(nodes(cluster)) as other:
                other.insert(stream, {"id": "k", "n": 1})
            text = f"SELECT TOTAL FROM {table} EMIT CHANGES LIMIT 1;"
            (row,) = client.stream(text, in_session=True)
            assert row["TOTAL"] == total, "neither the one that was read, nor the one after it"
    with opened(kind, nodes(cluster)) as client, pytest.raises(ValueError, match="no session"):
        list(client.stream(f"SELECT * FROM {table} EMIT CHANGES;", in_session=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_push_query_leaves_a_node_that_hangs(
    cluster: TestCluster, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP: its kernel still acknowledges what it is sent. Nothing changed before, so that no
    row was on its way; the row that comes then is delivered once."""
    monkeypatch.setattr(push, "SILENT_INTERVALS", 2)
    stream = f"HELD_{kind.upper()}"
    with opened(kind, nodes(cluster)) as client:
        topic = f"KAFKA_TOPIC='{stream.lower()}', VALUE_FORMAT='JSON', PARTITIONS=1"
        client.execute(f"CREATE STREAM {stream} (ID STRING KEY, N BIGINT) WITH ({topic});")
        client.insert(stream, {"id": "k", "n": 1})
        rows = client.stream(f"SELECT N FROM {stream} EMIT CHANGES;", from_beginning=True)
        with closing(rows):  # pyright: ignore[reportArgumentType] a generator
            assert next(rows)["N"] == 1
            (hanging,) = serving(cluster, stream)
            cluster.local.nodes[hanging].signal_group(signal.SIGSTOP)
            try:
                others = [address for node_id, address in cluster.addresses if node_id != hanging]
                with standpipe.connect(others, finds_members=False) as other:
                    other.insert(stream, {"id": "k", "n": 2})
                assert next(rows)["N"] == 2
            finally:
                cluster.local.nodes[hanging].signal_group(signal.SIGCONT)
            with standpipe.connect(nodes(cluster)) as other:
                other.insert(stream, {"id": "k", "n": 3})
            assert next(rows)["N"] == 3


def serving(cluster: TestCluster, stream: str) -> list[NodeId]:
    """The nodes that serve a push query on it."""
    return [
        plan.node_id
        for plan in cluster.local.plans
        if list(NodePaths(plan.data_directory).push.glob(f"*/transient_{stream}_*"))
    ]


@asynccontextmanager
async def going_on(*endless: Any) -> AsyncIterator[None]:
    """Coroutines beside the body. One that fails ends it."""
    tasks = [asyncio.create_task(each) for each in endless]
    try:
        yield
        assert not [task for task in tasks if task.done()], "none has ended by itself"
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [each for each in ended if not isinstance(each, asyncio.CancelledError)] == []


def test_reads_and_a_push_query_go_on_while_nodes_die(cluster: TestCluster) -> None:
    """Each node is killed and started in turn, twice. No read fails; no change is lost or twice,
    and no read of a session is older than a change that it has followed."""
    clicks = "KAFKA_TOPIC='clicks_c', VALUE_FORMAT='JSON', PARTITIONS=4"
    cluster.sql(
        f"CREATE STREAM CLICKS_C (ID STRING KEY, N BIGINT) WITH ({clicks});"
        "CREATE TABLE SUMS_C AS SELECT ID, SUM(N) AS TOTAL FROM CLICKS_C GROUP BY ID EMIT CHANGES;"
    )
    with standpipe.connect(nodes(cluster)) as client:
        client.insert("CLICKS_C", [{"id": key, "n": 1} for key in KEYS])

        def is_whole() -> bool:
            try:
                return all(client.get_many("SUMS_C", KEYS))
            except ServerRefused:  # before the first batch
                return False

        wait_until(is_whole, "a row of each key")
    asyncio.run(_under_kills(cluster))


async def _under_kills(cluster: TestCluster) -> None:
    seen: list[int] = []
    sent: list[int] = []
    reads = 0
    sums = dict.fromkeys(KEYS, 1)
    async with (
        standpipe.connect_async(nodes(cluster), timeout_s=30) as client,
        standpipe.connect_async(nodes(cluster), timeout_s=60, session=True) as joined,
    ):

        async def follow() -> None:
            text = "SELECT N FROM CLICKS_C WHERE N >= 100 EMIT CHANGES;"
            async for row in client.stream(text):
                seen.append(row["N"])  # noqa: PERF401 others look at it meanwhile
            raise AssertionError("the push query ended")

        async def follow_table() -> None:
            """From what the session has read on, back and forth."""
            for row in await joined.query("SELECT * FROM SUMS_C;"):
                sums[row["ID"]] = row["TOTAL"]
            text, shown = "SELECT * FROM SUMS_C EMIT CHANGES;", dict[str, int]()
            async for row in joined.stream(text, in_session=True):
                key, total = row["ID"], row["TOTAL"]
                assert total >= shown.get(key, 0), "equal: the batch was committed again"
                sums[key] = shown[key] = total
                newest = await joined.get("SUMS_C", id=key)
                assert newest is not None
                assert newest["TOTAL"] >= total
            raise AssertionError("the push query ended")

        async def read() -> None:
            nonlocal reads
            while True:
                for key in KEYS:
                    assert await client.get("SUMS_C", id=key) is not None
                assert all(await client.get_many("SUMS_C", KEYS))
                reads += len(KEYS) + 1

        async with going_on(follow(), follow_table(), read()):
            # the query begins at the end of the topic: wait until it is there
            while not seen:
                await _insert(client, 100 + len(sent), sent)
                await asyncio.sleep(0.2)
            for _ in range(2):
                for node_id, _ in cluster.addresses:
                    await _kill_and_start(cluster, client, NodeId(node_id), sent)
            first = seen[0]
            wanted = {number for number in sent if number >= first}
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S_MAX):
                    while not wanted <= set(seen):  # noqa: ASYNC110 no event
                        await asyncio.sleep(0.1)
                    while sums != await totals(client):  # noqa: ASYNC110 no event
                        await asyncio.sleep(0.1)
            there = await totals(client)
    assert len(seen) == len(set(seen)), "none twice"
    assert wanted <= set(seen), "none is lost"
    assert sums == there, "of the table neither"
    assert reads > 100


async def totals(client: AsyncClient) -> dict[str, int]:
    """What is read of the table."""
    rows = await client.get_many("SUMS_C", KEYS)
    return {row["ID"]: row["TOTAL"] for row in rows if row is not None}


async def _kill_and_start(
    cluster: TestCluster, client: AsyncClient, node_id: NodeId, sent: list[int]
) -> None:
    local = cluster.local
    await asyncio.to_thread(local.kill_node, node_id)
    for _ in range(3):
        await _insert(client, 100 + len(sent), sent)
        await asyncio.sleep(0.2)
    await asyncio.to_thread(local.restart_node, node_id)
    until_s = asyncio.get_running_loop().time() + WAIT_S_MAX
    while asyncio.get_running_loop().time() < until_s:
        try:
            async with standpipe.connect_async(
                dict(cluster.addresses)[node_id], timeout_s=5, finds_members=False
            ) as alone:
                if await alone.get("SUMS_C", id=KEYS[0]):
                    return
        except Exception:  # it is not up yet
            pass
        await asyncio.sleep(0.1)
    raise AssertionError(f"{node_id} does not answer again")


async def _insert(client: AsyncClient, number: int, sent: list[int]) -> None:
    """One click. Its number is spent even if the answer was lost: it may have been written."""
    try:
        await client.insert("CLICKS_C", {"id": KEYS[number % len(KEYS)], "n": number})
        sent.append(number)
    except AnswerLost:
        sent.append(-number)
