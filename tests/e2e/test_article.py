"""The `curl` calls of the article in docs/sources.md, run by bash as they stand there.

What the page's way to a text file took is put back first, and nothing else: line ends after each
backslash and around the here-document, and straight quotes for the typesetter's.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.e2e.test_serve import EVENTS, USERS, Cluster, json_bytes, partition, status
from tests.tidy.source import ROOT

from standpipe.model import Offset

SHARED = Path(os.environ.get("STANDPIPE_SHARED", ROOT.parent / "shared"))
ARTICLE = SHARED / "sources" / "article-ha-pull-queries.txt"
ORDERS = msgspec.structs.replace(
    USERS, name="ORDERS", topic="ORDERS", query_id="CTAS_ORDERS", table_id="T3"
)
STATEMENT = "SELECT * FROM orders WHERE ROWKEY = 'order-1';"

pytestmark = pytest.mark.skipif(not ARTICLE.exists(), reason=f"no {ARTICLE}")


def lines_of(opening: str) -> list[str]:
    return [line for line in ARTICLE.read_text().splitlines() if line.startswith(opening)]


def restored(line: str) -> str:
    for lost, there in (
        (" \\ -", " \\\n-"),
        ("<<EOF {", "<<EOF\n{"),
        ("} EOF )", "}\nEOF\n)"),
        ("‘", "'"),
        ("’", "'"),
    ):
        line = line.replace(lost, there)
    return line


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster.make(tmp_path, 2)
    made.sources = (EVENTS, ORDERS)
    made.fill({"order-1": [7, "a table by order"]}, ORDERS)
    made.publish()
    made.start()
    yield made
    made.stop()


def run(cluster: Cluster, command: str) -> bytes:
    environment = {
        **os.environ,
        "KSQL_ENDPOINT": f"http://127.0.0.1:{cluster.nodes[0].port()}",
        "KSQL_BASIC_AUTH_USER_INFO": "user:password",
    }
    done = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pull_query_with_a_bound(cluster: Cluster) -> None:
    (line,) = lines_of("curl -X POST $KSQL_ENDPOINT/query")
    header, row = json.loads(run(cluster, restored(line)))
    assert header["header"]["schema"] == "`ID` STRING KEY, `N` BIGINT, `NAME` STRING"
    assert row == {"row": {"columns": ["order-1", 7, "a table by order"]}}


def test_its_error_where_all_trail_by_more(cluster: Cluster) -> None:
    (line,) = lines_of("curl -X POST $KSQL_ENDPOINT/query")
    (shown,) = lines_of("Unable to execute pull query")
    behind = status(position=Offset(0), committed_end=Offset(10_001))
    for node in cluster.nodes:
        node.write_status(ORDERS, partition("order-1"), behind)
    answer = json.loads(run(cluster, restored(line)))
    assert answer["message"].startswith(restored(shown))
    assert json_bytes(STATEMENT).decode().strip('"') in answer["message"]


def test_the_cluster_status(cluster: Cluster) -> None:
    (line,) = lines_of("curl -sX GET")
    hosts = json.loads(run(cluster, restored(line)))["clusterStatus"]
    assert set(hosts) == {node.config.public for node in cluster.nodes}
    own = hosts[cluster.nodes[0].config.public]
    assert own["hostAlive"] is True
    assert "CTAS_ORDERS" in own["activeStandbyPerQuery"]
