"""The generators of load, against a small server that answers as it is told."""

from __future__ import annotations

import os
import shutil
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from bench.load import http, wrk
from bench.load.open_loop import OpenLoop
from bench.load.wrk import CONNECTIONS

pytestmark = pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset")
has_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="no wrk")

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nright"
REQUEST = http.post(b"{}")


class Server(socketserver.ThreadingTCPServer):
    """Answers the n-th request, from 0 on, with what `answer` returns; None: it hangs up."""

    #: all connections of a generator at once; with Python's 5, Linux drops the others' first packet
    request_queue_size = 2 * CONNECTIONS

    def __init__(self, answer: Callable[[int], bytes | None]) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.answer = answer
        self.numbers = count()

    @property
    def port(self) -> int:
        return self.server_address[1]


class Connection(socketserver.StreamRequestHandler):
    """One of its connections, until the client closes it."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle(self) -> None:
        while self.read_request():
            answer = self.server.answer(next(self.server.numbers))
            if answer is None:
                return
            self.wfile.write(answer)

    def read_request(self) -> bool:
        """Whether there was one more."""
        length = 0
        while (line := self.rfile.readline().lower()) not in (b"", b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        self.rfile.read(length)
        return line != b""


@contextmanager
def running(answer: Callable[[int], bytes | None]) -> Iterator[Server]:
    with Server(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> OpenLoop:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    return OpenLoop(tmp_path_factory.mktemp("open-loop"))


def file_of(generator: OpenLoop, folder: Path, request: bytes = REQUEST) -> Path:
    return generator.write(folder / "requests", [request])


def test_each_request_that_was_due_is_answered(generator: OpenLoop, tmp_path: Path) -> None:
    with running(lambda _: GOOD) as server:
        run = generator.run(server.port, file_of(generator, tmp_path), "right", 200, 0.2)
    assert run.errors == 0
    assert next(server.numbers) == round(run.asked_per_second * 0.2)
    assert 0 < run.p50_us <= run.p99_us <= run.p999_us


def test_a_pause_is_felt_by_all_that_were_due_meanwhile(
    generator: OpenLoop, tmp_path: Path
) -> None:
    """Its 16 connections wait; what counts is when the others were due."""

    def answer(number: int) -> bytes:
        if number < 16:
            time.sleep(0.3)  # meanwhile some 60 of 80 requests become due
        return GOOD

    with running(answer) as server:
        run = generator.run(server.port, file_of(generator, tmp_path), "right", 200, 0.4)
    assert run.p50_us > 50_000, "of a closed loop, 16 of 80 would have waited"
    assert run.errors == 0


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/1.1 503 Not ready\r\ncontent-length: 5\r\n\r\nright",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong",
        b"-ERR no\r\n",
        b"$-1\r\n",
    ],
    ids=["refused", "without its row", "Redis refuses", "Redis has none"],
)
def test_a_bad_answer_is_an_error(generator: OpenLoop, tmp_path: Path, bad: bytes) -> None:
    with running(lambda number: bad if number == 3 else GOOD) as server:
        run = generator.run(server.port, file_of(generator, tmp_path), "right", 100, 0.2)
    assert run.errors == 1


def test_a_value_of_redis_is_a_good_answer(generator: OpenLoop, tmp_path: Path) -> None:
    with running(lambda _: b"$5\r\nright\r\n") as server:
        run = generator.run(server.port, file_of(generator, tmp_path), "right", 100, 0.2)
    assert run.errors == 0


def test_a_closed_connection_ends_the_run(generator: OpenLoop, tmp_path: Path) -> None:
    with (
        running(lambda number: None if number == 3 else GOOD) as server,
        pytest.raises(RuntimeError, match="a connection was closed"),
    ):
        generator.run(server.port, file_of(generator, tmp_path), "right", 100, 0.2)


# ---------------------------------------------------------------------------------------- wrk


@has_wrk
def test_wrk_tells_the_size_of_answers(tmp_path: Path) -> None:
    script = wrk.write_script(tmp_path / "load.lua", [b"{}"])
    with running(lambda _: GOOD) as server:
        run = wrk.run(os.getpid(), server.port, script, 1)
    assert run.answer_bytes == pytest.approx(len(GOOD), rel=0.01)


@has_wrk
@pytest.mark.parametrize("bad", [b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", None])
def test_a_request_that_fails_under_wrk_is_no_result(tmp_path: Path, bad: bytes | None) -> None:
    script = wrk.write_script(tmp_path / "load.lua", [b"{}"])
    with (
        running(lambda number: bad if number == 3 else GOOD) as server,
        pytest.raises(wrk.RequestsFailed),
    ):
        wrk.run(os.getpid(), server.port, script, 1)
