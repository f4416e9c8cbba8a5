"""Both clients against real workers: rows, routing, refusals, nodes that die or hang. No Kafka."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.client_drivers import KINDS, opened
from tests.e2e.test_serve import (
    DAY_MS,
    DAYS,
    PARTITIONS,
    ROWS,
    START,
    USERS,
    Cluster,
    Node,
    ask,
    partition,
    select,
    status,
)

import standpipe
from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.files.turn_page import digest_of
from standpipe.client import (
    NodesUnreachable,
    ServerRefused,
    StatementError,
    UnfitParameter,
)
from standpipe.model import ReplicaState
from standpipe.node.worker_report import RefusedText, WorkersReport

TRICKY = ["o'Hara", "'; DROP TABLE USERS; --", "?", 'a"b', "back\\slash", "ünï", "", "\n\t", "${x}"]


def make(folder: Path, **options: Any) -> Cluster:
    made = Cluster.make(folder, 3, **options)
    made.fill(ROWS | {key: [n, key] for n, key in enumerate(TRICKY)})
    made.fill({"k1": [START, 5, "x"]}, DAYS)
    made.publish()
    made.start()
    return made


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A hedge would let another replica answer where the machine is busy, and the tests say who.
    made = make(tmp_path_factory.mktemp("client"), **{"standpipe.forward.hedge.load.percent": 0})
    yield made
    made.stop()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Cluster]:
    made = make(tmp_path, replicas=3)
    yield made
    made.stop()


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, lasting: Cluster) -> Iterator[Any]:
    """One that gives a sound node of a busy machine time, and so asks no other one."""
    address = lasting.nodes[0].config.public
    with opened(request.param, address, patience_s=20, timeout_s=60) as made:
        yield made


def requests_in(cluster: Cluster, name: str) -> float:
    """A counter, added up over all nodes."""
    lines = [
        line
        for node in cluster.nodes
        for line in ask(node.port(), "/metrics").body.decode().splitlines()
    ]
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_a_row(client: Any) -> None:
    row = client.get("USERS", id="k1")
    assert dict(row) == {"ID": "k1", "N": 1, "NAME": "näme 1"}
    assert (row.freshness.role, row.freshness.batch, row.freshness.offset_lag) == ("active", 7, 0)
    assert client.get("users", ID="k1") == row, "names fold as in SQL"
    assert client.get("USERS", id="nobody") is None


@pytest.mark.parametrize("key", TRICKY)
def test_no_key_leaves_its_literal(client: Any, key: str) -> None:
    assert client.get("USERS", id=key)["NAME"] == key
    assert client.query("SELECT NAME FROM USERS WHERE ID=?;", [key]).tuples == [(key,)]
    assert [row["ID"] for row in client.get_many("USERS", [key])] == [key]


def test_many_rows_in_their_order(client: Any) -> None:
    keys = [*ROWS, "nobody", "k1", *TRICKY]
    found = client.get_many("USERS", keys)
    assert [row and row["ID"] for row in found] == [*ROWS, None, "k1", *TRICKY]
    assert client.get_many("USERS", []) == []
    assert client.get_many("USERS", [{"id": "k1"}, ("k2",)])[1]["N"] == 2


def test_a_window(client: Any) -> None:
    start = datetime.fromtimestamp(START / 1000, UTC)
    row = client.get("DAYS", id="k1", windowstart=start)
    assert (row["WINDOWSTART"], row["N"]) == (START, 5)
    assert client.get("DAYS", id="k1", windowstart=START + DAY_MS) is None
    with pytest.raises(UnfitParameter, match="windowed"):
        client.get_many("DAYS", ["k1"])


def test_a_scan(client: Any) -> None:
    rows = client.query("SELECT ID, N FROM USERS WHERE N >= ? AND NAME LIKE ?;", [30, "näme %"])
    assert sorted(rows.tuples) == sorted((f"k{n}", n) for n in range(30, 40))


def test_errors_are_the_nodes(client: Any) -> None:
    with pytest.raises(StatementError) as raised:
        client.query("SELECT NOPE FROM USERS WHERE ID = ?;", ["k1"])
    assert (raised.value.line, raised.value.column) == (1, 8)
    with pytest.raises(StatementError, match="NOBODY"):
        client.get("NOBODY", id="x")
    with pytest.raises(UnfitParameter, match="the key of USERS is ID"):
        client.get("USERS", name="x")
    with pytest.raises(Exception, match=r"stream\(\)"):
        client.query("SELECT * FROM EVENTS EMIT CHANGES;")


def test_statements(client: Any) -> None:
    (tables,) = client.execute("SHOW TABLES;")
    assert {each["name"] for each in tables["tables"]} == {"USERS", "DAYS"}


def test_every_lookup_goes_to_the_owner(lasting: Cluster, client: Any) -> None:
    client.get("USERS", id="k0")
    before = requests_in(lasting, "standpipe_pull_forwarded_in_total")
    for key in ROWS:
        row = client.get("USERS", id=key)
        owner, _ = lasting.holders(partition(key))
        assert row.freshness.served_by == owner.config.node_id
    asked = requests_in(lasting, "standpipe_pull_requests_total")
    client.get_many("USERS", [*ROWS, *(f"nobody {number}" for number in range(200))])
    assert requests_in(lasting, "standpipe_pull_requests_total") == asked + 3, "one of each owner"
    assert requests_in(lasting, "standpipe_pull_forwarded_in_total") == before, "no hop"


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_owner_is_found(mortal: Cluster, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The map changes under a client that knows it: it notices by who served, and reads it anew."""
    until = time.monotonic() + 60
    with opened(kind, mortal.nodes[0].config.public) as client:

        def until_owners_serve() -> dict[str, str]:
            """Until then a hedge, or a node that is asked in place of a slow one, gives the row."""
            owners = {key: mortal.holders(partition(key))[0].config.node_id for key in ROWS}
            served: dict[str, str] = {}
            while served != owners:
                assert time.monotonic() < until, (owners, served)
                served = {key: client.get("USERS", id=key).freshness.served_by for key in ROWS}
            return served

        old = until_owners_serve()
        nodes = mortal.nodes
        holders = lambda number: [nodes[(number + 1 + i) % 3] for i in range(2)]  # noqa: E731
        monkeypatch.setattr(mortal, "holders", holders)
        mortal.publish(stamp=2)
        new = until_owners_serve()
        assert all(old[key] != new[key] for key in ROWS)
        before = -1.0
        while before != (before := requests_in(mortal, "standpipe_pull_forwarded_in_total")):
            assert time.monotonic() < until, "lookups still take a hop"
            for key in ROWS:
                client.get("USERS", id=key)


