"""The synchronous driver: sockets, and a client that any number of threads may share.

A connection is kept per node and caller: it is taken from the node's pool for a request and put
back afterwards. One that the node has closed is recognised before it is used.

Not here: which node is asked, and what an answer means (`client/core/`).
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

from msgspec.structs import replace

from standpipe.client.core.attempts import TIMEOUT_S_MIN
from standpipe.client.core.client_base import ClientBase
from standpipe.client.core.exchange import (
    AnswerParser,
    HandOver,
    HttpRequest,
    NoAnswer,
    OpenStream,
    Operation,
    Outcome,
    Pause,
    ReadStream,
    SendAll,
)
from standpipe.client.core.push import push_reader
from standpipe.client.core.rows import Row, RowSet
from standpipe.client.core.settings import Settings
from standpipe.client.core.short_way import UNUSUAL
from standpipe.client.sockets import endpoint, keep_alive, reason_of, unread, watch_forks

#: idle connections kept per node, and for how long: a node closes them after 75 s
IDLE_MAX: Final = 64
IDLE_S_MAX: Final = 60.0
READ_BYTES: Final = 65536
Result = TypeVar("Result")


class _Socket:
    """One connection, with one request at a time."""

    def __init__(self, address: str, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        host, port, is_tls = endpoint(address)
        raw = socket.create_connection((host, port), timeout_s)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(raw)
        context = tls or (ssl.create_default_context() if is_tls else None)
        self.socket = context.wrap_socket(raw, server_hostname=host) if context else raw
        self.parser = AnswerParser()
        self.has_received = False
        self.used_s = 0.0
        #: of a socket without TLS, which is not blocking: a timeout of its own costs two calls of
        #: the system for each read and write
        self._readable = select.poll()
        self._readable.register(self.socket, select.POLLIN)
        self._is_plain = context is None
        if self._is_plain:
            self.socket.setblocking(False)
        watch_forks(self)

    def send(self, request: HttpRequest, until_s: float) -> None:
        """Send a request. Raises OSError."""
        self.parser.begin()
        self.has_received = False
        data = request.head_and_body()
        if self._is_plain and not (data := self._not_taken(data)):
            return
        self.socket.settimeout(max(until_s - time.monotonic(), TIMEOUT_S_MIN))
        self.socket.sendall(data)
        if self._is_plain:
            self.socket.setblocking(False)

    def _not_taken(self, data: bytes) -> bytes:
        """What the system does not take at once. Raises OSError."""
        try:
            return data[self.socket.send(data) :]
        except BlockingIOError:
            return data

    def receive(self, until_s: float | None) -> None:
        """Feed what comes next to the parser. Raises OSError and ValueError."""
        left_s = None if until_s is None else max(until_s - time.monotonic(), TIMEOUT_S_MIN)
        if not self._is_plain:
            self.socket.settimeout(left_s)
        elif not self._readable.poll(None if left_s is None else _milliseconds(left_s)):
            raise TimeoutError("timed out")  # as a socket says it
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("closed by the node")
        self.has_received = True
        if len(self.parser.feed(data)) > 1:
            raise ValueError("more answers than requests")

    def is_usable(self) -> bool:
        """Whether the node has kept its side open: a closed connection is readable."""
        return time.monotonic() - self.used_s <= IDLE_S_MAX and not self._readable.poll(0)

    def close(self) -> None:
        self.socket.close()

    def leave_to_parent(self) -> None:
        """See `client/sockets.py`."""
        self.socket.close()  # without a word, also over TLS
        self.used_s = -math.inf
        self._is_plain = False  # a stream must not poll its number, which another file may get


def _milliseconds(seconds: float) -> int:
    """As poll takes them: 24 days at most."""
    return min(math.ceil(seconds * 1000), 2**31 - 1)


class _Sent:
    """A request on its way: its connection, or why there is none."""

    def __init__(self, driver: Driver, request: HttpRequest, *, is_fresh: bool = False) -> None:
        self._driver, self._request = driver, request
        self._until_s = time.monotonic() + request.timeout_s
        self._connection: _Socket | None = None
        self._is_kept = False
        self._failure: NoAnswer | None = None
        is_sent = False
        try:
            # a request that may not be repeated must not meet a connection's end
            kept = None if is_fresh or not request.is_repeatable else driver.kept(request.address)
            self._is_kept = kept is not None
            self._connection = kept or driver.connect(request.address, request.connect_s)
            is_sent = True
            self._connection.send(request, self._until_s)
        except (OSError, ValueError) as error:
            self._fail(error, was_sent=is_sent)

    def outcome(self) -> Outcome:
        """Wait for the answer."""
        connection = self._connection
        if self._failure is None and connection is not None:
            try:
                while connection.parser.answer is None:
                    connection.receive(self._until_s)
            except (OSError, ValueError) as error:
                is_stale = self._is_kept and not connection.has_received
                self._fail(error, was_sent=True)
                if is_stale and isinstance(error, ConnectionError):
                    left_s = max(self._until_s - time.monotonic(), TIMEOUT_S_MIN)
                    again = replace(self._request, timeout_s=left_s)
                    return _Sent(self._driver, again, is_fresh=True).outcome()
            else:
                self._driver.keep(self._request.address, connection)
                return connection.parser.answer
        assert self._failure is not None
        return self._failure

    def _fail(self, error: Exception, *, was_sent: bool) -> None:
        if self._connection is not None:
            self._connection.close()
        self._failure = NoAnswer(reason_of(error), was_sent)


class Driver:
    """Carries out operations with blocking sockets. Threads may share it."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._idle: dict[str, deque[_Socket]] = {}

    def run(self, operation: Operation[Result]) -> Result:
        """An operation to its end; its result."""
        fact: Any = None
        while True:
            try:
                order = operation.send(fact)
            except StopIteration as done:
                return done.value
            if isinstance(order, SendAll):
                sent = [_Sent(self, request) for request in order.requests]
                fact = [each.outcome() for each in sent]
            else:
                assert isinstance(order, Pause)
                time.sleep(order.seconds)
                fact = None

    def exchange(self, request: HttpRequest) -> Outcome:
        """Send one request and wait for its outcome."""
        return _Sent(self, request).outcome()

    def rows(self, operation: Operation[None]) -> Generator[Row]:
        """The rows that an operation hands over."""
        stream: _Socket | None = None
        fact: Any = None
        try:
            while True:
                try:
                    order = operation.send(fact)
                except StopIteration:
                    return
                fact = None
                if isinstance(order, HandOver):
                    yield order.row
                elif isinstance(order, Pause):
                    time.sleep(order.seconds)
                elif isinstance(order, OpenStream):
                    if stream is not None:
                        stream.close()
                    stream, fact = self._open(order.request)
                elif isinstance(order, ReadStream):
                    assert stream is not None
                    fact = _read_on(stream, order.within_s)
        finally:
            if stream is not None:
                stream.close()

    def _open(self, request: HttpRequest) -> tuple[_Socket | None, Outcome]:
        connection: _Socket | None = None
        until_s = time.monotonic() + request.timeout_s
        try:
            connection = self.connect(request.address, request.timeout_s)
            connection.send(request, until_s)
            while not connection.parser.has_head:
                connection.receive(until_s)
            if connection.parser.head().status != 200:
                while connection.parser.answer is None:
                    connection.receive(until_s)
                return connection, connection.parser.answer
        except (OSError, ValueError) as error:
            if connection is not None:
                connection.close()
            return None, NoAnswer(reason_of(error), was_sent=True)
        return connection, connection.parser.head()

    def connect(self, address: str, timeout_s: float) -> _Socket:
        """A new connection. Raises OSError."""
        return _Socket(address, timeout_s, self._tls)

    def kept(self, address: str) -> _Socket | None:
        """A connection that is still open; None: there is none."""
        idle = self._idle.get(address)
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread took it
                return None
            if connection.is_usable():
                return connection
            connection.close()
        return None

    def keep(self, address: str, connection: _Socket) -> None:
        """Keep a connection for a later request, if the node does."""
        idle = self._idle.setdefault(address, deque())
        parser = connection.parser
        if not parser.is_kept or parser.is_partial or len(idle) >= IDLE_MAX:
            connection.close()
            return
        connection.used_s = time.monotonic()
        idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


