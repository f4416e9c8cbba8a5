"""A client's session: what it keeps of its answers, and what it sends."""

from __future__ import annotations

import sys
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import sample_table
from tests.unit.client.core.test_statements import table as table_map

import standpipe.client as standpipe
from standpipe.client.core.answers import rows_of
from standpipe.client.core.exchange import HttpAnswer, SendAll
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.operations import Operations, ServerRefused, Settings
from standpipe.client.core.session import (
    TEXTS_MAX,
    ClientSession,
    has_insert,
    token_in,
    token_of,
    token_of_writes,
    without_token,
)
from standpipe.client.core.tables import SourceShape
from standpipe.errors import NotReady, TokenRefused
from standpipe.node.worker.request.answer_pieces import AnswerPieces
from standpipe.node.worker.request.head import Form
from standpipe.session_token import (
    LEVEL_PROPERTY,
    TOKEN_PROPERTY,
    SeenBatch,
    SessionToken,
    TableKey,
    TopicKey,
    written_token,
)
from standpipe.sql.plans import PullPlan
from standpipe.sql.types.types import SqlType

HEAD = b'{"queryId":"q","columnNames":["ID"],"columnTypes":["STRING"]}\n'


def token(batch: int, table: str = "T_1") -> str:
    return SessionToken({TableKey("c", table): SeenBatch(1, batch, 1)}).text()


@given(st.lists(st.tuples(st.sampled_from("TUV"), st.integers(0, 9)), max_size=12))
def test_it_covers_all_that_it_saw(seen: list[tuple[str, int]]) -> None:
    session = ClientSession()
    for table, batch in seen:
        session.saw(token(batch, table))
        assert SessionToken.parse(session.token).covers(SessionToken.parse(token(batch, table)))
    newest = {table: max(b for t, b in seen if t == table) for table, _ in seen}
    marks = SessionToken.parse(session.token).marks
    assert {key.table_id: mark.batch for key, mark in marks.items()} == newest


def test_threads_share_it_and_lose_nothing() -> None:
    """One that begins to read after another has its answer sends what that one saw."""
    session, faults = ClientSession(), list[str]()

    def use(table: str) -> None:
        for batch in range(300):
            session.saw(token(batch, table))
            if not SessionToken.parse(session.token).covers(
                SessionToken.parse(token(batch, table))
            ):
                faults.append(f"{table} {batch}")

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=use, args=(table,)) for table in "TUVW"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert faults == []
    assert len(SessionToken.parse(session.token).marks) == 4


def test_a_linearizable_client_says_so_with_each_read_and_keeps_no_token() -> None:
    settings = Settings(consistency="linearizable", finds_members=False)
    client = Operations(Nodes(("n:1",)), lambda: 0.0, settings)
    for _ in range(2):
        assert exchange(client, b"") == {LEVEL_PROPERTY: "linearizable"}
    assert settings.may_wait, "its lookups take no short way, whose patience is for what is there"
    assert not Settings().may_wait


def test_a_snapshot_client_asks_for_many_keys_with_one_statement() -> None:
    """Answers to several may be of several batches."""
    keys = [f"k{number}" for number in range(300)]
    sent = {
        level: asked_for(Settings(consistency=level, finds_members=False), keys)
        for level in ("eventual", "snapshot")
    }
    assert [len(bodies) for bodies in sent.values()] == [2, 1]
    (body,) = sent["snapshot"]
    assert body["properties"] == {LEVEL_PROPERTY: "snapshot"}
    assert all(f"'{key}'" in body["sql"] for key in keys)
    assert asked_for(Settings(consistency="snapshot", finds_members=False), []) == []
    assert not Settings(consistency="snapshot").may_wait, "a key is of one batch as it is"


def asked_for(settings: Settings, keys: list[str]) -> list[dict[str, Any]]:
    """What `get_many` sends first, of a table that is known."""
    client = Operations(Nodes(("n:1",)), lambda: 0.0, settings)
    _, found = table_map("STRING")
    found.holders = ()
    client._tables[found.shape.name] = found
    work = client.get_many(found.shape.name, keys)
    order = next(work, None)
    if order is None:  # it has sent nothing
        return []
    assert isinstance(order, SendAll)
    return [msgspec.json.decode(request.body) for request in order.requests]


@pytest.mark.parametrize(
    ("level", "session", "why"),
    [
        ("session", False, r"session=True"),
        ("strong", False, "eventual, snapshot, linearizable, not 'strong'"),
        ("linearizable", True, "not both"),
        ("linearizable", "", "not both"),
        ("snapshot", True, "or reads at level snapshot, not both"),
    ],
)
def test_levels_that_a_client_cannot_have(level: Any, session: bool | str, why: str) -> None:
    for connect in (standpipe.connect, standpipe.connect_async):
        with pytest.raises(ValueError, match=why):
            connect("n:1", consistency=level, session=session)


