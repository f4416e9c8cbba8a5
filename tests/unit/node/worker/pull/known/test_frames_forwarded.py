"""Forwards of lookups by one literal: the shortest way sends what the others send, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.node.worker.pull.known.test_frames import by_frame, learnt, one, without_frames
from tests.unit.node.worker.pull.test_fast_many import OTHERS, by_slow_path, run
from tests.unit.node.workers import KEYS, PARTITIONS, Worker, body_of, page, peer_format

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import partition_of
from standpipe.freshness import END_HEADER
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.forward_headers import (
    DEADLINE_HEADER,
    FORWARDED_HEADER,
    PARTITION_HEADER,
    TABLE_HEADER,
    WAITS_HEADER,
    WANTED_HEADER,
    RequestFormat,
)
from standpipe.node.worker.request.head import Form
from standpipe.session_token import LEVEL_PROPERTY

Nodes = dict[str, Worker]
#: this node is the standby of all partitions: a client's read goes elsewhere, a forward does not
STANDBY = {number: ["b", "a"] for number in range(PARTITIONS)}


def headers_of(number: int, more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {
        "accept": Form.LINES.value.decode(),
        FORWARDED_HEADER: "1",
        DEADLINE_HEADER: "1000",
        PARTITION_HEADER: str(number),
        TABLE_HEADER: "T1-1",
        **(more or {}),
    }


def forward_of(number: int, more: Mapping[str, str] | None = None) -> RequestFormat:
    """The head of a forward of a partition."""
    return peer_format(headers_of(number, more))


def without(answer: bytes | None) -> bytes:
    """Without the query's id, which is the time."""
    begin, _, end = (answer or b"").partition(b"query_")
    return begin + end.lstrip(b"0123456789")


def taught(node: Worker) -> LookupFastPath:
    path = node.fast_path(is_peer=True)
    assert learnt(path, forward_of(0), body_of(one(KEYS[0])))
    assert len(path._frames) == 1
    return path


@pytest.mark.parametrize("is_compiled", [True, False])
def test_all_ways_send_the_same(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = taught(node)
        for key in (*KEYS.values(), *OTHERS, "nobody"):
            number = partition_of(key.encode(), PARTITIONS)
            form, body = forward_of(number), body_of(one(key))
            slow = await by_slow_path(node, form, headers_of(number), body)
            frames = path._frames, path._statements
            path._frames, path._statements = without_frames(path)
            fast = path.answer(form, body)
            path._frames, path._statements = frames
            shortest = by_frame(path, form, body)
            assert isinstance(fast, bytes)
            assert without(fast) == without(slow), key
            if shortest is not None:
                assert without(shortest) == without(slow), key
                assert END_HEADER.encode() in shortest
            is_plain = key.isascii() and not set(key) & set("'\"\\") and len(key) < 502
            assert (shortest is not None) is is_plain, key
        assert len(path._frames) == 1, "of all partitions"

    run(tmp_path, story, STANDBY)


def test_what_is_not_the_senders_is_refused(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path = taught(nodes["a"])
        body = body_of(one(KEYS[0]))
        assert by_frame(path, forward_of(0), body)
        assert by_frame(path, forward_of(1), body) is None, "it counts partitions differently"
        assert by_frame(path, forward_of(0, {TABLE_HEADER: "T2-1"}), body) is None
        assert by_frame(path, forward_of(0, {TABLE_HEADER: "T1-2"}), body) is None
        assert path.answer(forward_of(1), body) is None

    run(tmp_path, story, STANDBY)


@pytest.mark.parametrize(
    "more",
    [
        {END_HEADER: "100"},
        {WAITS_HEADER: "1"},
        {WANTED_HEADER: "7,1"},
        {DEADLINE_HEADER: "0"},
        {TABLE_HEADER: ""},
        {PARTITION_HEADER: ""},
    ],
)
def test_what_wants_more_than_the_rows_takes_the_other_steps(
    tmp_path: Path, more: dict[str, str]
) -> None:
    async def story(nodes: Nodes) -> None:
        path = taught(nodes["a"])
        form = forward_of(0, more)
        assert not form.is_usual
        before = len(path._frames)
        for _ in range(3):
            path.answer(form, body_of(one(KEYS[0], "N")))
        assert len(path._frames) == before

    run(tmp_path, story, STANDBY)


def test_levels_are_the_other_steps(tmp_path: Path) -> None:
    """A snapshot's answer says the lease epoch, too."""

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path(is_peer=True)
        text = one(KEYS[0])
        body = body_of(text).replace(b"{}", b'{"%b":"snapshot"}' % LEVEL_PROPERTY.encode())
        for _ in range(4):
            path.answer(forward_of(0), body)
        assert len(path._frames) == 0

    run(tmp_path, story, STANDBY)


def test_a_newer_end_is_said(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = taught(node)
        body = body_of(one(KEYS[0]))
        before = by_frame(path, forward_of(0), body)
        assert before is not None
        assert b"standpipe-committed-end: 100\r\n" in before
        node.hear(("b", 0, 250, 300))
        after = by_frame(path, forward_of(0), body)
        assert after is not None
        assert b"standpipe-committed-end: 300\r\n" in after
        assert b"standpipe-offset-lag: 200\r\n" in after
        node.hold(0, replace(page(position=400, end=400), batch=8))
        newest = by_frame(path, forward_of(0), body)
        assert newest is not None
        assert b"standpipe-committed-end: 400\r\n" in newest

    run(tmp_path, story, STANDBY)
