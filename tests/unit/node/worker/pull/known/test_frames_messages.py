"""Whole messages that are known: whatever is sent, and in which pieces, the answers are the same as
without that shortest way."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.examples import examples
from tests.unit.adapters.http.fed_connection import Wire, connected, listener_of
from tests.unit.node.worker.pull.known.test_frames import Nodes, one
from tests.unit.node.worker.pull.test_fast_many import run
from tests.unit.node.workers import KEYS, PARTITIONS, USERS, Worker, body_of, page, select

from standpipe.adapters.http.request_body import read_body
from standpipe.adapters.http.server import LookupProtocol
from standpipe.data.encoding import native
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.known import frames as known_frames
from standpipe.node.worker.request.head import Form

#: heads besides the line of the length: what is sent again and again, and what is not
HEADS = (
    "Host: a\r\nContent-Type: application/json\r\n",
    "Host: a\r\nContent-Type: application/json\r\n",
    "content-type: application/json\r\nhost: a\r\n",
    "HOST:a\r\nContent-Type:  application/json \r\nAccept: application/json\r\n",
    f"Host: a\r\nAccept: {Form.LINES.value.decode()}\r\n",
    f"Host: a\r\nAccept: {Form.ARRAY.value.decode()}\r\n",
    "Host: a\r\nConnection: keep-alive\r\n",
    "Host: a\r\nX-Note: it's\r\n",
    "Host: a\r\nX-Note: 'k1'\r\n",
    "Host: a\r\nExpect: 100-continue\r\n",
)
ENDING = (
    "Host: a\r\nConnection: close\r\n",
    "Host: a\r\nContent-Length: 3\r\n",
    "Host: a\r\nTransfer-Encoding: identity\r\n",
    "Host: a\r\nContent-Length : 3\r\n",
)
TEXTS = (
    *(one(key) for key in KEYS.values()),
    *(one(key) for key in ("x1", "nobody", "it's", "é€", "", "--", "long" * 200)),
    one("x1", "N"),
    one("x1", more=" AND N > 0;"),
    select(0, 1, 2, 3),
    "SELECT 1;",
)
SHORT = "Host: a\r\n"


class Counted:
    """A fast path that counts the messages which took the shortest way; `is_short`: or none do."""

    def __init__(self, path: LookupFastPath, *, is_short: bool) -> None:
        self._is_short = is_short
        self.path = path
        self.classify, self.answer = path.classify, path.answer
        self.short = 0

    def answer_message(self, message: bytes) -> bytes | None:
        answer = self.path.answer_message(message)
        self.short += answer is not None
        return answer

    def learn_message(self, token: Any, message: bytes, head_bytes: int) -> bool:
        return self._is_short and self.path.learn_message(token, message, head_bytes)


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Says what it was asked, as the slow path would begin with."""
    body = await read_body(scope["headers"], receive, 100_000)
    said = repr((scope["method"], scope["path"], scope["headers"], body)).encode()
    headers = [(b"content-length", b"%d" % len(said))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


def message(head: str, body: bytes, line: str = "POST /query HTTP/1.1") -> bytes:
    return f"{line}\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def undated(sent: bytes) -> bytes:
    """Without the time in each query's id. The clock of ages is stopped."""
    return re.sub(rb"query_\d{13}", b"query_", sent)


async def sent_for(connection: LookupProtocol, wire: Wire, pieces: Sequence[bytes]) -> bytes:
    for piece in pieces:
        if not wire.is_closed:
            connection.data_received(piece)
        for _ in range(9):  # the slow path's task ends
            await asyncio.sleep(0)
    return undated(wire.sent)


async def both_send_the_same(node: Worker, *conversations: Sequence[bytes]) -> tuple[bytes, int]:
    """What was sent, and how many messages took the shortest way."""
    short = Counted(node.fast_path(), is_short=True)
    long = Counted(node.fast_path(), is_short=False)
    by_short, by_long, sent = listener_of(short, slow), listener_of(long, slow), b""
    for pieces in conversations:
        found = await sent_for(*connected(by_short), pieces)
        assert found == await sent_for(*connected(by_long), pieces)
        sent += found
    assert (long.short, node.metrics.counts["standpipe_pull_fast_path_faults"]) == (0, {})
    return sent, short.short


def conversation(draw: random.Random) -> list[bytes]:
    """Messages of one connection, most of them like others of it."""
    head, made = draw.choice(HEADS), list[bytes]()
    for _ in range(draw.randrange(2, 12)):
        head = draw.choice(HEADS) if draw.random() < 0.1 else head
        text = draw.choice(TEXTS[: len(KEYS)] if draw.random() < 0.9 else TEXTS)
        body = body_of(text, draw.choice([None, None, None, 5]))
        if draw.random() < 0.1:
            body = draw.choice([b"", b"'", b"''", b"{}", body[:-1], body + b" "])
        made.append(message(head, body, draw.choice(LINES_OF_REQUESTS)))
        if draw.random() < 0.05:
            made.append(b"POST /query HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            made.append(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    if draw.random() < 0.2:
        made.append(message(draw.choice(ENDING), body_of(TEXTS[0])))
        made.append(made[0])
    return made


LINES_OF_REQUESTS = ("POST /query HTTP/1.1",) * 20 + (
    "POST /query-stream HTTP/1.1",
    "POST /ksql HTTP/1.1",
    "GET /query HTTP/1.1",
    "POST /query HTTP/1.0",
    "POST  /query HTTP/1.1",
)


def in_pieces(draw: random.Random, messages: Sequence[bytes]) -> list[bytes]:
    """Whole, several at once, or cut anywhere."""
    pieces, rest = list[bytes](), b""
    for each in messages:
        rest += each
        match draw.randrange(8):
            case 0:
                continue  # it comes with the next one
            case 1:
                at = draw.randrange(len(rest) + 1)
                pieces += [rest[:at], rest[at:]]
            case _:
                pieces.append(rest)
        rest = b""
    return [piece for piece in (*pieces, rest) if piece]


@pytest.mark.parametrize("is_compiled", [True, False])
def test_any_messages_in_any_pieces(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        draw = random.Random(7)
        told = [in_pieces(draw, conversation(draw)) for _ in range(examples(150))]
        sent, short = await both_send_the_same(nodes["a"], *told)
        assert short > len(told) // 2, "the shortest way was taken"
        for part in (b"HTTP/1.1 400", b"/ksql", b"connection: close", b"100 Continue", b'"k29",1'):
            assert part in sent, part

    run(tmp_path, story)


def test_a_known_message_cut_at_each_byte(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        body = body_of(one("x1"))
        known = message(SHORT, body)
        _, short = await both_send_the_same(nodes["a"], [known] * 6)
        assert short == 3, "parsed, then met by its head, then learnt with its body"
        for at in range(1, len(known)):
            pieces = [*[known] * 4, known[:at], known[at:], known]
            sent, short = await both_send_the_same(nodes["a"], pieces)
            assert (short, sent.count(b'"x1",'), sent.count(repr(body).encode())) == (1, 4, 2), at

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("head", "body", "is_known", "why"),
    [
        (SHORT, body_of(one("x2")), True, "another text"),
        (SHORT, body_of(one("x10")), False, "of another length"),
        (SHORT, body_of(one("it's")), False, "a text with a quote"),
        (SHORT, body_of(select(0, 1)), False, "two texts"),
        (SHORT, body_of(one("x2", "N")), False, "another statement"),
        (SHORT.lower(), body_of(one("x2")), False, "another head that means the same"),
        (SHORT + "X-Note: 'x1'\r\n", body_of(one("x2")), False, "a head with a text"),
    ],
)
def test_what_is_known_after_a_message(
    tmp_path: Path, head: str, body: bytes, is_known: bool, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        known = message(SHORT, body_of(one("x1")))
        _, short = await both_send_the_same(nodes["a"], [*[known] * 3, message(head, body)])
        assert bool(short) is is_known, why

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("text", [b"x", b"", b"x12", b"x1 or more"])
def test_a_text_of_another_length_than_its_head_says(
    tmp_path: Path, text: bytes, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends before its message does, or the next one begins in it: smuggling begins so."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        known = message(SHORT, body_of(one("x1")))
        odd = known.replace(b"'x1'", b"'%b'" % text)
        _, short = await both_send_the_same(nodes["a"], [*[known] * 4, odd, known, known])
        assert short == 1

    run(tmp_path, story)


@pytest.mark.parametrize("is_refusing", [True, False])
def test_it_is_not_learnt_by_what_another_message_was(tmp_path: Path, is_refusing: bool) -> None:
    """While texts are refused, frames are not asked: the one that answered last is of another."""

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path()
        connection, wire = connected(listener_of(Counted(path, is_short=True), slow))
        first, other = message(SHORT, body_of(one("x1"))), message(SHORT, body_of(one("x1", "N")))
        await sent_for(connection, wire, [first] * 4)
        path.in_hand.is_refusing = is_refusing
        await sent_for(connection, wire, [other] * 4)
        path.in_hand.is_refusing = False
        wire.sent = b""
        assert b'"ID"' not in await sent_for(connection, wire, [other] * 2)

    run(tmp_path, story)


def test_a_refused_text_is_refused_in_a_known_message(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path, known = nodes["a"].fast_path(), message(SHORT, body_of(one("x1")))
        await sent_for(*connected(listener_of(path, slow)), [known] * 4)
        assert path.answer_message(known)
        path.in_hand.is_refusing = True
        assert path.answer_message(known) is None, "the other steps ask whether it is this one"

    run(tmp_path, story)


def test_another_table_of_the_same_name(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node, known = nodes["a"], message(SHORT, body_of(one("x1")))
        path = node.fast_path()
        await sent_for(*connected(listener_of(path, slow)), [known] * 4)
        assert path.answer_message(known)
        placed = {number: ["a", "b"] for number in range(PARTITIONS)}
        node.publish(["a", "b"], placed, epoch=2)
        assert path.answer_message(known), "the same catalog in a newer map"
        node.publish(["a", "b"], placed, epoch=3, source=changed(USERS, partitions=8))
        assert path.answer_message(known) is None

    run(tmp_path, story)


def test_a_newer_page_and_newer_rows_are_seen(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node, known = nodes["a"], message(SHORT, body_of(one(KEYS[1])))
        path = node.fast_path()
        await sent_for(*connected(listener_of(path, slow)), [known] * 4)
        node.hold(1, page(100, 107))
        assert b"offset-lag: 7\r\n" in (path.answer_message(known) or b"")
        node.apply(1, position=120, batch=8, value=b"[9]")
        assert b"batch: 8\r\n" in (path.answer_message(known) or b"")

    run(tmp_path, story)


def test_a_client_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_frames, "MESSAGES_MAX", 3)

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path()
        for number in range(10):
            known = message(f"{SHORT}X: {number}\r\n", body_of(one("x1")))
            await sent_for(*connected(listener_of(path, slow)), [known] * 4)
            assert path.answer_message(known)
            assert len(path._frames.messages) <= 3
        long = message(f"{SHORT}X: {'y' * 4096}\r\n", body_of(one("x1")))
        _, short = await both_send_the_same(nodes["a"], [long] * 4)
        assert not short

    run(tmp_path, story)


def test_a_forward_is_never_known(tmp_path: Path) -> None:
    """Not even if its body is one that a frame is known for: its head may say another partition."""

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path(is_peer=True)
        counted = Counted(path, is_short=True)
        listener, body = listener_of(counted, slow), body_of(one(KEYS[1]))
        as_lines = f"{SHORT}Accept: {Form.LINES.value.decode()}\r\n"
        await sent_for(*connected(listener), [message(as_lines, body)] * 4)
        assert counted.short == 1
        head = f"{as_lines}standpipe-forwarded: 1\r\nstandpipe-partition: 1\r\n"
        sent = await sent_for(*connected(listener), [message(head, body)] * 5)
        assert sent.count(b"standpipe-batch: 7") == 4
        assert counted.short == 1

    run(tmp_path, story)


def test_what_is_counted(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        known = message(SHORT, body_of(one("x1")))
        path = nodes["a"].fast_path()
        await sent_for(*connected(listener_of(path, slow)), [known] * 9)
        metrics = nodes["a"].metrics
        assert metrics.answered_count() == 8
        assert sum(metrics.latency_counts) == 8

    run(tmp_path, story)
