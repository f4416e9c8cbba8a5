"""A real cluster for end-to-end tests: Kafka, three nodes and a Spark pipeline, on free ports.

    def test_something(cluster: TestCluster) -> None:
        cluster.sql("CREATE STREAM S (K STRING KEY, N INTEGER) WITH (…);")
        cluster.wait_for_rows("SELECT * FROM T WHERE K = 'a';", [["a", 1]])

`cluster` (conftest.py) lives for the whole test session and is shared: use names of your own, and
leave every node and the pipeline running. A test that needs a cluster to itself calls `start`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Producer
from rich.console import Console

from standpipe.client import ServerRefused
from standpipe.local.client import status
from standpipe.local.client.rest_client import NodesClient, PullAnswer
from standpipe.local.cluster.ports import any_port
from standpipe.local.cluster.steps import Steps
from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster
from standpipe.local.demo.feed import create_topics
from standpipe.local.demo.flights import Event
from standpipe.model import NodeId

WAIT_S_MAX = 480.0  # generous: a busy machine is no failure
T = TypeVar("T")


class TestCluster:
    """A running local cluster with the helpers that tests need."""

    __test__ = False

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.client = NodesClient([plan.public for plan in local.plans])

    @property
    def bootstrap_servers(self) -> str:
        return self.local.bootstrap_servers

    @property
    def addresses(self) -> list[tuple[str, str]]:
        """(node id, public address) of every node."""
        return [(plan.node_id, plan.public) for plan in self.local.plans]

    def sql(self, text: str) -> list[dict[str, Any]]:
        """Statements through POST /ksql of the first node that answers."""
        return self.client.execute(text)

    def pull(self, text: str, properties: Mapping[str, str] | None = None) -> PullAnswer:
        """One pull query through the first node that answers."""
        return self.client.pull(text, properties)

    def pull_from(self, node_id: str, text: str) -> PullAnswer:
        """One pull query with this node as entry."""
        with NodesClient([dict(self.addresses)[node_id]]) as client:
            return client.pull(text)

    def topic(self, name: str) -> None:
        """Make a topic of 4 partitions."""
        create_topics(self.bootstrap_servers, [name])

    def send(self, topic: str, events: Iterable[Event]) -> int:
        """Produce and wait for the acknowledgements. Returns how many."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,  # else a retry on a busy machine changes the order
            }
        )
        count = 0
        for event in events:
            while True:
                try:
                    producer.produce(topic, event.value, event.key, timestamp=event.time_ms)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
        assert producer.flush(120) == 0
        return count

    def wait_for_rows(
        self, text: str, rows: Sequence[Sequence[object]], entry: str | None = None
    ) -> PullAnswer:
        """Ask until the rows are those, in any order; fails with the last answer. `entry`: the node
        that is asked, which may read another replica than others; None: any."""
        wanted = sorted(map(list, rows), key=repr)
        seen: list[Any] = []

        def is_there() -> PullAnswer | None:
            try:
                answer = self.pull(text) if entry is None else self.pull_from(entry, text)
            except Exception as error:
                seen[:] = [repr(error)]
                return None
            seen[:] = sorted(map(list, answer.rows), key=repr)
            return answer if seen == wanted else None

        found = wait_until(is_there, f"{entry or ''} {text}: {rows}", lambda: str(seen))
        assert found is not None
        return found

    def active_of(self, query_id: str, partition: int = 0) -> NodeId:
        """The active node of a table partition."""

        def found() -> NodeId | None:
            for replica in status.gather(self.addresses).replicas:
                key = (replica.query_id, replica.partition, replica.role)
                if key == (query_id, partition, "active"):
                    return NodeId(replica.node)
            return None

        node = wait_until(found, f"an active of {query_id}")
        assert node is not None
        return node

    def query_of(self, table: str) -> str:
        """Id of the query that fills a table."""
        for entity in self.sql("SHOW QUERIES;"):
            for query in entity.get("queries", ()):
                if table in query["sinks"]:
                    return str(query["id"])
        raise AssertionError(f"no query fills {table}")

    def close(self) -> None:
        self.client.__exit__()
        self.local.stop()


def start(
    directory: Path, *, nodes: int = 3, master: str = "local[2]", **options: Any
) -> TestCluster:
    """Start a cluster of its own in a directory. `close` it."""
    local = LocalCluster(
        ClusterOptions(
            directory=directory,
            nodes=nodes,
            node_port=free_port_range(),
            broker_port=free_port_range(),
            workers=1,
            master=master,
            **options,
        ),
        Steps(Console(), quiet=True),
    )
    local.start()
    return TestCluster(local)


def free_port_range() -> int:
    """A port that is free now, well below the ephemeral range's end; neighbours usually are too."""
    return any_port()


def wait_until(look: Callable[[], T | None], what: str, shown: Callable[[], str] = str) -> T | None:
    """Look every 0.1 s until there is something; fails after WAIT_S_MAX. A node that refuses for
    now (503) counts as not yet; every other error fails at once."""
    deadline, refusal = time.monotonic() + WAIT_S_MAX, ""
    while time.monotonic() < deadline:
        try:
            if (found := look()) is not None and found is not False:
                return found
            refusal = ""
        except ServerRefused as error:
            if error.error_code // 100 != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            refusal = f"{error!r}; "
        time.sleep(0.1)
    raise AssertionError(f"not within {WAIT_S_MAX:.0f} s: {what}; last seen: {refusal}{shown()}")
