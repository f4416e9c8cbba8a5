"""Lookups with conditions and columns: known statements send what the others send, or nothing."""

from __future__ import annotations

import contextlib
import json
import random
import time
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from tests.examples import examples
from tests.unit.node.worker.pull.known.test_frames import Nodes, same_id
from tests.unit.node.worker.pull.known.test_frames_messages import both_send_the_same, message
from tests.unit.node.worker.pull.test_fast_many import by_slow_path, run
from tests.unit.node.workers import PARTITIONS, USERS, Worker, body_of, page, peer_format

from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query.pull import partition_of_key
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import StandpipeError
from standpipe.model import BatchId, Column, LeaseEpoch, Offset, Source
from standpipe.node.worker.pull.fast_path import EXPECTED, LookupFastPath
from standpipe.node.worker.pull.known import statements as known_statements
from standpipe.node.worker.request.head import Form
from standpipe.session_token import LEVEL_PROPERTY

ACCEPT = {"accept": Form.LINES.value.decode()}
FORM = peer_format(ACCEPT)
TYPES = {
    "N": "BIGINT",
    "S": "STRING",
    "I": "INTEGER",
    "B": "BOOLEAN",
    "D": "DOUBLE",
    "C": "DECIMAL(9, 2)",
    "A": "ARRAY<STRING>",
    "T": "DATE",
}
#: cells of each column: usual ones, null, and others that a topic may have
CELLS = {
    "N": ["0", "7", "-7", "null", "999999999999999999", "1000000000000000000", "7.0", '"7"', "-0"],
    "S": ['"a"', '"b"', '""', "null", '"\\u0061"', '"é"', '"a\\nb"', "7", '"A"', '"a "'],
    "I": ["1", "-1", "null", "2147483647", "99999999999", "1e2"],
    "B": ["true", "false", "null", '"true"'],
    "D": ["1.5", "null", "1", "1e3", "-0.0"],
    "C": ["1.50", "null", "1.5", "12345678901"],
    "A": ["[]", '["a","é"]', "null", "[1]"],
    "T": ["0", "null", "19000"],
}
SHOWN = ("*", "N", "ID, N", "S, ID, S AS S2", "N, ROWTIME", "B, I", "D, C, A", "T", "N + 1", "A, S")
CONDITIONS = (
    *("N > {n}", "N <= {n}", "N = {n}", "N <> {n}", "{n} < N", "N > -{n}", "I >= {n}", "D < {n}"),
    *("S = '{s}'", "S <> '{s}'", "S < '{s}'", "'{s}' >= S", "S IN ('{s}', '{s}')", "C > {n}"),
    *("N BETWEEN {n} AND {n}", "S NOT BETWEEN '{s}' AND '{s}'", "B", "N IS NULL", "ROWTIME > {n}"),
    *(
        "(N > {n} OR S = '{s}')",
        "NOT (N > {n})",
        "N > {n} + 1",
        "N > 1.5",
        "D > 1.5",
        "ID <> '{s}'",
    ),
)
NUMBERS = ("0", "1", "7", "42", "2147483647", "2147483648", "999999999999999999", str(2**63 - 1))
ODD_NUMBERS = ("007", "1.5", "9223372036854775808", "1e3", "+7", "-0", "x7", "7 ", "NULL")
TEXTS = ("a", "b", "", "A", "Zz 9", "7", "--", "/*", "${x}", "a ")
ODD_TEXTS = ("it''s", "é", 'a"', "\\", "a\n")


def source_of(type_: str, added: int = 0) -> Source:
    """`added`: how many of the columns it got in place."""
    columns = (
        Column(name="ID", type=type_, is_key=True),
        *(Column(name=name, type=each) for name, each in TYPES.items()),
    )
    source = changed(USERS, columns=columns)
    return changed(source, columns_first=len(TYPES) - added) if added else source


def keys_of(type_: str) -> list[object]:
    return list(range(-5, 35)) if type_ != "STRING" else [f"k{number}" for number in range(40)]


