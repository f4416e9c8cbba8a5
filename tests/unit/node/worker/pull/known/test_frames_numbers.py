"""Lookups by a whole number without quotes: the shortest way sends what the others send, or
nothing."""

from __future__ import annotations

import contextlib
import random
import re
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from tests.examples import examples
from tests.unit.node.worker.pull.known.test_frames import Nodes, by_frame, learnt, same_id
from tests.unit.node.worker.pull.known.test_frames_messages import (
    HEADS,
    SHORT,
    both_send_the_same,
    in_pieces,
    message,
)
from tests.unit.node.worker.pull.test_fast_many import by_slow_path, run
from tests.unit.node.workers import PARTITIONS, USERS, Worker, body_of, peer_format

from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query.literal_lookup import KINDS
from standpipe.data.query.pull import partition_of_key
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import StandpipeError
from standpipe.model import BatchId, Column, LeaseEpoch, Offset, Source
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.request.body import parse_lookup
from standpipe.node.worker.request.head import Form

ACCEPT = {"accept": Form.LINES.value.decode()}
FORM = peer_format(ACCEPT)
IS_USUAL = re.compile(r"-?[1-9][0-9]*|0", re.ASCII).fullmatch
INT_MAX, BIGINT_MAX = 2**31 - 1, 2**63 - 1
#: keys that have a row, where the column holds them
NUMBERS = (
    *range(-20, 120),
    *(each for bound in (INT_MAX, BIGINT_MAX) for each in (bound, -bound, -bound - 1)),
    INT_MAX + 1,
    -INT_MAX - 2,
    2**53 + 1,
)
#: what may stand for a number; the first two are learnt
LITERALS = (
    *("7", "-7", "0", "42", "-42", "119", "120", "-0", "+7", "007", "00", "-07", "- 7", "(7)"),
    *("7.0", "7.", ".7", "7e0", "7E1", "1e3", "7e", "7x", "7_0", "0x7", "x7", "7@", "7L", "٧"),
    *(
        f"{sign}{bound + more}"
        for bound in (INT_MAX, BIGINT_MAX)
        for sign in ("-", "", " ")
        for more in (0, 1)
    ),
    *("99999999999999999999", "-99999999999999999999", "9" * 40, str(2**53 + 1), str(-(2**53))),
    *(
        "'7'",
        "NULL",
        "",
        "7 + 1",
        "7 -1",
        "7--",
        "7-",
        "7 -",
        "-7-",
        "7/**/",
        "--7",
        "7 7",
        "7;7",
        "7 ",
        "7\t",
        "\t7",
    ),
    *("7 OR ID = 8", "7 AND ID = 7", "7 AND N = 7", "7 LIMIT 1", "CAST(7 AS BIGINT)", "N", "=7"),
)


def source_of(type_: str) -> Source:
    columns = (Column(name="ID", type=type_, is_key=True), *USERS.columns[1:])
    return changed(USERS, columns=columns)


@cache
def numbers_of(type_: str, partition: int) -> list[tuple[bytes, bytes]]:
    """The stored rows of a partition, whose keys are those of NUMBERS that the type holds."""
    if type_ not in ("INTEGER", "BIGINT"):
        return []
    return [
        (store_key((number,), (type_,)), pack_row(b"[%d]" % (number % 1000), 5))
        for number in NUMBERS
        if (type_ != "INTEGER" or -INT_MAX - 2 < number <= INT_MAX)
        and partition_of_key(source_of(type_), (number,)) == partition
    ]


def hold_numbers(node: Worker, type_: str) -> None:
    """A table with keys of the type, in place of the one with texts."""
    source = source_of(type_)
    node.planned = by(7) if type_ in ("INTEGER", "BIGINT") else "SELECT * FROM USERS;"
    placed = {number: ["a", "b"] for number in range(PARTITIONS)}
    node.publish(["a", "b"], placed, epoch=2, source=source)
    node.replicas.close()  # a process opens a store once
    for partition in range(PARTITIONS):
        identity = StoreIdentity(table_id="T1", generation=1, partition=partition)
        writer = StoreWriter(store_path(node.paths.state, identity.replica_id), identity)
        meta = StoreMeta(
            identity=identity,
            position=Offset(100),
            batch=BatchId(7),
            lease_epoch=LeaseEpoch(1),
            source_instant_ms=2**45,
        )
        writer.apply(numbers_of(type_, partition), [], meta)
        writer.close()


