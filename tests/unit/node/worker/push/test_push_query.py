"""Where a push query starts, and which map ends it; the rest is tested with a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.samples import sample_stream

from standpipe.adapters.kafka.reader import Partition
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.data.query.push_start import HOUR_MS, SCAN_MS_MAX
from standpipe.data.query.record_rows import Share, TopicRecord, writer_of
from standpipe.errors import BadRequest, ServerError, TokenRefused
from standpipe.model import (
    Assignment,
    BatchId,
    Column,
    Commit,
    LeaseEpoch,
    LogIndex,
    NodeId,
    Progress,
    QueryStatus,
    Snapshot,
    Source,
)
from standpipe.node.worker.push import push_query, push_session
from standpipe.node.worker.push.encoding import PushForm
from standpipe.node.worker.push.push_query import check_source, new_query_id, starts_at_end
from standpipe.node.worker.push.stream_loop import STEP_BYTES, Ending
from standpipe.node.worker.request.body import PUSH_TOKEN
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.node.worker.request.computing_turn import ComputingTurn
from standpipe.node.worker.request.head import Form
from standpipe.session_token import SessionToken, TopicKey
from standpipe.sql.lookup.push import push
from standpipe.sql.syntax.ast import Query
from standpipe.sql.syntax.parser import parse

STREAM = sample_stream(topic="t", columns=(Column(name="V", type="BIGINT"),))
TABLE = replace(STREAM, name="T", kind="TABLE", query_id="Q")


def snapshot_of(*sources: Source) -> Snapshot:
    return Snapshot(
        stamp=1, node_id=NodeId("n"), service_id="", cluster_id="", log_index=LogIndex(1),
        leader=NodeId(""), nodes=(), sources=sources, queries=(), assignment=Assignment(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("after", "said", "why"),
    [
        ([STREAM, TABLE], None, "control publishes once a second"),
        ([STREAM, TABLE, replace(TABLE, name="U", topic="u", query_id="R")], None, "another topic"),
        ([TABLE], "S was dropped", "the source itself"),
        ([STREAM], "another query writes t", "its table was dropped: nothing is committed more"),
        ([STREAM, replace(TABLE, query_id="R")], "another query writes t", "made anew"),
        ([STREAM, replace(TABLE, takes_inserts=True)], "another query writes t", "INSERT INTO"),
    ],
)
def test_what_ends_a_query_on_the_topic_of_a_table(
    after: list[Source], said: str | None, why: str
) -> None:
    view = ClusterView.of(snapshot_of(*after))
    ends = pytest.raises(ServerError, match=said) if said else nullcontext()
    with ends:
        check_source(STREAM, writer_of("t", snapshot_of(STREAM, TABLE)), view)


def test_it_waits_for_its_turn_to_open_and_lets_others_compute_while_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, seen = ComputingTurn(), dict[str, bool]()

    def ends(*_: object) -> dict[int, int]:
        seen["while it asks Kafka"] = turn.is_taken
        return {0: 7, 1: 7, 2: 7}

    def tail(*_: object) -> None:
        seen["while it computes"] = turn.is_taken

    monkeypatch.setattr(push_query, "log_ends", ends)
    monkeypatch.setattr(push_query, "TopicTail", tail)
    catalog: Any = SimpleNamespace(view=ClusterView.of(snapshot_of(STREAM)))
    (query,) = parse("SELECT * FROM S EMIT CHANGES;")
    assert isinstance(query, Query)
    answer = push_query.PushAnswer(
        plan=push(query, {"S": STREAM}),
        properties={},
        form=PushForm(Form.LINES),
        query_id="transient_S_7",
        map=catalog,
        kafka="",
        turn=turn,
    )
    answer.open()
    assert seen == {"while it asks Kafka": False, "while it computes": True}
    assert not turn.is_taken


TRANSIENT_ID = "transient_S_7"
TRANSIENT = replace(STREAM, name=TRANSIENT_ID, query_id=TRANSIENT_ID, topic="c")


@pytest.mark.parametrize(
    ("transients", "state", "said"),
    [
        ((TRANSIENT,), "RUNNING", None),
        ((TRANSIENT,), "RETRYING", None),
        ((TRANSIENT,), "FAILED", "has failed: OUT_OF_TIME: too bad"),
        ((), "RUNNING", "has ended: it was terminated"),
        ((), "FAILED", "has ended"),
    ],
)
def test_what_ends_a_push_query_that_spark_runs(
    transients: tuple[Source, ...], state: Any, said: str | None
) -> None:
    """A client must not wait for ever for rows of a query that has stopped."""
    status = QueryStatus(
        query_id=TRANSIENT_ID, state=state, reason="OUT_OF_TIME", message="too bad"
    )
    snapshot = replace(snapshot_of(STREAM), transients=transients, query_statuses=(status,))
    begun = replace(snapshot, transients=(TRANSIENT,))
    writer = writer_of("c", begun)
    assert writer == TRANSIENT_ID, "only its committed rows are shown"
    ends = pytest.raises(ServerError, match=said) if said else nullcontext()
    with ends:
        check_source(TRANSIENT, writer, ClusterView.of(snapshot))


@pytest.mark.parametrize("query_id", [None, "CSAS_TRANSIENT_S_7_2"])
def test_a_users_stream_with_the_name_of_such_a_query_is_a_stream(query_id: str | None) -> None:
    stream = replace(TRANSIENT, query_id=query_id)
    snapshot = snapshot_of(stream)
    check_source(stream, writer_of("c", snapshot), ClusterView.of(snapshot))
    with pytest.raises(ServerError, match="was dropped or recreated"):
        check_source(stream, None, ClusterView.of(snapshot_of(STREAM)))


@pytest.mark.parametrize(
    ("properties", "at_end", "why"),
    [
        ({}, True, "ksqlDB's default for push queries"),
        ({"auto.offset.reset": "Latest"}, True, "said"),
        ({"auto.offset.reset": "earliest"}, False, "said"),
        ({"ksql.streams.auto.offset.reset": "earliest"}, False, "its long name"),
    ],
)
def test_starts_at_end(properties: dict[str, str], at_end: bool, why: str) -> None:
    assert starts_at_end(properties) is at_end, why


def test_no_other_start() -> None:
    with pytest.raises(BadRequest, match="earliest or latest"):
        starts_at_end({"auto.offset.reset": "none"})


def test_ids_are_names_of_files() -> None:
    """Whatever the source is called."""
    one, two = new_query_id("../Ä" * 200), new_query_id("../Ä" * 200)
    assert one != two
    assert "/" not in one
    assert len(one) < 120


NOW_MS = 10**12


class Log:
    """A topic with these records, as a push query reads it, and what it asked for."""

    def __init__(self, *records: TopicRecord, ends: Mapping[int, int]) -> None:
        self.records, self.ends, self.starts = list(records), {**ends}, dict[int, int]()

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(push_query, "log_ends", lambda *_: self.ends)
        monkeypatch.setattr(push_query, "log_starts", lambda *_: dict.fromkeys(self.ends, 0))
        monkeypatch.setattr(push_query, "topics_now", lambda *_: {"t": TopicSeen("id", 3)})
        monkeypatch.setattr(push_query, "TopicTail", self.tail)

    def tail(self, kafka: object, places: Mapping[Partition, int]) -> Log:
        self.starts = {place.partition: at for place, at in places.items()}
        return self

    def poll(self, count: int) -> list[tuple[str, TopicRecord]]:
        found, self.records = self.records[:count], self.records[count:]
        return [(STREAM.topic, each) for each in found if each.offset >= self.starts[0]]

    def hold(self, wanted: object) -> None: ...


def event(offset: int, value: int) -> TopicRecord:
    return TopicRecord(b"k", b'{"V":%d}' % value, 5, (), 0, offset)


def answer_of(
    session: str | None, properties: Mapping[str, str] = {}, text: str = "SELECT * FROM S"
) -> push_query.PushAnswer:
    catalog: Any = SimpleNamespace(view=ClusterView.of(snapshot_of(STREAM)))
    (query,) = parse(f"{text} EMIT CHANGES;")
    assert isinstance(query, Query)
    return push_query.PushAnswer(
        plan=push(query, {"S": STREAM}),
        properties=properties,
        form=PushForm(Form.LINES),
        query_id="transient_S_7",
        map=catalog,
        kafka="",
        session_text=session,
    )


def items(answer: push_query.PushAnswer) -> list[Any]:
    """What comes until nothing more does. Of a token, its offsets in partition 0."""
    found: list[Any] = []
    while (said := answer.step()) is not None:
        for line in said.splitlines():
            item = json.loads(line)
            if isinstance(item, dict) and "consistencyToken" in item:
                (ends,) = SessionToken.parse(item["consistencyToken"]).streamed.values()
                item = ("token", ends[0])
            found.append(item)
    return found


def test_a_session_is_told_after_its_rows_and_goes_on_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(event(7, 70), event(8, 80), ends={0: 7, 1: 0, 2: 0})
    log.use(monkeypatch)
    first = answer_of("")
    first.open()
    first.head()
    assert items(first) == [("token", 7), [70], [80], ("token", 9)], "one token for a flush"
    (text,) = [
        json.loads(line)["consistencyToken"] for line in first.last(Ending.LEAVING).splitlines()
    ]
    log.ends[0] = 10
    log.records = [event(8, 80), event(9, 90)]
    second = answer_of(text, {"auto.offset.reset": "earliest"})
    second.open()
    assert log.starts == {0: 9, 1: 0, 2: 0}
    second.head()
    assert items(second) == [("token", 9), [90], ("token", 10)]


def test_large_records_are_decoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    large = TopicRecord(b"k", b'{"V":8%s}' % (b" " * STEP_BYTES), 5, (), 0, 8)
    log = Log(event(7, 70), ends={0: 7, 1: 0, 2: 0})
    log.use(monkeypatch)
    answer = answer_of(None)
    answer.open()
    assert items(answer) == [[70]]
    assert not answer.is_costly
    log.records = [large]
    assert answer.step() == b"", "it has come, and is not decoded yet"
    assert answer.is_costly
    assert items(answer) == [[8]]
    assert answer.is_costly, "a step may still run in the thread"


def after_its_rows(answer: push_query.PushAnswer) -> None:
    """Let it send its rows, and no token after them."""
    answer.open()
    answer.head()
    assert b"consistencyToken" in (answer.step() or b""), "where it begins"
    while not (said := answer.step()):
        assert said is not None
    assert said.splitlines() == [b"[70]", b"[80]"]


def test_a_token_covers_rows_that_come_before_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Log(event(7, 70), event(8, 80), ends={0: 7, 1: 0, 2: 0}).use(monkeypatch)
    answer = answer_of("")
    after_its_rows(answer)
    published: Any = SimpleNamespace(
        view=ClusterView.of(snapshot_of(replace(STREAM, generation=2)))
    )
    answer.map = published
    with pytest.raises(ServerError, match="recreated") as ended:
        answer.step()
    token, error = map(json.loads, answer.failed(ended.value).splitlines())
    (ends,) = SessionToken.parse(token["consistencyToken"]).streamed.values()
    assert ends[0] == 9
    assert "recreated" in error["message"]


def test_no_token_covers_rows_that_an_error_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its positions are beyond them."""
    Log(event(7, 70), event(8, 80), ends={0: 7, 1: 0, 2: 0}).use(monkeypatch)
    answer = answer_of("")
    answer.wall_s = lambda: NOW_MS / 1000
    answer.open()
    answer.head()
    rows = list[Any]()
    whole = answer._query.take

    def take(share: object, now_ms: int) -> list[Any]:
        assert now_ms == NOW_MS, "of the wall clock"
        if not rows:
            rows.extend(whole(Share(1, 1_000), now_ms))
            return rows
        answer._query.positions[0] = 9
        raise ServerError("an expression has no value")

    monkeypatch.setattr(answer._query, "take", take)
    with pytest.raises(ServerError) as ended:
        items(answer)
    assert len(rows) == 1, "a token is due for it"
    assert b"consistencyToken" not in answer.failed(ended.value)


