"""The fast path: what it leaves to the slow path, and which files a key passes on its way."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from tests.unit.node.workers import KEYS, Worker, body_of, page, select

from standpipe.adapters.files.turn_page import digest_of
from standpipe.data.encoding import native
from standpipe.node.worker.pull import fast_path
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.request.head import Form

LINES = RequestFormat(Form.LINES)
ONE = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
FAULTS = "standpipe_pull_fast_path_faults"

#: in the order in which a key passes them; the listener comes before, and the routing decision,
#: which is only made where its causes changed, lies behind the cache of routes
WALK = [
    "node/worker/pull/fast_path",
    "node/worker/request/cluster_view",
    "node/worker/request/body",
    "sql/lookup/plan_cache",
    "data/query/pull",
    "adapters/store/status_page",
    "node/worker/pull/route_cache",
    "adapters/store/reader",
    "data/encoding/stored_rows",
    "node/worker/request/answer",
]
#: the same for a literal in a frame that is known; where it is cut out in C, no file is passed
SHORT_WALK = [
    "node/worker/pull/fast_path",
    "node/worker/request/cluster_view",
    "node/worker/pull/known/frames",
    "adapters/store/status_page",
    "node/worker/pull/route_cache",
    "adapters/store/reader",
]
#: a body that is not known is noted, and learnt when it comes again
NOTED = [
    "node/worker/pull/known/frames",
    "node/worker/pull/known/lists",
    "node/worker/pull/known/statements",
    "node/worker/pull/known/parts",
    "data/query/list_lookup",
    "data/query/statement_lookup",
]
#: for what is not compiled
IN_PYTHON = [
    "data/query/literal_lookup",
    "data/encoding/native",
    "data/encoding/kafka_keys",
    "data/encoding/store_keys",
]
#: where the millisecond is another one
LABELLED = [
    "node/worker/pull/known/parts",
    "node/worker/request/dated_response",
    "node/worker/request/answer",
]
#: called for one property, one sum or one count
ON_THE_WAY = [
    "sql/plans",
    "sql/lookup/predicate",
    "sql/lookup/template",
    "model",
    "node/worker/pull/forward",
    "node/worker/request/answer_pieces",
    "control/liveness/lag",
    "data/replica/positions",
    "adapters/metrics",
    "adapters/clock",
]


def with_worker(folder: Path, story: Callable[[Worker], None]) -> None:
    async def whole() -> None:
        worker = Worker(folder, "a", {})
        worker.publish(["a", "b"], {0: ["a", "b"], 1: ["b"]})
        worker.hold(0, page())
        try:
            story(worker)
        finally:
            await worker.close()

    asyncio.run(whole())


def faults(worker: Worker) -> dict[str, int]:
    return dict(worker.metrics.counts[FAULTS])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no JSON"),
        (body_of("SELECT"), "no statement"),
        (body_of("SELECT * FROM NOBODY WHERE ID = 'a';"), "an unknown table"),
        (body_of("SELECT * FROM USERS WHERE ID = 7;"), "a key of another type"),
        (body_of("SELECT * FROM USERS EMIT CHANGES;"), "a push query"),
        (body_of("SELECT * FROM USERS;"), "a scan"),
        (body_of(select(0, 1)), "two keys, one of another node's partition"),
        (body_of(f"SELECT * FROM USERS WHERE ID = '{KEYS[1]}';"), "another node's partition"),
    ],
)
def test_what_it_leaves_to_the_slow_path(tmp_path: Path, body: bytes, why: str) -> None:
    def story(worker: Worker) -> None:
        assert worker.fast(ONE), "it works"
        assert worker.fast_path().answer(LINES, body) is None, why
        assert faults(worker) == {}, "nothing is wrong with the program"

    with_worker(tmp_path, story)


def test_costly_rows_are_left_to_the_slow_path(tmp_path: Path) -> None:
    """Also where the shape is known: from the second time on they were computed on the loop."""

    def story(worker: Worker) -> None:
        fast_path = worker.fast_path()
        text = f"SELECT REPLACE(ID, ID, ID) FROM USERS WHERE ID = '{KEYS[0]}';"
        plans = fast_path.map.view.plans
        plans.plan(text, {})
        known = plans.cached(text, {})
        assert known is not None
        assert known.has_costly_rows
        assert fast_path.answer(LINES, body_of(text)) is None
        assert faults(worker) == {}

    with_worker(tmp_path, story)


def test_a_refused_text_is_left_to_the_slow_path(tmp_path: Path) -> None:
    """Its shape may be known from another text of it."""

    def story(worker: Worker) -> None:
        fast_path = worker.fast_path()
        assert fast_path.answer(LINES, body_of(ONE))
        fast_path.in_hand.is_refusing = True
        assert fast_path.answer(LINES, body_of(ONE)), "another text is refused"
        until_ms = fast_path.in_hand._clock.boot_ms() + 60_000
        fast_path.in_hand._refused = {digest_of(ONE): until_ms}
        assert fast_path.answer(LINES, body_of(ONE)) is None
        assert faults(worker) == {}

    with_worker(tmp_path, story)


def test_a_fault_is_counted_and_left_to_the_slow_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> list[bytes]:
        raise ZeroDivisionError

    def story(worker: Worker) -> None:
        monkeypatch.setattr(fast_path, "lookup", broken)
        path = worker.fast_path()
        for _ in range(3):
            assert path.answer(LINES, body_of(ONE)) is None
        assert faults(worker) == {"ZeroDivisionError": 3}

    with_worker(tmp_path, story)
    assert capsys.readouterr().out.count("fault on the fast path") == 1, "logged once per kind"


def test_a_fault_of_the_layout_is_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise ZeroDivisionError

    def story(worker: Worker) -> None:
        monkeypatch.setattr(fast_path, "render_rows", broken)
        assert worker.fast_path().answer(LINES, body_of(ONE)) is None
        assert faults(worker) == {"ZeroDivisionError": 1}

    with_worker(tmp_path, story)
    assert "fault on the fast path" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("is_peer", "headers", "is_known", "why"),
    [
        (False, {}, True, "a client"),
        (False, {"accept": "text/plain"}, False, "no layout that it accepts"),
        (False, {"content-length": "100001"}, False, "too large"),
        (True, {}, True, "a peer, which has proved itself before its head is read"),
    ],
)
def test_which_heads_it_knows(
    tmp_path: Path, is_peer: bool, headers: dict[str, str], is_known: bool, why: str
) -> None:
    def story(worker: Worker) -> None:
        fast_path: LookupFastPath = worker.fast_path(is_peer=is_peer)
        given = {"content-length": "10", **headers}
        listed = [(name.encode(), value.encode()) for name, value in given.items()]
        assert (fast_path.classify(b"/query", listed) is not None) is is_known, why
        assert fast_path.classify(b"/ksql", listed) is None, "statements are for the slow path"

    with_worker(tmp_path, story)


def walk_of(folder: Path, *, is_known: bool) -> list[str]:
    """The files that a repeated query passes, in the order of their first call."""
    passed: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        _, is_ours, name = frame.f_code.co_filename.rpartition("/standpipe/")
        if event == "call" and is_ours:
            passed.append(name.removesuffix(".py"))

    def story(worker: Worker) -> None:
        fast_path, body = worker.fast_path(), body_of(ONE)
        for _ in range(2):  # a frame is learnt when it is met again
            assert fast_path.answer(LINES, body)
        if not is_known:
            fast_path._frames.forget()
            fast_path._frames.learn = lambda *_: None  # type: ignore[method-assign]
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            answer = fast_path.answer(LINES, body)
        finally:
            sys.setprofile(before)
        assert answer

    with_worker(folder, story)
    return list(dict.fromkeys(passed))


def test_the_walk_of_a_key(tmp_path: Path) -> None:
    """It passes these files and no others."""
    files = walk_of(tmp_path, is_known=False)
    assert set(files) <= {*WALK, *SHORT_WALK, *NOTED, *IN_PYTHON, *ON_THE_WAY}
    assert [name for name in files if name in WALK] == WALK


def test_the_walk_of_a_literal_in_a_known_frame(tmp_path: Path) -> None:
    files = walk_of(tmp_path, is_known=True)
    uncompiled = () if native.IS_COMPILED else (*IN_PYTHON, "data/encoding/stored_rows")
    assert set(files) <= {*SHORT_WALK, *uncompiled, *LABELLED, *ON_THE_WAY}
    assert [name for name in files if name in SHORT_WALK] == SHORT_WALK
