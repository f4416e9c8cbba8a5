"""The rows of one request, and the token that the answer ends with."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.samples import sample_stream

from standpipe.adapters.kafka.producer import RowProducer, WrittenRow
from standpipe.adapters.metrics import Metrics
from standpipe.errors import BadRequest, KafkaUnavailable, TokenRefused
from standpipe.model import Column
from standpipe.node.worker.statements.inserts import Inserts, inserts_of
from standpipe.node.worker.statements.judge import JudgedStatement, RequestSession
from standpipe.session_token import (
    ENABLE_PROPERTY,
    LEVEL_PROPERTY,
    TOKEN_PROPERTY,
    SeenBatch,
    SessionToken,
    TableKey,
    written_token,
)
from standpipe.sql.plans import InsertValuesPlan, Plan, SetPropertyPlan, ShowPlan

STREAM = sample_stream(columns=(Column(name="ID", type="STRING", is_key=True),))
ROW = InsertValuesPlan(source=STREAM, values=("a",), rowtime_ms=5)
SHOW: Plan = ShowPlan(what="STREAMS")
SEEN = SessionToken({TableKey("c", "T_1"): SeenBatch(1, 7, 1)})


class Kafka(RowProducer):
    """Acknowledges rows as the test says: (partition, offset)."""

    def __init__(self, *rows: tuple[int, int]) -> None:
        super().__init__("")
        self.rows, self.asked = list(rows), list[Collection[str]]()

    async def send(
        self, topic: str, key: bytes | None, value: bytes | None, at_ms: int
    ) -> WrittenRow:
        if not self.rows:
            raise KafkaUnavailable("away")
        return WrittenRow(topic, *self.rows.pop(0))

    async def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        self.asked.append(topics)
        return dict.fromkeys(topics, "id")


def inserts(folder: Path, kafka: RowProducer, properties: dict[str, str], *plans: Plan) -> Inserts:
    """Of a request with these statements, one after the other."""
    session, statements = RequestSession(properties, {}), list[JudgedStatement]()
    for plan in plans:
        statements.append(JudgedStatement("…;", plan, session))
        session = session.after(plan)
    return inserts_of(kafka, Metrics(0, folder), properties, statements)


def setting(name: str, value: str | None) -> Plan:
    return SetPropertyPlan(name=name, value=value)


def told(entities: list[msgspec.Raw]) -> list[Any]:
    return [msgspec.json.decode(each) for each in entities]


@pytest.mark.parametrize(
    ("properties", "before"),
    [
        ({LEVEL_PROPERTY: "session"}, SessionToken()),
        ({ENABLE_PROPERTY: "true"}, SessionToken()),
        ({TOKEN_PROPERTY: ""}, SessionToken()),
        ({TOKEN_PROPERTY: SEEN.text()}, SEEN),
    ],
)
def test_the_token_covers_what_came_and_what_was_written(
    tmp_path: Path, properties: dict[str, str], before: SessionToken
) -> None:
    async def story() -> None:
        kafka = Kafka((0, 41), (2, 7), (0, 42))
        one = inserts(tmp_path, kafka, properties, SHOW, ROW)
        for _ in range(3):
            await one.insert(ROW)
        other = msgspec.Raw(b'{"@type":"x"}')
        first, last = told(await one.with_token([other]))
        assert first == {"@type": "x"}
        assert last["@type"] == "consistencyToken"
        token = SessionToken.parse(last["consistencyToken"]["consistencyToken"])
        assert token == before.merged(written_token(STREAM.topic, {0: 42, 2: 7}, "id"))

    asyncio.run(story())


@pytest.mark.parametrize(
    ("properties", "sets", "is_in_session"),
    [
        ({}, [setting(LEVEL_PROPERTY, "session")], True),
        ({LEVEL_PROPERTY: "session"}, [setting(TOKEN_PROPERTY, "")], True),
        ({}, [setting(LEVEL_PROPERTY, "session"), setting(LEVEL_PROPERTY, None)], False),
    ],
)
def test_a_session_may_begin_with_a_set(
    tmp_path: Path, properties: dict[str, str], sets: list[Plan], is_in_session: bool
) -> None:
    """A SET of it was accepted, and the answer had no token."""
    one = inserts(tmp_path, Kafka(), properties, *sets, ROW)
    assert (one.writes is not None) is is_in_session
    alone = inserts(tmp_path, Kafka(), {}, *sets)
    assert alone.writes is None, "the prompt sends a SET alone"


@pytest.mark.parametrize("level", ["snapshot", "linearizable"])
def test_a_level_that_no_insert_has_is_refused_by_a_set_as_beside_it(
    tmp_path: Path, level: str
) -> None:
    with pytest.raises(BadRequest, match=f"read level {level} is for pull queries"):
        inserts(tmp_path, Kafka(), {}, setting(LEVEL_PROPERTY, level), ROW)
    assert inserts(tmp_path, Kafka(), {}, setting(LEVEL_PROPERTY, level), SHOW).writes is None


@pytest.mark.parametrize(
    ("properties", "plans"),
    [
        ({}, [ROW, setting(LEVEL_PROPERTY, "session"), ROW]),
        ({TOKEN_PROPERTY: ""}, [ROW, setting(TOKEN_PROPERTY, SEEN.text()), ROW]),
        ({TOKEN_PROPERTY: SEEN.text()}, [setting(TOKEN_PROPERTY, None), ROW]),
    ],
)
def test_a_request_has_one_session(
    tmp_path: Path, properties: dict[str, str], plans: list[Plan]
) -> None:
    with pytest.raises(BadRequest, match="in one session, or in none"):
        inserts(tmp_path, Kafka(), properties, *plans)


def test_without_a_session_nothing_is_asked_or_said(tmp_path: Path) -> None:
    async def story() -> None:
        kafka = Kafka((0, 41))
        one = inserts(tmp_path, kafka, {LEVEL_PROPERTY: "eventual"}, ROW)
        await one.insert(ROW)
        assert await one.with_token([]) == []
        assert kafka.asked == []

    asyncio.run(story())


def test_a_row_that_was_not_acknowledged_is_not_in_it(tmp_path: Path) -> None:
    async def story() -> None:
        one = inserts(tmp_path, Kafka((0, 41)), {LEVEL_PROPERTY: "session"}, ROW)
        await one.insert(ROW)
        with pytest.raises(KafkaUnavailable):
            await one.insert(ROW)
        (last,) = told(await one.with_token([]))
        token = SessionToken.parse(last["consistencyToken"]["consistencyToken"])
        assert token == written_token(STREAM.topic, {0: 41}, "id")

    asyncio.run(story())


def test_a_row_of_which_kafka_does_not_say_where_it_is(tmp_path: Path) -> None:
    async def story() -> None:
        one = inserts(tmp_path, Kafka((0, -1), (0, -1)), {LEVEL_PROPERTY: "session"}, ROW)
        with pytest.raises(KafkaUnavailable, match="did not say at which offset"):
            await one.insert(ROW)
        without = inserts(tmp_path, Kafka((0, -1)), {}, ROW)
        await without.insert(ROW)

    asyncio.run(story())


def test_what_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="not for other statements"):
        inserts(tmp_path, Kafka(), {LEVEL_PROPERTY: "session"}, SHOW)
    with pytest.raises(TokenRefused):
        inserts(tmp_path, Kafka(), {TOKEN_PROPERTY: "nonsense"}, ROW)
    with pytest.raises(BadRequest, match="contradicts"):
        inserts(tmp_path, Kafka(), {TOKEN_PROPERTY: "", LEVEL_PROPERTY: "eventual"}, ROW)