def test_a_scan_is_judged_by_the_clock_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day ago all changes were committed, so Kafka may have compacted them: a query from the
    beginning remains a scan, and may be resumed as one for some days after its own hour."""
    table = replace(TABLE, table_id="T_1")
    catalog: Any = SimpleNamespace(view=ClusterView.of(snapshot_of(table)))
    committed, at_ms = Committed("Q"), NOW_MS - 24 * HOUR_MS
    commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(0), attempt=0)
    sinks = {0: 9, 1: 0, 2: 0}
    committed.take(Progress(query_id="Q", commit=commit, sinks=sinks, committed_at_ms=at_ms))
    Log(ends={0: 9, 1: 0, 2: 0}).use(monkeypatch)
    monkeypatch.setattr(push_query.PushAnswer, "_committed", lambda *_: (committed, 0))

    def answer(session: str, wall_s: float) -> push_query.PushAnswer:
        (query,) = parse("SELECT * FROM T EMIT CHANGES;")
        assert isinstance(query, Query)
        return push_query.PushAnswer(
            plan=push(query, {"T": table}),
            properties={"auto.offset.reset": "earliest"},
            form=PushForm(Form.LINES),
            query_id="transient_T_7",
            map=catalog,
            kafka="",
            session_text=session,
            wall_s=lambda: wall_s,
        )

    first = answer("", NOW_MS / 1000)
    first.open()
    first.head()
    text = json.loads(first.step() or b"")["consistencyToken"]
    (followed,) = SessionToken.parse(text).followed.values()
    assert followed.scan is not None
    assert followed.scan.hour == NOW_MS // HOUR_MS
    answer(text, (NOW_MS + HOUR_MS) / 1000).open()
    with pytest.raises(TokenRefused, match="compaction has removed"):
        answer(text, (NOW_MS + SCAN_MS_MAX) / 1000).open()


def test_what_is_read_and_not_shown_is_told_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that resumes must not have a day of records read again, nor get a token for each."""
    log = Log(ends={0: 0, 1: 0, 2: 0})
    log.use(monkeypatch)
    answer = answer_of("", text="SELECT * FROM S WHERE V > 50")
    now_s = 100.0
    answer.now_s = lambda: now_s
    answer.open()
    answer.head()
    assert items(answer) == [("token", 0)]
    log.records = [event(0, 1)]
    assert items(answer) == []
    now_s += push_query.UNSHOWN_TOKEN_S
    assert items(answer) == [("token", 1)]
    assert items(answer) == [], "and not again while nothing moves"


