"""Large answers: only the slow path counts the bytes of answers that are not sent yet, so no
shorter way sends them. Clients that read nothing could fill a worker's memory with the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.node.worker.pull.known.test_frames import LINES, Nodes, learnt, one, same_id
from tests.unit.node.worker.pull.known.test_frames_messages import message
from tests.unit.node.worker.pull.known.test_statements import ACCEPT, FORM
from tests.unit.node.worker.pull.test_fast_many import by_slow_path, run
from tests.unit.node.workers import KEYS, body_of

from standpipe.data.encoding import native
from standpipe.data.query.literal_lookup import LARGE_BYTES
from standpipe.node.worker.request.answer_pieces import PIECE_BYTES


def test_large_is_what_is_sent_in_pieces() -> None:
    assert LARGE_BYTES == PIECE_BYTES


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("columns", ["*", "N", "N, ID", "N AS M"])
def test_a_large_row_is_left_to_the_slow_path(
    tmp_path: Path, columns: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.fast_path()
        usual = [body_of(one(KEYS[0], columns)), body_of(one(KEYS[1], columns))]
        node.slow_path.map.view.plans.plan(one("", columns), {})
        for each in usual:
            assert learnt(path, FORM, each), "a small one is answered"
        number = "1" * (LARGE_BYTES + 1)
        node.apply(0, value=b"[%b]" % number.encode())
        assert path.answer(FORM, usual[0]) is None
        assert path.answer(FORM, usual[1]), "the others, still"
        assert dict(node.metrics.counts["standpipe_pull_fast_path_faults"]) == {}

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_large_row_of_a_whole_message_is_left_to_the_slow_path(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path = node.fast_path()
        body = body_of(one(KEYS[1]))
        told = message("Host: a\r\n", body)
        assert learnt(path, LINES, body)
        assert path.learn_message(LINES, told, len(told) - len(body))
        assert path.answer_message(told)
        text = b'"%b"' % (b"x" * LARGE_BYTES)
        node.apply(1, value=b"[%b]" % text)
        assert path.answer_message(told) is None
        sent = same_id(await by_slow_path(node, FORM, ACCEPT, body))
        assert text.decode() in sent
        node.apply(1, value=b"[8]")
        assert path.answer_message(told), "known as before"

    run(tmp_path, story)
