"""Lookups by one literal: the shortest way sends what the others send, or nothing."""

from __future__ import annotations

import gc
import json
import re
import shutil
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace as changed
from tests.unit.node.worker.pull.test_fast_many import (
    OTHERS,
    StoppedClock,
    by_slow_path,
    rows_of,
    run,
)
from tests.unit.node.workers import KEYS, PARTITIONS, USERS, Worker, body_of, page, peer_format

from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.config import lags
from standpipe.data.encoding import native
from standpipe.data.query.literal_lookup import place_in
from standpipe.model import NO_BATCH, Column, ReplicaId, Source
from standpipe.node.worker.pull.fast_path import EXPECTED, LookupFastPath
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.known import frames as known_frames
from standpipe.node.worker.pull.known import parts as known_parts
from standpipe.node.worker.pull.known.frames import KnownFrames
from standpipe.node.worker.pull.known.statements import KnownStatements
from standpipe.node.worker.request.body import parse_lookup
from standpipe.node.worker.request.head import Form

Nodes = dict[str, Worker]
LINES = RequestFormat(Form.LINES)


def one(key: str, columns: str = "*", more: str = ";") -> str:
    return f"SELECT {columns} FROM USERS WHERE ID = '" + key.replace("'", "''") + f"'{more}"


def by_frame(path: LookupFastPath, form: RequestFormat, body: bytes) -> bytes | None:
    try:
        found = path._frames.answer(form, body, path.map.view, time.monotonic())
    except EXPECTED:  # as the fast path does
        return None
    if found is None:
        path._frames.note(form, body)
    return found


def learnt(path: LookupFastPath, form: RequestFormat, body: bytes) -> bytes | None:
    """An answer whose frame is known then: it is learnt when it is met again."""
    path.answer(form, body)
    return path.answer(form, body)


def same_id(answer: bytes | None) -> str:
    """Without the digits of its query's id, which are the time; their number is in the length."""
    return re.sub(r"query_\d+", "query_", (answer or b"").decode())


async def three_ways(path: LookupFastPath, node: Worker, form: Form, body: bytes) -> list[str]:
    """The slow path, the fast path without what it learnt, and with it; "": left to another."""
    known = format_of(form)
    slow = await by_slow_path(node, known, {"accept": form.value.decode()}, body)
    learnt = path._frames, path._statements
    path._frames, path._statements = without_frames(path)
    fast = path.answer(known, body)
    path._frames, path._statements = learnt
    shortest = by_frame(path, known, body)
    assert dict(node.metrics.counts["standpipe_pull_fast_path_faults"]) == {}
    return [same_id(each) for each in (slow, fast, shortest)]


def format_of(form: Form) -> RequestFormat:
    """What a head says that accepts this layout only, on /query."""
    return peer_format({"accept": form.value.decode()})


def without_frames(path: LookupFastPath) -> tuple[KnownFrames, KnownStatements]:
    """What a fast path knows before it has learnt anything."""
    parts = (path.node_id, path.replicas, path.routes, path.clock)
    return KnownFrames(*parts), KnownStatements(*parts)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("form", list(Form))
