"""What the session of a push query is told, and which of its tokens are refused, in which words."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from msgspec.structs import replace
from tests.samples import sample_stream
from tests.unit.data.rows import commit
from tests.unit.node.worker.push.test_push_query import snapshot_of
from tests.unit.node.workers import USERS

from standpipe.control.routing.session import Stamp, token_after, wanted_of
from standpipe.data.commit.committed import Committed
from standpipe.errors import BadRequest, NoReplica, TokenRefused
from standpipe.model import Progress, Source
from standpipe.node.worker.push.push_session import FIRST_CHARS_MAX, PushSession
from standpipe.session_token import (
    FollowedTable,
    SeenBatch,
    SessionToken,
    TableKey,
    TopicKey,
    written_token,
)

TABLE = replace(USERS, table_id="USERS_40", generation=2, partitions=2)
STREAM = sample_stream(topic="s", partitions=2)
STREAM_OF_TABLE = sample_stream(topic=TABLE.topic, partitions=2)
STREAM_OF_QUERY = sample_stream(topic="s", partitions=2, query_id=TABLE.query_id)
KEY = TableKey("c", "USERS_40")
ENDS = {0: 9, 1: 6}


def committed(*ends: Mapping[int, int], at_ms: int = 0) -> Committed:
    """Batches 0, 1, … of the table's query, all in lease epoch 1, committed at one time."""
    found = Committed(TABLE.query_id or "")
    for batch, sinks in enumerate(ends):
        starts = ends[batch - 1] if batch else {}
        by = commit(1, batch)
        made = Progress(query_id=found.query_id, commit=by, sinks={**sinks}, starts={**starts})
        found.take(replace(made, committed_at_ms=at_ms))
    return found


def session(
    token: SessionToken = SessionToken(),  # noqa: B008 it is frozen
    source: Source = TABLE,
    *others: Source,
    topic_id: str = "",
) -> PushSession:
    snapshot = replace(snapshot_of(source, *others), cluster_id="c")
    writer = source.query_id if source.kind == "TABLE" else None
    return PushSession(token, source, writer, snapshot, topic_id)


def nothing_asked() -> dict[int, int]:
    raise AssertionError("Kafka need not be asked")


LOG = committed({0: 5, 1: 2}, {0: 7, 1: 2}, ENDS)


def test_a_session_that_has_seen_nothing_begins_where_the_request_says() -> None:
    assert session().starts(LOG, ENDS, nothing_asked, 0) is None
    assert session(source=STREAM).starts(None, ENDS, nothing_asked, 0) is None
    written = written_token("s", {0: 3})
    assert session(written, STREAM).starts(None, ENDS, nothing_asked, 0) is None
    of_another = SessionToken({TableKey("c", "OTHER_3"): SeenBatch(1, 99, 9)})
    assert session(of_another).starts(LOG, ENDS, nothing_asked, 0) is None


def test_from_a_read_to_a_push_query_and_back() -> None:
    """All in one token: the batch that the read has shown, then what the query has."""
    read = token_after(SessionToken(), TABLE, "c", [Stamp(1, 1), Stamp(1, 1)])
    pushed = session(read)
    assert pushed.starts(LOG, ENDS, lambda: {0: 0, 1: 0}, 0) == {0: 7, 1: 2}
    token = SessionToken.parse(pushed.token({0: 8, 1: 2}, LOG, 0))
    assert token.covers(read)
    assert wanted_of(token, TABLE, "c").mark == SeenBatch(2, 2, 1), "a record of batch 2 was shown"
    assert session(token).starts(LOG, ENDS, lambda: {0: 0, 1: 0}, 0) == {0: 8, 1: 2}, (
        "not all of it"
    )
    later = token_after(token, TABLE, "c", [Stamp(2, 1)])
    assert session(later).starts(LOG, ENDS, lambda: {0: 0, 1: 0}, 0) == {0: 9, 1: 6}


def test_parts_of_different_batches_begin_behind_the_oldest() -> None:
    """The part that was behind has yet to see batch 1; a later read of it has."""
    scan = token_after(SessionToken(), TABLE, "c", [Stamp(1, 1), Stamp(0, 1)])
    assert wanted_of(scan, TABLE, "c").mark == SeenBatch(2, 1, 1)
    assert session(scan).starts(LOG, ENDS, lambda: {0: 0, 1: 0}, 0) == {0: 5, 1: 2}
    after = token_after(scan, TABLE, "c", [Stamp(1, 1)])
    assert session(after).starts(LOG, ENDS, lambda: {0: 0, 1: 0}, 0) == {0: 7, 1: 2}
    assert not after.followed, "a token that needs it no more is short again"


