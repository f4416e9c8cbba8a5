"""Push queries with GROUP BY, WINDOW and JOIN: their rows, and that nothing of them stays, whatever
ends them: the client, a LIMIT, TERMINATE, kill -9 of the node that serves it; and that kill -9 of
the pipeline or of the leader ends none."""

from __future__ import annotations

import select
import time

from confluent_kafka.admin import AdminClient
from tests.e2e.cluster import TestCluster, wait_until
from tests.e2e.test_push_tables import HOUR_MS, Followed

from standpipe.adapters.files.published import SnapshotReader
from standpipe.adapters.kafka.read_once import read_topic
from standpipe.local.client import status
from standpipe.local.demo.flights import Event
from standpipe.topics import progress_topic

COUNTS = "SELECT COUNT(*) AS C, U, WINDOWSTART FROM TR WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY U"
AT_MS = 7 * HOUR_MS + 1


def left_of(cluster: TestCluster, query_id: str) -> list[str]:
    """Where there is still something of a query."""
    found: list[str] = []
    if query_id in shown_queries(cluster):
        found.append("catalog")
    if any(cluster.local.directory.checkpoints.glob(f"*{query_id}*")):
        found.append("checkpoint")
    kafka = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    if any(query_id in name for name in kafka.list_topics(timeout=30).topics):
        found.append("topic")
    if any(each.query_id == query_id for each in status.gather(cluster.addresses).replicas):
        found.append("replica")
    progress = progress_topic("default_")
    newest = {
        record.key: record.value
        for record in read_topic(cluster.bootstrap_servers, progress, 1, time.monotonic() + 60)
    }
    if any(query_id.encode() in (key or b"") for key, value in newest.items() if value):
        found.append("progress")
    return found


def shown_queries(cluster: TestCluster) -> dict[str, str]:
    """Ids and types in SHOW QUERIES."""
    (entity,) = cluster.sql("SHOW QUERIES;")
    return {str(query["id"]): str(query["queryType"]) for query in entity["queries"]}


def wait_until_gone(cluster: TestCluster, query_id: str) -> None:
    left: list[str] = []

    def is_gone() -> bool:
        left[:] = left_of(cluster, query_id)
        return not left

    wait_until(is_gone, f"nothing is left of {query_id}", lambda: str(left))


def id_of(followed: Followed) -> str:
    return str(followed.header["header"]["queryId"])


def row(count: int, user: str) -> dict[str, object]:
    return {"columns": [count, user, 7 * HOUR_MS]}


def declare(cluster: TestCluster) -> None:
    runs = [plan.data_directory / "run" for plan in cluster.local.plans]

    def is_registered() -> bool:
        return all(SnapshotReader(run / "snapshot").current().pipelines for run in runs)

    wait_until(is_registered, "every node knows a pipeline")
    cluster.topic("tr")
    cluster.topic("tr_names")
    cluster.sql(
        "CREATE STREAM TR (U STRING KEY, N INTEGER) WITH (KAFKA_TOPIC='tr', VALUE_FORMAT='JSON');"
        "CREATE TABLE TR_NAMES (U STRING PRIMARY KEY, NAME STRING)"
        " WITH (KAFKA_TOPIC='tr_names', VALUE_FORMAT='JSON');"
    )

    def is_declared() -> bool:
        known = [SnapshotReader(run / "snapshot").current().sources for run in runs]
        return all("TR_NAMES" in {source.name for source in sources} for sources in known)

    wait_until(is_declared, "every node knows what was declared")