@pytest.mark.parametrize("kind", KINDS)
def test_no_read_fails_while_nodes_die_in_turn(mortal: Cluster, kind: str) -> None:
    """SIGKILL and a new start of each node, three rounds, with reads all the time."""
    keys = list(ROWS)
    count = 0
    addresses = [node.config.public for node in mortal.nodes]
    with opened(kind, addresses) as client:

        def read() -> None:
            nonlocal count
            for key in keys:
                assert client.get("USERS", id=key)["N"] == ROWS[key][0]
            assert all(client.get_many("USERS", keys))
            count += len(keys)

        for _ in range(3):
            for node in mortal.nodes:
                read()
                node.workers[0].kill()
                read()
                node.workers[0].wait()
                read()
                node.workers.clear()
                node.start()
                read()
                node.wait_ready()
    assert count >= 3 * 3 * 4 * len(keys)


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_hangs_holds_up_few_reads(mortal: Cluster, kind: str) -> None:
    """SIGSTOP: whoever met it waits for the client's patience; all others go past it."""
    with opened(kind, [node.config.public for node in mortal.nodes], patience_s=0.3) as client:
        keys = [key for key in ROWS if mortal.holders(partition(key))[0] is mortal.nodes[0]]
        client.get_many("USERS", keys)
        os.kill(mortal.nodes[0].workers[0].pid, signal.SIGSTOP)
        servers = [client.get("USERS", id=key).freshness.served_by for key in keys * 5]
        assert "node-0" not in servers
        os.kill(mortal.nodes[0].workers[0].pid, signal.SIGCONT)
        until = time.monotonic() + 60
        while client.get("USERS", id=keys[0]).freshness.served_by != "node-0":
            assert time.monotonic() < until, "it is asked again once it answers"
            time.sleep(0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_all_dead(mortal: Cluster, kind: str) -> None:
    with opened(kind, mortal.nodes[0].config.public, timeout_s=3) as client:
        assert client.get("USERS", id="k1", timeout_s=60) is not None
        for node in mortal.nodes:
            node.workers[0].kill()
            node.workers[0].wait()
        with pytest.raises(NodesUnreachable, match="Connection refused"):
            client.get("USERS", id="k1")


def errors_of(cluster: Cluster, code: int) -> float:
    return requests_in(cluster, f'standpipe_pull_errors_total{{code="{code}"')


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_not_ready_is_waited_for_as_told(mortal: Cluster, kind: str) -> None:
    """503/50305 with Retry-After: two nodes are asked, and then none for the second it names."""
    key = "k1"
    with opened(kind, mortal.nodes[0].config.public, timeout_s=1.9) as client:
        client.get("USERS", id=key, timeout_s=60)
        page = status(ReplicaState.BOOTSTRAP, position=50, committed_end=-1)
        for node in mortal.nodes:
            node.write_status(USERS, partition(key), page)
        before = errors_of(mortal, 50305)
        with pytest.raises(ServerRefused) as raised:
            client.get("USERS", id=key)
        assert (raised.value.error_code, raised.value.again_after_s) == (50305, 1.0)
        asked = errors_of(mortal, 50305) - before
        # each entry asks its two peers, which count their refusals, too; its fast path has asked
        # one of them before, once in REFUSED_S
        assert asked <= 4 * 3 + 2, "two replicas, the wait, two again, and the time is over"
        for node in mortal.nodes:
            node.write_status(USERS, partition(key), status())
        assert client.get("USERS", id=key, timeout_s=60) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_text_is_not_sent_again(mortal: Cluster, kind: str) -> None:
    """429/42901 with Retry-After: 60: every node refuses the text, as if it had stopped workers."""
    text = select("k1")
    until_ms = Clock().boot_ms() + 60_000
    report = WorkersReport(refused=(RefusedText(digest=digest_of(text), until_boot_ms=until_ms),))
    with opened(kind, [node.config.public for node in mortal.nodes]) as client:
        client.query("SELECT * FROM USERS WHERE ID = 'k2';")
        for node in mortal.nodes:
            published.write(node.config.paths.workers, report)
        until = time.monotonic() + 60
        while any(ask(node.port(), "/query", _body(text)).status == 200 for node in mortal.nodes):
            assert time.monotonic() < until
        before = errors_of(mortal, 42901)
        with pytest.raises(ServerRefused) as raised:
            client.query(text)
        assert (raised.value.http_status, raised.value.again_after_s) == (429, 60.0)
        assert errors_of(mortal, 42901) - before <= 3, "no node is asked twice"


def _body(text: str) -> bytes:
    return b'{"ksql": "%b"}' % text.encode()


def test_threads_share_a_client(lasting: Cluster) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with (
        opened("blocking", lasting.nodes[0].config.public) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        found = list(threads.map(lambda key: client.get("USERS", id=key)["N"], [*ROWS] * 10))
    assert found == [columns[0] for columns in ROWS.values()] * 10


def test_tasks_share_a_client_and_its_connections(lasting: Cluster) -> None:
    """Lookups of one turn go out together; each gets its own row, and the general way's."""

    async def story() -> None:
        async with standpipe.connect_async(lasting.nodes[0].config.public) as client:
            keys = [*ROWS, "nobody", *TRICKY] * 5
            for _ in range(3):
                found = await asyncio.gather(*(client.get("USERS", id=key) for key in keys))
                assert [row and row["ID"] for row in found] == [
                    None if key == "nobody" else key for key in keys
                ]
            wanted = await client.get_many("USERS", keys)
            assert [row and row.as_tuple for row in found] == [
                row and row.as_tuple for row in wanted
            ]

    asyncio.run(story())


def test_no_read_of_many_tasks_fails_while_nodes_die(
    mortal: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New owners, so that nodes forward some of the lookups that came together; then SIGKILL and a
    new start of each node. 24 tasks read all the time, and some are cancelled."""
    keys = list(ROWS)
    counts = [0] * 24
    is_over = asyncio.Event()

    async def story() -> None:
        addresses = [node.config.public for node in mortal.nodes]
        async with standpipe.connect_async(addresses, timeout_s=30) as client:

            async def read(task: int) -> None:
                while not is_over.is_set():
                    key = keys[(task + counts[task]) % len(keys)]
                    row = await client.get("USERS", id=key)
                    assert row is not None
                    assert row["N"] == ROWS[key][0], "each its own"
                    counts[task] += 1

            async def give_up() -> None:
                """Callers that go away: nobody else gets their answers."""
                while not is_over.is_set():
                    lost = [asyncio.create_task(client.get("USERS", id=key)) for key in keys[:4]]
                    await asyncio.sleep(0)
                    for task in lost[:2]:
                        task.cancel()
                    await asyncio.gather(*lost, return_exceptions=True)
                    await asyncio.sleep(0.01)

            readers = [asyncio.create_task(read(task)) for task in range(len(counts))]
            readers.append(asyncio.create_task(give_up()))

            async def go_on() -> None:
                wanted = sum(counts) + 100
                while sum(counts) < wanted and not any(each.done() for each in readers):  # noqa: ASYNC110 no event
                    await asyncio.sleep(0.01)

            await go_on()
            nodes = mortal.nodes
            turned = lambda number: [nodes[(number + 1 + i) % 3] for i in range(3)]  # noqa: E731
            monkeypatch.setattr(mortal, "holders", turned)
            mortal.publish(stamp=2)
            forwarded = partial(requests_in, mortal, "standpipe_pull_forwarded_in_total")
            while await asyncio.to_thread(forwarded) == 0:
                await go_on()
            for node in mortal.nodes:
                node.workers[0].kill()
                await asyncio.to_thread(node.workers[0].wait)
                await go_on()
                node.workers.clear()
                await asyncio.to_thread(node.start)
                await asyncio.to_thread(node.wait_ready)
            is_over.set()
            await asyncio.gather(*readers)

    asyncio.run(story())
    assert min(counts) > 0


def test_partitions_are_covered() -> None:
    """The tests above read every partition."""
    assert {partition(key) for key in ROWS} == set(range(PARTITIONS))


def test_an_idle_connection_that_the_node_closed_is_no_failure(mortal: Cluster) -> None:
    """All workers are new, and the client's connections lead to the old ones."""
    with opened("blocking", [node.config.public for node in mortal.nodes]) as client:
        client.get_many("USERS", list(ROWS))
        for node in mortal.nodes:
            restart(node)
        assert all(client.get_many("USERS", list(ROWS)))


def restart(node: Node) -> None:
    node.workers[0].terminate()
    node.workers[0].wait()
    node.workers.clear()
    node.start()
    node.wait_ready()