def test_all_ways_send_the_same(
    tmp_path: Path, form: Form, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, known = node.fast_path(), format_of(form)
        assert learnt(path, known, body_of(one("x1")))
        assert len(path._frames) == 1
        for key in (*KEYS.values(), *OTHERS, "nobody", "a--b", "/*", "7", "${x}", "x" * 501):
            slow, fast, shortest = await three_ways(path, node, form, body_of(one(key)))
            assert slow.startswith("HTTP/1.1 200")
            assert fast == slow
            is_plain = key.isascii() and not set(key) & set("'\"\\") and len(key) < 502
            assert shortest == (slow if is_plain else ""), key
        assert len(path._frames) == 1, "one frame, whatever the text"

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (one("x1", "N, ID"), "columns"),
        (one("x1", "N + 1"), "computed"),
        (one("x1", more=" AND N > 0;"), "filtered"),
        (one("x1", more=" LIMIT 1;"), "a limit, which is another literal"),
        (one("x1", more=" AND ID = 'x1';"), "two texts"),
        ("SELECT * FROM USERS WHERE ID IN ('x1');", None),
        ("SELECT * FROM USERS WHERE 'x1' = ID;", None),
        ("select * from USERS where ID='x1'", None),
    ],
)
def test_which_statements_have_a_frame(tmp_path: Path, text: str, why: str | None) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.fast_path()
        slow, _, shortest = await three_ways(path, node, Form.LINES, body_of(text))
        assert shortest == ""
        path.answer(LINES, body_of(text))
        slow, _, shortest = await three_ways(path, node, Form.LINES, body_of(text))
        assert shortest == (slow if why is None else ""), why

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (rb'{"ksql": "SELECT * FROM USERS WHERE ID = \u0027x1\u0027;"}', "no quote of the body"),
        (
            rb'{"ksql": "SELECT * FROM USERS WHERE ID = \u0027x1\u0027;", "a": "' + b"'b'\"}",
            "another",
        ),
        (b'{"ksql": "SELECT * FROM USERS WHERE ID = ' + b"'x1\\u0027;\"}", "one of each"),
        (
            b'{"ksql": "SELECT * FROM USERS WHERE ID = \'x1\';", "sessionVariables": {"a": "b"}}',
            "variables",
        ),
        (b'{"sql": "SELECT * FROM USERS WHERE ID = \'x1\';", "ksql": null}', None),
        (b' {"properties": {}, "sql": "SELECT * FROM USERS WHERE ID = \'x1\';"} ', None),
        (
            b'{"ksql": "SELECT 1;", "ksql": "SELECT * FROM USERS WHERE ID = \'x1\';"}',
            None,
        ),
        (
            body_of(one("x1"), 5),
            None,
        ),
        (b'{"ksql": "SELECT * FROM USERS WHERE ID = \\"ID\\" AND ID = \'x1\';"}', "a backslash"),
    ],
)
def test_which_bodies_have_a_frame(tmp_path: Path, body: bytes, why: str | None) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.fast_path()
        for _ in range(2):
            slow, _, shortest = await three_ways(path, node, Form.LINES, body)
            path.answer(LINES, body)
        assert shortest == (slow if why is None else ""), why

    run(tmp_path, story)


TEXTS = st.text(alphabet="ax1'\"\\ -/*${}é\0\x7f\n", max_size=8)


@example(head="SELECT * FROM USERS WHERE ID = '", tail="", key="'", other="")
@given(
    head=st.sampled_from(["SELECT * FROM USERS WHERE ID = '", "'a' '", "", "\\", '"', "--'"]),
    tail=st.sampled_from(["';", "' OR ID = 'b'", "", '"', "'"]),
    key=TEXTS,
    other=TEXTS,
)
def test_a_frame_never_changes_what_a_text_means(
    head: str, tail: str, key: str, other: str
) -> None:
    """Whatever stands around a text: if its frame is taken, another text means itself in it."""
    body = json.dumps({"ksql": head + key + tail}, ensure_ascii=False).encode()
    place = place_in(body)
    query = parse_lookup(body)
    at = slice(query.text.find("'") + 1, query.text.rfind("'"))
    if place is None or not known_frames._means_its_literal(body, query, at):
        return
    second = body[: place.begin] + other.encode() + body[place.end :]
    frame = known_frames.cut(b"", body)
    if frame is None or known_frames.cut(b"", second) != frame:
        return
    text = body[place.begin : place.end].decode()
    assert text == key or "'" in key, "the quote that was drawn may be the one that ends it"
    expected = (head + key + tail).replace(f"'{text}'", f"'{other}'", 1)
    assert parse_lookup(second).text == expected


