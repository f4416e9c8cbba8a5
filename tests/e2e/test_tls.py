"""The listener with TLS on real workers: the same answers, HTTP/2 by ALPN, a renewal under way."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.client_drivers import KINDS, opened
from tests.e2e.test_http2 import NODE_STORY, needs_node
from tests.e2e.test_serve import LINES, Node, ask, cut, json_bytes, select, two_workers
from tests.tls import FIRST, SECOND, copied

from standpipe.client import NodesUnreachable
from standpipe.errors import SetupError
from standpipe.local.client.rest_client import NodesClient
from standpipe.local.cluster.ports import any_port


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Two workers on each port."""
    folder = tmp_path_factory.mktemp("tls")
    pair = copied(FIRST, folder / "pair")
    keys = {
        "standpipe.tls.listener": f"127.0.0.1:{any_port()}",
        "standpipe.tls.certificate": str(pair.certificate),
        "standpipe.tls.key": str(pair.key),
    }
    with two_workers(folder, **keys) as started:
        yield started


def address_of(node: Node) -> str:
    return f"https://{node.config.config['standpipe.tls.listener']}"


def curl(node: Node, path: str, *options: str, body: bytes = b"") -> tuple[str, bytes]:
    """Version and status as `2 200`, and the body."""
    command = ["curl", "--silent", "--show-error", "--max-time", "20"]
    command += ["--cacert", str(FIRST.certificate), *options]
    command += ["--data-binary", "@-", "--header", "content-type: application/json"] if body else []
    command += ["--write-out", "\n%{http_version} %{http_code}", address_of(node) + path]
    done = subprocess.run(command, input=body, capture_output=True, check=True)
    answer, _, line = done.stdout.rpartition(b"\n")
    return line.decode(), answer


@pytest.mark.parametrize(("option", "version"), [("--http2", "2"), ("--http1.1", "1.1")])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/info", b""),
        ("/query-stream", json_bytes({"sql": select("k1")})),
        ("/query", json_bytes({"ksql": "SELECT * FROM USERS;"})),
        ("/ksql", json_bytes({"ksql": "SELECT;"})),
    ],
)
def test_answers_as_without(node: Node, option: str, version: str, path: str, body: bytes) -> None:
    line, answer = curl(node, path, option, body=body)
    known = ask(node.port(), path, body)
    assert line == f"{version} {known.status}"
    assert cut(answer) == cut(known.body)


def test_a_long_answer_comes_whole(node: Node) -> None:
    """More than one record of TLS, and a body of more than one read."""
    keys = ", ".join(f"'k{n % 40}'" for n in range(40))
    asked = {
        "sql": f"SELECT * FROM USERS WHERE ID IN ({keys});",
        "sessionVariables": {"UNUSED": " " * 100_000},
    }
    for option in ("--http2", "--http1.1"):
        _, answer = curl(node, "/query-stream", option, body=json_bytes(asked))
        assert len(answer.splitlines()) == 41


@needs_node
def test_node_by_alpn(node: Node, tmp_path: Path) -> None:
    story = tmp_path / "story.js"
    trust = f"{{ ca: require('fs').readFileSync({json.dumps(str(FIRST.certificate))}) }}"
    connect = "http2.connect(`http://127.0.0.1:${process.argv[2]}`)"
    assert connect in NODE_STORY
    story.write_text(NODE_STORY.replace(connect, f"http2.connect(process.argv[2], {trust})"))
    done = subprocess.run(
        ["node", story, address_of(node)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "good 300", done


def test_our_client(node: Node) -> None:
    with NodesClient([address_of(node)], ca=FIRST.certificate) as client:
        assert [row[:2] for row in client.pull(select("k1")).rows] == [("k1", 1)]
    with (
        NodesClient([address_of(node)]) as client,
        pytest.raises(SetupError, match="CERTIFICATE_VERIFY_FAILED") as refused,
    ):
        client.pull(select("k1"))
    assert "--ca" in refused.value.next_step


def test_who_does_not_speak_tls_stops_nobody(node: Node) -> None:
    host, _, port = address_of(node).removeprefix("https://").rpartition(":")
    silent = [socket.create_connection((host, int(port)), 5) for _ in range(20)]
    with socket.create_connection((host, int(port)), 5) as plain:
        plain.sendall(b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")
        plain.settimeout(60)
        assert not plain.recv(100).startswith(b"HTTP"), "an alert, or the end"
    line, answer = curl(node, "/query-stream", body=json_bytes({"sql": select("k1")}))
    assert (line, cut(answer)) == ("2 200", LINES)
    for each in silent:
        each.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_python_client(node: Node, kind: str) -> None:
    with opened(kind, address_of(node), ca=FIRST.certificate) as client:
        assert [client.get("USERS", id=f"k{n}")["N"] for n in range(40)] == list(range(40))
        assert len(client.query("SELECT * FROM USERS;")) == 40
    with (
        opened(kind, address_of(node), ca=SECOND.certificate, timeout_s=3) as client,
        pytest.raises(NodesUnreachable, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.get("USERS", id="k1")


# the last one: it changes what the node shows
def test_a_renewed_certificate_is_shown_by_every_worker(node: Node) -> None:
    config = node.config.config
    for old, new in zip(("certificate", "key"), SECOND, strict=True):
        shutil.copy(new, str(config[f"standpipe.tls.{old}"]))
    trust = ssl.create_default_context(cafile=SECOND.certificate)
    host, _, port = str(config["standpipe.tls.listener"]).rpartition(":")
    deadline, in_a_row = time.monotonic() + 60, 0
    while in_a_row < 10:
        assert time.monotonic() < deadline
        try:
            with socket.create_connection((host, int(port)), 5) as plain:
                trust.wrap_socket(plain, server_hostname="localhost").close()
            in_a_row += 1
        except ssl.SSLError:
            in_a_row = 0
            time.sleep(0.1)  # each worker looks once a second; the deadline is above
