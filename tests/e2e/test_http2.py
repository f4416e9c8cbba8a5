"""HTTP/2 on the public port of real workers, by clients that are not ours: curl and Node.js."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.test_serve import (
    LINES,
    ROWS,
    Cluster,
    Node,
    ask,
    cut,
    json_bytes,
    select,
    two_workers,
)

from standpipe.adapters.http.http2_server import PREFACE

CURL = ("curl", "--silent", "--show-error", "--http2-prior-knowledge", "--max-time", "20")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Two workers on one port."""
    with two_workers(tmp_path_factory.mktemp("http2")) as started:
        yield started


def curl(node: Node, path: str, *options: str, body: bytes = b"") -> tuple[str, bytes]:
    """Version and status as `2 200`, and the body."""
    data = ["--data-binary", "@-", "--header", "content-type: application/json"] if body else []
    url = f"http://127.0.0.1:{node.port()}{path}"
    shown = ["--write-out", "\n%{http_version} %{http_code}"]
    done = subprocess.run(
        [*CURL, *options, *data, *shown, url], input=body, capture_output=True, check=True
    )
    answer, _, line = done.stdout.rpartition(b"\n")
    return line.decode(), answer


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/info", b""),
        ("/nothing", b""),
        ("/query-stream", json_bytes({"sql": select("k1")})),
        ("/query", json_bytes({"ksql": "SELECT * FROM USERS;"})),
        ("/query", json_bytes({"ksql": "SELECT * FROM NOBODY WHERE ID = 'a';"})),
        ("/query", b"no json"),
        ("/ksql", json_bytes({"ksql": "SHOW TABLES;"})),
        ("/ksql", json_bytes({"ksql": "SELECT;"})),
    ],
)
def test_answers_as_over_http1(node: Node, path: str, body: bytes) -> None:
    line, answer = curl(node, path, body=body)
    known = ask(node.port(), path, body)
    assert line == f"2 {known.status}"
    assert cut(answer) == cut(known.body)


def test_a_body_over_the_limit_is_refused(node: Node) -> None:
    line, answer = curl(node, "/query", body=b" " * 3_000_000)
    assert line == "2 413"
    assert json.loads(answer)["error_code"] == 41300


def test_both_workers_answer(node: Node) -> None:
    """A port that two processes share hands each connection to one of them."""
    line, answer = curl(node, "/query-stream", body=json_bytes({"sql": select("k1")}))
    assert (line, cut(answer)) == ("2 200", LINES)
    for worker in node.workers:
        worker.send_signal(signal.SIGSTOP)
        reached = 0
        for _ in range(60):  # half of them go to the one that is stopped
            with socket.create_connection(("127.0.0.1", node.port()), 5) as client:
                client.settimeout(1)
                client.sendall(PREFACE + bytes.fromhex("000000040000000000"))
                try:
                    reached += client.recv(9)[3:4] == b"\x04"  # SETTINGS
                except TimeoutError:
                    continue
                break
        worker.send_signal(signal.SIGCONT)
        assert reached, "the other one speaks HTTP/2 too"


NODE_STORY = """
const http2 = require("http2");
const session = http2.connect(`http://127.0.0.1:${process.argv[2]}`);
let open = 300, good = 0;
session.on("error", (error) => { console.log("session", error.message); process.exit(1); });
for (let i = 0; i < 300; i += 1) {
  const key = "k" + (i % 40);
  const asked = session.request({ ":method": "POST", ":path": "/query-stream" });
  let text = "";
  asked.setEncoding("utf8");
  asked.on("data", (part) => { text += part; });
  asked.on("end", () => {
    const rows = text.trim().split("\\n").slice(1).map(JSON.parse);
    good += rows.length === 1 && rows[0][0] === key && rows[0][1] === i % 40;
    if ((open -= 1) === 0) console.log("good", good);
  });
  asked.end(JSON.stringify({ sql: `SELECT * FROM USERS WHERE ID = '${key}';` }));
}
// says GOAWAY at once, waits for what it has asked, and asks what it had put off
session.on("connect", () => setImmediate(() => session.close()));
"""


@needs_node
def test_node_with_more_requests_than_streams_and_an_early_goodbye(
    node: Node, tmp_path: Path
) -> None:
    story = tmp_path / "story.js"
    story.write_text(NODE_STORY)
    done = subprocess.run(
        ["node", story, str(node.port())], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "good 300", done


def test_http1_alone_where_it_is_switched_off(tmp_path: Path) -> None:
    cluster = Cluster.make(tmp_path, 1, replicas=1, **{"standpipe.http2.streams.max": 0})
    cluster.fill(ROWS)
    cluster.publish()
    cluster.start()
    try:
        port = cluster.nodes[0].port()
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(PREFACE)
            assert not client.recv(100).startswith(b"\x00"), "no frame"
        assert ask(port, "/info").status == 200
    finally:
        cluster.stop()
