"""Lookups by a list of texts: known lists send what the others send, or nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from tests.examples import examples
from tests.unit.node.worker.pull.known.test_frames import Nodes, format_of, same_id
from tests.unit.node.worker.pull.test_fast_many import (
    OTHERS,
    TEXTS,
    StoppedClock,
    by_slow_path,
    in_list,
    run,
)
from tests.unit.node.workers import KEYS, PARTITIONS, Worker, body_of, page

from standpipe.config import lags
from standpipe.data.encoding import native
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.errors import StandpipeError
from standpipe.model import NO_BATCH
from standpipe.node.worker.pull.fast_path import EXPECTED, LookupFastPath
from standpipe.node.worker.pull.known import lists as known_lists
from standpipe.node.worker.request.answer_pieces import PIECE_BYTES
from standpipe.node.worker.request.head import Form

PLAIN = [
    name for name in OTHERS if name.isascii() and len(name) < 500 and not set(name) & set("'\"\\")
]
NAMES = [*PLAIN, *KEYS.values(), "nobody", "--", "${x}"]


def by_list(path: LookupFastPath, form: Form, body: bytes) -> bytes | None:
    try:
        return path._lists.answer(format_of(form), body, path.map.view, time.monotonic())
    except EXPECTED:  # as the fast path does
        return None


async def sent_alike(
    node: Worker, path: LookupFastPath, body: bytes, form: Form = Form.LINES
) -> tuple[str, bool]:
    """What the slow path sends, or its error, and whether the known list sends it, too. Asserts
    that it and the fast path send this or nothing."""
    head = {"accept": form.value.decode()}
    try:
        expected = same_id(await by_slow_path(node, format_of(form), head, body))
    except StandpipeError as error:
        expected = f"{error}"
    fast, shortest = path.answer(format_of(form), body), by_list(path, form, body)
    assert same_id(fast) in (expected, ""), body
    assert same_id(shortest) in (expected, ""), body
    assert dict(node.metrics.counts["standpipe_pull_fast_path_faults"]) == {}
    return expected, shortest is not None


async def learn(node: Worker, path: LookupFastPath, form: Form = Form.LINES) -> None:
    for _ in range(3):
        await sent_alike(node, path, body_of(in_list("x1", "x2")), form)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("form", list(Form))
def test_all_ways_send_the_same(
    tmp_path: Path, form: Form, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of any length has the frame of one of two."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node, draw = nodes["a"], random.Random(form.name)
        path = node.fast_path()
        await learn(node, path, form)
        for _ in range(examples(20)):
            names = draw.sample(NAMES, draw.choice([2, 3, 10, 100]))
            sent, is_taken = await sent_alike(node, path, body_of(in_list(*names)), form)
            assert is_taken, names
            assert sent.count("[") >= sum(name in PLAIN for name in names)
            names[draw.randrange(len(names))] = draw.choice(
                [names[0], "it's", "é€", "a\\b", OTHERS[-1]]
            )
            await sent_alike(node, path, body_of(in_list(*names)), form)
        for text, _ in TEXTS:
            for _ in range(3):
                await sent_alike(node, path, body_of(text), form)

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (in_list("x3", "x4", "x5"), None),
        (in_list("x3", "nobody"), None),
        (in_list("nobody", "else"), None),
        (in_list(*(f"x{number}" for number in range(256))), None),
        (in_list(*(f"x{number}" for number in range(257))), "more than a slice reads"),
        (in_list("x3"), "one key"),
        (in_list("x3", "x3"), "a key twice"),
        (in_list("x3", "it's"), "a quote"),
        (in_list("x3", "é"), "no ASCII"),
        (in_list("x3", "y" * 502), "a key that is shortened"),
        (in_list("x3", "x4").replace(", ", ","), "another separator"),
        (in_list("x3", "x4").replace(", ", " AND ID = "), "no separator"),
        (in_list("x3", "x4").replace("*", "N"), "columns"),
        (in_list("x3", "x4").replace(";", " LIMIT 1;"), "a limit"),
        (in_list("x3", "x4").replace(";", " AND N > 0;"), "a condition"),
        (in_list("x3", "x4").replace(" IN", " NOT IN"), "not these"),
    ],
)
def test_which_lists_are_known_after_one(
    tmp_path: Path, text: str, why: str | None, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.fast_path()
        await learn(node, path)
        _, is_known = await sent_alike(node, path, body_of(text))
        assert is_known is (why is None), why

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (body_of(in_list("x1", "x2")), None),
        (body_of(in_list("x1", "x2").replace(", ", " ,  ")), None),
        (body_of(in_list("x1", "x2"), 5), None),
        (b"{\"ksql\": \"SELECT * FROM USERS WHERE ID IN ('x1','x2')\"}", None),
        (b"{\"ksql\": \"SELECT * FROM USERS\\nWHERE ID IN ('x1','x2')\"}", "a backslash"),
        (
            b'{"ksql": "SELECT * FROM USERS WHERE ID IN (\'x1\',\'x2\')", "sessionVariables": {}}',
            "variables",
        ),
        (
            b'{"ksql": "SELECT * FROM USERS WHERE ID = \'x1\'", "a": "\',\'"}',
            "a list that is not the statement's",
        ),
        (body_of("SELECT N FROM USERS WHERE ID IN ('x1', 'x2');"), "columns"),
        (body_of("SELECT * FROM USERS WHERE ID IN ('x1', 'x2') LIMIT 1;"), "a limit"),
    ],
)
def test_which_bodies_are_learnt(tmp_path: Path, body: bytes, why: str | None) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.fast_path()
        for _ in range(3):
            await sent_alike(node, path, body)
        _, is_known = await sent_alike(node, path, body.replace(b"x1", b"x71"))
        assert is_known is (why is None), why

    run(tmp_path, story)


def after_a_change(
    folder: Path, change: Callable[[Worker], object], headers: str, *, is_short: bool = True
) -> None:
    """A known list sees a change at once, as the others do, in the same millisecond too."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(in_list(*KEYS.values()))
        await learn(node, path)
        before, is_known = await sent_alike(node, path, body)
        assert is_known
        change(node)
        sent, is_known = await sent_alike(node, path, body)
        assert is_known is is_short
        assert headers in sent
        assert sent != before

    with mock.patch.object(time, "time", return_value=time.time()):
        run(folder, story)