def hold_rows(node: Worker, type_: str, seed: int = 1, added: int = 0) -> None:
    """A table with all columns, in place of the one with two. `added`: how many of them it got in
    place; its rows have some of these, and some have one that is not known here yet."""
    source, draw = source_of(type_, added), random.Random(seed)
    node.planned = "SELECT * FROM USERS WHERE ID = " + ("'k';" if type_ == "STRING" else "7;")
    placed = {number: ["a", "b"] for number in range(PARTITIONS)}
    node.publish(["a", "b"], placed, epoch=2, source=source)
    node.replicas.close()  # a process opens a store once
    rows: dict[int, list[tuple[bytes, bytes]]] = {number: [] for number in range(PARTITIONS)}
    for key in keys_of(type_):
        cells = [
            cells[0] if draw.random() < 0.4 else draw.choice(cells) for cells in CELLS.values()
        ]
        own = draw.randint(0, added + 1) if added else 0
        cells = [*cells, '{"new":[1]}'][: len(cells) - added + own]
        array = f"[{','.join(cells)}]".encode()
        stored = pack_row(array, 5 + draw.randrange(3), b"", own)
        rows[partition_of_key(source, (key,))].append((store_key((key,), (type_,)), stored))
    for partition, pairs in rows.items():
        identity = StoreIdentity(table_id="T1", generation=1, partition=partition)
        writer = StoreWriter(store_path(node.paths.state, identity.replica_id), identity)
        meta = StoreMeta(
            identity=identity,
            position=Offset(100),
            batch=BatchId(7),
            lease_epoch=LeaseEpoch(1),
            source_instant_ms=2**45,
        )
        writer.apply(pairs, [], meta)
        writer.close()


def by_statement(path: LookupFastPath, body: bytes) -> bytes | None:
    try:
        return path._statements.answer(FORM, body, path.map.view, time.monotonic())
    except EXPECTED:  # as the fast path does
        return None


async def sent_alike(node: Worker, path: LookupFastPath, body: bytes) -> tuple[str, bool]:
    """What the slow path sends, or its error, and whether the known statement sends it, too.
    Asserts that it and the fast path send this or nothing."""
    try:
        expected = same_id(await by_slow_path(node, FORM, ACCEPT, body))
    except StandpipeError as error:
        expected = f"{error}"
        assert path.answer(FORM, body) is None, (body, expected)
        assert by_statement(path, body) is None, (body, expected)
        return expected, False
    fast, shortest = path.answer(FORM, body), by_statement(path, body)
    assert same_id(fast) in (expected, ""), body
    assert same_id(shortest) in (expected, ""), body
    assert dict(node.metrics.counts["standpipe_pull_fast_path_faults"]) == {}
    return expected, shortest is not None


def key_by(draw: random.Random, type_: str) -> str:
    key = draw.choice([*keys_of(type_), keys_of(type_)[0], 4711 if type_ != "STRING" else "nobody"])
    return f"'{key}'" if type_ == "STRING" else f"{key}"


def filled(draw: random.Random, text: str, odd: float = 0.0) -> str:
    """The text with a literal for each place, some of them odd ones."""
    for mark, usual, unusual in (("{n}", NUMBERS, ODD_NUMBERS), ("{s}", TEXTS, ODD_TEXTS)):
        while mark in text:
            text = text.replace(mark, draw.choice(unusual if draw.random() < odd else usual), 1)
    return text


