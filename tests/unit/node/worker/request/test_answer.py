"""Layouts of an answer, and how fresh it says it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from standpipe.control.liveness.lag import NO_END
from standpipe.errors import BadRequest
from standpipe.freshness import Freshness, parse_headers
from standpipe.model import (
    BatchId,
    Column,
    LeaseEpoch,
    Offset,
    ReplicaState,
    ReplicaStatus,
    Source,
)
from standpipe.node.worker.request import answer
from standpipe.node.worker.request.answer import (
    ArrivingRows,
    against,
    describe,
    freshness_of,
    header_lines,
    headers,
    oldest,
    render_rows,
)
from standpipe.node.worker.request.answer_budget import AnswerBudget
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.sql.plans import PullPlan

_unknown_or = st.none() | st.integers(0, 2**62)
_freshness = st.builds(
    Freshness,
    served_by=st.sampled_from(["node-1", "node-2"]),
    role=st.sampled_from(["active", "standby"]),
    state=st.sampled_from(["RUNNING", "CATCHING_UP"]),
    offset_lag=_unknown_or,
    replica_lag_ms=_unknown_or,
    source_lag_ms=_unknown_or,
    batch=_unknown_or,
    committed_end=_unknown_or,
)


@given(_freshness)
def test_a_peer_reads_what_was_written(fresh: Freshness) -> None:
    lines = {name.decode(): value.decode() for name, value in headers(fresh)}
    assert parse_headers(lines) == fresh


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "٣", " 1"])
def test_malformed_numbers_are_unknown(text: str) -> None:
    assert parse_headers({"standpipe-offset-lag": text}).offset_lag is None


@given(st.lists(_freshness, min_size=1, max_size=4))
def test_the_whole_is_as_stale_as_its_stalest_part(parts: list[Freshness]) -> None:
    whole = oldest(parts)
    for name in ("offset_lag", "replica_lag_ms", "source_lag_ms"):
        values = [getattr(part, name) for part in parts]
        assert getattr(whole, name) == (None if None in values else max(values))
    batches = [part.batch for part in parts]
    known = [batch for batch in batches if batch is not None]
    assert whole.batch == (min(known) if len(known) == len(batches) else None)
    assert (whole.state == "RUNNING") == all(part.state == "RUNNING" for part in parts)


def page(**changes: int) -> ReplicaStatus:
    values = {"position": 90, "committed_end": 100, "log_end": 120, "batch": 4}
    values |= {"confirmed_boot_ms": 500, "source_instant_ms": 700} | changes
    return ReplicaStatus(
        state=ReplicaState.CATCHING_UP,
        position=Offset(values["position"]),
        committed_end=Offset(values["committed_end"]),
        log_end=Offset(values["log_end"]),
        batch=BatchId(values["batch"]),
        lease_epoch=LeaseEpoch(1),
        confirmed_boot_ms=values["confirmed_boot_ms"],
        source_instant_ms=values["source_instant_ms"],
        foreign_records=0,
        rows=3,
        watermark_ms=0,
    )


@pytest.mark.parametrize(
    ("status", "lags", "why"),
    [
        (page(), (10, 100, 300, 4), "all known"),
        (page(committed_end=-1), (None, 100, 300, 4), "no committed end heard of"),
        (page(confirmed_boot_ms=0), (10, None, 300, 4), "never confirmed"),
        (page(source_instant_ms=0), (10, 100, None, 4), "source instant unknown"),
        (page(batch=-1), (10, 100, 300, None), "between batches"),
        (page(confirmed_boot_ms=601), (10, 0, 300, 4), "confirmed after the clock was read"),
    ],
)
def test_freshness_of(status: ReplicaStatus, lags: tuple[int | None, ...], why: str) -> None:
    fresh = freshness_of(
        status, reported_end=NO_END, served_by="n", role="active", boot_ms=600, unix_ms=1000
    )
    found = (fresh.offset_lag, fresh.replica_lag_ms, fresh.source_lag_ms, fresh.batch)
    assert found == lags, why
    shown = describe(status, reported_end=NO_END, boot_ms=600, unix_ms=1000)
    keys = ("offsetLag", "replicaLagMs", "sourceLagMs", "batch")
    assert tuple(shown[key] for key in keys) == lags, why


@pytest.mark.parametrize(
    ("status", "reported_end", "lag", "why"),
    [
        (page(), 100, 10, "as much"),
        (page(), 5000, 4910, "others told of more: the largest counts"),
        (page(), 95, 10, "others know less"),
        (page(committed_end=-1), 100, 10, "only others know"),
        (page(committed_end=-1), NO_END, None, "nobody knows: never 0"),
        (page(position=100), 100, 0, "it has everything"),
    ],
)
def test_a_lag_counts_against_the_largest_end(
    status: ReplicaStatus, reported_end: int, lag: int | None, why: str
) -> None:
    end = Offset(reported_end)
    fresh = freshness_of(
        status, reported_end=end, served_by="n", role="active", boot_ms=1, unix_ms=1
    )
    assert fresh.offset_lag == lag, why
    assert describe(status, reported_end=end, boot_ms=1, unix_ms=1)["offsetLag"] == lag, why


@pytest.mark.parametrize(
    ("lag", "end", "known", "expected", "why"),
    [
        (0, 100, 5000, 4900, "the entry knows of more than the target"),
        (10, 100, 100, 10, "both know the same"),
        (10, 100, 90, 10, "the entry knows less"),
        (10, 100, None, 10, "the entry knows nothing"),
        (None, None, 5000, None, "the target knows none, and where it is it did not say"),
        (10, None, 5000, 10, "a node of before says no end"),
    ],
)
def test_a_peers_answer_by_what_the_entry_knows(
    lag: int | None, end: int | None, known: int | None, expected: int | None, why: str
) -> None:
    told = Freshness(
        served_by="n", role="active", state="RUNNING", offset_lag=lag, committed_end=end
    )
    found = against(told, None if known is None else Offset(known))
    assert found.offset_lag == expected, why
    assert found.committed_end is None, "no client sees it"


def test_absent_replica() -> None:
    assert describe(None, reported_end=NO_END, boot_ms=0, unix_ms=0) == {"state": "ABSENT"}


SOURCE = Source(
    name="T",
    kind="TABLE",
    columns=(Column(name="ID", type="STRING", is_key=True), Column(name='q"\\', type="INT")),
    topic="T",
    partitions=1,
    key_format="KAFKA",
    value_format="JSON",
    statement="",
)
PLAN = PullPlan(
    source=SOURCE,
    keys=(),
    schema='`ID` STRING KEY, `q"\\` INTEGER',
    column_names=("ID", 'q"\\'),
    column_types=("STRING", "INTEGER"),
)


def arrived(body: bytes, piece_bytes: int) -> list[bytes]:
    arriving = ArrivingRows()
    for start in range(0, len(body), piece_bytes):
        arriving.take(body[start : start + piece_bytes])
    return arriving.rows


@given(
    st.lists(st.integers(0, 10**12).map(lambda number: b"[%d]" % number), max_size=9),
    st.integers(1, 40),
)
def test_rows_arrive_in_any_pieces(rows: list[bytes], piece_bytes: int) -> None:
    assert arrived(render_rows(Form.LINES, PLAN, rows, 5), piece_bytes) == rows


def test_rows_are_charged_as_they_arrive_and_given_back_if_they_are_dropped() -> None:
    """They were charged when all had come: three times as much was in memory by then."""
    budget = AnswerBudget(10_000)
    requester = ScanRequester(budget=budget)
    line = b"[%b]\n" % (b"1" * 998)
    with ArrivingRows(requester.hold) as arriving:
        arriving.take(b"{}\n" + line)
    held_bytes = budget.held_bytes
    assert held_bytes >= len(line)

    dropped: list[list[bytes]] = []

    def arrive() -> None:
        with ArrivingRows(requester.hold) as refused:
            dropped.append(refused.rows)
            for _ in range(10):
                refused.take(line[:500])
                refused.take(line[500:])

    with pytest.raises(BadRequest, match="more than 10000 bytes"):
        arrive()
    assert budget.held_bytes == held_bytes, "another replica is read instead"
    assert dropped == [[]], "the error keeps no rows"
    assert len(arriving.rows) == 1
    requester.release()
    assert budget.held_bytes == 0


@pytest.mark.parametrize("rows", [[], [b'["a",1]'], [b'["a",1]', b'["b",null]']])
@pytest.mark.parametrize("form", list(Form))
def test_layouts_are_json(form: Form, rows: list[bytes]) -> None:
    body = render_rows(form, PLAN, rows, 5)
    wanted = [json.loads(row) for row in rows]
    if form is Form.LINES:
        first, *lines = (json.loads(line) for line in body.splitlines())
        assert lines == wanted
        assert arrived(body, 1 << 20) == rows
    elif form is Form.OBJECTS:
        first, *lines = json.loads(body)
        assert lines == wanted
    else:
        head, *items = json.loads(body)
        assert head == {"header": {"queryId": "query_5", "schema": PLAN.schema}}
        assert [item["row"]["columns"] for item in items] == wanted
        return
    assert first == {
        "queryId": "query_5",
        "columnNames": ["ID", 'q"\\'],
        "columnTypes": ["STRING", "INTEGER"],
    }


# -------------------------------------------- the headers of a peer's answer, for a client


@given(st.lists(st.tuples(_freshness, st.integers(-1, 3)), max_size=12))
def test_labels_are_those_that_would_be_laid_out(heard: list[tuple[Freshness, int]]) -> None:
    labels = answer.PeerLabels()
    for fresh, end in heard:
        said, known = header_lines(fresh), Offset(end)
        assert labels.of(said, known) == answer.label_of(said, known)


def test_labels_that_differ_in_their_lags_are_not_laid_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = answer.PeerLabels()
    fresh = Freshness(served_by="b", role="active", state="RUNNING", offset_lag=3, batch=4)

    def of(**lags: int) -> bytes:
        return labels.of(header_lines(changed(fresh, committed_end=9, **lags)), Offset(9))

    of(replica_lag_ms=1, source_lag_ms=2)
    monkeypatch.setattr(answer, "label_of", None)
    found = of(replica_lag_ms=123, source_lag_ms=4567)
    assert found == header_lines(changed(fresh, replica_lag_ms=123, source_lag_ms=4567))
    assert b"standpipe-source-lag-ms" not in of(replica_lag_ms=5)


@pytest.mark.parametrize(
    "said",
    [
        b"standpipe-batch: 7\r\n" * 2,
        b"",
        b"standpipe-batch: 7\r\nx",
        b"standpipe-replica-lag-ms: 007\r\n",
        b"standpipe-replica-lag-ms: 1\r\nstandpipe-batch: 7\r\nstandpipe-source-lag-ms: 1\r\n",
    ],
)
def test_odd_labels_are_laid_out(said: bytes) -> None:
    labels = answer.PeerLabels()
    usual = b"standpipe-batch: 7\r\nstandpipe-replica-lag-ms: 1\r\nstandpipe-batch: 7\r\n"
    for each in (usual, said, said):
        assert labels.of(each, Offset(1)) == answer.label_of(each, Offset(1))