def after_a_change(
    folder: Path, change: Callable[[Worker], object], headers: str, *, is_short: bool = True
) -> None:
    """A known frame sees a change at once, as the others do."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(one(KEYS[1]))
        assert learnt(path, LINES, body)
        before = await three_ways(path, node, Form.LINES, body)
        assert before[2]
        change(node)
        slow, _, shortest = await three_ways(path, node, Form.LINES, body)
        assert shortest == (slow if is_short else "")
        assert headers in slow
        assert slow != before[0]

    run(folder, story)


def test_a_newer_page_is_seen(tmp_path: Path) -> None:
    after_a_change(tmp_path, lambda node: node.hold(1, page(100, 107)), "offset-lag: 7\r\n")


def test_a_newer_page_alone_is_seen(tmp_path: Path) -> None:
    """It alone has changed: no store was closed."""

    def write(node: Worker) -> None:
        StatusWriter(page_path(node.paths.run, ReplicaId("T1", 1, 1))).write(page(100, 107))

    after_a_change(tmp_path, write, "offset-lag: 7\r\n")


def test_replicas_that_were_closed_are_opened_by_their_owner(tmp_path: Path) -> None:
    """A frame must not go on with a store that nobody counts."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(one(KEYS[1]))
        assert learnt(path, LINES, body)
        node.replicas.close()
        assert by_frame(path, LINES, body)
        assert ReplicaId("T1", 1, 1) in node.replicas._open

    run(tmp_path, story)


def test_a_replica_that_is_read_by_a_frame_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in use, and others are closed before it."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(one(KEYS[1]))
        assert learnt(path, LINES, body)
        node.replicas.open_max, now_s = len(node.replicas._open) + 1, time.time()
        opened = node.replicas.get(ReplicaId("T1", 1, 1))
        for turn in range(1, 5):
            monkeypatch.setattr(time, "time", lambda turn=turn: now_s + turn)
            assert by_frame(path, LINES, body)
            node.replicas.get(ReplicaId("T2", 1, turn))
        assert node.replicas._open[ReplicaId("T1", 1, 1)] is opened

    run(tmp_path, story)


def test_rows_that_grow_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound on the lag in time is judged again in each millisecond."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        asked = {"ksql": one(KEYS[1]), "streamsProperties": {lags.REPLICA_LAG_MAX.name: 60_000}}
        path, body, now_s = node.fast_path(), json.dumps(asked).encode(), time.time()
        assert learnt(path, LINES, body)
        assert isinstance(node.clock, StoppedClock)
        for later_ms, is_answered in ((0, True), (50_000, True), (20_000, False)):
            now_s += later_ms / 1000
            monkeypatch.setattr(time, "time", lambda now_s=now_s: now_s)
            node.clock.at_ms += later_ms
            assert (by_frame(path, LINES, body) is not None) is is_answered

    run(tmp_path, story)


def test_newer_rows_are_seen_before_their_page(tmp_path: Path) -> None:
    after_a_change(
        tmp_path, lambda node: node.apply(1, position=120, batch=8, value=b"[9]"), "batch: 8\r\n"
    )


def test_the_end_that_a_peer_reports_is_seen(tmp_path: Path) -> None:
    after_a_change(tmp_path, lambda node: node.hear(("b", 1, 109, 109)), "offset-lag: 9\r\n")


def test_a_page_that_does_not_fit_the_rows(tmp_path: Path) -> None:
    after_a_change(
        tmp_path,
        lambda node: node.apply(1, position=120, batch=NO_BATCH),
        "served-by: b\r\n",
        is_short=False,
    )


def test_a_partition_that_moves_away(tmp_path: Path) -> None:
    def move(node: Worker) -> None:
        node.publish(["a", "b"], {number: ["b"] for number in range(PARTITIONS)}, epoch=2)

    after_a_change(tmp_path, move, "served-by: b\r\n", is_short=False)


def test_a_store_that_is_gone(tmp_path: Path) -> None:
    def lose(node: Worker) -> None:
        node.replicas.close()
        shutil.rmtree(store_path(node.paths.state, ReplicaId("T1", 1, 1)))

    after_a_change(tmp_path, lose, "served-by: b\r\n", is_short=False)