def statement_by(draw: random.Random) -> str:
    """With places for its literals; {k} is the key."""
    conditions = ["ID = {k}", *draw.choices(CONDITIONS, k=draw.choice([0, 1, 1, 2, 3]))]
    draw.shuffle(conditions)
    return f"SELECT {draw.choice(SHOWN)} FROM USERS WHERE {' AND '.join(conditions)};"


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("type_", ["STRING", "BIGINT", "INTEGER"])
@pytest.mark.parametrize("added", [0, 3])
def test_all_ways_send_the_same(
    tmp_path: Path, added: int, type_: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random statements, learnt with some literals and met with others, odd ones among them."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node, draw = nodes["a"], random.Random(f"{type_}")
        hold_rows(node, type_, added=added)
        path, taken, shown = node.fast_path(), 0, 0
        for _ in range(examples(50)):
            statement = statement_by(draw)
            for turn in range(6):
                text = statement.replace("{k}", key_by(draw, type_))
                body = body_of(filled(draw, text, odd=0.0 if turn < 3 else 0.3))
                sent, is_taken = await sent_alike(node, path, body)
                taken += is_taken
                shown += is_taken and sent.count("[") > 3
        assert taken > examples(50), "the known statements were taken"
        assert shown > examples(50) // 8, "their rows, too"

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("text", "other", "why"),
    [
        ("N FROM USERS WHERE ID = 'k1';", "N FROM USERS WHERE ID = 'k2';", None),
        (
            "* FROM USERS WHERE ID = 'k1' AND N > 1;",
            "* FROM USERS WHERE ID = 'k2' AND N > 9;",
            None,
        ),
        (
            "S FROM USERS WHERE S <> 'a' AND ID = 'k1' AND N >= -5 AND N <= 9;",
            "S FROM USERS WHERE S <> 'k' AND ID = 'k3' AND N >= -77 AND N <= 123;",
            None,
        ),
        (
            "N FROM USERS WHERE ID = 'k1' AND D > 1.5;",
            "N FROM USERS WHERE ID = 'k2' AND D > 1.5;",
            "a slot that is not cut out",
        ),
        (
            "* FROM USERS WHERE ID = 'k1' AND N > 1;",
            "* FROM USERS WHERE ID = 'k1' AND N > 1.0;",
            "another kind of number",
        ),
        (
            "* FROM USERS WHERE ID = 'k1' AND N > 1;",
            "* FROM USERS WHERE ID = 'k1' AND N > -1;",
            "a sign is a part of the statement",
        ),
        (
            "* FROM USERS WHERE ID = 'k1' AND N > 1;",
            "* FROM USERS WHERE ID = 'o''clock' AND N > 1;",
            "a text that SQL writes in another way",
        ),
        (
            "N FROM USERS WHERE ID = 'k1' LIMIT 1;",
            "N FROM USERS WHERE ID = 'k2' LIMIT 1;",
            "a limit",
        ),
        (
            "REPLACE(S, ID, ID) FROM USERS WHERE ID = 'k1';",
            "REPLACE(S, ID, ID) FROM USERS WHERE ID = 'k2';",
            "rows that may take long",
        ),
        (
            "N FROM USERS WHERE ID IN ('k1', 'k2');",
            "N FROM USERS WHERE ID IN ('k3', 'k4');",
            "two keys",
        ),
        ("N FROM USERS WHERE N > 1 LIMIT 1;", "N FROM USERS WHERE N > 2 LIMIT 1;", "a scan"),
    ],
)
def test_which_statements_are_known(
    tmp_path: Path,
    text: str,
    other: str,
    why: str | None,
    is_compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_rows(node, "STRING")
        path = node.fast_path()
        for _ in range(3):
            await sent_alike(node, path, body_of(f"SELECT {text}"))
        _, is_known = await sent_alike(node, path, body_of(f"SELECT {other}"))
        assert is_known is (why is None), why

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"ksql": "SELECT N FROM USERS WHERE ID = \'k1\'"}', None),
        ('{"sql": "SELECT N FROM USERS WHERE ID = \'k1\'", "properties": {"a.b": 5}}', "an error"),
        (
            '{"sql": "SELECT N FROM USERS WHERE ID = \'k1\'", "properties": {"auto.a": 5}}',
            None,
        ),
        (
            '{"sql": "SELECT N FROM USERS WHERE ID = \'k1\'", "properties": {"auto.a": "a 5"}}',
            "a literal outside of the statement",
        ),
        (
            '{"sql": "SELECT N FROM USERS WHERE ID = \'k1\'", "sessionVariables": {"a": "b"}}',
            "variables",
        ),
        ('{"ksql": "SELECT N FROM USERS\\nWHERE ID = \'k1\'"}', "a backslash"),
        ('{"ksql": "SELECT N FROM USERS WHERE `ID` = \'k1\'"}', "a quoted name"),
    ],
)
def test_which_bodies_are_known(tmp_path: Path, body: str, why: str | None) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_rows(node, "STRING")
        path = node.fast_path()
        for _ in range(3):
            await sent_alike(node, path, body.encode())
        _, is_known = await sent_alike(node, path, body.replace("k1", "k2").encode())
        assert is_known is (why is None), why

    run(tmp_path, story)


