"""The programs of examples/, each run as a user would, against real workers. No Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import msgspec
import pytest
from tests.e2e.test_serve import USERS, Cluster

from standpipe.local.cluster.ports import any_port
from standpipe.model import Column

EXAMPLES = Path(__file__).parents[2] / "examples"
VISITS = msgspec.structs.replace(
    USERS,
    name="VISITS",
    columns=(
        Column(name="USER_ID", type="STRING", is_key=True),
        Column(name="N", type="BIGINT"),
        Column(name="LAST", type="STRING"),
    ),
)
ROWS: dict[str, list[object]] = {"ada": [12, "/home"], "bob": [3, "/cart"], "o'Hara": [1, "/home"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster.make(tmp_path_factory.mktemp("examples"), 3)
    made.sources = (VISITS,)
    made.fill(ROWS, VISITS)
    made.publish()
    made.start()
    yield made
    made.stop()


def environment(cluster: Cluster) -> dict[str, str]:
    nodes = ",".join(node.config.public for node in cluster.nodes)
    return {**os.environ, "STANDPIPE_NODES": nodes}


@pytest.fixture(scope="module")
def service(cluster: Cluster) -> Iterator[str]:
    """The base address of the FastAPI service."""
    port = any_port()
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", str(port)]
    process = subprocess.Popen([*command, "visits_service:app"], env=environment(cluster))
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 60
        while True:
            try:
                fetch(f"{address}/openapi.json")
                break
            except URLError:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def fetch(address: str) -> Any:
    with urlopen(address, timeout=20) as answer:
        return json.load(answer)


def test_a_service(service: str) -> None:
    row = fetch(f"{service}/visits/ada")
    assert (row["N"], row["LAST"], row["records_behind"]) == (12, "/home", 0)
    assert row["served_by"].startswith("node-")
    assert fetch(f"{service}/visits/o'Hara")["N"] == 1
    with pytest.raises(HTTPError, match="404"):
        fetch(f"{service}/visits/nobody")
    many = fetch(f"{service}/visits?user=bob&user=nobody&user=ada")
    assert [row and row["N"] for row in many] == [3, None, 12]


def test_a_service_whose_nodes_die(service: str, cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.workers[0].kill()
        assert fetch(f"{service}/visits/ada")["N"] == 12
        node.workers[0].wait()
        node.workers.clear()
        node.start()
        node.wait_ready()
    assert fetch(f"{service}/visits/ada")["N"] == 12


def test_a_notebook(cluster: Cluster) -> None:
    # as the entry point of the installed package, which an editable install may not have yet
    program = (
        "from sqlalchemy.dialects import registry;"
        "registry.register('standpipe', 'standpipe.client.sqlalchemy_dialect', 'StandpipeDialect');"
        f"import runpy; runpy.run_path({str(EXAMPLES / 'visits_report.py')!r}, run_name='__main__')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(cluster),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "1 users with 10 visits or more" in ran.stdout
    assert ran.stdout.count("ada") == 1
    assert "/home      2   13" in ran.stdout
