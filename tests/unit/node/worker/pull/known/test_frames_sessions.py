"""Lookups of sessions in the shortest way: each answer is that of the other ways, or none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.unit.node.worker.pull.known.test_frames import by_frame, format_of, same_id
from tests.unit.node.worker.pull.known.test_lists import by_list
from tests.unit.node.worker.pull.test_fast_many import by_slow_path
from tests.unit.node.worker.pull.test_session_read import at, body_with, run, seen_in, token
from tests.unit.node.worker.pull.test_session_read_writes import hold, wrote
from tests.unit.node.worker.pull.test_slow_path import Nodes
from tests.unit.node.workers import KEYS, Worker

from standpipe.data.encoding import native
from standpipe.data.query.literal_lookup import cut, place_in
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.known import frames
from standpipe.node.worker.request.head import Form
from standpipe.session_token import LEVEL_PROPERTY

ALL_KEYS = {number: ["a"] for number in range(4)}
ONE = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
NOBODY = ONE.replace(KEYS[0], "nobody")
#: until a frame is met for the first time again, as often as that is asked for
ASKED = 2 * frames.ASKED_MIN


def undated(answer: bytes) -> str:
    """Without lags, which grow meanwhile."""
    return re.sub(r"lag-ms: \d+", "", same_id(answer))


def learn(path: LookupFastPath, body: bytes, form: Form = Form.LINES) -> int:
    """Ask until it is known; how often."""
    before = len(path._frames)
    for number in range(1, 2 * ASKED):
        assert path.answer(format_of(form), body)
        if len(path._frames) > before:
            return number
    raise AssertionError


async def check(node: Worker, path: LookupFastPath, body: bytes, form: Form = Form.LINES) -> bytes:
    """What the frame sends, which is what the slow path sends."""
    head = {"accept": form.value.decode()}
    slow = await by_slow_path(node, format_of(form), head, body)
    found = by_frame(path, format_of(form), body)
    assert found is not None
    assert undated(found) == undated(slow)
    assert dict(node.metrics.counts["standpipe_pull_fast_path_faults"]) == {}
    return found


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("form", list(Form))
def test_all_ways_send_the_same(
    tmp_path: Path, form: Form, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold(nodes, 7, names="a")
        node.slow_path.map.view.plans.plan(ONE, {})
        path = node.fast_path()
        learn(path, body_with(ONE, token(7)), form)
        for key in (*KEYS.values(), "nobody"):
            body = body_with(ONE.replace(KEYS[0], key), token(7))
            answer = await check(node, path, body, form)
            assert b"consistencyToken" in answer

    run(tmp_path, story, ALL_KEYS)


def test_a_token_is_a_part_of_its_frame(tmp_path: Path) -> None:
    """So what is known of one token says nothing of another."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold(nodes, 7, names="a")
        node.slow_path.map.view.plans.plan(ONE, {})
        path = node.fast_path()
        learn(path, body_with(ONE, token(7)))
        for other in (token(8), token(7, 2), token(6), "", None):
            assert by_frame(path, format_of(Form.LINES), body_with(ONE, other)) is None
        learn(path, body_with(ONE, token(6)))
        answer = await check(node, path, body_with(ONE, token(6)))
        last = json.loads(answer.splitlines()[-1])["consistencyToken"]
        assert seen_in(last).batch == 7, "what the session has seen now"

    run(tmp_path, story, ALL_KEYS)


def test_newer_rows_make_another_token(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node, body = nodes["a"], body_with(ONE, token(7))
        hold(nodes, 7, names="a")
        node.slow_path.map.view.plans.plan(ONE, {})
        path = node.fast_path()
        learn(path, body)
        hold(nodes, 8, names="a")
        last = json.loads((await check(node, path, body)).splitlines()[-1])["consistencyToken"]
        assert seen_in(last).batch == 8
        body = body_with(NOBODY, token(7))
        last = json.loads((await check(node, path, body)).splitlines()[-1])["consistencyToken"]
        assert seen_in(last).batch == 8, "no row is an answer, too"

    run(tmp_path, story, ALL_KEYS)


def test_rows_that_do_not_cover_a_known_token(tmp_path: Path) -> None:
    """A store that was made again from an older copy: the read is left to who can wait."""

    async def story(nodes: Nodes) -> None:
        node, body = nodes["a"], body_with(ONE, token(7))
        hold(nodes, 7, names="a")
        node.slow_path.map.view.plans.plan(ONE, {})
        path = node.fast_path()
        learn(path, body)
        for number in range(4):
            node.hold(number, at(6))
        assert by_frame(path, format_of(Form.LINES), body) is None
        assert path.answer(format_of(Form.LINES), body) is None

    run(tmp_path, story, ALL_KEYS)


def test_a_frame_is_learnt_once_it_pays(tmp_path: Path) -> None:
    """Each batch makes other tokens."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold(nodes, 7, names="a")
        node.slow_path.map.view.plans.plan(ONE, {})
        path = node.fast_path()
        assert learn(path, body_with(ONE, token(7))) > frames.ASKED_MIN
        for batch in range(7):
            for _ in range(2):
                assert path.answer(format_of(Form.LINES), body_with(ONE, token(batch)))
        assert len(path._frames) == 1

    run(tmp_path, story, ALL_KEYS)


def test_what_a_session_wrote_has_no_frame(tmp_path: Path) -> None:
    """Rows may cover it without a new batch, and a page or a file says so."""

    async def story(nodes: Nodes) -> None:
        node, body = nodes["a"], body_with(ONE, wrote(6))
        hold(nodes, 7, names="a")
        node.slow_path.map.view.plans.plan(ONE, {})
        path = node.fast_path()
        for _ in range(2 * ASKED):
            path.answer(format_of(Form.LINES), body)
        assert by_frame(path, format_of(Form.LINES), body) is None

    run(tmp_path, story, ALL_KEYS)


@pytest.mark.parametrize("given", [token(7), token(12_345), wrote(6), ""])
def test_the_key_is_found_beside_a_token(given: str) -> None:
    """A number stands behind the last equals sign, which a token has none of."""
    body = body_with("SELECT * FROM USERS WHERE ID = 7;", given)
    place = place_in(body)
    assert place is not None
    assert body[place.begin : place.end + 1] == b"7;"
    assert cut(b"", body) == body.replace(b"7;", b";")


def test_a_snapshot_of_a_list(tmp_path: Path) -> None:
    """Known while its partitions are of one batch."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold(nodes, 7, names="a")
        names = ", ".join(f"'{key}'" for key in KEYS.values())
        text = f"SELECT * FROM USERS WHERE ID IN ({names});"
        properties = {LEVEL_PROPERTY: "snapshot"}
        body = json.dumps({"ksql": text, "streamsProperties": properties}).encode()
        node.slow_path.map.view.plans.plan(text, {})
        path, counts = node.fast_path(), node.metrics.counts["standpipe_snapshot_reads"]
        for _ in range(3):
            assert path.answer(format_of(Form.LINES), body)
        before = counts["1"]
        known = by_list(path, Form.LINES, body)
        head = {"accept": Form.LINES.value.decode()}
        slow = await by_slow_path(node, format_of(Form.LINES), head, body)
        assert known is not None
        assert undated(known) == undated(slow)
        assert counts["1"] == before + 2, "each way counts it"
        node.hold(1, at(8))
        assert by_list(path, Form.LINES, body) is None, "its parts are of two batches"
        assert path.answer(format_of(Form.LINES), body) is None
        for number in range(4):
            node.hold(number, at(8))
        assert by_list(path, Form.LINES, body) is not None

    run(tmp_path, story, ALL_KEYS)