def test_numbers_that_differ_drop_nobodys_frame(tmp_path: Path) -> None:
    """For a frame of one literal, each other number would be another frame."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_rows(node, "STRING")
        path = node.fast_path()
        for _ in range(2):
            for number in range(20):
                await sent_alike(
                    node, path, body_of(f"SELECT * FROM USERS WHERE ID = 'k1' AND N > {number};")
                )
        assert len(path._statements) == 1
        assert len(path._frames) == 0

    run(tmp_path, story)


def test_a_client_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_statements, "STATEMENTS_MAX", 3)
    monkeypatch.setattr(known_statements, "STATEMENT_MESSAGES_MAX", 3)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_rows(node, "STRING")
        path, body = node.fast_path(), body_of("SELECT N FROM USERS WHERE ID = 'k1';")
        for blanks in range(10):
            for _ in range(3):
                await sent_alike(node, path, body + b" " * blanks)
            head = f"POST /query HTTP/1.1\r\nx: {'y' * blanks}\r\n\r\n".encode()
            assert path.learn_message(FORM, head + body + b" " * blanks, len(head))
            assert len(path._statements) <= 3
            assert len(path._statements.messages) <= 3

    run(tmp_path, story)


def test_plans_of_statements_never_take_more_than_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the one that made the others go."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_rows(node, "STRING")
        path, body = node.fast_path(), body_of("SELECT N FROM USERS WHERE ID = 'k1';")
        kept: list[int] = []
        for blanks in range(9):
            for _ in range(3):
                await sent_alike(node, path, body + b" " * blanks)
            if not blanks:
                room = 2 * path._statements._plans_bytes
                monkeypatch.setattr(known_statements, "STATEMENTS_BYTES_MAX", room)
            kept.append(len(path._statements))
        assert kept == [1, 2, 1, 2, 1, 2, 1, 2, 1], "each takes as much as the others"

    run(tmp_path, story)


def test_a_change_is_seen_at_once(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_rows(node, "STRING")
        path, body = node.fast_path(), body_of("SELECT N FROM USERS WHERE ID = 'k1' AND N < 99;")
        for _ in range(3):
            await sent_alike(node, path, body)
        node.hold(partition_of_key(USERS, ("k1",)), page(100, 107))
        sent, is_known = await sent_alike(node, path, body)
        assert is_known
        assert "offset-lag: 7\r\n" in sent
        columns = (*USERS.columns[:1], Column(name="N", type="STRING"))
        placed = {number: ["a"] for number in range(PARTITIONS)}
        node.publish(["a", "b"], placed, epoch=3, source=changed(USERS, columns=columns))
        assert by_statement(path, body) is None, "N is no number now"

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_damaged_row_is_left_to_another_replica(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        path, body = node.fast_path(), body_of("SELECT N FROM USERS WHERE ID = 'x1' AND N < 9999;")
        for _ in range(3):
            await sent_alike(node, path, body)
        assert by_statement(path, body)
        number = partition_of_key(USERS, ("x1",))
        node.apply(number, more={"x1": pack_row(b"[7]", 5)[:-2] + b"9]"})
        assert path.answer(FORM, body) is None
        assert b"served-by: b" in await by_slow_path(node, FORM, ACCEPT, body)

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_whole_messages(tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of one connection, with other literals and of another length."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node, draw = nodes["a"], random.Random(7)
        hold_rows(node, "STRING")
        heads = ("Host: a\r\n", "Host: a\r\n", 'Host: a\r\nX-Note: "7"\r\n', "Host: a7\r\n")
        told: list[list[bytes]] = []
        for _ in range(examples(15)):
            statement, head = statement_by(draw), draw.choice(heads)
            told.append([])
            for turn in range(8):
                text = statement.replace("{k}", f"'k1{draw.randrange(10)}'")
                if draw.random() < 0.8:  # of one length, or its head differs
                    text = text.replace("{n}", f"{draw.randrange(10)}").replace("{s}", "a")
                text = filled(draw, text, odd=0.0 if turn < 5 else 0.3)
                with contextlib.suppress(StandpipeError):
                    node.slow_path.map.view.plans.plan(text, {})
                told[-1].append(message(head, body_of(text)))
        sent, short = await both_send_the_same(node, *told)
        assert short > len(told), "the shortest way was taken"
        assert sent

    run(tmp_path, story)


@pytest.mark.parametrize("number", ["1", "", "123", "1 2", "1.5", "' '"])
def test_a_literal_of_another_length_than_its_head_says(tmp_path: Path, number: str) -> None:
    """It ends before its message does, or the next one begins in it: smuggling begins so."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_rows(node, "STRING")
        text = "SELECT * FROM USERS WHERE ID = 'k1' AND N < 42;"
        node.slow_path.map.view.plans.plan(text, {})
        known = message("Host: a\r\n", body_of(text))
        odd = known.replace(b"< 42;", f"< {number};".encode())
        _, short = await both_send_the_same(node, [*[known] * 4, odd, known, known])
        assert short == 1

    run(tmp_path, story)


def test_a_session_has_no_statement(tmp_path: Path) -> None:
    """It would answer whatever the token says."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_rows(node, "STRING")
        path = node.fast_path()
        asked = {
            "ksql": "SELECT N FROM USERS WHERE ID = 'k1';",
            "streamsProperties": {LEVEL_PROPERTY: "session"},
        }
        for _ in range(3):
            path.answer(FORM, json.dumps(asked).encode())
        assert len(path._statements) == 0

    run(tmp_path, story)
