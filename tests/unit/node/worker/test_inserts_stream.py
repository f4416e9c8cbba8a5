"""/inserts-stream without HTTP and without Kafka: order, bounds, and who goes away when."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.samples import WIDE_ITEMS, json_items, sample_stream

from standpipe.adapters.kafka.producer import RowProducer, WrittenRow
from standpipe.adapters.metrics import Metrics
from standpipe.errors import BadRequest, KafkaUnavailable, StandpipeError
from standpipe.model import Column, Source
from standpipe.node.worker import inserts_stream
from standpipe.node.worker.inserts_stream import ROWS_IN_FLIGHT_MAX, InsertsRoute
from standpipe.node.worker.long_lines import INLINE_BYTES_MAX, LongLines
from standpipe.session_token import TOKEN_PROPERTY, SessionToken, written_token

STREAM = sample_stream(
    columns=(Column(name="ID", type="STRING", is_key=True), Column(name="N", type="INTEGER"))
)
LINES, OBJECTS = "application/vnd.ksqlapi.delimited.v1", "application/json"
FIRST = b'{"target":"s"}\n'
ROW_MAX = 2000
ROW = WrittenRow("s", 0, 0)


def row(number: int) -> bytes:
    return b'{"ID":"k%d","N":%d}\n' % (number, number)


@dataclass
class View:
    sources: Mapping[str, Source]


@dataclass
class Map:
    """A worker's map, as far as rows need it."""

    view: View = field(default_factory=lambda: View({"S": STREAM}))
    #: what control has published since
    published: View | None = None

    def refresh(self) -> None:
        self.view, self.published = self.published or self.view, None


class Kafka(RowProducer):
    """Takes what it is given, acknowledges when the test says so."""

    def __init__(self) -> None:
        super().__init__("")
        self.posted: list[tuple[bytes | None, bytes | None, int]] = []
        self.waiting: list[asyncio.Future[WrittenRow]] = []
        self.is_prompt = True
        self.ids: dict[str, str] = {}

    async def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    async def open(self, topic: str) -> None:
        assert topic == "s"

    def post(
        self, topic: str, key: bytes | None, value: bytes | None, at_ms: int
    ) -> asyncio.Future[WrittenRow]:
        assert topic == "s", "it was never opened"
        self.posted.append((key, value, at_ms))
        done: asyncio.Future[WrittenRow] = asyncio.get_running_loop().create_future()
        if self.is_prompt:
            done.set_result(WrittenRow(topic, 0, len(self.posted) - 1))
        else:
            self.waiting.append(done)
        return done


@dataclass(frozen=True)
class Lines(LongLines):
    """Knows those that were given to the thread."""

    asked: list[bytes] = field(default_factory=list[bytes])

    async def read(self, line: bytes, made: Callable[[], Any]) -> Any:
        self.asked.append(line)
        return await super().read(line, made)


class Client:
    """Both directions of one request; `takes` off: it does not read its answer."""

    def __init__(self, folder: Path, accept: str, version: str, row_max: int = ROW_MAX) -> None:
        self.kafka, self.map, self.metrics = Kafka(), Map(), Metrics(0, folder)
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.heard: list[dict[str, Any]] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.is_leaving = False
        self.long_lines = Lines()
        route = InsertsRoute(
            map=self.map,  # pyright: ignore[reportArgumentType]
            producer=self.kafka,
            metrics=self.metrics,
            row_bytes_max=row_max,
            long_lines=self.long_lines,
            is_leaving=lambda: self.is_leaving,
        )
        headers = [(b"accept", accept.encode())] if accept else []
        scope = {"type": "http", "method": "POST", "http_version": version, "headers": headers}
        self._is_read = False
        self.reads_beyond_end = 0  # each would wait until the client goes
        self.done = asyncio.create_task(route(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        self.reads_beyond_end += self._is_read
        message = await self.said.get()
        self._is_read = not message.get("more_body", False)
        return message

    async def _send(self, message: Any) -> None:
        await self.takes.wait()
        self.heard.append(message)

    def say(self, body: bytes, *, is_end: bool = False) -> None:
        self.said.put_nowait({"type": "http.request", "body": body, "more_body": not is_end})

    def go(self) -> None:
        self.said.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        return self.heard[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.heard[1:])

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.body.splitlines()]

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110 the other side is the same loop
            await asyncio.sleep(0.001)


def story(
    folder: Path,
    told: Callable[[Client], Awaitable[None]],
    *,
    accept: str = "",
    version: str = "2",
    row_max: int = ROW_MAX,
) -> None:
    async def run() -> None:
        async with asyncio.timeout(20):
            await told(Client(folder, accept, version, row_max))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("accept", "media", "body"),
    [
        ("", LINES, b'{"seq":0,"status":"ok"}\n{"seq":1,"status":"ok"}\n'),
        (OBJECTS, OBJECTS, b'[{"seq":0,"status":"ok"},{"seq":1,"status":"ok"}]'),
    ],
)
def test_rows_are_acknowledged(tmp_path: Path, accept: str, media: str, body: bytes) -> None:
    async def told(client: Client) -> None:
        client.say(FIRST + row(0) + row(1), is_end=True)
        await client.done
        assert (client.status, client.body) == (200, body)
        assert dict(client.heard[0]["headers"])[b"content-type"] == media.encode()
        assert [posted[:2] for posted in client.kafka.posted] == [
            (b"k0", b'{"N":0}'),
            (b"k1", b'{"N":1}'),
        ]
        assert client.metrics.counts["standpipe_inserted_rows"] == {"": 2}

    story(tmp_path, told, accept=accept)


