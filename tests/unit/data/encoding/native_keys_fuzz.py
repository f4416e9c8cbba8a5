"""Random keys and rows into the compiled lookup: what it answers must be what Python answers.

`native_fuzz` runs it, too, with a build that has sanitizers.
"""

from __future__ import annotations

import random
from typing import Final
from unittest import mock

import msgspec
from tests.unit.data.rows import table

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import (
    UnfitKey,
    encode_key,
    parse_store_key,
    partition_of,
    store_key,
)
from standpipe.data.encoding.stored_rows import DamagedRow, pack_row
from standpipe.data.query import literal_lookup
from standpipe.data.query.partition_keys import PartitionKeys, keys_by_partition
from standpipe.data.query.pull import lookup_keys
from standpipe.model import Column, Source
from standpipe.sql.plans import PullPlan

#: type of a key -> its number in C
KINDS: Final = {"STRING": 0, "BIGINT": 1, "INTEGER": 2}
BODY_PIECES: Final = (
    b"'",
    b"'",
    b"=",
    b"= ",
    b"=-",
    b"0",
    b"7",
    b"2147483647",
    b"9223372036854775807",
    b"a",
    b"N0012345",
    b'"',
    b"\\",
    b"\0",
    b"\x7f",
    b"\x80",
    b"x" * 250,
)
PIECES: Final = ("a", "é", "💧", '"', "\\", "\n", "\0", "\x7f", "\ud800", "long" * 130, "N0012345")


def table_of(type_: str) -> Source:
    columns = (Column(name="K", type=type_, is_key=True), Column(name="V", type="BIGINT"))
    return msgspec.structs.replace(table(), columns=columns)


TABLES: Final = {type_: table_of(type_) for type_ in KINDS}


def plan_of(type_: str, values: list[object], partitions: int = 1, added: int = 0) -> PullPlan:
    """`added`: how many columns the table got in place."""
    source = msgspec.structs.replace(TABLES[type_], partitions=partitions)
    if added:
        more = tuple(Column(name=f"A{number}", type="BIGINT") for number in range(added))
        source = msgspec.structs.replace(source, columns=(*source.columns, *more), columns_first=1)
    keys = tuple((value,) for value in values)
    return PullPlan(source=source, keys=keys, schema="", column_names=(), column_types=())


class PythonStore:
    """`data.query.pull.ReadView` of some rows."""

    def __init__(self, rows: dict[bytes, bytes]) -> None:
        self.get = rows.get

    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        raise AssertionError("no lookup of keys scans")


def partitioned_alike(type_: str, values: list[object], partitions: int) -> bool:
    """Whether they were taken. Asserts that Python has the same partitions and keys."""
    plan = plan_of(type_, values, partitions)
    found = native.keys_by_partition(plan.keys, KINDS[type_], partitions)
    if found is None:
        return False
    with mock.patch.object(native, "_native", None):
        slow = keys_by_partition(plan)
    assert {number: keys for number, (keys, _) in found.items()} == {
        number: list(asked.keys) for number, asked in slow.items()
    }
    for keys, stored in found.values():
        assert stored == [store_key(key, (type_,)) for key in keys]
    return True


def spliced_alike(
    type_: str, values: list[object], columns: list[bytes | None], own: int = 0, added: int = 0
) -> bool:
    """Whether the rows were spliced; `columns`: of the first keys; `own`: how many of them were
    added, of `added` in the table. Asserts that Python splices them so, too."""
    plan = plan_of(type_, values, 1, added)
    try:
        stored = [store_key(key, (type_,)) for key in plan.keys]
    except (UnfitKey, UnicodeEncodeError):
        return False
    rows = {
        key: pack_row(each, 5, b"", own)
        for key, each in zip(stored, columns, strict=False)
        if each is not None
    }
    found = native.spliced(stored, list(map(rows.get, stored)), KINDS[type_], added)
    if found is None:
        return False
    with mock.patch.object(native, "_native", None):
        assert found == lookup_keys(plan, PythonStore(rows), PartitionKeys(plan.keys))
    return True