def test_a_damaged_row_is_left_to_another_replica(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.fast_path()
        key, data = next(iter(rows_of(1).items()))
        assert learnt(path, LINES, body_of(one(key)))
        node.apply(1, more={key: data[:-2] + b"9]"})
        assert path.answer(LINES, body_of(one(key))) is None
        assert b"served-by: b" in (
            await by_slow_path(
                node, LINES, {"accept": Form.LINES.value.decode()}, body_of(one(key))
            )
        )

    run(tmp_path, story)


def test_another_table_of_the_same_name(tmp_path: Path) -> None:
    """Its frames are planned again: the columns may be others."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(one("x1"))
        assert learnt(path, LINES, body)
        assert by_frame(path, LINES, body)
        columns = (*USERS.columns[:1], Column(name="M", type="BIGINT"))
        source: Source = changed(USERS, columns=columns)
        placed = {number: ["a"] for number in range(PARTITIONS)}
        node.publish(["a", "b"], placed, epoch=2, source=source)
        assert by_frame(path, LINES, body) is None
        assert path.answer(LINES, body) is None, "its shape is not known yet"
        await node.answer(one("x1"))
        assert b'"M"' in (path.answer(LINES, body) or b"")

    run(tmp_path, story)


def test_the_same_catalog_in_a_newer_map(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(one("x1"))
        assert learnt(path, LINES, body)
        node.publish(["a", "b"], {number: ["a"] for number in range(PARTITIONS)}, epoch=2)
        assert by_frame(path, LINES, body)

    run(tmp_path, story)


def test_a_client_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_frames, "FRAMES_MAX", 3)
    monkeypatch.setattr(known_parts, "PARTS_BYTES_MAX", 2 * 1350)

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path()
        for blanks in range(10):
            body = body_of(one("x1")) + b" " * blanks
            assert path.answer(LINES, body)
            assert path.answer(LINES, body)
            assert path.answer(LINES, body)
            assert len(path._frames) <= 3
        for key in KEYS.values():
            assert path.answer(LINES, body_of(one(key)))
            assert path.answer(LINES, body_of(one(key)))
        known = [each.meaning for each in path._frames.bodies.values() if each]
        assert sum(len(each.parts) for each in known) <= 2
        assert sum(len(each.held) for each in known) <= 2

    run(tmp_path, story)


def test_bodies_that_all_differ_drop_nobodys_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_frames, "FRAMES_MAX", 3)
    monkeypatch.setattr(known_parts, "MET_MAX", 2)

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path()
        assert learnt(path, LINES, body_of(one("x1")))
        for number in range(10):
            body = json.dumps({"ksql": one("x1"), "request": number}).encode()
            assert path.answer(LINES, body)
        assert by_frame(path, LINES, body_of(one("x1")))
        assert len(path._frames) == 1
        long = body_of(one("x1")) + b" " * known_frames.MESSAGE_BYTES_MAX
        assert learnt(path, LINES, long), "it is answered all the same"
        assert len(path._frames) == 1

    run(tmp_path, story)


def test_frames_keep_no_map_but_the_newest(tmp_path: Path) -> None:
    """A map holds every table and node, and a node gets one each second."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, placed = node.fast_path(), {number: ["a"] for number in range(PARTITIONS)}
        seen: list[weakref.ref[object]] = []
        for turn in range(5):
            body = body_of(one("x1")) + b" " * turn  # each map meets another frame
            assert learnt(path, LINES, body)
            seen.append(weakref.ref(path.map.view))
            node.publish(["a", "b"], placed, epoch=2 + turn)
        assert path.answer(LINES, body_of(one("x1")))
        gc.collect()
        assert [each() for each in seen] == [None] * 5

    run(tmp_path, story)


def test_a_refused_text_is_refused_in_a_known_frame(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path, body = nodes["a"].fast_path(), body_of(one("x1"))
        assert learnt(path, LINES, body)
        path.in_hand.is_refusing = True
        path.in_hand.refused_for_s = lambda text: 1.0 if text == one("x1") else 0.0  # type: ignore[method-assign]
        assert path.answer(LINES, body) is None

    run(tmp_path, story)


def test_what_is_counted(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path()
        for _ in range(3):
            assert path.answer(LINES, body_of(one("x1")))
        assert nodes["a"].metrics.answered_count() == 3

    run(tmp_path, story)