def by(literal: object) -> str:
    return f"SELECT * FROM USERS WHERE ID = {literal};"


async def sent_alike(node: Worker, path: LookupFastPath, body: bytes) -> tuple[str, bool]:
    """What the slow path sends, or its error, and whether the shortest way sends it, too. Asserts
    that the fast path and the shortest way send this or nothing."""
    try:
        expected = same_id(await by_slow_path(node, FORM, ACCEPT, body))
    except StandpipeError as error:
        expected = f"{error}"
        assert path.answer(FORM, body) is None
        assert by_frame(path, FORM, body) is None
        return expected, False
    fast, shortest = path.answer(FORM, body), by_frame(path, FORM, body)
    assert same_id(fast) in (expected, ""), body
    assert same_id(shortest) in (expected, ""), body
    assert dict(node.metrics.counts["standpipe_pull_fast_path_faults"]) == {}
    return expected, shortest is not None


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("type_", ["INTEGER", "BIGINT"])
def test_all_ways_send_the_same(
    tmp_path: Path, type_: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is learnt from two numbers holds for all that are written alike, and for no others."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    most = INT_MAX if type_ == "INTEGER" else BIGINT_MAX

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_numbers(node, type_)
        path, found = node.fast_path(), dict[str, str]()
        path.map.view.plans.plan(by(-7), {})
        for literal in ("7", "-7"):
            assert learnt(path, FORM, body_of(by(literal)))
        for literal in LITERALS:
            sent, is_short = await sent_alike(node, path, body_of(by(literal)))
            if is_short:
                found[literal] = sent
        assert set(found) == {
            each for each in LITERALS if IS_USUAL(each) and abs(int(each)) <= most
        }
        assert "[-7,993]" in found["-7"]
        assert f"[{most},{most % 1000}]" in found[str(most)]
        assert "[120," not in found["120"]

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("type_", ["INTEGER", "BIGINT", "STRING", "DOUBLE", "DECIMAL(9, 0)"])
def test_whatever_is_learnt(
    tmp_path: Path, type_: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement that can be planned is learnt if it may be, then met with other numbers."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_numbers(node, type_)
        path, count = node.fast_path(), 0
        for literal in LITERALS:
            with contextlib.suppress(StandpipeError):
                path.map.view.plans.plan(by(literal), {})
            learnt(path, FORM, body_of(by(literal)))
            await sent_alike(node, path, body_of(by(literal)))
            for other in ("42", "2147483648", "9223372036854775808"):
                body = body_of(by(literal.replace("7", other)))
                count += (await sent_alike(node, path, body))[1]
        assert bool(count) is (type_ in KINDS), "a text has its quotes"

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("odd", ["= 7-", "=7 -", "=  7-", "= 7 -"])
def test_a_minus_behind_its_digits_is_not_their_sign(
    tmp_path: Path, odd: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the 7, it has the bytes of a number with a sign. It is an error, in messages, too."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_numbers(node, "BIGINT")
        path, asked = node.fast_path(), body_of(by(7).replace("= 7", odd))
        known = body_of(by(7).replace("= 7", f"={' ' * odd.count(' ')}-7"))
        path.map.view.plans.plan(parse_lookup(known).text, {})
        assert learnt(path, FORM, known)
        head = message(SHORT, known).removesuffix(known)
        assert path.learn_message(FORM, head + known, len(head))
        assert path.answer_message(head + known)
        assert path.answer_message(head + asked) is None
        error, is_short = await sent_alike(node, path, asked)
        assert error.startswith("HTTP/1.1 400")
        assert not is_short

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (body_of(by(7)), None),
        (body_of(by(7), 5), None),
        (body_of("select * from USERS where ID=7"), None),
        (body_of("SELECT * FROM USERS WHERE ID =   7"), None),
        (body_of(by(7) + " "), None),
        (b'{"sql": "SELECT 1=1;", "ksql": "SELECT * FROM USERS WHERE ID = 7;"}', None),
        (b'{"ksql": "SELECT * FROM USERS WHERE ID = 7;", "ksql": null, "sql": "a=7"}', "another"),
        (b'{"ksql": "SELECT * FROM USERS WHERE ID = 7;", "a": "= 7"}', "another text"),
        (b'{"ksql": "SELECT * FROM USERS WHERE ID = 7;", "a": "\'"}', "a quote"),
        (b'{"ksql": "SELECT * FROM USERS WHERE ID \\u003d 7;", "a": "= 7"}', "another text"),
        (b'{"ksql": "SELECT * FROM USERS\\nWHERE ID = 7;"}', "a backslash"),
        (b'{"ksql": "SELECT * FROM USERS WHERE ID = 7;", "sessionVariables": {}}', "variables"),
        (body_of("SELECT * FROM USERS WHERE 7 = ID;"), "before the equals sign"),
        (body_of("SELECT * FROM USERS WHERE ID IN (7);"), "no equals sign"),
        (body_of("SELECT N FROM USERS WHERE ID = 7;"), "columns"),
        (body_of("SELECT * FROM USERS WHERE ID = 7 LIMIT 1;"), "a limit"),
        (body_of("SELECT * FROM USERS WHERE N = 1 AND ID = 7;"), "filtered"),
        (body_of("SELECT *, 7 AS A FROM USERS WHERE ID = 7;"), "two numbers"),
    ],
)
def test_which_bodies_have_a_frame(tmp_path: Path, body: bytes, why: str | None) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_numbers(node, "BIGINT")
        path = node.fast_path()
        with contextlib.suppress(StandpipeError):
            path.map.view.plans.plan(parse_lookup(body).text, {})
        learnt(path, FORM, body)
        _, is_short = await sent_alike(node, path, body)
        assert is_short is (why is None)
        _, is_short = await sent_alike(node, path, body.replace(b"7", b"-42"))
        assert not is_short, "its sign is in the frame"
        _, is_short = await sent_alike(node, path, body.replace(b"7", b"42"))
        assert is_short is (why is None), why

    run(tmp_path, story)


def message_of(literal: str, head: str = SHORT) -> bytes:
    return message(head, body_of(by(literal)))


def conversation(draw: random.Random) -> list[bytes]:
    """Messages of one connection, most of them like others of it."""
    head, made = draw.choice(HEADS), list[bytes]()
    for _ in range(draw.randrange(2, 12)):
        usual = str(draw.choice(NUMBERS) if draw.random() < 0.3 else draw.randrange(10, 40))
        literal = usual if draw.random() < 0.9 else draw.choice(LITERALS)
        made.append(message(head, body_of(by(literal), draw.choice([None, None, 5]))))
    return made


@pytest.mark.parametrize("is_compiled", [True, False])
def test_any_messages_in_any_pieces(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node, draw = nodes["a"], random.Random(7)
        hold_numbers(node, "BIGINT")
        plans = node.slow_path.map.view.plans
        for literal in LITERALS:
            with contextlib.suppress(StandpipeError):
                plans.plan(by(literal), {})
        told = [in_pieces(draw, conversation(draw)) for _ in range(examples(80))]
        sent, short = await both_send_the_same(node, *told)
        assert short > len(told) // 2, "the shortest way was taken"
        assert b"[39,39]" in sent

    run(tmp_path, story)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("digits", [b"4", b"", b"421", b"4 2", b"0", b"4.5", b"-42"])
def test_a_number_of_another_length_than_its_head_says(
    tmp_path: Path, digits: bytes, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends before its message does, or the next one begins in it: smuggling begins so."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_numbers(node, "BIGINT")
        known = message_of("42")
        odd = known.replace(b"= 42;", b"= %b;" % digits)
        _, short = await both_send_the_same(node, [*[known] * 4, odd, known, known])
        assert short == 1

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("asked", "is_known", "why"),
    [
        (message_of("43"), True, "another number"),
        (message_of("7"), False, "of another length"),
        (message_of("-7"), False, "with a sign"),
        (message_of("42", SHORT.lower()), False, "another head that means the same"),
        (message_of("42", SHORT + "X-Note: a=42\r\n"), False, "a head with a number"),
        (message_of("42", SHORT + "X-Note: '\r\n"), False, "a head with a quote"),
    ],
)
def test_what_is_known_after_a_message(
    tmp_path: Path, asked: bytes, is_known: bool, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_numbers(node, "BIGINT")
        node.slow_path.map.view.plans.plan(by(-7), {})
        _, short = await both_send_the_same(node, [*[message_of("42")] * 3, asked])
        assert bool(short) is is_known, why
        _, short = await both_send_the_same(node, [asked] * 4)
        assert bool(short) is ("quote" not in why), why

    run(tmp_path, story)
