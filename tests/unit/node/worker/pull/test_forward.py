"""The breaker of a path as a table of instants, and what a peer's answer means."""

from __future__ import annotations

import asyncio
import json

import pytest

from standpipe.adapters.http.peer_client import (
    ConnectFailed,
    PathFailed,
    PeerClient,
    Response,
    StillWorking,
)
from standpipe.errors import HeavyWorkerEnded, TextRefused
from standpipe.model import NodeId, NodeInfo
from standpipe.node.worker.pull import forward
from standpipe.node.worker.pull.forward import (
    SILENCES_MAX,
    SILENT_MS_MIN,
    STILL_WAITED,
    TOO_SLOW,
    Breaker,
    Forwarder,
    ForwardRefused,
    refusal_of,
)
from standpipe.node.worker.pull.forward_headers import ForwardedRead
from standpipe.node.worker.request.answer import ArrivingRows


@pytest.mark.parametrize(
    ("events", "probe_at_ms", "why"),
    [
        ([], None, "closed at first"),
        ([("failed", 0)], 1000, "open at once, for open_ms"),
        ([("failed", 0), ("failed", 400)], 1000, "a read that was under way changes nothing"),
        ([("failed", 0), ("failed", 999)], 1000, "just before the probe is due"),
        ([("failed", 0), ("failed", 1000)], 3000, "the probe failed: twice as long"),
        ([("failed", 0), ("failed", 1000), ("failed", 3000)], 7000, "and again"),
        ([("failed", 0), ("succeeded", 500)], None, "an answer closes it"),
        ([("failed", 0), ("failed", 1000), ("succeeded", 0), ("failed", 9000)], 10000,
         "and forgets the back-off"),
        ([("failed", t) for t in (0, 1000, 3000, 7000, 15000, 25000)], 35000, "10 s at the most"),
    ],
)  # fmt: skip
def test_breaker(events: list[tuple[str, float]], probe_at_ms: float | None, why: str) -> None:
    breaker = Breaker(open_ms=1000)
    for event, now_ms in events:
        if event == "failed":
            breaker.failed(now_ms)
        else:
            breaker.succeeded()
    assert breaker.probe_at_ms == probe_at_ms, why
    assert breaker.is_open is (probe_at_ms is not None)


def test_breaker_of_no_wait() -> None:
    breaker = Breaker(open_ms=0)
    breaker.failed(5)
    assert breaker.probe_at_ms == 5


def error(code: int, **standpipe: object) -> bytes:
    return json.dumps({"error_code": code, "message": "m", "standpipe": standpipe}).encode()


@pytest.mark.parametrize(
    ("status", "body", "why", "is_not_ready", "progress"),
    [
        (503, error(50306, why="NOT_OWNER"), "NOT_OWNER", False, None),
        (503, error(50305, why="boot", progress=0.5), "boot", True, 0.5),
        (503, error(50305, why="boot", progress=None), "boot", True, None),
        (400, error(40001), "m", False, None),
        (500, b"Internal Server Error", "Peer answered 500.", False, None),
        (503, b"[]", "Peer answered 503.", False, None),
    ],
)
def test_refusals(
    status: int, body: bytes, why: str, is_not_ready: bool, progress: float | None
) -> None:
    refusal = refused(status, body)
    assert (refusal.why, refusal.is_not_ready, refusal.progress) == (why, is_not_ready, progress)


def refused(status: int, body: bytes) -> ForwardRefused:
    refusal = refusal_of(Response(status, {}, body))
    assert isinstance(refusal, ForwardRefused)
    return refusal