def test_a_query_that_has_shown_nothing_says_where_it_is() -> None:
    """A read that were older would make a query go on behind what nobody has seen."""
    token = SessionToken.parse(session().token(ENDS, LOG, 0))
    assert wanted_of(token, TABLE, "c").mark == SeenBatch(2, 2, 1)
    at_first = SessionToken.parse(session().token({0: 0, 1: 0}, committed(), 0))
    assert wanted_of(at_first, TABLE, "c").mark is None
    assert session(at_first).starts(LOG, ENDS, lambda: {0: 0, 1: 0}, 0) == {0: 0, 1: 0}


def followed(generation: int = 2, table: TableKey = KEY, **more: Any) -> SessionToken:
    return SessionToken(followed={table: FollowedTable(generation, {0: 1}, **more)})


@pytest.mark.parametrize(
    ("token", "error", "said"),
    [
        (followed(3), NoReplica, "wanted generation 3 of USERS, this node's map has generation 2"),
        (SessionToken({KEY: SeenBatch(3, 1, 1)}), NoReplica, "wanted generation 3 of USERS"),
        (followed(1), TokenRefused, "USERS was replaced since the session saw it"),
        (SessionToken({KEY: SeenBatch(1, 1, 1)}), TokenRefused, "USERS was replaced since"),
        (followed(table=TableKey("d", "USERS_40")), TokenRefused, "of cluster 'd', this is"),
        (followed(table=TableKey("c", "USERS_39")), TokenRefused, "dropped and created again"),
        (followed(table=TableKey("c", "USERS_41")), NoReplica, "this node's map has USERS_40"),
        (SessionToken({KEY: SeenBatch(2, 3, 1)}), TokenRefused, "Kafka had nothing newer after"),
        (followed(newest=SeenBatch(2, 2, 2)), TokenRefused, "Kafka had nothing newer after"),
        (SessionToken({KEY: SeenBatch(2, 9, 0)}), TokenRefused, "DATA_LOSS"),
        (SessionToken(followed={KEY: FollowedTable(2, {0: 10})}), TokenRefused, "ended at 9"),
    ],
)
def test_refusals_are_those_of_a_read(
    token: SessionToken, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        session(token).starts(LOG, ENDS, lambda: {0: 0, 1: 0}, 0)


def test_a_token_of_a_table_with_nothing_committed_is_refused() -> None:
    token = SessionToken({KEY: SeenBatch(2, 0, 1)})
    with pytest.raises(TokenRefused, match="USERS has no committed batch"):
        session(token).starts(committed(), {0: 0, 1: 0}, nothing_asked, 0)


def test_a_token_of_another_cluster_is_refused_on_a_stream_as_well() -> None:
    token = followed(table=TableKey("d", "USERS_40"))
    with pytest.raises(TokenRefused, match="of cluster 'd'"):
        session(token, STREAM).starts(None, ENDS, nothing_asked, 0)


def test_a_stream_is_followed_by_its_topic() -> None:
    """Reads downstream wait for what it has shown, as for what the session has written."""
    text = session(written_token("s", {1: 6}, "id"), STREAM, topic_id="id").token(
        {0: 3, 1: 2}, None, 0
    )
    token = SessionToken.parse(text)
    assert token.offsets == {TopicKey("s", "id"): {0: 3, 1: 7}}
    again = session(token, STREAM, topic_id="id")
    assert again.starts(None, {0: 9, 1: 9}, lambda: {0: 0, 1: 0}, 0) == {0: 3, 1: 2}
    with pytest.raises(TokenRefused, match="The topic was created again"):
        session(token, STREAM, topic_id="new").starts(None, ENDS, lambda: {0: 0, 1: 0}, 0)


def test_a_table_that_somebody_else_writes_is_followed_by_its_topic() -> None:
    source = replace(TABLE, query_id=None, table_id=None, topic="t")
    token = SessionToken.parse(session(source=source).token({0: 1, 1: 1}, None, 0))
    assert (len(token.streamed), len(token.followed)) == (1, 0)


def test_a_token_that_could_not_be_sent_back() -> None:
    wide = replace(TABLE, partitions=5_000)
    text = session(source=wide).token(dict.fromkeys(range(5_000), 10**9), LOG, 0)
    with pytest.raises(BadRequest, match="USERS has 5000 partitions"):
        session(source=wide).check_room(text)
    session().check_room("x" * FIRST_CHARS_MAX)


@pytest.mark.parametrize("source", [TABLE, STREAM])
def test_a_query_may_go_on_with_a_token_that_has_grown(source: Source) -> None:
    """Its numbers have more digits by then, and another node takes over."""
    numbers = range(1_700)
    begun = session(source=source)
    begun.check_room(begun.token(dict.fromkeys(numbers, 0), LOG, 0))
    text = begun.token(dict.fromkeys(numbers, 10**8), LOG, 0)
    assert len(text) > FIRST_CHARS_MAX
    session(SessionToken.parse(text), source).check_room(text)
    read = token_after(SessionToken(), TABLE, "c", [Stamp(1, 1)])
    with pytest.raises(BadRequest, match=f"{FIRST_CHARS_MAX} at most"):
        session(read, source).check_room(text)


@pytest.mark.parametrize(
    ("source", "others", "is_refused", "why"),
    [
        (TABLE, (), True, "a table"),
        (STREAM_OF_TABLE, (TABLE,), True, "a stream over the topic of a table"),
        (STREAM_OF_QUERY, (), False, "a stream that a query writes is not compacted"),
    ],
)
def test_changes_that_may_be_compacted_are_not_skipped(
    source: Source, others: tuple[Source, ...], is_refused: bool, why: str
) -> None:
    """Their progress is there: the pipeline, which removes it, has been down for a day."""
    snapshot = replace(snapshot_of(source, *others), cluster_id="c")
    log = committed({0: 5, 1: 2}, ENDS, at_ms=10**12)

    def of(token: SessionToken) -> PushSession:
        return PushSession(token, source, TABLE.query_id, snapshot)

    text = of(SessionToken()).token({0: 5, 1: 2}, log, 10**12)
    later = of(SessionToken.parse(text))
    first = lambda: {0: 0, 1: 0}  # noqa: E731
    assert later.starts(log, ENDS, first, 10**12 + 60_000) == {0: 5, 1: 2}, why
    refused = pytest.raises(TokenRefused, match="Retention or compaction has removed")
    with refused if is_refused else nullcontext():
        later.starts(log, ENDS, first, 10**12 + 24 * 3_600_000)


def pruned_log() -> Committed:
    """Batches 1 and 2. The progress of batch 0 is gone, once all before batch 2 was clean."""
    found = Committed(TABLE.query_id or "")
    for batch, (starts, ends) in enumerate([({0: 5, 1: 2}, {0: 7, 1: 2}), ({0: 7, 1: 2}, ENDS)], 1):
        clean = {0: 7, 1: 2} if batch == 2 else {}
        made = Progress(
            query_id=found.query_id,
            commit=commit(1, batch),
            sinks={**ends},  # type: ignore[dict-item]
            starts=starts,  # type: ignore[arg-type]
            clean_through=clean,  # type: ignore[arg-type]
        )
        found.take(replace(made, committed_at_ms=NOW_MS))
    return found


NOW_MS = 10**12


def test_a_query_from_the_beginning_of_an_old_table_resumes_with_its_tokens() -> None:
    """Also with the first, and with those of the queries that go on, up to where it has caught up.
    There each change counts, and what follows may be gone later."""
    log, first = pruned_log(), {0: 0, 1: 0}
    query = session()
    query.begins_at_beginning(NOW_MS)
    for positions in (first, {0: 4, 1: 1}, {0: 6, 1: 1}):
        text = query.token(positions, log, NOW_MS)
        query = session(SessionToken.parse(text))
        assert query.starts(log, ENDS, lambda: first, NOW_MS) == positions
    caught_up = SessionToken.parse(query.token({0: 6, 1: 2}, log, NOW_MS))
    assert session(caught_up).starts(log, ENDS, lambda: first, NOW_MS) == {0: 6, 1: 2}
    with pytest.raises(TokenRefused, match="or compaction has removed"):
        session(caught_up).starts(log, ENDS, lambda: first, NOW_MS + 3_600_000)
    after = query.token({0: 4, 1: 2}, log, NOW_MS)  # never a scan again
    assert SessionToken.parse(after).followed[KEY].scan is None


def test_what_was_not_begun_at_the_beginning_is_no_scan() -> None:
    text = session().token({0: 4, 1: 1}, pruned_log(), NOW_MS)
    with pytest.raises(TokenRefused, match="or compaction has removed"):
        session(SessionToken.parse(text)).starts(pruned_log(), ENDS, lambda: {0: 0, 1: 0}, NOW_MS)
