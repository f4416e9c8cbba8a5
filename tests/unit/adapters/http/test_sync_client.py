"""What a blocking caller meets: answers, kept connections, and a path that fails."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from standpipe.adapters.http.peer_client import ConnectFailed, PathFailed
from standpipe.adapters.http.sync_client import SyncClient

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nStandpipe-Role: active\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
SHORT_S = 0.3


@contextmanager
def server(
    *said: bytes, closes: bool = False, closes_late: bool = False
) -> Generator[tuple[str, list[bytes]]]:
    """Says each of these to one request, in turn; `closes`: each on a connection of its own;
    `closes_late`: the first connection ends when its second request has come.

    Gives its address and the requests that it got, each with the connection's number in front.
    """
    got: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        connection, number = None, 0
        for answer in said:
            if connection is None:
                connection, number = listening.accept()[0], number + 1
            request = connection.recv(65536)
            if closes_late and number == 1 and got:  # the request has come, and is not read
                connection.close()
                connection, number = listening.accept()[0], number + 1
                request = connection.recv(65536)
            if b"content-length: 2\r\n" in request.lower() and not request.endswith(b"{}"):
                request += connection.recv(65536)
            got.append(b"%d " % number + request)
            connection.sendall(answer)
            if closes:
                connection.close()
                connection = None
        if connection is not None:
            connection.recv(65536)
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    host, port = listening.getsockname()[:2]
    try:
        yield f"{host}:{port}", got
    finally:
        thread.join(5.0)
        listening.close()


def test_two_requests_go_over_one_connection() -> None:
    with server(ANSWER, ANSWER) as (address, got), SyncClient(timeout_s=5.0) as client:
        first = client.get(address, "/info")
        client.request("POST", address, "/ksql", body=b"{}", headers={"accept": "x"})
    assert (first.status, first.body, first.headers["standpipe-role"]) == (200, b"ok", "active")
    assert got[0].startswith(b"1 GET /info ")
    assert got[1].startswith(b"1 POST /ksql ")
    assert got[1].endswith(b"{}")


def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    with server(ANSWER, ANSWER, closes=True) as (address, got), SyncClient(timeout_s=5.0) as client:
        for _ in range(2):
            assert client.get(address, "/").body == b"ok"
    assert [request[:2] for request in got] == [b"1 ", b"2 "]


def test_a_get_that_met_the_end_of_a_kept_connection_is_sent_again() -> None:
    with (
        server(ANSWER, ANSWER, closes_late=True) as (address, got),
        SyncClient(timeout_s=5.0) as client,
    ):
        for _ in range(2):
            assert client.get(address, "/").body == b"ok"
    assert [request[:2] for request in got] == [b"1 ", b"2 "]


def test_a_statement_that_met_the_end_of_a_kept_connection_is_not_sent_again() -> None:
    with (
        server(ANSWER, ANSWER, closes_late=True) as (address, got),
        SyncClient(timeout_s=5.0) as client,
    ):
        client.get(address, "/")
        with pytest.raises(PathFailed) as caught:
            client.request("POST", address, "/ksql", body=b"{}")
        assert not isinstance(caught.value, ConnectFailed), "it may have been carried out"
        client.get(address, "/")  # so that the server ends
    assert [request[:6] for request in got] == [b"1 GET ", b"2 GET "]


def test_headers_of_the_client_go_with_every_request() -> None:
    with server(ANSWER) as (address, got), SyncClient(headers={"a": "b"}, timeout_s=5.0) as client:
        client.get(address, "/")
    assert b"a: b\r\n" in got[0]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "silence"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", "silence amid an answer"),
        (b"no HTTP at all\r\n\r\n", ""),
    ],
)
def test_a_path_that_fails(said: bytes, why: str) -> None:
    with server(said) as (address, _), SyncClient(timeout_s=SHORT_S) as client:
        with pytest.raises(PathFailed) as caught:
            client.get(address, "/")
        assert not isinstance(caught.value, ConnectFailed), why


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with SyncClient(timeout_s=5.0) as client, pytest.raises(ConnectFailed):
        client.get(f"127.0.0.1:{port}", "/")


def test_lines_of_a_stream() -> None:
    said = CHUNKED + b"4\r\n[1,\n\r\n3\r\n2]\n\r\n0\r\n\r\n"
    with (
        server(said) as (address, got),
        SyncClient(timeout_s=5.0) as client,
        client.stream(f"http://{address}", "/query", b"{}", {}) as (head, lines),
    ):
        assert (head.status, list(lines)) == (200, ["[1,", "2]"])
    assert got[0].startswith(b"1 POST /query ")


def test_a_stream_that_breaks_off() -> None:
    with (
        server(CHUNKED + b"4\r\n[1,\n\r\n", closes=True) as (address, _),
        SyncClient(timeout_s=5.0) as client,
        pytest.raises(PathFailed),
        client.stream(address, "/query", b"{}", {}) as (_, lines),
    ):
        list(lines)


def test_an_error_of_the_reader_is_not_one_of_the_path() -> None:
    """`standpipe sql | head`: a closed pipe says nothing about the node."""
    with (
        server(CHUNKED + b"0\r\n\r\n") as (address, _),
        SyncClient(timeout_s=5.0) as client,
        pytest.raises(BrokenPipeError),
        client.stream(address, "/query", b"{}", {}),
    ):
        raise BrokenPipeError


def test_a_stream_that_is_refused() -> None:
    said = b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\n\r\nno"
    with (
        server(said) as (address, _),
        SyncClient(timeout_s=5.0) as client,
        client.stream(address, "/query", b"{}", {}) as (head, lines),
    ):
        assert (head.status, head.body, list(lines)) == (400, b"no", [])
