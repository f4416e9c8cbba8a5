"""The orders of an operation to its driver, and the facts that the driver returns. Pure.

An operation is a generator. It yields orders, and the driver sends the facts back into it:

| order | fact |
|---|---|
| `SendAll`: send these requests at once | a list of `HttpAnswer` or `NoAnswer`, in their order |
| `Pause`: wait | None |
| `OpenStream`: send a request whose answer does not end | its head as `HttpAnswer`, or `NoAnswer` |
| `ReadStream`: read on | bytes, b"" at the end of the answer, `SILENT`, or another `NoAnswer` |
| `HandOver`: give this row to the caller | None |

Time comes from the clock that the operation was given; nothing here waits, reads or sends. So one
implementation of routing and retries serves both drivers (`client/blocking.py`, `client/aio.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeVar

import httptools
import msgspec

Clock = Callable[[], float]
"""Seconds of a monotonic clock."""

LINES = "application/vnd.ksqlapi.delimited.v1"
ARRAY = "application/vnd.ksql.v1+json"
JSON = "application/json"


class HttpAnswer(msgspec.Struct, frozen=True):
    """An answer, whatever its status. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NoAnswer(msgspec.Struct, frozen=True):
    """No whole answer came: refused, reset, or out of time.

    `was_sent`: whether the node may have read the request.
    """

    reason: str
    was_sent: bool


#: no bytes of a stream came in time
SILENT: Final = NoAnswer("silent", was_sent=True)


class HttpRequest(msgspec.Struct, frozen=True):
    """A request to one node. `address`: its `host:port`; `timeout_s`: how long it may take.

    `is_repeatable`: it may be sent again over a new connection if a kept one turns out to be
    closed: a read may, an INSERT may not. `connect_max_s`: how much of its time a new connection
    may take; None: all.
    """

    address: str
    path: str
    timeout_s: float
    body: bytes = b""
    accept: str = JSON
    is_repeatable: bool = True
    connect_max_s: float | None = None

    @property
    def connect_s(self) -> float:
        """How long a new connection may take."""
        most_s = self.connect_max_s
        return self.timeout_s if most_s is None else min(most_s, self.timeout_s)

    def head(self) -> bytes:
        """Request line and headers in HTTP/1.1, up to the blank line that ends them."""
        return _head(self.address, self.path, self.accept, len(self.body))

    def head_and_body(self) -> bytes:
        """The request's bytes in HTTP/1.1."""
        return self.head() + self.body


@lru_cache(maxsize=4096)  # requests to one node differ in their length at most
def _head(address: str, path: str, accept: str, body_bytes: int) -> bytes:
    host = address.removeprefix("https://")
    if not body_bytes:
        return f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode("latin-1")
    return (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\naccept: {accept}\r\n"
        f"content-type: application/json\r\ncontent-length: {body_bytes}\r\n\r\n"
    ).encode("latin-1")


class SendAll(msgspec.Struct, frozen=True):
    """Send the requests, all at once, and wait for an outcome of each."""

    requests: tuple[HttpRequest, ...]


class Pause(msgspec.Struct, frozen=True):
    """Wait that long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Send a request whose answer does not end, over a connection of its own."""

    request: HttpRequest


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Wait for the next bytes of the stream that was opened last. `within_s`: how long until it is
    `SILENT`; None: without end."""

    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give a row of a stream to the caller."""

    row: Any


Outcome = HttpAnswer | NoAnswer
Order = SendAll | Pause | OpenStream | ReadStream | HandOver
Result = TypeVar("Result")
#: what an operation is: see the module's table
Operation = Generator[Order, Any, Result]