def _read_on(connection: _Socket, within_s: float | None) -> bytes | NoAnswer:
    """The next bytes of a stream; b"": it is over. See `ReadStream`."""
    parser = connection.parser
    until_s = None if within_s is None else time.monotonic() + within_s
    try:
        while not (data := parser.take_body()):
            if parser.answer is not None:
                return b""
            connection.receive(until_s)
    except (OSError, ValueError) as error:
        return unread(error)
    return data


class Client(ClientBase):
    """A synchronous client of a cluster. Threads may share it. Close it, or use it in `with`.

    Every call raises StatementError for a statement that is wrong, ServerRefused for any other
    error of a node, NodesUnreachable if no node answers within its time, and UnfitParameter for a
    value that no SQL literal stands for.
    """

    def __init__(
        self, nodes: tuple[str, ...], settings: Settings, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(nodes, settings, time.monotonic)
        self._driver = Driver(tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. No call may be in flight."""
        self._driver.close()

    def get(self, table: str, /, *, timeout_s: float | None = None, **key: object) -> Row | None:
        """The row of a key, `get("SCORES", user_id="ada")`; None: there is none.

        The key of a windowed table includes WINDOWSTART.
        """
        first = self._short.begin(table, key, timeout_s)
        if first is None:
            return self._driver.run(self._operations.get(table, key, timeout_s))
        outcome = self._driver.exchange(first.request)
        row = self._short.row_of(first, outcome)
        if row is not UNUSUAL:
            return row
        begun = (first, outcome)
        return self._driver.run(self._operations.get(table, key, timeout_s, begun))

    def get_many(
        self, table: str, keys: Iterable[object], *, timeout_s: float | None = None
    ) -> list[Row | None]:
        """The rows of many keys, in their order; None for a key without a row.

        `keys`: values, if the key is one column; else tuples, or dicts as for `get`.
        """
        return self._driver.run(self._operations.get_many(table, keys, timeout_s))

    def query(
        self, sql: str, params: Sequence[object] = (), *, timeout_s: float | None = None
    ) -> RowSet:
        """The rows of a pull query; `params` are the values of its `?`."""
        return self._driver.run(self._operations.query(sql, params, timeout_s))

    def stream(
        self,
        sql: str,
        params: Sequence[object] = (),
        *,
        from_beginning: bool = False,
        patience_s: float = 60.0,
        in_session: bool = False,
    ) -> Generator[Row]:
        """The rows of a push query (EMIT CHANGES), each once, also across failures of nodes.

        It ends when its LIMIT is reached; closing the iterator ends it earlier. `patience_s`: for
        how long no node may answer before it raises NodesUnreachable. `in_session`: it begins
        behind what this client's session has seen of the table or stream, unless it shall begin at
        the beginning, and later reads show what it has shown, or newer. Raises ValueError if this
        client keeps no session.
        """
        reader = push_reader(
            self._operations,
            sql,
            params,
            patience_s,
            from_beginning=from_beginning,
            in_session=in_session,
        )
        return self._driver.rows(reader.run())

    def insert(
        self,
        stream: str,
        rows: Mapping[str, object] | Iterable[Mapping[str, object]],
        *,
        timeout_s: float | None = None,
    ) -> int:
        """Insert a row or several into a stream; how many.

        Raises AnswerLost if a request was sent and no answer came: its rows may be written, and are
        not sent again.
        """
        return self._driver.run(self._operations.insert(stream, rows, timeout_s))

    def execute(
        self, sql: str, params: Sequence[object] = (), *, timeout_s: float | None = None
    ) -> list[dict[str, Any]]:
        """Run statements, such as CREATE or SHOW: one entity, in ksqlDB's shape, per statement that
        has an answer. Raises AnswerLost as `insert` does."""
        return self._driver.run(self._operations.execute(sql, params, timeout_s))