def cut_alike(body: bytes) -> bool:
    """Whether its literal was cut out. Asserts that Python cuts out the same one, or none."""
    found = literal_lookup.cut(b"mark", body)
    assert native.cut(b"mark", body) == found
    with mock.patch.object(native, "_native", None):
        assert literal_lookup.cut(b"mark", body) == found
    place = literal_lookup.place_in(body)
    if place is None or found is None:
        assert place is found
        return False
    literal, others = body[place.begin : place.end], body[: place.begin] + body[place.end :]
    assert found == b"mark" + others
    if place.is_text:
        assert others.count(b"'") == 2
    else:
        assert str(int(literal)).encode() == literal
    return True


def known_alike(learnt: bytes, message: bytes, partitions: int, kind: str = "STRING") -> bool:
    """Whether the message is known once another was. Asserts that Python knows the same."""
    frame = literal_lookup.cut(b"", learnt)
    entry = literal_lookup.KnownLiteral(len(learnt), KINDS[kind], partitions, "its frame")
    known = {} if frame is None else {frame: entry}
    found = native.known_literal(known, b"", message)
    assert literal_lookup.known_literal(known, b"", message) == found
    with mock.patch.object(native, "_native", None):
        assert literal_lookup.known_literal(known, b"", message) == found
    if found is None:
        return False
    meaning, number, key = found
    value = parse_store_key(key, (kind,), 0)[0][0]
    raw = encode_key((value,), TABLES[kind].key_columns, "KAFKA", ",")
    assert raw is not None
    assert (meaning, number) == ("its frame", partition_of(raw, partitions))
    place = literal_lookup.place_in(message)
    assert place is not None
    begin = place.begin - (not place.is_text and message[place.begin - 1 : place.begin] == b"-")
    assert str(value) == message[begin : place.end].decode()
    return True


def part_alike(
    message: bytes,
    now_s: float,
    held: literal_lookup.HeldPart | None,
    causes: tuple[object, ...] = (),
) -> tuple[bool, bool] | None:
    """Whether its partition is known as of now, and as of another ms; None: the message is not.
    Asserts that Python says so, too."""
    place, frame = literal_lookup.place_in(message), literal_lookup.cut(b"", message)
    if place is None or frame is None:
        return None
    kind = KINDS["STRING" if place.is_text else "BIGINT"]
    of_all = None if held is None else {0: held}
    known = {frame: literal_lookup.KnownLiteral(0, kind, 1, "its frame", of_all)}
    found = native.known_part(known, b"", message, now_s, *causes)
    assert literal_lookup.known_part(known, b"", message, now_s, *causes) == found
    with mock.patch.object(native, "_native", None):
        assert literal_lookup.known_part(known, b"", message, now_s, *causes) == found
        literal = literal_lookup.known_literal(known, b"", message)
    if found is None:
        assert literal is None
        return None
    assert found[:3] == literal
    assert found[3] is None or (held is not None and found[3] is held.part)
    assert found[4] is None or found[4] is held
    return found[3] is not None, found[4] is not None


def held_by(chance: random.Random, now_s: float) -> literal_lookup.HeldPart:
    """Often as it is to be."""
    front = chance.choice([b"", b"12345678", b"12345678", b"12345678", chance.randbytes(8)])
    page = chance.choice([b"12345678", bytearray(b"12345678 and more"), b"1234567", b""])
    at_ms = int(now_s * 1000) + chance.choice([0, 0, 0, 1, -1, 2**62])
    return literal_lookup.HeldPart("its part", at_ms, page, front, chance.choice([(), (KINDS,)]))


