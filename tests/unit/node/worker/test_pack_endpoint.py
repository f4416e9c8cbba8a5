"""Packs whose head is new: answered like those on the fast path, or refused with a reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.node.worker.pull.test_fast_forward import one
from tests.unit.node.worker.pull.test_fast_many import Nodes, run
from tests.unit.node.workers import KEYS, body_of

from standpipe.adapters.http.server import Headers
from standpipe.data.encoding.store_keys import PREFIX_BYTES_MAX
from standpipe.data.query.lookup_pack import (
    ASKED_BYTES_MAX,
    LEFT,
    PACKED_MAX,
    pack_front,
    pack_lookup,
)
from standpipe.node.worker.pack_endpoint import PackEndpoint
from standpipe.node.worker.pull import fast_path
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.hedging import CHEAP_CHARS_MAX
from standpipe.node.worker.request.head import PACK_PATH

#: the bodies of `one(key)`, cut at their literal
FRONT = pack_front(*(part.encode() for part in body_of(one("?")).decode().split("?")))
HEADERS = {
    "accept": "application/vnd.ksqlapi.delimited.v1",
    "standpipe-forwarded": "1",
    "standpipe-deadline-ms": "1000",
    "standpipe-table": "T1-1",
}


def pack(*numbers: int) -> bytes:
    return FRONT + b"".join(pack_lookup(number, KEYS[number].encode()) for number in numbers)


def head(body: bytes, **other: str) -> Headers:
    given = {**HEADERS, "content-length": str(len(body))}
    given |= {name.replace("_", "-"): value for name, value in other.items()}
    return [(name.encode(), value.encode()) for name, value in given.items()]


def without_ids(answers: bytes) -> bytes:
    """Without the queries' ids, which are the time."""
    return re.sub(rb"query_[0-9]+", b"", answers)


async def sent(path: LookupFastPath, body: bytes, headers: Headers) -> tuple[int, bytes]:
    """Status and body of what the endpoint sends."""
    messages: list[dict[str, Any]] = []
    whole = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return whole.pop()

    async def send(message: Any) -> None:
        messages.append(message)

    scope = {"type": "http", "method": "POST", "path": PACK_PATH, "headers": headers}
    await PackEndpoint(path)(scope, receive, send)
    return messages[0]["status"], b"".join(each.get("body", b"") for each in messages)


def test_both_paths_answer_a_pack_alike(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path, body = nodes["a"].fast_path(is_peer=True), pack(*KEYS)
        status, slow = await sent(path, body, head(body))
        assert status == 200
        token = path.classify(PACK_PATH.encode(), head(body))
        assert token is not None
        fast = path.answer(token, body)
        assert isinstance(fast, bytes)
        start = b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.standpipe.pack.v1\r\n"
        assert fast.startswith(b"%bcontent-length: %d\r\n\r\n" % (start, len(slow)))
        assert fast.count(b"standpipe-served-by: a\r\n") == len(KEYS)
        assert without_ids(fast.partition(b"\r\n\r\n")[2]) == without_ids(slow)
        assert path.metrics.counts["standpipe_pull_forwarded_in"] == {"answered": 2 * len(KEYS)}

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"standpipe_table": "T2-1"}, "another table"),
        ({"standpipe_table": "T1-2"}, "another generation"),
        ({"standpipe_deadline_ms": "0"}, "its time is over"),
    ],
)
def test_what_would_be_refused_alone_is_left(
    tmp_path: Path, other: dict[str, str], why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        body = pack(0, 1)
        path = nodes["a"].fast_path(is_peer=True)
        assert await sent(path, body, head(body, **other)) == (200, LEFT + LEFT), why

    run(tmp_path, story)


def test_a_partition_that_the_literal_is_not_in_is_left(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path(is_peer=True)
        body = FRONT + pack_lookup(1, KEYS[0].encode())
        for _ in range(4):  # known or not
            assert await sent(path, body, head(body)) == (200, LEFT)
            await sent(path, pack(1), head(pack(1)))

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("body", "other", "status"),
    [
        (pack(0)[:-1], {}, 400),
        (pack(0), {"accept": "text/html"}, 406),
        (pack(0), {"content_length": "1000000"}, 406),
        (pack(0), {"standpipe_deadline_ms": "soon"}, 406),
    ],
)
def test_what_is_no_pack_is_refused(
    tmp_path: Path, body: bytes, other: dict[str, str], status: int
) -> None:
    async def story(nodes: Nodes) -> None:
        found, _ = await sent(nodes["a"].fast_path(is_peer=True), body, head(body, **other))
        assert found == status

    run(tmp_path, story)


def test_what_a_client_may_send_is_no_limit_for_a_pack(tmp_path: Path) -> None:
    """Partitions were refused for seconds where many clients asked within a small limit."""

    async def story(nodes: Nodes) -> None:
        path, body = nodes["a"].fast_path(is_peer=True), pack(*KEYS)
        path.body_bytes_max = len(body) - 1
        assert (await sent(path, body, head(body)))[0] == 200
        assert path.classify(PACK_PATH.encode(), head(body)) is not None
        assert path.classify(b"/query", head(body)) is None
        assert path.classify(PACK_PATH.encode(), head(b"x" * (ASKED_BYTES_MAX + 1))) is None

    run(tmp_path, story)


def test_the_longest_pack_is_within_its_limit() -> None:
    longest = pack_lookup(0, b"x" * PREFIX_BYTES_MAX)
    front = pack_front(b"x" * CHEAP_CHARS_MAX, b"")
    assert len(front) + PACKED_MAX * len(longest) <= ASKED_BYTES_MAX


@pytest.mark.parametrize("times", [1, 3], ids=["learnt", "known"])
def test_answers_are_within_the_limit_and_those_that_are_left_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The sender drops a longer response, and each of its lookups takes the slow path."""

    async def story(nodes: Nodes) -> None:
        path, body = nodes["a"].fast_path(is_peer=True), pack(*KEYS)
        for _ in range(times - 1):
            await sent(path, body, head(body))
        counts = path.metrics.counts
        _, whole = await sent(path, body, head(body))
        before, lefts = counts["standpipe_pull_forwarded_in"]["answered"], set[int]()
        for limit in range(len(LEFT) * len(KEYS), len(whole), 50):
            monkeypatch.setattr(fast_path, "PACK_BYTES_MAX", limit)
            _, found = await sent(path, body, head(body))
            assert len(found) <= limit
            left = found.count(LEFT)
            lefts.add(left)
            if times > 1:
                now = counts["standpipe_pull_forwarded_in"]["answered"]
                assert now == before + len(KEYS) - left
                before = now
        assert {1, len(KEYS)} <= lefts, "some had room for all but one, some for none"

    run(tmp_path, story)


def test_no_client_can_send_one(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        body = pack(0)
        assert nodes["a"].fast_path().classify(PACK_PATH.encode(), head(body)) is None

    run(tmp_path, story)
