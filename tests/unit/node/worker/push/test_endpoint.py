"""When a push query that needs Spark is begun at all: only with a place, and for a client that is
still there."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.node.worker.push.test_stream_loop import Client, answers, until
from tests.unit.node.worker.push.test_transients import (
    CATALOG,
    EARLIEST,
    SELECT,
    Control,
    query_of,
    served_by,
    settled,
)

from standpipe.config.lags import SOURCE_LAG_MAX
from standpipe.errors import BadRequest, NodeLeaving, TooManyPushQueries
from standpipe.node.worker.push import endpoint, transients
from standpipe.node.worker.push.endpoint import Pushes
from standpipe.node.worker.request.body import Lookup, parse_lookup
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.large_texts import INLINE_CHARS_MAX
from standpipe.session_token import LEVEL_PROPERTY, TOKEN_PROPERTY
from standpipe.sql.syntax.parser import parse


class Worker:
    """One worker with a place for each of `places` push queries."""

    def __init__(self, folder: Path, control: Control, places: int = 9) -> None:
        self.control, self.folder = control, folder
        self.queries = served_by(control)
        kafka: Any = ""
        self.live = answers(folder, places)
        self.pushes = Pushes(self.queries.map, self.live, kafka, self.queries)

    async def ask(self, client: Client, properties: Mapping[str, str] = EARLIEST) -> None:
        lookup = Lookup(SELECT, dict(properties))
        await self.pushes.answer(query_of(), lookup, Form.LINES, client.receive, client.send)

    def is_idle(self) -> bool:
        return not (self.queries._served or any((self.folder / "push").glob("*/*")))


class SlowKafka:
    """Where topics end, once `gate` is set."""

    def __init__(self) -> None:
        self.gate, self.asked = threading.Event(), 0

    def log_ends(self, *_: object) -> dict[int, int]:
        self.asked += 1
        self.gate.wait()
        return {0: 1, 1: 1, 2: 1}


class SlowControl(Control):
    """A leader that carries each statement out once `gate` is set."""

    gate: asyncio.Event

    async def request(self, address: str, path: str, **how: Any) -> Any:
        self.is_asked = True
        await self.gate.wait()
        return await super().request(address, path, **how)

    is_asked = False


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_leaving", [False, True])
def test_without_a_place_nothing_is_begun(tmp_path: Path, is_leaving: bool) -> None:
    """A client that asks again and again would make and delete a topic each time."""

    async def run() -> None:
        worker = Worker(tmp_path, Control(CATALOG), places=9 if is_leaving else 0)
        if is_leaving:
            worker.live.leave()
        with pytest.raises(NodeLeaving if is_leaving else TooManyPushQueries):
            await worker.ask(Client(9))
        await settled(worker.queries)
        assert worker.control.asked == []
        assert worker.is_idle()

    asyncio.run(run())


def test_a_client_that_leaves_before_the_statement_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = SlowKafka()
    monkeypatch.setattr(transients, "log_ends", kafka.log_ends)

    async def run() -> None:
        worker = Worker(tmp_path, Control(CATALOG))
        clients = [Client(9) for _ in range(transients.ASKERS + 3)]
        asking = [asyncio.create_task(worker.ask(each, {})) for each in clients]
        await until(lambda: kafka.asked == transients.ASKERS)
        for each in clients:
            each.go_away()
        await turns()
        have_ended = all(each.done() for each in asking) and worker.is_idle()
        kafka.gate.set()
        await asyncio.gather(*asking)
        assert have_ended, "before Kafka answered"
        await worker.queries.close()
        assert kafka.asked == transients.ASKERS, "nobody wants what the others would hear"
        assert worker.control.asked == []
        assert all(each.got == [] for each in clients)

    asyncio.run(run())


@pytest.mark.parametrize("ended_by", ["the client", "/close-query"])
def test_what_is_ended_while_the_leader_begins_it_is_terminated_after_that(
    tmp_path: Path, ended_by: str
) -> None:
    """TERMINATE must not overtake it: it would run until nobody has renewed it for 10 s."""

    async def run() -> None:
        control = SlowControl(CATALOG)
        control.gate = asyncio.Event()
        worker, client = Worker(tmp_path, control), Client(9)
        asking = asyncio.create_task(worker.ask(client))
        await until(lambda: control.is_asked)
        if ended_by == "the client":
            client.go_away()
        else:
            (query_id,) = worker.live._running
            worker.pushes.close(b'{"queryId": "%s"}' % query_id.encode())
            worker.live.reload_if_changed()
        await turns()
        has_ended = asking.done() and worker.is_idle()
        control.gate.set()
        (said,) = await asyncio.gather(asking, return_exceptions=True)
        assert has_ended, "before the leader answered"
        assert (said is None) == (ended_by == "the client")
        await settled(worker.queries)
        assert control.texts() == ["SELECT", "TERMINATE"]
        assert not control.catalog.transients

    asyncio.run(run())


def test_the_statement_is_refused(tmp_path: Path) -> None:
    """Its place is free again, and the client gets the error."""

    class Refusing(Control):
        def _execute(self, body: bytes) -> None:
            raise NodeLeaving("refused") from None

    async def run() -> None:
        worker = Worker(tmp_path, Refusing(CATALOG))
        with pytest.raises(NodeLeaving):
            await worker.ask(Client(9))
        assert worker.is_idle()

    asyncio.run(run())


@pytest.mark.parametrize("characters", [20, 2_000])
def test_a_long_text_is_planned_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, characters: int
) -> None:
    """2,000 numbers of an IN list held the loop for 60 ms."""
    planners: list[threading.Thread] = []

    def planned(statement: Any) -> bool:
        planners.append(threading.current_thread())
        raise BadRequest("it is enough that it is planned")

    monkeypatch.setattr(endpoint, "needs_spark", planned)

    async def run() -> None:
        worker, client = Worker(tmp_path, Control(CATALOG)), Client(9)
        lookup = Lookup("x" * characters, {})
        with pytest.raises(BadRequest):
            await worker.pushes.answer(query_of(), lookup, Form.LINES, client.receive, client.send)
        worker.pushes.texts.close()

    asyncio.run(run())
    is_beside = [each is not threading.main_thread() for each in planners]
    assert is_beside == [characters > INLINE_CHARS_MAX]


@pytest.mark.parametrize(
    "body",
    [
        b'{"queryId": "x", "more": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"queryId": "' + b"x" * 500_000 + b'"}',
    ],
)
def test_a_body_of_close_query_that_is_deep_or_long(tmp_path: Path, body: bytes) -> None:
    """A deep one was answered with 500."""

    async def run() -> None:
        with pytest.raises(BadRequest) as refused:
            Worker(tmp_path, Control(CATALOG)).pushes.close(body)
        assert len(refused.value.message) < 1_000

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "properties", "said"),
    [
        ("PRINT s;", {LEVEL_PROPERTY: "session"}, "level session is for pull queries"),
        (SELECT, {LEVEL_PROPERTY: "snapshot"}, "level snapshot is for pull queries"),
        (SELECT, {LEVEL_PROPERTY: "linearizable"}, "level linearizable is for pull queries"),
        (SELECT, {SOURCE_LAG_MAX.name: 5}, "is for pull queries on tables"),
        (SELECT, {LEVEL_PROPERTY: "session"}, "ends with its connection and cannot be continued"),
        (SELECT, {TOKEN_PROPERTY: "x"}, "ends with its connection and cannot be continued"),
    ],
)
def test_which_levels_are_refused(
    tmp_path: Path, text: str, properties: dict[str, Any], said: str
) -> None:
    """No token and no promise is ignored."""

    async def run() -> None:
        worker, client = Worker(tmp_path, Control(CATALOG)), Client(9)
        (statement,) = parse(text)
        body = json.dumps({"ksql": text, "streamsProperties": properties}).encode()
        exchange = (Form.LINES, client.receive, client.send)
        with pytest.raises(BadRequest, match=said):
            await worker.pushes.answer(statement, parse_lookup(body), *exchange)  # type: ignore[arg-type]
        assert worker.control.asked == []
        assert worker.is_idle()

    asyncio.run(run())
