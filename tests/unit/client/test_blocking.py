"""The synchronous driver at a real socket: what its request meets, and what comes of it.

`tests/e2e/test_client.py` has real nodes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from standpipe.client.blocking import Driver
from standpipe.client.core.exchange import HttpAnswer, HttpRequest, NoAnswer, Outcome

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
#: more than the buffers of both sides hold
LARGE_BYTES = 32 << 20
Answer = Callable[[socket.socket, bytes], bool]


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[int]]]:
    """The address of a node, and the bytes of each request. `answer` gets a connection and a whole
    request, and says whether the connection goes on."""
    listener = socket.create_server(("127.0.0.1", 0))
    sizes: list[int] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            while head := connection.recv(1, socket.MSG_PEEK):
                data = b""
                while b"\r\n\r\n" not in data:
                    data += connection.recv(1)
                length = int(data.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                size = 0
                while size < length:
                    size += len(connection.recv(min(1 << 16, length - size)))
                sizes.append(size)
                if not answer(connection, head):
                    return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            threads.append(thread := threading.Thread(target=serve, args=(connection,)))
            thread.start()

    threads = [threading.Thread(target=accept)]
    threads[0].start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", sizes
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join()


def exchange(driver: Driver, address: str, body: bytes = b"{}", timeout_s: float = 20.0) -> Outcome:
    return driver.exchange(HttpRequest(address, "/query-stream", timeout_s, body))


def is_ok(outcome: Outcome) -> bool:
    return isinstance(outcome, HttpAnswer) and outcome.body == b"ok"


@contextmanager
def opened() -> Iterator[Driver]:
    driver = Driver(None)
    try:
        yield driver
    finally:
        driver.close()


def test_a_request_larger_than_the_system_takes_at_once() -> None:
    def answer(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(ANSWER)
        return True

    with serving(answer) as (address, sizes), opened() as driver:
        assert is_ok(exchange(driver, address, b"x" * LARGE_BYTES))
        assert is_ok(exchange(driver, address))
    assert sizes == [LARGE_BYTES, 2]


def test_an_answer_in_pieces() -> None:
    def answer(connection: socket.socket, _: bytes) -> bool:
        for start in range(len(ANSWER)):
            connection.sendall(ANSWER[start : start + 1])
        return True

    with serving(answer) as (address, _), opened() as driver:
        assert [is_ok(exchange(driver, address)) for _ in range(3)] == [True] * 3


def test_no_answer_in_time() -> None:
    is_over = threading.Event()

    def answer(connection: socket.socket, _: bytes) -> bool:
        is_over.wait()
        return False

    with serving(answer) as (address, _), opened() as driver:
        found = exchange(driver, address, timeout_s=0.05)
        is_over.set()
    assert found == NoAnswer("timed out", was_sent=True)


def test_a_request_that_nobody_reads_is_out_of_time() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, opened() as driver:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        found = exchange(driver, address, b"x" * LARGE_BYTES, timeout_s=0.05)
    assert found == NoAnswer("timed out", was_sent=True)


def test_a_connection_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def connect(_address: object, timeout_s: float) -> socket.socket:
        given.append(timeout_s)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with opened() as driver:
        for connect_max_s in (0.25, None, 9.0):
            request = HttpRequest("n:1", "/ksql", 5.0, b"{}", connect_max_s=connect_max_s)
            assert driver.exchange(request) == NoAnswer("timed out", was_sent=False)
    assert given == [0.25, 5.0, 5.0]


def test_a_connection_that_the_node_closed_while_idle_is_no_failure() -> None:
    def answer(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(ANSWER)
        return False

    with serving(answer) as (address, sizes), opened() as driver:
        assert [is_ok(exchange(driver, address)) for _ in range(4)] == [True] * 4
    assert len(sizes) == 4


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (ANSWER.replace(b"ok", b"no"), "an answer that nobody asked for"),
        (b"HTTP/1.1 2", "a part of one"),
    ],
)
def test_what_nobody_asked_for_is_nobodys_answer(tail: bytes, why: str) -> None:
    """Its connection is not used again, whether it came with the answer or after it."""
    connections: list[socket.socket] = []

    def answer(connection: socket.socket, _: bytes) -> bool:
        connections.append(connection)
        connection.sendall(ANSWER + tail)
        return True

    with serving(answer) as (address, _), opened() as driver:
        found = [exchange(driver, address) for _ in range(4)]
    assert all(is_ok(each) or isinstance(each, NoAnswer) for each in found), why
    assert len({*map(id, connections)}) == len(connections), why


def test_a_very_long_timeout() -> None:
    """poll takes 24 days at most, and an OverflowError is no answer."""

    def answer(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(ANSWER)
        return True

    with serving(answer) as (address, _), opened() as driver:
        assert is_ok(exchange(driver, address))
        assert is_ok(exchange(driver, address, timeout_s=3_000_000.0))
