"""Random lists of rows into the compiled loops that place them, show windows and fill columns.

What these make must be what Python makes. `native_fuzz` runs it, too, with a build that has
sanitizers, where pyarrow is not asked: what it does is not ours.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any, Final
from unittest import mock

import msgspec
from tests.unit.data.encoding.native_keys_fuzz import (
    KINDS,
    TABLES,
    damaged,
    plan_of,
    value_by,
)
from tests.unit.data.rows import HOUR_MS, session, table, tumbling

from standpipe.data.encoding import native
from standpipe.data.encoding.answer_values import reader_of
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import DamagedRow, pack_row
from standpipe.data.query import pull
from standpipe.data.query.partition_keys import keys_by_partition, usual_values_by_partition
from standpipe.data.query.pull import cell_json
from standpipe.errors import ServerError
from standpipe.model import Column, Source
from standpipe.node.worker.query_batch.reads import _placed
from standpipe.sql.plans import PullPlan

Pairs = list[tuple[bytes, bytes]]
Row = list[Any]

TYPES: Final = ("STRING", "BIGINT", "INTEGER", "DOUBLE", "BOOLEAN")
ARROW_KINDS: Final = {name: number for number, name in enumerate(TYPES)}
#: by type: usual cells, and others
CELLS: Final = {
    "STRING": (['""', '"a"', '"é💧"', "null", '"long long"'], ['"\\n"', "7", "[]", "true", "{}"]),
    "BIGINT": (["0", "-7", "999999999999999999", "null"], ["1.0", "-0", '"7"', "1e3", str(2**63)]),
    "INTEGER": (["0", "-7", "2147483647", "null"], ["2147483648", "-0", "[7]", str(2**62 * 4)]),
    "DOUBLE": (
        ["0.0", "-1.5", "1e3", "-0.0", "7", "123456789012345678901", "1e-320", "null"],
        ['"NaN"', "-0", "1e999", "0." + "1" * 40, "true", "[]"],
    ),
    "BOOLEAN": (["true", "false", "null"], ["1", '"true"', "tru", ""]),
}


def values_taken_alike(type_: str, values: Sequence[object], partitions: int) -> bool:
    """Whether values were taken. Asserts that Python has the same keys of them."""
    source = msgspec.structs.replace(TABLES[type_], partitions=partitions)
    found = usual_values_by_partition(source, values)
    if found is None:
        return False
    with mock.patch.object(native, "_native", None):
        slow = keys_by_partition(plan_of(type_, [*values], partitions))
    assert list(found) == list(slow)
    for number, asked in found.items():
        assert asked.keys == slow[number].keys
        assert asked.store_keys == [store_key(key, (type_,)) for key in asked.keys]
        assert asked.kind == KINDS[type_]
    return True


def placed_alike(type_: str, values: Sequence[object], rows: Sequence[bytes]) -> bool:
    """Whether rows were placed. Asserts that Python places them so, too."""
    keys = [(value,) for value in values]
    found = dict.fromkeys(values, b"null")
    is_placed = native.placed(found, keys, rows, KINDS[type_])
    slow = dict.fromkeys(values, b"null")
    try:
        slow.update(_placed(keys, rows))
    except ServerError:
        assert not is_placed
        return False
    if is_placed:
        assert found == slow
        assert [*found] == [*slow]
    return bool(is_placed)


def windowed(*, is_session: bool, added: int) -> Source:
    source = table(window=session(gap_ms=5000) if is_session else tumbling())
    if not added:
        return source
    more = tuple(Column(name=f"A{number}", type="BIGINT") for number in range(added))
    return msgspec.structs.replace(source, columns=(*source.columns, *more), columns_first=1)


def windows_alike(plan: PullPlan, pairs: Pairs) -> bool:
    """Whether the windows were shown. Asserts that Python shows them so, too."""
    (key,) = plan.keys
    head = [cell_json(value) for value in key]
    found = pull._whole_windows(plan, head, pairs)
    try:
        slow = pull._windows_by_one(plan, key, head, pairs)
    except (DamagedRow, struct.error, msgspec.MsgspecError, IndexError):
        assert found is None
        return False
    assert found in (None, slow)
    return found is not None


def column_of(type_: str, parts: tuple[int, bytes | None, bytes | None, bytes], count: int) -> Row:
    """The values of a column, read as the format of Arrow says."""
    nulls, bits, offsets, data = parts
    is_there = [bits is None or bool(bits[n // 8] >> n % 8 & 1) for n in range(count)]
    assert nulls == is_there.count(False)
    assert bits is None or (nulls and len(bits) == (count + 7) // 8)
    if type_ == "STRING":
        assert offsets is not None
        ends = struct.unpack(f"<{count + 1}i", offsets)
        assert (ends[0], ends[-1]) == (0, len(data))
        values: Row = [data[ends[n] : ends[n + 1]].decode() for n in range(count)]
    elif type_ == "BOOLEAN":
        assert len(data) == (count + 7) // 8
        values = [bool(data[n // 8] >> n % 8 & 1) for n in range(count)]
    else:
        letter = {"BIGINT": "q", "INTEGER": "i", "DOUBLE": "d"}[type_]
        values = list(struct.unpack(f"<{count}{letter}", data))
    assert type_ == "STRING" or offsets is None
    assert not any(value for value, there in zip(values, is_there, strict=True) if not there)
    return [value if there else None for value, there in zip(values, is_there, strict=True)]


def columns_alike(types: Sequence[str], rows: Sequence[bytes]) -> bool:
    """Whether columns were filled. Asserts that Python reads the same values."""
    found = native.arrow_columns(rows, bytes(ARROW_KINDS[each] for each in types))
    if found is None:
        return False
    slow = reader_of(tuple(types)).rows(rows)
    assert len(found) == len(types)
    columns = [column_of(of, each, len(rows)) for of, each in zip(types, found, strict=True)]
    expected = [list(each) for each in zip(*slow, strict=True)] if rows else [[] for _ in types]
    assert repr(columns) == repr(expected)  # 0.0 == -0.0
    return True


def rows_by(chance: random.Random, types: Sequence[str], odd: float) -> list[bytes]:
    """Rows of some cells, now and then an odd one, a cell too many, a byte changed."""
    rows: list[bytes] = []
    for _ in range(chance.randrange(20)):
        cells = [chance.choice(CELLS[of][chance.random() < odd]) for of in types]
        if chance.random() < odd / 4:
            cells.append("1")
        row = f"[{','.join(cells)}]".encode()
        rows.append(damaged(chance, row) if chance.random() < odd / 4 else row)
    return rows


def pairs_by(chance: random.Random, source: Source, added: int) -> Pairs:
    is_session = source.window is not None and source.window.kind == "SESSION"
    usual = [0, HOUR_MS, 7 * HOUR_MS, -HOUR_MS]
    pairs: Pairs = []
    odd = chance.choice([0.0, 0.0, 0.1])
    for _ in range(chance.randrange(6)):
        start_ms = chance.choice([*usual, 2**63 - 5] if odd else usual)
        window_ms = (start_ms, min(start_ms + chance.randrange(9), 2**63 - 1))
        key = store_key(("a",), ("STRING",), *window_ms[: 1 + is_session])
        full = b"a" * 600 if chance.random() < odd else b""
        own = chance.randint(0, added)
        arrays = [b"[1]", b'["x",null]', b"[]", b"7", b""]
        array = chance.choice(arrays if odd else arrays[:2])
        row = pack_row(array, 5, full, own)
        if chance.random() < odd:
            row = damaged(chance, row)
        if chance.random() < odd:
            key = key[: chance.randrange(len(key))]
        pairs.append((key, row))
    return pairs


def placed_by(chance: random.Random, type_: str) -> bool:
    values = [*dict.fromkeys(value_by(chance, type_) for _ in range(chance.randrange(6)))]
    if type_ != "STRING" or chance.random() < 0.7:
        values = [value for value in values if "\ud800" not in str(value)]
    odd = chance.choice([0.0, 0.0, 0.3])
    rows: list[bytes] = []
    for value in values:
        if chance.random() < 0.3 or "\ud800" in str(value):
            continue
        row = b"[%b%b]" % (cell_json(value), chance.choice([b"", b",1", b',"x",null']))
        rows.append(damaged(chance, row) if chance.random() < odd else row)
    if chance.random() < odd:
        chance.shuffle(rows)
    if any("\ud800" in str(value) for value in values):
        assert native.placed({}, [("\ud800",)], [b"[1]"], 0) is None
        return False
    values_taken_alike(type_, values, chance.choice([1, 4, 1000]))
    return placed_alike(type_, values, rows)


def run(seed: int, count: int) -> tuple[int, int]:
    """How many lists were taken and how many refused; asserts that all were alike."""
    chance = random.Random(seed)
    alike: list[bool] = []
    for _ in range(count):
        alike.append(placed_by(chance, chance.choice(sorted(KINDS))))
        added = chance.choice([0, 0, 1, 3])
        source = windowed(is_session=chance.random() < 0.3, added=added)
        more: list[dict[str, Any]] = [
            {},
            {},
            {"window_end_low_ms": HOUR_MS},
            {"projection": (1, 0)},
        ]
        plan = PullPlan(
            source=source,
            keys=(("a",),),
            schema="",
            column_names=(),
            column_types=(),
            **chance.choice(more),
        )
        alike.append(windows_alike(plan, pairs_by(chance, source, added)))
        types = chance.choices(TYPES, k=chance.randint(1, 5))
        alike.append(columns_alike(types, rows_by(chance, types, chance.choice([0.0, 0.02, 0.3]))))
    return sum(alike), len(alike) - sum(alike)