def response_alike(key: bytes, stored: bytes, kind: str = "STRING", added: int = 0) -> bool:
    """Whether it was made. Asserts that Python makes the same one of a sound row."""
    is_text = kind == "STRING"
    around = literal_lookup.Around(b"HTTP/1.1 200 OK\r\nlength: ", b"\r\n\r\n[", b"]\n", 3, is_text)
    found = native.response(around, key, stored, added)
    assert added or native.compiled("response")(around, key, stored) == found  # type: ignore[misc]
    with mock.patch.object(native, "_native", None):
        try:
            slow = literal_lookup.response(around, key, stored, added)
        except DamagedRow:
            slow = None
    assert found in (slow, None)
    return found is not None


def value_by(chance: random.Random, type_: str) -> object:
    if type_ == "STRING":
        weights = [10, 5, 5, 1, 1, 1, 0.3, 1, 0.3, 0.3, 10]
        return "".join(chance.choices(PIECES, weights, k=chance.randint(0, 5)))
    bits = chance.choice([8, 31, 32, 33, 63, 64, 65]) if chance.random() < 0.2 else 31
    return chance.randint(-(2 ** (bits - 1)), 2 ** (bits - 1))


def damaged(chance: random.Random, row: bytes) -> bytes:
    """The row with a byte changed, or its end cut off."""
    if chance.random() < 0.5:
        return row[: chance.randrange(len(row))]
    spoiled = bytearray(row)
    spoiled[chance.randrange(len(row))] ^= chance.randint(1, 255)
    return bytes(spoiled)


def run(seed: int, count: int) -> tuple[int, int]:
    """How many lists were taken and how many refused; asserts that all were alike."""
    chance = random.Random(seed)
    alike: list[bool] = []
    for _ in range(count):
        type_ = chance.choice(sorted(KINDS))
        values = [value_by(chance, type_) for _ in range(chance.randrange(6))]
        alike.append(partitioned_alike(type_, values, chance.choice([1, 4, 1000])))
        columns = [
            chance.choice([None, b"[]", b"[1]", b'["x",null]', b"[" + chance.randbytes(9) + b"]"])
            for _ in values
        ]
        added = chance.choice([0, 0, 1, 3, 127])
        # C leaves rows with more columns than the table to Python, which then cuts JSON
        own = chance.randint(0, added)
        spliced_alike(type_, values, columns, own, added)
        pieces = chance.choices(BODY_PIECES, k=chance.randint(0, 6))
        if cut_alike(b"".join(pieces)) and columns and columns[0]:
            stored = pack_row(columns[0], 5, b"", own)
            is_made = response_alike(b"a\0\1", stored, added=added)
            assert is_made or (columns[0] == b"[]" and own < added)
        begin, end, tail = b"head", b"x" * chance.choice([0, 9, 4_070, 4_100]), chance.randbytes(1)
        one, other = (b"'%b'" % b"".join(chance.choices(BODY_PIECES[2:], k=2)) for _ in "12")
        known_alike(begin + one + end, begin + other + end, chance.choice([1, 4, 1000]))
        numbers = [b"= %d" % value for value in [*values, 7, -7] if isinstance(value, int)]
        for number in numbers:
            known_alike(begin + numbers[0] + end, begin + number + end, 4, type_)
        known_alike(begin + one + end, begin + one + end[1:] + tail, 4)
        now_s = chance.choice([0.0, 1.7e9 + chance.random(), chance.uniform(0, 2e9)])
        for message in (begin + one + end, *numbers[:1]):
            held = chance.choice([None, *(held_by(chance, now_s) for _ in "123")])
            part_alike(message, now_s, held, chance.choice([(), (KINDS,), (KINDS,)]))
        refused = damaged(chance, pack_row(b"[1,2]", chance.randrange(2**40)))
        key = store_key((7,), ("BIGINT",)) if type_ != "STRING" else b"a\0\1"
        assert native.spliced([key], [refused], KINDS[type_]) is None
        assert not response_alike(key, refused, type_)
        if type_ != "STRING":
            assert response_alike(key, pack_row(b"[1,2]", 5), type_)
    return sum(alike), count - sum(alike)