def test_a_newer_page_is_seen(tmp_path: Path) -> None:
    after_a_change(tmp_path, lambda node: node.hold(1, page(100, 107)), "offset-lag: 7\r\n")


def test_newer_rows_are_seen_before_their_page(tmp_path: Path) -> None:
    after_a_change(tmp_path, lambda node: node.apply(1, position=120, batch=8, value=b"[9]"), ",9]")


def test_the_end_that_a_peer_reports_is_seen(tmp_path: Path) -> None:
    after_a_change(tmp_path, lambda node: node.hear(("b", 1, 109, 109)), "offset-lag: 9\r\n")


def test_a_page_that_does_not_fit_the_rows(tmp_path: Path) -> None:
    after_a_change(
        tmp_path,
        lambda node: node.apply(1, position=120, batch=NO_BATCH),
        "served-by: a, b\r\n",
        is_short=False,
    )


def test_a_partition_that_moves_away(tmp_path: Path) -> None:
    def move(node: Worker) -> None:
        placed = {number: ["b" if number == 1 else "a"] for number in range(PARTITIONS)}
        node.publish(["a", "b"], placed, epoch=2)

    after_a_change(tmp_path, move, "served-by: a, b\r\n", is_short=False)


def test_rows_that_grow_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound on the lag in time is judged again in each millisecond."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(in_list("x1", "x2"))
        name = lags.REPLICA_LAG_MAX.name.encode()
        body = body.replace(b'"streamsProperties": {', b'"streamsProperties": {"%b": 60000' % name)
        for _ in range(3):
            await sent_alike(node, path, body)
        now_s = time.time()
        for later_ms, is_answered in ((0, True), (50_000, True), (20_000, False)):
            now_s += later_ms / 1000
            monkeypatch.setattr(time, "time", lambda now_s=now_s: now_s)
            assert isinstance(node.clock, StoppedClock)
            node.clock.at_ms += later_ms
            assert (by_list(path, Form.LINES, body) is not None) is is_answered

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_damaged_row_is_left_to_another_replica(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(in_list(*KEYS.values()))
        await learn(node, path)
        node.apply(1, more={KEYS[1]: pack_row(b"[7]", 5)[:-2] + b"9]"})
        sent, is_known = await sent_alike(node, path, body)
        assert not is_known
        assert "served-by: a, b" in sent

    run(tmp_path, story)


def test_a_large_answer_is_sent_in_pieces(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(in_list(*KEYS.values()))
        await learn(node, path)
        for digits, is_short in ((PIECE_BYTES - 2_000, True), (PIECE_BYTES, False)):
            node.apply(1, value=b"[%b]" % (b"1" * digits))
            _, is_known = await sent_alike(node, path, body)
            assert is_known is is_short

    run(tmp_path, story)


def test_a_client_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_lists, "LISTS_MAX", 3)
    monkeypatch.setattr(known_lists, "TOGETHER_MAX", 2)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.fast_path()
        for blanks in range(8):
            for names in (("x1", "x2"), ("x3", "x4"), ("x5", "x6", "x7")):
                for _ in range(2):
                    await sent_alike(node, path, body_of(in_list(*names)) + b" " * blanks)
            assert len(path._lists) <= 3
        known = [each.meaning for each in path._lists._lists.values() if each]
        assert known
        assert max(len(each.together) for each in known) <= 2

    run(tmp_path, story)


def test_a_set_that_is_laid_out_again_drops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new millisecond it did."""
    monkeypatch.setattr(known_lists, "TOGETHER_MAX", 2)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.fast_path()
        await learn(node, path)
        (known,) = [each.meaning for each in path._lists._lists.values() if each]
        known.leave_map()
        bodies = [body_of(in_list(KEYS[0], KEYS[number])) for number in (1, 2)]
        for now_s, asked in ((1_700_000_000.0, bodies), (1_700_000_000.5, bodies[:1])):
            monkeypatch.setattr(time, "time", lambda now_s=now_s: now_s)
            for body in asked:
                assert by_list(path, Form.LINES, body)
        assert set(known.together) == {(0, 1), (0, 2)}

    run(tmp_path, story)