def test_rows_and_nothing_after_them(cluster: TestCluster) -> None:
    declare(cluster)
    cluster.send("tr", [Event(b"ann", b'{"N":1}', AT_MS), Event(b"bob", b'{"N":1}', AT_MS)])
    followed = Followed(cluster, f"{COUNTS} EMIT CHANGES;", properties={}, node=1)
    query_id = id_of(followed)
    schema = followed.header["header"]["schema"]
    assert schema == "`C` BIGINT, `U` STRING, `WINDOWSTART` BIGINT"
    cluster.send("tr", [Event(b"ann", b'{"N":2}', AT_MS)])
    assert followed.rows_until(row(1, "ann")) == [row(1, "ann")], "latest: what came before is out"
    assert shown_queries(cluster)[query_id] == "PUSH"
    assert query_id not in str(cluster.sql("SHOW TABLES; SHOW STREAMS;"))
    assert left_of(cluster, query_id) == ["catalog", "checkpoint", "topic", "progress"]
    cluster.local.kill_pipeline()
    cluster.send("tr", [Event(b"ann", b'{"N":3}', AT_MS)])
    assert followed.rows_until(row(2, "ann")) == [row(2, "ann")], "another driver went on"
    followed.close()
    wait_until_gone(cluster, query_id)

    whole = Followed(cluster, f"{COUNTS} HAVING COUNT(*) > 2 EMIT CHANGES LIMIT 1;")
    items = [whole.item(), whole.item()]
    assert items == [{"row": row(3, "ann")}, {"finalMessage": "Limit Reached"}]
    whole.close()
    wait_until_gone(cluster, id_of(whole))

    sums = "SELECT COUNT(*) AS C, SUM(N) AS S FROM TR HAVING COUNT(*) > 3 EMIT CHANGES LIMIT 1;"
    summed = Followed(cluster, sums)
    assert summed.item()["row"]["columns"] == [4, 7], "all users are one group"
    summed.close()
    wait_until_gone(cluster, id_of(summed))

    cluster.send("tr_names", [Event(b"bob", b'{"NAME":"Bob"}', 0)])
    joined = "SELECT NAME, N FROM TR JOIN TR_NAMES T ON TR.U = T.U EMIT CHANGES LIMIT 1;"
    named = Followed(cluster, joined)
    while not select.select([named.connection.sock], [], [], 1.0)[0]:
        # one that comes in a batch with the table's row may not see it yet
        cluster.send("tr", [Event(b"bob", b'{"N":7}', AT_MS)])
    assert named.item()["row"]["columns"] == ["Bob", 7]
    named.close()
    wait_until_gone(cluster, id_of(named))


def test_latest_in_what_a_query_of_ours_writes(cluster: TestCluster) -> None:
    """Another kind of source in Spark, of committed rows alone."""
    cluster.sql("CREATE STREAM TR_COPY AS SELECT U, N FROM TR PARTITION BY U EMIT CHANGES;")
    copied = Followed(cluster, "SELECT N FROM TR_COPY EMIT CHANGES;")
    cluster.send("tr", [Event(b"cid", b'{"N":100}', AT_MS)])
    copied.rows_until({"columns": [100]})
    sums = "SELECT SUM(N) AS S FROM TR_COPY GROUP BY U EMIT CHANGES LIMIT 1;"
    summed = Followed(cluster, sums, properties={})
    cluster.send("tr", [Event(b"cid", b'{"N":5}', AT_MS)])
    assert summed.item()["row"]["columns"] == [5]
    summed.close()
    wait_until_gone(cluster, id_of(summed))
    copied.close()


def test_kill_9_of_the_node_that_serves_it(cluster: TestCluster) -> None:
    """And TERMINATE of another one, whose client is told."""
    node_id = cluster.addresses[2][0]
    served = Followed(cluster, f"{COUNTS} EMIT CHANGES;", node=2)
    served.rows_until(row(3, "ann"))
    cluster.local.kill_node(node_id)
    served.close()
    ended = Followed(cluster, f"{COUNTS} EMIT CHANGES;", node=0)
    cluster.sql(f"TERMINATE {id_of(ended)};")
    said = [ended.item()]
    while "errorMessage" not in said[-1]:
        said.append(ended.item())
    assert "it was terminated" in said[-1]["errorMessage"]["message"]
    ended.close()
    for query_id in (id_of(ended), id_of(served)):
        wait_until_gone(cluster, query_id)
    cluster.local.restart_node(node_id)
    cluster.local.wait_until_ready()


def test_kill_9_of_the_leader(cluster: TestCluster) -> None:
    """Its successor knows of no renewal yet, and ends nothing that is served."""
    run = cluster.local.plans[0].data_directory / "run"
    leader = wait_until(
        lambda: SnapshotReader(run / "snapshot").current().leader or None, "a leader"
    )
    assert leader is not None
    nodes = [node_id for node_id, _ in cluster.addresses]
    served = Followed(
        cluster, f"{COUNTS} EMIT CHANGES;", node=next(n for n, i in enumerate(nodes) if i != leader)
    )
    served.rows_until(row(3, "ann"))
    cluster.local.kill_node(leader)
    cluster.send("tr", [Event(b"ann", b'{"N":4}', AT_MS)])
    assert served.rows_until(row(4, "ann"))[-1] == row(4, "ann")
    assert id_of(served) in shown_queries(cluster)
    served.close()
    wait_until_gone(cluster, id_of(served))
    cluster.local.restart_node(leader)
    cluster.local.wait_until_ready()