class Head(Mapping[str, str]):
    """The header lines of an answer, which are only read once somebody asks for one."""

    __slots__ = ("_read", "raw")

    def __init__(self, raw: bytes) -> None:
        #: the header lines, each after a line's end
        self.raw = raw
        self._read: dict[str, str] | None = None

    def _lines(self) -> dict[str, str]:
        if self._read is None:
            lines = self.raw.decode("latin-1").split("\r\n")[1:]
            pairs = (line.partition(":") for line in lines)
            self._read = {name.lower(): value.strip(" \t") for name, _, value in pairs}
        return self._read

    def __getitem__(self, name: str) -> str:
        return self._lines()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines())

    def __len__(self) -> int:
        return len(self._lines())


#: the head of an answer to a lookup, as a node writes it (`node/worker/pull/fast_path.py`); any
#: other line, and any other order, is left to httptools
_PLAIN: Final = re.compile(
    rb"HTTP/1\.1 200 OK((?:\r\ncontent-type: [ -~]*+)?+\r\ncontent-length: ([0-9]{1,9}+)"
    rb"(?:\r\nstandpipe-[a-z-]++: [ -~]*+)*+)\r\n\r\n"
)


def plain_answer(data: bytes, start: int = 0) -> tuple[HttpAnswer, int] | None:
    """The answer that begins at `start`, and where it ends; None: it is not whole, or not of the
    kind that a lookup gets.

    httptools reads the same from it and takes several times as long: it makes a call for each line.
    """
    head = _PLAIN.match(data, start)
    if head is None:
        return None
    begin = head.end()
    end = begin + int(head[2])
    return (HttpAnswer(200, Head(head[1]), data[begin:end]), end) if end <= len(data) else None


@dataclass(slots=True)
class AnswerParser:
    """Bytes of a connection in, answers out; one answer after the other.

    Interim answers (status below 200) are passed over. Feeding raises ValueError for what is no
    HTTP.
    """

    #: the newest answer; None until it is whole
    answer: HttpAnswer | None = None
    #: status and headers are read, of an answer that may not be whole yet
    has_head: bool = False
    #: the server keeps the connection open for the next request
    is_kept: bool = False
    #: a part of an answer has come
    is_partial: bool = False
    _headers: dict[str, str] = field(default_factory=dict[str, str])
    _pieces: list[bytes] = field(default_factory=list[bytes])
    _whole: list[HttpAnswer] = field(default_factory=list[HttpAnswer])
    _parser: Any = None

    def __post_init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> list[HttpAnswer]:
        """Take bytes that came; the answers that are whole now. Raises ValueError."""
        whole: list[HttpAnswer] = []
        start = 0
        while start < len(data) and not self.is_partial and (plain := plain_answer(data, start)):
            answer, start = plain
            whole.append(answer)
        if whole:
            self.answer, self.has_head, self.is_kept = whole[-1], True, True
        if start == len(data):
            return whole
        self.is_partial, self._whole = True, whole
        try:
            self._parser.feed_data(data[start:] if start else data)
        except httptools.HttpParserError as error:
            raise ValueError(f"not an HTTP answer: {error}") from error
        return whole

    def begin(self) -> None:
        """Forget the last answer: another request is sent."""
        self.answer, self.has_head, self.is_kept = None, False, False

    def head(self) -> HttpAnswer:
        """Status and headers of an answer whose body is still to come."""
        if self.answer is not None:
            return self.answer
        return HttpAnswer(self._parser.get_status_code(), self._headers, b"")

    def take_body(self) -> bytes:
        """What has come of the body since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    # ----------------------------------------------------------------- called by httptools

    def on_message_begin(self) -> None:
        """A new answer begins."""
        self.is_partial = True
        self._headers, self._pieces = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line. httptools leaves blanks after the value, which are not part of it (RFC
        9110, section 5.5)."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip(" \t")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self.has_head = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole, or it was an interim one."""
        status = self._parser.get_status_code()
        if status >= 200:
            self.is_partial = False
            self.is_kept = self._parser.should_keep_alive()
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self.answer = HttpAnswer(status, self._headers, body)
            self._whole.append(self.answer)