def test_a_stream_that_another_worker_has_just_acknowledged_is_known(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.map.view, client.map.published = View({}), client.map.view
        client.say(FIRST + row(0), is_end=True)
        await client.done
        assert (client.status, client.body) == (200, b'{"seq":0,"status":"ok"}\n')

    story(tmp_path, told)


@pytest.mark.parametrize("accept", [LINES, OBJECTS])
def test_no_rows(tmp_path: Path, accept: str) -> None:
    async def told(client: Client) -> None:
        client.say(FIRST, is_end=True)
        await client.done
        assert (client.status, client.body) == (200, b"" if accept == LINES else b"[]")

    story(tmp_path, told, accept=accept)


def test_the_head_and_each_acknowledgement_come_at_once(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.say(FIRST)
        await client.until(lambda: bool(client.heard))
        for number in range(3):
            client.say(row(number))
            await client.until(lambda: len(client.answers) > number)  # noqa: B023 awaited here
        client.say(b"", is_end=True)
        await client.done

    story(tmp_path, told)


def test_lines_come_in_pieces_and_the_last_without_its_end(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        whole = FIRST + row(0) + row(1).rstrip()
        for at in range(len(whole)):
            client.say(whole[at : at + 1])
        client.say(b"", is_end=True)
        await client.done
        assert [answer["status"] for answer in client.answers] == ["ok", "ok"]

    story(tmp_path, told)


def test_acknowledgements_keep_the_order_of_the_rows(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.kafka.is_prompt = False
        client.say(FIRST + row(0) + row(1) + row(2), is_end=True)
        await client.until(lambda: len(client.kafka.waiting) == 3)
        for late in reversed(client.kafka.waiting):
            late.set_result(ROW)
            await asyncio.sleep(0)
        await client.done
        assert [answer["seq"] for answer in client.answers] == [0, 1, 2]

    story(tmp_path, told)


@pytest.mark.parametrize(
    ("bad", "code", "message"),
    [
        (b"{\n", 40000, "Invalid JSON in inserts stream"),
        (b"\n", 40000, "Invalid JSON in inserts stream"),
        (b"[1]\n", 40000, "Invalid JSON in inserts stream"),
        (b"[" * 1500 + b"\n", 40000, "Invalid JSON in inserts stream"),
        (b'{"ID":"a","N":"x"}\n', 40000, "Can't coerce a field of type STRING (x)"),
        (b'{"ID":"a","N":1e%d}\n' % 10**20, 40000, "Invalid JSON in inserts stream"),
        (b'{"N":1}\n', 40000, "Key field must be specified: ID"),
        (b'{"ID":"' + b"x" * ROW_MAX, 41300, "a line exceeds 2000 bytes"),
    ],
)
def test_the_first_bad_row_ends_the_stream(
    tmp_path: Path, bad: bytes, code: int, message: str
) -> None:
    async def told(client: Client) -> None:
        client.say(FIRST + row(0) + bad)
        client.say(row(2))
        await client.done
        good, failed = client.answers
        assert good == {"seq": 0, "status": "ok"}
        assert (failed["seq"], failed["status"], failed["error_code"]) == (1, "error", code)
        assert message in failed["message"]
        assert len(client.kafka.posted) == 1
        assert client.heard[-1]["more_body"] is False

    story(tmp_path, told)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(KafkaUnavailable("no broker"), 50308), (BadRequest("Kafka refuses the row"), 40000)],
)
def test_a_row_that_kafka_refuses_ends_the_stream(
    tmp_path: Path, fault: StandpipeError, code: int
) -> None:
    async def told(client: Client) -> None:
        client.kafka.is_prompt = False
        client.say(FIRST + row(0) + row(1) + row(2))
        await client.until(lambda: len(client.kafka.waiting) == 3)
        first, second, third = client.kafka.waiting
        third.set_result(ROW)
        second.set_exception(fault)
        first.set_result(ROW)
        await client.done
        assert [answer["status"] for answer in client.answers] == ["ok", "error"]
        assert client.answers[1]["error_code"] == code
        assert client.answers[1]["message"] == fault.message
        assert client.metrics.counts["standpipe_inserted_rows"] == {"": 1}

    story(tmp_path, told)


@pytest.mark.parametrize(
    ("version", "first", "status", "code"),
    [
        ("1.1", FIRST, 400, 40004),
        ("2", b"", 400, 40000),
        ("2", b"{}\n", 400, 40000),
        ("2", b'{"target":"t"}\n', 400, 40001),
        ("2", b'{"target":"s","properties":{"no.such":1}}\n', 400, 40000),
        ("2", b"x" * (ROW_MAX + 1), 413, 41300),
    ],
)
def test_a_request_is_refused(
    tmp_path: Path, version: str, first: bytes, status: int, code: int
) -> None:
    async def told(client: Client) -> None:
        client.say(first, is_end=True)
        await client.done
        assert client.reads_beyond_end == 0
        assert (client.status, json.loads(client.body)["error_code"]) == (status, code)
        assert client.kafka.posted == []

    story(tmp_path, told, version=version)


def test_who_does_not_take_acknowledgements_is_read_no_more(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.say(FIRST)
        await client.until(lambda: len(client.heard) == 2)
        client.takes.clear()
        for number in range(5 * ROWS_IN_FLIGHT_MAX):
            client.say(row(number))
        before = -1
        while before != len(client.kafka.posted):
            before = len(client.kafka.posted)
            await asyncio.sleep(0.02)
        assert before <= 2 * ROWS_IN_FLIGHT_MAX, "those on their way out, and as many behind"
        client.takes.set()
        client.say(b"", is_end=True)
        await client.done
        assert [answer["seq"] for answer in client.answers] == [*range(5 * ROWS_IN_FLIGHT_MAX)]

    story(tmp_path, told)


def test_kafka_that_stands_still_stops_the_reading(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.kafka.is_prompt = False
        client.say(FIRST + b"".join(map(row, range(2 * ROWS_IN_FLIGHT_MAX))), is_end=True)
        await client.until(lambda: len(client.kafka.posted) == ROWS_IN_FLIGHT_MAX)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(client.kafka.posted) == ROWS_IN_FLIGHT_MAX
        client.kafka.is_prompt = True
        for waiting in client.kafka.waiting:
            waiting.set_result(ROW)
        await client.done
        assert len(client.answers) == 2 * ROWS_IN_FLIGHT_MAX

    story(tmp_path, told)


def test_half_a_row_of_a_client_that_went_away_is_not_inserted(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.say(FIRST + row(0) + row(1).rstrip())
        client.go()
        await client.done
        assert [posted[0] for posted in client.kafka.posted] == [b"k0"]

    story(tmp_path, told)


def test_a_node_that_leaves_answers_what_it_read_and_ends(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.kafka.is_prompt = False
        client.say(FIRST + row(0))
        await client.until(lambda: len(client.kafka.waiting) == 1)
        client.is_leaving = True
        await asyncio.sleep(0)
        client.kafka.waiting[0].set_result(ROW)
        await client.done
        assert [answer["status"] for answer in client.answers] == ["ok"]
        assert client.heard[-1]["more_body"] is False

    story(tmp_path, told)


def test_a_stream_that_is_dropped_or_changed_meanwhile(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.say(FIRST + row(0))
        await client.until(lambda: len(client.kafka.posted) == 1)
        wider = msgspec.structs.replace(
            STREAM, columns=(*STREAM.columns, Column(name="M", type="INTEGER"))
        )
        client.map.view = View({"S": wider})
        client.say(b'{"ID":"a","M":1}\n')
        await client.until(lambda: len(client.kafka.posted) == 2)
        assert client.kafka.posted[1][1] == b'{"N":null,"M":1}'
        client.map.view = View({})
        client.say(row(2))
        await client.done
        assert client.answers[2]["error_code"] == 40001

    story(tmp_path, told)


def test_a_stream_that_is_made_anew_over_another_topic_ends_the_answer(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.say(FIRST + row(0))
        await client.until(lambda: len(client.kafka.posted) == 1)
        client.map.view = View({"S": msgspec.structs.replace(STREAM, topic="other")})
        client.say(row(1))
        client.say(row(2))
        await client.done
        assert [answer["status"] for answer in client.answers] == ["ok", "error"]
        assert client.answers[1]["error_code"] == 40000
        assert "S is over another topic now: other" in client.answers[1]["message"]
        assert len(client.kafka.posted) == 1
        assert client.heard[-1]["more_body"] is False

    story(tmp_path, told)


SESSION = b'{"target":"s","properties":{"standpipe.read.consistency":"session"}}\n'


@pytest.mark.parametrize("accept", [LINES, OBJECTS])
def test_a_session_gets_a_token_of_what_was_acknowledged(tmp_path: Path, accept: str) -> None:
    async def told(client: Client) -> None:
        client.kafka.ids = {"s": "id-of-s"}
        client.say(SESSION + row(0) + row(1) + b'{"ID":"a","N":"x"}\n' + row(2), is_end=True)
        await client.done
        answers = client.answers if accept == LINES else json.loads(client.body)
        assert [each.get("status") for each in answers] == ["ok", "ok", "error", None]
        token = SessionToken.parse(answers[-1]["consistencyToken"])
        assert token == written_token("s", {0: 1}, "id-of-s")

    story(tmp_path, told, accept=accept)


@pytest.mark.parametrize("ids", [{}, {"s": "i"}])
def test_a_session_goes_on(tmp_path: Path, ids: dict[str, str]) -> None:
    before = written_token("other", {3: 7})

    async def told(client: Client) -> None:
        client.kafka.ids = ids
        first = {"target": "s", "properties": {TOKEN_PROPERTY: before.text()}}
        client.say(json.dumps(first).encode() + b"\n", is_end=True)
        await client.done
        assert SessionToken.parse(client.answers[-1]["consistencyToken"]) == before

    story(tmp_path, told)


def test_a_row_of_which_kafka_does_not_say_where_it_is(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.kafka.is_prompt = False
        client.say(SESSION + row(0), is_end=True)
        await client.until(lambda: len(client.kafka.waiting) == 1)
        client.kafka.waiting[0].set_result(WrittenRow("s", 0, -1))
        await client.done
        first, last = client.answers
        assert first["error_code"] == KafkaUnavailable.code
        assert last == {"consistencyToken": ""}

    story(tmp_path, told)


def test_what_is_no_token_is_refused_before_any_row(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        first = {"target": "s", "properties": {TOKEN_PROPERTY: "nonsense"}}
        client.say(json.dumps(first).encode() + b"\n" + row(0), is_end=True)
        await client.done
        assert client.status == 400
        assert client.kafka.posted == []

    story(tmp_path, told)


WIDE = msgspec.structs.replace(
    STREAM, columns=(STREAM.columns[0], Column(name="A", type=WIDE_ITEMS))
)


def wide(number: int, count: int) -> bytes:
    return b'{"ID":"k%d","A":%b}\n' % (number, json_items("{}", count))


def test_inserts_stream_refuses_a_line_that_would_make_a_large_record(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.map.view = View({"S": WIDE})
        client.say(FIRST + wide(0, 10) + wide(1, 4_000) + wide(2, 10))
        await client.done
        assert [each["status"] for each in client.answers] == ["ok", "error"]
        assert client.answers[1]["error_code"] == 40000
        assert "more fields than its bytes allow" in client.answers[1]["message"]
        assert len(client.kafka.posted) == 1

    story(tmp_path, told, row_max=20_000)


def test_inserts_stream_takes_a_line_of_many_items_with_few_of_their_fields(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.map.view = View({"S": WIDE})
        items = json_items('{"FIELD_007":1234}', 950)
        client.say(FIRST + b'{"ID":"a","A":%b}\n' % items, is_end=True)
        await client.done
        assert [each["status"] for each in client.answers] == ["ok"]

    story(tmp_path, told, row_max=20_000)


@pytest.mark.parametrize(("size", "is_long"), [(INLINE_BYTES_MAX, False), (17_000, True)])
def test_inserts_stream_reads_a_long_line_in_a_thread(
    tmp_path: Path, size: int, is_long: bool
) -> None:
    """Its loop turns meanwhile, and the order stays."""
    key = b"x" * (size - len(b'{"ID":"","N":1}'))

    async def told(client: Client) -> None:
        gate, began = threading.Event(), threading.Event()

        def work() -> None:
            began.set()
            gate.wait(20)

        client.long_lines.beside.submit(work)
        await client.until(began.is_set)
        client.say(FIRST + row(0) + b'{"ID":"%b","N":1}\n' % key + row(2), is_end=True)
        await client.until(lambda: len(client.answers) == (1 if is_long else 3))
        gate.set()
        await client.done
        assert [posted[0] for posted in client.kafka.posted] == [b"k0", key, b"k2"]
        assert [each["seq"] for each in client.answers] == [0, 1, 2]

    story(tmp_path, told, row_max=20_000)


@pytest.mark.parametrize(("column", "statuses"), [("M", ["ok"]), ("", ["error"])])
def test_inserts_stream_reads_a_long_line_again_if_its_stream_has_changed(
    tmp_path: Path, column: str, statuses: list[str]
) -> None:
    """`column`: a new one; empty: the stream is over another topic now."""

    async def told(client: Client) -> None:
        gate, began = threading.Event(), threading.Event()

        def work() -> None:
            began.set()
            gate.wait(20)

        client.long_lines.beside.submit(work)
        client.say(FIRST + b'{"ID":"a","M":1,"N":2%b}\n' % (b" " * INLINE_BYTES_MAX), is_end=True)
        await client.until(lambda: bool(client.heard) and began.is_set())
        await client.until(lambda: len(client.long_lines.asked) == 1)
        changed = (
            {"columns": (*STREAM.columns, Column(name="M", type="INTEGER"))}
            if column
            else {"topic": "other"}
        )
        client.map.view = View({"S": msgspec.structs.replace(STREAM, **changed)})
        gate.set()
        await client.done
        assert [each["status"] for each in client.answers] == statuses
        assert [value for _, value, _ in client.kafka.posted] == (
            [b'{"N":2,"M":1}'] if column else []
        )

    story(tmp_path, told, row_max=20_000)


def test_inserts_stream_turns_the_loop_between_rows_that_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts_stream, "TURN_S", 0.0)

    async def told(client: Client) -> None:
        client.kafka.is_prompt = False
        client.say(FIRST + b"".join(map(row, range(20))), is_end=True)
        turns: list[int] = []
        while len(client.kafka.posted) < 20:
            turns.append(len(client.kafka.posted))
            await asyncio.sleep(0)
        assert max(after - before for before, after in pairwise(turns)) == 1
        for waiting in client.kafka.waiting:
            waiting.set_result(ROW)
        await client.done

    story(tmp_path, told)


def test_inserts_stream_holds_few_rows_that_become_large(tmp_path: Path) -> None:
    async def told(client: Client) -> None:
        client.map.view = View({"S": WIDE})
        client.kafka.is_prompt = False
        client.say(FIRST + b"".join(wide(number, 400) for number in range(10)), is_end=True)
        await client.until(lambda: len(client.kafka.posted) == 4)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(client.kafka.posted) == 4, "each has 340 KB"
        client.kafka.is_prompt = True
        for waiting in client.kafka.waiting:
            waiting.set_result(ROW)
        await client.done
        assert len(client.answers) == 10

    story(tmp_path, told)
