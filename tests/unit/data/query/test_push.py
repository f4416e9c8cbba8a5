"""What a push query shows, and when: committed or not, taken back, cut off, resumed."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from operator import itemgetter

import msgspec
import pytest
from tests.known_schemas import KnownSchemas
from tests.samples import sample_table
from tests.unit.data.rows import commit

from standpipe.data.commit.committed import Committed
from standpipe.data.encoding.framed_values import framed
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.data.query.push import (
    WAITING_MAX,
    PushedRow,
    PushQuery,
    Token,
    identity_of,
    parse_token,
    token_text,
)
from standpipe.data.query.record_rows import Share, TopicRecord
from standpipe.errors import BadRequest, NotComputable
from standpipe.model import Column, Commit, Progress
from standpipe.sql.expressions.evaluator import WORK_MAX
from standpipe.sql.lookup.exploded import ROWS_MAX
from standpipe.sql.plans import PushPlan

TABLE = sample_table(
    topic="t",
    partitions=2,
    query_id="Q",
    columns=(Column(name="K", type="STRING", is_key=True), Column(name="V", type="BIGINT")),
)
PLAN = PushPlan(
    source=TABLE, schema="", column_names=("V", "K"), column_types=("BIGINT", "STRING"),
    cells=(itemgetter(1), itemgetter(0)), key_cells=(False, True),
)  # fmt: skip
MUCH = 1_000_000  # bytes
NOW_MS = 10**12
B0, B1 = commit(1, 0), commit(1, 1)
ZOMBIE = Commit(lease_epoch=B0.lease_epoch, batch=B0.batch, attempt=B0.attempt + 1)


def record(
    offset: int, value: int | None, by: Commit | None = None, partition: int = 0
) -> TopicRecord:
    body = None if value is None else b'{"V":%d}' % value
    headers = () if by is None else ((HEADER_COMMIT, commit_header(by)),)
    return TopicRecord(b"k%d" % offset, body, 0, headers, partition, offset)


def progress(by: Commit, start: int, end: int) -> Progress:
    return Progress(query_id="Q", commit=by, sinks={0: end}, starts={0: start})


def followed(plan: PushPlan, *records: TopicRecord, committed: bool = False) -> PushQuery:
    query = PushQuery(plan, {0: 0, 1: 0}, Committed("Q") if committed else None)
    for each in records:
        query.heard(each)
    return query


def columns(rows: Sequence[PushedRow]) -> list[bytes]:
    return [row.columns for row in rows]


def test_without_a_writer_of_ours_all_is_shown_at_once() -> None:
    query = followed(PLAN, record(0, 1), record(0, 2, partition=1), record(1, None))
    assert query.is_ready
    assert query.take(Share(9, MUCH), NOW_MS) == [
        PushedRow(b'[1,"k0"]'),
        PushedRow(b'[null,"k1"]', is_tombstone=True),
        PushedRow(b'[2,"k0"]'),
    ]
    assert (query.positions, query.is_ready) == ({0: 2, 1: 1}, False)


def test_a_share_is_bounded_by_bytes_as_well() -> None:
    """Records of a megabyte would hold up the worker; one that is too large alone is a share."""
    query = followed(PLAN, *(record(offset, offset) for offset in range(4)))
    size = record(0, 0).size
    assert columns(query.take(Share(9, 2 * size), NOW_MS)) == [b'[0,"k0"]', b'[1,"k1"]']
    assert columns(query.take(Share(9, 1), NOW_MS)) == [b'[2,"k2"]']
    assert (query.positions[0], query.is_ready) == (3, True)


def test_what_is_not_committed_waits_and_what_is_foreign_is_never_shown() -> None:
    query = followed(PLAN, record(0, 1, B0), record(1, 9, ZOMBIE), record(2, 2, B0), committed=True)
    assert (query.is_ready, query.take(Share(9, MUCH), NOW_MS)) == (False, [])
    query.progress(progress(B0, 0, 3))
    assert columns(query.take(Share(9, MUCH), NOW_MS)) == [b'[1,"k0"]', b'[2,"k2"]']
    query.heard(record(3, 8, ZOMBIE))
    query.heard(record(4, 3, B1))
    assert query.take(Share(9, MUCH), NOW_MS) == [], "the next batch is not committed"
    query.progress(progress(B1, 3, 5))
    assert columns(query.take(Share(9, MUCH), NOW_MS)) == [b'[3,"k4"]']
    assert query.positions[0] == 5


def test_take_deals_with_a_few_at_a_time() -> None:
    query = followed(PLAN, *(record(n, n) for n in range(5)))
    assert [len(query.take(Share(2, MUCH), NOW_MS)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_partition_whose_records_wait_is_held() -> None:
    waiting = [record(n, n, B0) for n in range(WAITING_MAX)]
    query = followed(PLAN, *waiting[:-1], record(0, 1, B0, partition=1), committed=True)
    assert query.held == set()
    query.heard(waiting[-1])
    assert query.held == {0}
    query.progress(progress(B0, 0, WAITING_MAX))
    query.take(Share(1, MUCH), NOW_MS)
    assert query.held == set()


def test_a_record_that_comes_again_is_passed_over() -> None:
    """After a pause, or before the offset that a token names."""
    query = PushQuery(PLAN, {0: 2}, None)
    for offset in (1, 2, 3, 2, 3, 4):
        query.heard(record(offset, offset))
    assert columns(query.take(Share(9, MUCH), NOW_MS)) == [b'[2,"k2"]', b'[3,"k3"]', b'[4,"k4"]']


BIG = msgspec.structs.replace(PLAN, where=lambda row: (row[1] or 0) > 5, is_left=True)
OWN_KEY = msgspec.structs.replace(PLAN, where=lambda row: row[0] == "k1")


@pytest.mark.parametrize(
    ("plan", "value", "offset", "shown", "why"),
    [
        (BIG, 6, 0, PushedRow(b'[6,"k0"]'), "satisfies it"),
        (BIG, 5, 0, PushedRow(b'[null,"k0"]', is_tombstone=True), "it may have, before"),
        (BIG, None, 0, PushedRow(b'[null,"k0"]', is_tombstone=True), "deleted"),
        (OWN_KEY, 6, 1, PushedRow(b'[6,"k1"]'), "its key does"),
        (OWN_KEY, 6, 0, None, "its key never did"),
        (OWN_KEY, None, 1, PushedRow(b'[null,"k1"]', is_tombstone=True), "deleted"),
        (OWN_KEY, None, 0, None, "a row that was never shown is not taken back"),
    ],
)
def test_filters(
    plan: PushPlan, value: int | None, offset: int, shown: PushedRow | None, why: str
) -> None:
    assert followed(plan, record(offset, value)).take(Share(9, MUCH), NOW_MS) == (
        [] if shown is None else [shown]
    ), why


def test_limit_counts_rows_and_leaves_the_rest() -> None:
    plan = msgspec.structs.replace(BIG, limit=2)
    query = followed(plan, record(0, 9), record(1, None), record(2, 9))
    assert len(query.take(Share(9, MUCH), NOW_MS)) == 2
    assert (query.is_over, query.is_ready, query.positions[0]) == (True, False, 2)
    assert followed(msgspec.structs.replace(plan, limit=0)).is_over


def test_tokens() -> None:
    of = identity_of(TABLE, "c")
    text = token_text(Token(of=of, positions={0: 7, 1: 0}))
    assert parse_token(text, of, 2) == {0: 7, 1: 0}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing"),
        ("é", "no base64"),
        (urlsafe_b64encode(b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}").decode(), "too deep"),
        (token_text(Token(of="other/t/-1", positions={})), "of another topic"),
        (token_text(Token(of=identity_of(TABLE, "c"), positions={2: 0})), "no such partition"),
        (token_text(Token(of=identity_of(TABLE, "c"), positions={0: -1})), "no such offset"),
    ],
)
def test_tokens_that_do_not_fit(text: str, why: str) -> None:
    try:
        found = parse_token(text, identity_of(TABLE, "c"), 2)
    except BadRequest:
        return
    raise AssertionError(f"{why}: {found}")


def test_a_record_becomes_a_row_for_each_element() -> None:
    arrays = (lambda row: [1, 2, 3] if row[1] == 1 else None, lambda row: ["a"])
    cells = (itemgetter(0), lambda row: row[-2], lambda row: row[-1])
    types = ("STRING", "INTEGER", "STRING")
    plan = msgspec.structs.replace(
        PLAN, cells=cells, column_types=types, key_cells=(True, False, False), arrays=arrays
    )
    query = followed(plan, record(0, 1), record(1, 2))
    shown = columns(query.take(Share(9, MUCH), NOW_MS))
    assert shown == [b'["k0",1,"a"]', b'["k0",2,null]', b'["k0",3,null]', b'["k1",null,"a"]']


def test_limit_counts_rows_and_not_records() -> None:
    plan = msgspec.structs.replace(PLAN, arrays=(lambda row: [1, 2, 3],), limit=4)
    query = followed(plan, record(0, 1), record(1, 2), record(2, 3))
    assert len(query.take(Share(9, MUCH), NOW_MS)) == 4
    assert query.is_over
    assert query.take(Share(9, MUCH), NOW_MS) == []


def test_an_array_without_elements_makes_no_row() -> None:
    plan = msgspec.structs.replace(PLAN, arrays=(lambda row: [],))
    assert followed(plan, record(0, 1)).take(Share(9, MUCH), NOW_MS) == []


@pytest.mark.parametrize("count", [ROWS_MAX + 1, ROWS_MAX])
def test_rows_of_one_record_are_limited(count: int) -> None:
    wide = "x" * (WORK_MAX // ROWS_MAX)
    plan = msgspec.structs.replace(
        PLAN, arrays=(lambda row: [1] * count,), cells=(lambda row: wide, itemgetter(0)),
        column_types=("STRING", "STRING"),
    )  # fmt: skip
    with pytest.raises(NotComputable, match="EXPLODE would make"):
        followed(plan, record(0, 1)).take(Share(9, MUCH), NOW_MS)


def test_ids_of_the_schemas_of_the_next_records() -> None:
    """Of as many records as a step handles, and of each partition."""
    plan = msgspec.structs.replace(
        PLAN, source=msgspec.structs.replace(TABLE, value_format="AVRO", query_id=None)
    )
    query = PushQuery(plan, {0: 0, 1: 0}, None, KnownSchemas())
    for partition, offset, schema_id in ((0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 0, 4)):
        query.heard(TopicRecord(b"k", framed(schema_id, b""), 0, (), partition, offset))
    assert query.schema_ids(2) == {1, 2, 4}
    query.take(Share(1, MUCH), NOW_MS)
    assert query.schema_ids(2) == {2, 3, 4}
