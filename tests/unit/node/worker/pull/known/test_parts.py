"""What is known takes little, however long a statement makes an answer; its faults are counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from tests.unit.node.worker.pull.known.test_frames import LINES, Nodes, learnt, one
from tests.unit.node.worker.pull.test_fast_many import by_slow_path, in_list, run
from tests.unit.node.workers import KEYS, PARTITIONS, USERS, Worker, body_of

from standpipe.model import Column
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.known import parts as known_parts
from standpipe.node.worker.pull.known import statements as known_statements
from standpipe.node.worker.pull.known.parts import PART_BYTES, SCHEMA_CHARS_MAX, KnownParts
from standpipe.node.worker.request.head import Form


def with_a_column(node: Worker, type_: str) -> LookupFastPath:
    """Of a table that has, besides its key, one column, of this type."""
    source = changed(USERS, columns=(USERS.columns[0], Column(name="T", type=type_)))
    node.publish(["a"], {number: ["a"] for number in range(PARTITIONS)}, epoch=2, source=source)
    for number in range(PARTITIONS):
        node.apply(number, value=b"[null]")
    return node.fast_path()


def struct_of(chars: int) -> str:
    """A type of about so many characters."""
    return f"STRUCT<{', '.join(f'`F{number:05}` STRING' for number in range(chars // 17))}>"


def repeated(count: int) -> str:
    """A SELECT list that names the column so many times."""
    return ", ".join(f"T AS A{number}" for number in range(count))


def plan(path: LookupFastPath, text: str) -> None:
    path.map.view.plans.plan(text, {})


def is_known(path: LookupFastPath) -> bool:
    kinds = (path._frames.bodies, path._statements._statements, path._lists._lists)
    return any(known is not None for each in kinds for known in each.values())


@pytest.mark.parametrize(
    ("chars", "text", "is_kept"),
    [
        (600, one(KEYS[0], repeated(20)), True),
        (600, one(KEYS[0], repeated(30)), False),
        (10_000, one(KEYS[0], "ID, T"), True),
        (17_000, one(KEYS[0], "T"), False),
        (10_000, one(KEYS[0]), True),
        (17_000, one(KEYS[0]), False),
        (10_000, in_list(KEYS[0], KEYS[1]), True),
        (17_000, in_list(KEYS[0], KEYS[1]), False),
    ],
)
def test_an_answer_with_a_long_schema_has_no_frame(
    tmp_path: Path, chars: int, text: str, is_kept: bool
) -> None:
    """Each frame has it, and each of its partitions twice, as long as a client makes it."""

    async def story(nodes: Nodes) -> None:
        path = with_a_column(nodes["a"], struct_of(chars))
        plan(path, text)
        for _ in range(3):
            assert path.answer(LINES, body_of(text))
        assert is_known(path) is is_kept

    run(tmp_path, story)


def test_partitions_take_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were counted as if each had a kilobyte."""
    size_max = 100 * PART_BYTES
    monkeypatch.setattr(known_parts, "PARTS_BYTES_MAX", size_max)

    async def story(nodes: Nodes) -> None:
        path = with_a_column(nodes["a"], struct_of(600))
        most_bytes = met = 0
        for number in range(9):
            text = one(KEYS[0], repeated(10)) + " " * number
            plan(path, text)
            for key in (*KEYS.values(), *KEYS.values()):
                body = body_of(text.replace(KEYS[0], key))
                assert learnt(path, LINES, body)
            kept = [each.meaning for each in path._statements._statements.values() if each]
            parts = [part for frame in kept for part in frame.parts.values()]
            met = max(met, len(kept))
            layouts = [part.dated.before_row + part.around.middle for part in parts if part.dated]
            most_bytes = max(most_bytes, sum(map(len, layouts)))
        assert met > 1, "several are known at once"
        assert size_max // 2 < most_bytes <= size_max

    run(tmp_path, story)


def test_plans_of_statements_take_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_statements, "STATEMENTS_BYTES_MAX", 1_000_000)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, most = node.fast_path(), 0
        for number in range(20):
            columns = ", ".join(f"N + N AS A{place}" for place in range(70))
            text = one(KEYS[0], columns) + " " * number
            plan(path, text)
            assert learnt(path, LINES, body_of(text))
            most = max(most, len(path._statements))
        assert 1 < most < 5

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("_frames", one("x1")),
        ("_statements", one("x1", "N")),
        ("_statements", one("x1", more=" AND N < 9999;")),
        ("_lists", in_list("x1", "x2")),
    ],
)
@pytest.mark.parametrize("step", ["_known", "_part", "_opened"])
def test_a_fault_of_what_is_known_is_counted_and_the_slow_path_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, text: str, step: str
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of(text)
        plan(path, text)
        assert learnt(path, LINES, body)
        known: KnownParts = getattr(path, kind)
        for frame in known._frames_known():
            frame.leave_map()
        monkeypatch.setattr(known, step, broken)
        assert path.answer(LINES, body) is None
        assert dict(node.metrics.counts["standpipe_pull_fast_path_faults"]) == {
            "ZeroDivisionError": 1
        }
        head = {"accept": Form.LINES.value.decode()}
        assert (await by_slow_path(node, LINES, head, body)).startswith(b"HTTP/1.1 200")
        monkeypatch.undo()
        assert path.answer(LINES, body), "and the next one is answered"

    run(tmp_path, story)


@pytest.mark.parametrize("count", [1, 16])
def test_a_statement_is_learnt_in_few_parses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """One by one for each literal, a body with many properties held up the loop."""
    parses = list[bytes]()
    parse: Callable[[bytes], object] = known_statements.parse_lookup

    def noted(body: bytes) -> object:
        parses.append(body)
        return parse(body)

    async def story(nodes: Nodes) -> None:
        path = nodes["a"].fast_path()
        text = one("x1", "N", " AND N < 9999" * (count - 1) + ";")
        plan(path, text)
        body = json.dumps({"ksql": text, "properties": {"auto.a": "b"}}).encode()
        monkeypatch.setattr(known_statements, "parse_lookup", noted)
        assert learnt(path, LINES, body)
        assert is_known(path)
        assert 0 < len(parses) < 5

    run(tmp_path, story)


def test_the_limits_are_of_one_size() -> None:
    """A frame that may be kept must not drop all others with its first partitions."""
    assert 64 * (PART_BYTES + 2 * SCHEMA_CHARS_MAX) < known_parts.PARTS_BYTES_MAX