@pytest.mark.parametrize("session", ["", None])
def test_a_quiet_query_tells_its_token_again_and_again(
    monkeypatch: pytest.MonkeyPatch, session: str | None
) -> None:
    """A client takes a node that says nothing for gone."""
    Log(ends={0: 0, 1: 0, 2: 0}).use(monkeypatch)
    answer = answer_of(session, {push_query.TOKENS: "true"})
    now_s = 100.0
    answer.now_s = lambda: now_s
    answer.open()
    answer.head()
    first = answer.step()
    assert first
    assert answer.step() is None
    now_s += push_query.TOKEN_INTERVAL_S - 0.1
    assert answer.step() is None
    now_s += 0.1
    assert answer.step() == first
    assert answer.step() is None
    told = dict(answer.headers)[push_query.TOKEN_INTERVAL_HEADER]
    assert int(told) == push_query.TOKEN_INTERVAL_S * 1000


def test_a_query_without_tokens_may_be_quiet_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    Log(ends={0: 0, 1: 0, 2: 0}).use(monkeypatch)
    answer = answer_of(None)
    now_s = 100.0
    answer.now_s = lambda: now_s
    answer.open()
    answer.head()
    now_s += 10 * push_query.TOKEN_INTERVAL_S
    assert answer.step() is None
    assert [name for name, _ in answer.headers] == [b"content-type"]


def test_without_a_session_no_token_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(event(7, 70), ends={0: 7, 1: 0, 2: 0})
    log.use(monkeypatch)
    answer = answer_of(None)
    answer.open()
    answer.head()
    assert items(answer) == [[70]]
    assert answer.last(Ending.OVER) == b""


def test_two_tokens_do_not_say_where_to_begin() -> None:
    text = SessionToken(streamed={TopicKey("t"): {0: 1}}).text()
    with pytest.raises(BadRequest, match="leave one of them out"):
        answer_of(text, {PUSH_TOKEN: "x"})


def test_a_query_whose_tokens_would_be_too_long_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Log(ends={0: 7, 1: 0, 2: 0}).use(monkeypatch)
    answer_of("").open()
    monkeypatch.setattr(push_session, "FIRST_CHARS_MAX", 10)
    answer_of(None).open()
    with pytest.raises(BadRequest, match="the session token would have"):
        answer_of("").open()