@pytest.mark.parametrize(
    ("body", "rows", "found"),
    [
        (HEAD, 0, None),
        (HEAD + b'["a"]\n', 1, None),
        (HEAD + b'["a"]\n{"consistencyToken":"x"}\n', 1, "x"),
        (HEAD + b'{"consistencyToken":""}\n', 0, ""),
        (HEAD + b'["{\\"consistencyToken\\":\\"x\\"}"]\n', 1, None),
    ],
)
def test_a_token_is_no_row(body: bytes, rows: int, found: str | None) -> None:
    answer = HttpAnswer(200, {}, body)
    assert token_of(answer) == found
    assert len(rows_of(answer, "")) == rows


@pytest.mark.parametrize("line", [b"", b"{", b'{"consistencyToken":5}', b'{"consistencyToken":'])
def test_what_is_no_token(line: bytes) -> None:
    assert token_in(line) is None


def operations(session: str | None) -> Operations:
    settings = Settings(session=session, finds_members=False)
    return Operations(Nodes(("n:1",)), lambda: 0.0, settings)


def exchange(client: Operations, tail: bytes) -> dict[str, object]:
    """One query; the properties that it sent."""
    work = client.query("SELECT * FROM T;")
    order = next(work)
    assert isinstance(order, SendAll)
    sent = msgspec.json.decode(order.requests[0].body)
    with pytest.raises(StopIteration):
        work.send([HttpAnswer(200, {}, HEAD + tail)])
    return sent.get("properties", {})


def line(text: str) -> bytes:
    return b'["a"]\n{"consistencyToken":"%b"}\n' % text.encode()


def test_a_client_sends_what_it_saw() -> None:
    client = operations("")
    assert exchange(client, line(token(3))) == {LEVEL_PROPERTY: "session", TOKEN_PROPERTY: ""}
    assert exchange(client, line(token(2)))[TOKEN_PROPERTY] == token(3)
    assert exchange(client, line(token(5)))[TOKEN_PROPERTY] == token(3), "an older one is covered"
    assert exchange(client, line(token(5)))[TOKEN_PROPERTY] == token(5)
    assert exchange(operations(token(4)), line(token(5)))[TOKEN_PROPERTY] == token(4)
    assert exchange(operations(None), b"") == {}, "level eventual sends what it did before"


def test_an_answer_without_a_token_is_no_answer() -> None:
    """As a node of an older release might give one."""
    client = operations("")
    work = client.query("SELECT * FROM T;")
    next(work)
    with pytest.raises(ServerRefused, match="without a session token"):
        work.send([HttpAnswer(200, {}, HEAD)])


@pytest.mark.parametrize("session", [None, ""])
def test_a_large_answer_that_fails_says_why(session: str | None) -> None:
    """It began with 200 and rows, and ends with an error instead of a token."""
    plan = PullPlan(
        source=sample_table(), keys=(), schema="", column_names=("ID",), column_types=("STRING",)
    )
    pieces = AnswerPieces(Form.LINES, plan, 0, token(5) if session is not None else None)
    body = pieces.head() + pieces.rows([b'["a"]']) + pieces.failed(NotReady("replicas lag"))
    client = operations(session)
    work = client.query("SELECT * FROM T;")
    next(work)
    with pytest.raises(ServerRefused, match="replicas lag") as refused:
        work.send([HttpAnswer(200, {}, body)])
    assert refused.value.error_code == NotReady.code
    if session is not None:
        sent = exchange(client, line(token(2)))
        assert sent[TOKEN_PROPERTY] == "", "none of its rows was handed over"


def test_what_is_no_token_is_refused_at_once() -> None:
    with pytest.raises(TokenRefused):
        operations("nonsense")