def test_slow_reads_in_a_row_open_a_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped peer, long before its time-outs; one answer in between and it is merely slow, and
    so it is if all of them wait for the same short time."""
    peer = NodeInfo(node_id=NodeId("a"), public="p", internal="i", peer="a:1", incarnation="x")
    now_ms = [0.0]
    monkeypatch.setattr(forward, "_now_ms", lambda: now_ms[0])

    async def story() -> list[frozenset[str]]:
        forwarder = Forwarder(PeerClient({}), open_ms=60_000, probe_timeout_ms=10)
        seen: list[frozenset[str]] = []
        for _ in range(SILENCES_MAX - 1):
            forwarder.silent(peer)
        now_ms[0] += SILENT_MS_MIN
        seen.append(forwarder.open_paths)
        forwarder._succeeded(peer.peer)
        for _ in range(3 * SILENCES_MAX):
            forwarder.silent(peer)
        now_ms[0] += SILENT_MS_MIN - 1
        forwarder.silent(peer)
        seen.append(forwarder.open_paths)
        now_ms[0] += 1
        forwarder.silent(peer)
        seen.append(forwarder.open_paths)
        forwarder._failed(peer)
        assert forwarder.open_paths is seen[-1], "routes that were decided by it still hold"
        forwarder._succeeded(peer.peer)
        seen.append(forwarder.open_paths)
        await forwarder.close()
        return seen

    closed, open_ = frozenset[str](), frozenset({"a:1"})
    assert asyncio.run(story()) == [closed, closed, open_, closed]


def test_not_owner_brings_the_map_of_the_one_that_refused() -> None:
    said = {"why": "NOT_OWNER: x", "replicas": ["b", "c"], "assignment_epoch": 7}
    body = json.dumps({"error_code": 50306, "message": "m", "standpipe": said}).encode()
    refusal = refused(503, body)
    assert (refusal.owners, refusal.assignment_epoch) == (("b", "c"), 7)


def test_a_text_that_wedged_a_peer_is_tried_nowhere_else() -> None:
    body = json.dumps({"error_code": 42901, "message": "refused for another 9 s"}).encode()
    refusal = refusal_of(Response(429, {}, body))
    assert isinstance(refusal, TextRefused)
    assert "another 9 s" in str(refusal)


def test_a_read_that_may_have_ended_a_heavy_worker_counts_as_sent() -> None:
    """Costly reads that ended one are tried at one more replica only."""
    body = json.dumps({"error_code": HeavyWorkerEnded.code, "message": "ended"}).encode()
    refusal = refused(503, body)
    assert refusal.was_sent
    assert not refusal.is_path_failure, "lookups still go there"


@pytest.mark.parametrize(
    ("failure", "was_sent", "why"),
    [
        (ConnectFailed("refused"), False, "a dead node has seen nothing of it"),
        (PathFailed("no answer within 1000 ms"), True, "it may be what silenced the peer"),
        (PathFailed("closed by the peer"), True, "its parent may have killed it over that"),
    ],
)
def test_whether_a_peer_had_the_read(failure: PathFailed, was_sent: bool, why: str) -> None:
    refusal = refusal_of_failed(failure)
    assert (refusal.is_path_failure, refusal.was_sent) == (True, was_sent), why


@pytest.mark.parametrize(
    ("waits", "why"),
    [
        (False, TOO_SLOW),
        # it was told to name keys, of a statement that named one
        (True, STILL_WAITED),
    ],
)
def test_what_a_peer_did_when_the_time_was_over(waits: bool, why: str) -> None:
    refusal = refusal_of_failed(StillWorking(), waits=waits)
    assert (refusal.why, refusal.is_path_failure) == (why, False)


def refusal_of_failed(failure: Exception, *, waits: bool = False) -> ForwardRefused:
    """Of a forward whose request ends in a failure."""

    class Failing(PeerClient):
        async def request(self, *_: object, **__: object) -> Response:
            raise failure

    async def story() -> ForwardRefused:
        forwarder = Forwarder(Failing({}), open_ms=60_000, probe_timeout_ms=10)
        peer = NodeInfo(node_id=NodeId("a"), public="p", internal="i", peer="a:1", incarnation="x")
        read = ForwardedRead(body=b"", partition=0, table="T-1", timeout_ms=100, waits=waits)
        with pytest.raises(ForwardRefused) as caught:
            await forwarder.read(peer, read, ArrivingRows())
        await forwarder.close()
        return caught.value

    return asyncio.run(story())
