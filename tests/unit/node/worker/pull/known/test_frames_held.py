"""What a frame holds of a partition: within a millisecond it is not looked at again, unless a cause
has changed, and then at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.node.worker.pull.known.test_frames import LINES, Nodes, learnt, one
from tests.unit.node.worker.pull.test_fast_many import StoppedClock, run
from tests.unit.node.workers import KEYS, PARTITIONS, Worker, body_of, page

from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.data.encoding import native
from standpipe.model import ReplicaId
from standpipe.node.worker.pull.fast_path import LookupFastPath

BODY = body_of(one(KEYS[1]))
HEAD = b"POST /query HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(BODY)


class Watched:
    """Which of the longer steps a fast path took for a lookup, while its clocks stand still."""

    def __init__(self, path: LookupFastPath, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.steps = path, list[str]()
        # in the middle of a millisecond: at its edge, a float may lack the last bit of the next one
        self._now_s = int(time.time() * 1000) / 1000 + 0.0005
        monkeypatch.setattr(time, "time", lambda: self._now_s)
        for name in ("_part", "_dated", "_opened"):
            monkeypatch.setattr(path._frames, name, self._noted(name))

    def _noted(self, name: str) -> Callable[..., object]:
        step = getattr(self.path._frames, name)

        def noted(*arguments: object) -> object:
            self.steps.append(name)
            return step(*arguments)

        return noted

    def pass_ms(self, count: int) -> None:
        self._now_s += count / 1000

    def of_a_lookup(self) -> list[str]:
        """It is answered, and as the other steps answer it."""
        self.steps.clear()
        found, taken = self.path.answer_message(HEAD + BODY), [*self.steps]
        known, self.path._frames.bodies = self.path._frames.bodies, {}
        assert found == self.path.answer(LINES, BODY), "the same, without any frame"
        self.path._frames.bodies = known
        return taken


def watched(node: Worker, monkeypatch: pytest.MonkeyPatch) -> Watched:
    path = node.fast_path()
    assert learnt(path, LINES, BODY)
    assert path.learn_message(LINES, HEAD + BODY, len(HEAD))
    found = Watched(path, monkeypatch)
    found.of_a_lookup()
    return found


def write_page(node: Worker) -> None:
    StatusWriter(page_path(node.paths.run, ReplicaId("T1", 1, 1))).write(page(100, 107))


def suspect_a_path(node: Worker) -> None:
    node.routes.forwarder.open_paths = frozenset({"nobody's"})


def move(node: Worker) -> None:
    node.publish(["a", "b"], {number: ["a"] for number in range(PARTITIONS)}, epoch=2)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("change", "steps", "why"),
    [
        (lambda _: None, [], "nothing"),
        (write_page, ["_part", "_opened"], "the page says something else"),
        (lambda node: node.hear(("b", 1, 109, 109)), ["_part", "_opened"], "a peer was heard"),
        (suspect_a_path, ["_part", "_opened"], "a path is suspected"),
        (move, ["_part", "_opened"], "there is another map"),
        (lambda node: node.replicas.close(), ["_part", "_opened"], "its page was closed"),
        (lambda node: node.apply(1, batch=8), ["_part", "_opened"], "it was closed for newer rows"),
    ],
)
def test_a_cause_is_seen_within_a_millisecond(
    tmp_path: Path,
    change: Callable[[Worker], object],
    steps: list[str],
    why: str,
    is_compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        lookup = watched(nodes["a"], monkeypatch)
        assert lookup.of_a_lookup() == []
        change(nodes["a"])
        assert lookup.of_a_lookup() == steps, why
        assert lookup.of_a_lookup() == []

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_in_another_millisecond_only_its_date_is_new(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        lookup = watched(node, monkeypatch)
        assert isinstance(node.clock, StoppedClock)
        for later_ms in (1, 2, 50, -7):  # a clock may be put back
            lookup.pass_ms(later_ms)
            node.clock.at_ms += later_ms
            assert lookup.of_a_lookup() == ["_dated"]
            assert lookup.of_a_lookup() == []
        lookup.pass_ms(1)
        write_page(node)
        assert lookup.of_a_lookup() == ["_part", "_opened"], "and a cause has changed, too"

    run(tmp_path, story)


def test_a_partition_that_cannot_be_held_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        lookup = watched(nodes["a"], monkeypatch)
        frame = next(each.meaning for each in lookup.path._frames.bodies.values() if each)
        assert [*frame.held] == [*frame.parts] == [1]
        nodes["a"].publish(["a", "b"], {number: ["b"] for number in range(PARTITIONS)}, epoch=2)
        assert lookup.path.answer_message(HEAD + BODY) is None
        assert not frame.held
        assert not frame.parts

    run(tmp_path, story)


def test_before_there_is_a_map_no_message_is_known(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path()
        assert learnt(path, LINES, BODY)
        assert path.learn_message(LINES, HEAD + BODY, len(HEAD))
        assert path.answer_message(HEAD + BODY)
        path.map.newest = None
        assert path.answer_message(HEAD + BODY) is None

    run(tmp_path, story)
