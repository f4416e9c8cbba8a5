"""POST /inserts-stream: rows come in as lines, acknowledgements go out as lines, both at once.

    line 1  {"target":"S","properties":{}}          -> 200, at once, or an error
    line n  {"ID":"a","N":1}                        -> {"seq":n-2,"status":"ok"}

A reading task turns each line into a record for Kafka; the answering task waits for the oldest, so
acknowledgements come in the order of the rows. At most `ROWS_IN_FLIGHT_MAX` rows are between them:
the worker stops reading from a client that does not read its acknowledgements, and from every
client while Kafka is slow. The first row that fails ends the stream, as in ksqlDB, with an error in
its place: rows before it were inserted; nothing is said about later ones.

With a session, the last line is its token, {"consistencyToken":"…"}, which covers all rows that
were acknowledged.

A row is complete when its line is, or when the body ends after it; the unfinished row of a client
that was cut off is not inserted. A node that leaves reads no more rows, acknowledges those that it
has read, and ends the answer; a long line that a thread is reading is not inserted.

Not here: what a row means (`sql.ddl.insert_rows`), its bytes
(`node.worker.statements.insert_record`), where long lines are read (`node.worker.long_lines`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.responses import PlainTextResponse

from standpipe.adapters.http.server import Receive, Send
from standpipe.adapters.kafka.producer import RowProducer, WrittenRow
from standpipe.adapters.metrics import Metrics
from standpipe.errors import BadRequest, BodyTooLarge, Http2Only, StandpipeError
from standpipe.node.worker.long_lines import LongLines
from standpipe.node.worker.request.body import PropertyValue, check_properties, property_text
from standpipe.node.worker.request.cluster_view import ClusterView, Map
from standpipe.node.worker.request.head import INSERTS_PATH, Form, accepted, header
from standpipe.node.worker.request.schemas import SchemaFetcher
from standpipe.node.worker.request.session_writes import SessionWrites, session_writes
from standpipe.node.worker.responses import as_standpipe_error, error_response, send_refusal
from standpipe.node.worker.statements.insert_record import ResolvedSchemas, record_of
from standpipe.sql.ddl.insert_rows import RowReader, insert_target
from standpipe.sql.schemas.registry import Schemas
from standpipe.topics import TopicRules

#: Rows that Kafka has not acknowledged or the client has not taken; ksqlDB: 200.
ROWS_IN_FLIGHT_MAX = 256
BYTES_IN_FLIGHT_MAX = 1024 * 1024
LEAVING_S = 0.2
#: how long the loop reads lines that wait, before it turns
TURN_S = 0.01
_FORMS = (Form.LINES.value.decode(), Form.OBJECTS.value.decode(), Form.ARRAY.value.decode())

Outcome = asyncio.Future[WrittenRow] | StandpipeError


class InsertsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    target: str
    properties: dict[str, PropertyValue] | None = None


_request_decoder = msgspec.json.Decoder(InsertsRequest)
_row_decoder = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)


@dataclass(frozen=True, kw_only=True)
class InsertsRoute:
    """The endpoint at one worker."""

    map: Map
    producer: RowProducer
    metrics: Metrics
    row_bytes_max: int
    is_leaving: Callable[[], bool]
    rules: TopicRules = field(default_factory=TopicRules)
    #: None: there is no schema registry
    schemas: SchemaFetcher | None = None
    long_lines: LongLines = field(default_factory=LongLines)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        form = accepted(header(scope["headers"], "accept"), _FORMS)
        if form is None:
            await PlainTextResponse("Not Acceptable", 406)(scope, receive, send)
            return
        lines = _lines(receive, self.row_bytes_max)
        try:
            if scope["http_version"] != "2":
                text = f"The {INSERTS_PATH} endpoint is only available when using HTTP2"
                raise Http2Only(text)
            request = _decoded(_request_decoder, await anext(lines, b""))
            self.map.refresh()  # another worker may just have acknowledged its CREATE
            rows = _Rows(self.map, request, self.rules, self.long_lines)
            if self.schemas is not None:
                await asyncio.to_thread(rows.resolve, self.schemas.registry)
            writes = _session(request, self.producer)
            await self.producer.open(rows.topic)
        except (Http2Only, BodyTooLarge) as error:
            await send_refusal(error, receive, send)
        except Exception as error:
            await error_response(as_standpipe_error(error))(scope, receive, send)
        else:
            await self._stream(rows, lines, _Acks(send, form, writes))

    async def _stream(self, rows: _Rows, lines: AsyncIterator[bytes], acks: _Acks) -> None:
        await acks.begin()
        in_flight = _InFlight()
        reading = asyncio.create_task(self._read(rows, lines, in_flight))
        watching = asyncio.create_task(self._stop_when_leaving(reading))
        try:
            is_good = True
            while is_good and (outcomes := await in_flight.take()):
                before = acks.inserted
                is_good = await acks.say(outcomes)
                self.metrics.count("standpipe_inserted_rows", by=acks.inserted - before)
            await acks.end()
        finally:
            for task in (reading, watching):
                task.cancel()
            await asyncio.gather(reading, watching, return_exceptions=True)
            in_flight.forget()

    async def _read(self, rows: _Rows, lines: AsyncIterator[bytes], in_flight: _InFlight) -> None:
        try:
            async for line in lines:
                await in_flight.room()
                record = await rows.record(line)
                # no await from here on: every row that Kafka has must be answered
                in_flight.add(self.producer.post(*record), max(len(line), _size(record)))
        except Exception as error:
            in_flight.add(as_standpipe_error(error), 0)
        finally:
            in_flight.close()

    async def _stop_when_leaving(self, reading: asyncio.Task[None]) -> None:
        while not self.is_leaving():  # noqa: ASYNC110 a flag of the listener, no event
            await asyncio.sleep(LEAVING_S)
        reading.cancel()


#: topic, key, value and timestamp
_Record = tuple[str, bytes | None, bytes | None, int]


def _size(record: _Record) -> int:
    return len(record[1] or b"") + len(record[2] or b"")


class _Rows:
    """Lines as records of the target, which may be changed or dropped meanwhile. If it is recreated
    over another topic, it is another stream: the client has to ask for it again."""

    def __init__(
        self, map_: Map, request: InsertsRequest, rules: TopicRules, long_lines: LongLines
    ) -> None:
        check_properties(request.properties or {})
        self._map = map_
        self._rules = rules
        self._long_lines = long_lines
        self._target = request.target
        self._view: ClusterView | None = None
        self._schemas: ResolvedSchemas | None = None
        self._reader = self._current()

    def resolve(self, schemas: Schemas) -> None:
        """Ask for the schemas of the target's rows, if they have any. Blocks. Raises BadRequest,
        SchemaRegistryUnavailable."""
        self._schemas = ResolvedSchemas(self._reader.source, schemas)

    @property
    def topic(self) -> str:
        return self._reader.source.topic

    async def record(self, line: bytes) -> _Record:
        """The record of a line. Raises StandpipeError."""
        reader = self._current()
        if not self._long_lines.is_long(line):
            return self._read(reader, line)
        while True:
            record = await self._long_lines.read(line, partial(self._read, reader, line))
            before, reader = reader, self._current()
            if reader is before:  # else the stream was changed meanwhile
                return record

    def _read(self, reader: RowReader, line: bytes) -> _Record:
        fields = _decoded(_row_decoder, line, "Invalid JSON in inserts stream")
        plan = reader.plan(fields, len(line))
        key, value = record_of(plan, self._schemas)
        at_ms = int(time.time() * 1000) if plan.rowtime_ms is None else plan.rowtime_ms
        return plan.source.topic, key, value, at_ms

    def _current(self) -> RowReader:
        if self._view is not self._map.view:
            source = insert_target(self._target, self._map.view.sources, self._rules)
            if self._view is not None and source.topic != self.topic:
                # that topic was not opened: it may not exist, and posting might create it
                raise BadRequest(f"{source.name} is over another topic now: {source.topic}")
            if self._view is None or source != self._reader.source:
                self._reader = RowReader(source)
            self._view = self._map.view
        return self._reader


def _session(request: InsertsRequest, producer: RowProducer) -> SessionWrites | None:
    texts = {name: property_text(value) for name, value in (request.properties or {}).items()}
    return session_writes(texts, producer)


class _InFlight:
    """Rows that were read and not yet answered, oldest first."""

    def __init__(self) -> None:
        self._rows: deque[tuple[Outcome, int]] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = asyncio.Event()
        self._turned_s = time.monotonic()

    async def room(self) -> None:
        while len(self._rows) >= ROWS_IN_FLIGHT_MAX or self._bytes >= BYTES_IN_FLIGHT_MAX:
            await self._wait()
        if len(self._rows) % 32 == 31 or time.monotonic() - self._turned_s >= TURN_S:
            await asyncio.sleep(0)  # buffered lines never wait: let other tasks run
            self._turned_s = time.monotonic()

    def add(self, outcome: Outcome, size: int) -> None:
        self._rows.append((outcome, size))
        self._bytes += size
        self._changed.set()

    def close(self) -> None:
        """No more rows come."""
        self._is_closed = True
        self._changed.set()

    async def take(self) -> list[Outcome]:
        """Wait for the oldest; returns it and those after it that are settled. Empty: the end."""
        while not self._rows:
            if self._is_closed:
                return []
            await self._wait()
        oldest = self._rows[0][0]
        if isinstance(oldest, asyncio.Future):
            await asyncio.wait([oldest])
        taken: list[Outcome] = []
        while self._rows and _is_settled(self._rows[0][0]):
            outcome, size = self._rows.popleft()
            self._bytes -= size
            taken.append(outcome)
        self._changed.set()
        return taken

    def forget(self) -> None:
        """No client will see the rest; retrieve it, or its errors would be logged as never
        retrieved."""
        for outcome, _ in self._rows:
            if isinstance(outcome, asyncio.Future):
                outcome.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class _Acks:
    """The answer: one JSON object for each row, as lines or as one array."""

    def __init__(self, send: Send, form: str, writes: SessionWrites | None) -> None:
        self._send = send
        self._writes = writes
        self._form = form
        self._is_array = form != Form.LINES.value.decode()
        self._said = 0
        #: rows that were acknowledged as inserted
        self.inserted = 0

    async def begin(self) -> None:
        """Send the head at once: the client may wait for it before it sends its first row."""
        headers = [(b"content-type", self._form.encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})

    async def say(self, outcomes: list[Outcome]) -> bool:
        """Send acknowledgements. False: one row failed, and the rest is not sent."""
        parts: list[bytes] = []
        error = None
        for outcome in outcomes:
            error = _error_of(outcome) or self._noted(outcome)
            parts.append(self._laid_out(_ack(self._said, error)))
            self._said += 1
            if error is not None:
                break
            self.inserted += 1
        body = b"".join(parts)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        return error is None

    def _noted(self, outcome: Outcome) -> StandpipeError | None:
        """A row that was inserted goes into the session's token; why not, if it cannot."""
        try:
            if self._writes is not None and isinstance(outcome, asyncio.Future):
                self._writes.add(outcome.result())
        except StandpipeError as error:
            return error
        return None

    async def end(self) -> None:
        tail = b""
        if self._writes is not None:
            item = msgspec.json.encode({"consistencyToken": await self._writes.token()})
            tail = self._laid_out(item)
            self._said += 1
        if self._is_array:
            tail += b"]" if self._said else b"[]"
        await self._send({"type": "http.response.body", "body": tail, "more_body": False})

    def _laid_out(self, ack: bytes) -> bytes:
        if not self._is_array:
            return ack + b"\n"
        return (b"," if self._said else b"[") + ack