def test_a_nodes_refusal_has_its_class() -> None:
    work = operations("").query("SELECT * FROM T;")
    next(work)
    body = msgspec.json.encode(TokenRefused("of another cluster").body())
    with pytest.raises(TokenRefused, match="of another cluster"):
        work.send([HttpAnswer(400, {}, body)])


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("INSERT INTO S (ID) VALUES ('a');", True),
        (" insert\ninto s values (1)", True),
        ("INSERT INTO `a b` (`x y`, Z) VALUES ('a');", True),
        ("INSERT INTO S(ID)VALUES('a');", True),
        ("INSERT INTO S SELECT * FROM T;", False),
        ("SHOW TABLES; INSERT INTO S VALUES (1);", True),
        ("-- a note\nINSERT INTO S VALUES (1);", True),
        ("/* a note; */ INSERT /* and */ INTO S VALUES (1)", True),
        ("SET 'a' = 'b;c'; INSERT INTO S VALUES (1);", True),
        ("CREATE STREAM S (K INT KEY) WITH (KAFKA_TOPIC='s'); INSERT INTO S VALUES (1);", True),
        ("INSERT INTO `a``b` (K) VALUES (1)", True),
        ("INSERT INTO S (`a)b`, `c(d`) VALUES (1, 2)", True),
        ("INSERT INTO `VALUES`\n(K)\nVALUES\n(1)", True),
        ("INSERT INTO ${s} VALUES (1)", True),
        ("-- INSERT INTO S VALUES (1);\nSHOW TABLES;", False),
        ("INSERT INTO S SELECT `VALUES` FROM T; SHOW TABLES;", False),
        ("INSERT INTO S WITH (QUERY_ID='INSERT INTO S VALUES (1)') SELECT * FROM T;", False),
        ("SELECT 'INSERT INTO S VALUES' FROM T;", False),
        ("CREATE STREAM VALUES AS SELECT 1 FROM INSERTS;", False),
    ],
)
def test_which_statements_are_inserts(text: str, is_one: bool) -> None:
    assert has_insert(text) is is_one


def written(end: int) -> str:
    return written_token("clicks", {0: end - 1}, "id").text()


def statement(client: Operations, text: str, entities: list[object]) -> dict[str, object]:
    """One statement; the properties that it sent."""
    work = client.execute(text)
    order = next(work)
    assert isinstance(order, SendAll)
    sent = msgspec.json.decode(order.requests[0].body)
    with pytest.raises(StopIteration) as done:
        work.send([HttpAnswer(200, {}, msgspec.json.encode(entities))])
    assert done.value.value == [{"@type": "x"}], "the token is none of the entities"
    return sent["streamsProperties"]


def test_an_insert_goes_into_the_session() -> None:
    client = operations(token(3))
    given = {"@type": "consistencyToken", "consistencyToken": {"consistencyToken": written(7)}}
    sent = statement(client, "INSERT INTO CLICKS VALUES ('a');", [{"@type": "x"}, given])
    assert sent == {LEVEL_PROPERTY: "session", TOKEN_PROPERTY: token(3)}
    both = SessionToken.parse(token(3)).merged(SessionToken.parse(written(7)))
    assert exchange(client, line(token(4)))[TOKEN_PROPERTY] == both.text()
    assert statement(client, "SHOW TABLES;", [{"@type": "x"}]) == {}, "it knows no levels"
    assert statement(operations(None), "INSERT INTO S VALUES (1);", [{"@type": "x"}]) == {}


def test_rows_that_a_client_inserts_are_in_its_session_whatever_its_names() -> None:
    client = operations(token(3))
    client._shapes["a)b"] = SourceShape("a)b", {"K`(": SqlType("STRING")}, (), "KAFKA", False)
    work = client.insert("`a)b`", {"`K``(`": "x"})
    order = next(work)
    assert isinstance(order, SendAll)
    sent = msgspec.json.decode(order.requests[0].body)
    assert sent["streamsProperties"][TOKEN_PROPERTY] == token(3)


def test_an_insert_that_is_answered_without_a_token() -> None:
    work = operations("").execute("INSERT INTO S VALUES (1);")
    next(work)
    with pytest.raises(ServerRefused, match="rows are written, but no session token"):
        work.send([HttpAnswer(200, {}, b"[]")])


def test_entities_without_a_token_stay_as_they_are() -> None:
    assert without_token([]) == ([], None)
    assert without_token([{"@type": "streams"}]) == ([{"@type": "streams"}], None)


def test_what_a_producer_of_ones_own_wrote() -> None:
    """The newest record of each partition counts, in whatever order they were acknowledged."""
    rows = [("t", 0, 5), ("t", 1, 2), ("t", 0, 3), ("u", 0, 0)]
    assert SessionToken.parse(token_of_writes(rows)).writes == {
        TopicKey("t"): {0: 6, 1: 3},
        TopicKey("u"): {0: 1},
    }
    assert not token_of_writes([])
    with pytest.raises(ValueError, match="no offset -1001 of partition 0"):
        token_of_writes([("t", 0, -1001)])
    client = operations("")
    client.join(token_of_writes(rows))
    assert exchange(client, line(token(4)))[TOKEN_PROPERTY] == token_of_writes(rows)
    with pytest.raises(ValueError, match="keeps no session"):
        operations(None).join(token_of_writes(rows))
    with pytest.raises(TokenRefused):
        client.join("nonsense")


def test_what_a_push_query_says_for_days_takes_no_room() -> None:
    """Texts were merged only when a request needed one."""
    session = ClientSession()
    for batch in range(1_000):
        session.saw(token(batch))
        assert len(session._texts) <= TEXTS_MAX
    assert session.token == token(999)