def _ack(seq: int, error: StandpipeError | None) -> bytes:
    if error is None:
        return b'{"seq":%d,"status":"ok"}' % seq
    body = error.body()
    shown = {name: body[name] for name in ("error_code", "message")}
    return msgspec.json.encode({"@type": "InsertError", **shown, "status": "error", "seq": seq})


def _is_settled(outcome: Outcome) -> bool:
    return isinstance(outcome, StandpipeError) or outcome.done()


def _error_of(outcome: Outcome) -> StandpipeError | None:
    if isinstance(outcome, StandpipeError):
        return outcome
    error = outcome.exception()
    return None if error is None else as_standpipe_error(error)  # pyright: ignore[reportArgumentType]


def _decoded(decoder: msgspec.json.Decoder[Any], line: bytes, text: str = "") -> Any:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidOperation) as error:
        message = f"{text}: {error}" if text else f"the first line is invalid: {error}"
        raise BadRequest(message) from error


async def _lines(receive: Receive, bytes_max: int) -> AsyncIterator[bytes]:
    """Whole lines; the last may lack its newline. Raises BodyTooLarge for a line over the limit."""
    begun = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return  # the unfinished line is dropped
        more = message.get("more_body", False)
        known = len(begun)
        begun += message.get("body", b"")
        while (end := begun.find(b"\n", known)) >= 0:
            line, known = bytes(begun[:end]), 0
            del begun[: end + 1]
            yield _checked(line, bytes_max, is_read=not more)
        _checked(begun, bytes_max, is_read=not more)
    if begun.strip():
        yield bytes(begun)


_Line = TypeVar("_Line", bytes, bytearray)


def _checked(line: _Line, bytes_max: int, *, is_read: bool) -> _Line:
    if len(line) > bytes_max:
        why = f"a line exceeds {bytes_max} bytes (standpipe.request.body.bytes.max)"
        raise BodyTooLarge(why, is_read=is_read)
    return line
