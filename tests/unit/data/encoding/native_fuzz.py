"""Random values into the compiled loops: what they make must be what Python makes.

    python -m tests.unit.data.encoding.native_fuzz [--seed 1] [--count 100000] [--module FILE]

`--module`: a build of `_native.c` with sanitizers (test_native.py makes one), instead of the
one that is installed; the process ends where it touches memory that is not its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
from operator import itemgetter
from types import ModuleType

import msgspec
from tests.unit.data.encoding import native_keys_fuzz, native_rows_fuzz, native_statements_fuzz
from tests.unit.data.rows import commit, table

from standpipe.data.encoding import native
from standpipe.data.encoding.row_values import count_beyond, own_columns_to_array, to_array
from standpipe.data.encoding.store_keys import commit_header, rowtime_header
from standpipe.data.encoding.stored_rows import pack_row_at, rows_digest
from standpipe.model import Column, Source

NAMES = ("A", "é", "b c")
HEADS = native.heads_of(NAMES)
WANTED = commit_header(commit(1, 0))
ROWTIME = rowtime_header(7)
OURS = [("sp-commit", WANTED), ("sp-rowtime", ROWTIME)]
PIECES = (
    *(b'" \\ { } [ ] , : 1 - . e E + 0 true null fals "a": "x" 12.5e-3 \\u0041 \\n'.split()),
    *(b"\x00 \x7f \x80 \xc3\xa9 \xf0\x9f\x92\xa7 \xed\xa0\x80".split()),
    *(b" ", b"\n", b"\t", b'"' + b"long" * 20 + b'"'),
)
USUAL = (b"1", b'"x"', b'[1,{"a":"\xc3\xa9"}]', b"-0.5E+7", b"null", b'"' + b"long" * 20 + b'"')


def source(*names: str) -> Source:
    columns = (Column(name="K", type="STRING", is_key=True),)
    columns += tuple(Column(name=name, type="STRING") for name in names)
    return msgspec.structs.replace(table(), columns=columns)


SLOW = to_array(source(*NAMES))
#: of a table that gets columns in place, which began with this many
FIRST = 1


def packed(*values: bytes, headers: object = OURS, first: int | None = None) -> list[bytes] | None:
    """By what is compiled."""
    return native.pack_rows(values, [headers] * len(values), WANTED, HEADS, first)  # type: ignore[list-item]


def value_of(*cells: bytes) -> bytes:
    return b"".join(a + b for a, b in zip(HEADS, cells, strict=True)) + b"}"


def packed_alike(value: bytes) -> bool:
    """Whether it was packed. Asserts that Python packs it so, too."""
    rows = packed(value)
    if rows is not None:
        assert rows == [pack_row_at(SLOW(value), ROWTIME)], value
    return rows is not None


def packed_by_itself_alike(value: bytes) -> bool:
    """Whether it was packed with the columns that it has. Asserts that Python packs it so, too."""
    rows = packed(value, first=FIRST)
    if rows is not None:
        array = own_columns_to_array(value)
        assert rows == [pack_row_at(array, ROWTIME, b"", count_beyond(array, FIRST))], value
    return rows is not None


def value_by(chance: random.Random) -> bytes:
    """Like one of ours, with a cell made of pieces, bytes changed, heads left out, an end cut."""
    cells = [
        b"".join(chance.choices(PIECES, k=chance.randint(1, 6)))
        if chance.random() < 0.3
        else chance.choice(USUAL)
        for _ in NAMES
    ]
    heads = [b"" if chance.random() < 0.03 else head for head in HEADS]
    known = chance.choice([1, 2, 3, 3, 3, 3, 3, 3])  # its writer may have known fewer
    pairs = [*zip(heads, cells, strict=True)][:known]
    value = bytearray(b"".join(a + b for a, b in pairs) + b"}")
    for _ in range(chance.choice([0, 0, 0, 1, 2])):
        value[chance.randrange(len(value))] = chance.randrange(256)
    end = chance.choice([b"", b"", b"", b"", b"}", b" "])
    return bytes(value[: len(value) - chance.choice([0, 0, 0, 0, 1, 3])]) + end


def rows_by(chance: random.Random) -> list[tuple[bytes, bytes]]:
    return [
        (chance.randbytes(chance.randrange(30)), chance.randbytes(chance.randrange(4, 40)))
        for _ in range(chance.randrange(5))
    ]


def pairs_by(chance: random.Random) -> list[tuple[bytes, bytes]]:
    begin = chance.randbytes(chance.randrange(12))
    return [
        (begin[: chance.randint(0, 20)] + chance.randbytes(chance.randrange(12)), b"%d" % place)
        for place in range(chance.randrange(40))
    ]


def run(seed: int, count: int) -> tuple[int, int]:
    """How many values were packed, and how many were refused; asserts that all were alike."""
    chance = random.Random(seed)
    values = [value_by(chance) for _ in range(count)]
    alike = [*map(packed_alike, values)]
    for value in values:
        packed_by_itself_alike(value)
    for _ in range(count // 100):
        rows = rows_by(chance)
        assert native.digest(rows) == rows_digest(rows)
        pairs = pairs_by(chance)
        assert native._native.in_order(pairs) == sorted(pairs, key=itemgetter(0))  # type: ignore[union-attr]
    return sum(alike), count - sum(alike)


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("standpipe.data.encoding._native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--module")
    options = parser.parse_args()
    if options.module:
        native._native = loaded(options.module)
    packed_count, refused = run(options.seed, options.count)
    print(f"{packed_count} values packed as Python packs them, {refused} refused")
    assert min(packed_count, refused) > options.count // 20, "else this shows nothing"
    lists = max(1, options.count // 10)
    taken, refused = native_keys_fuzz.run(options.seed, lists)
    print(f"{taken} lists of keys taken as Python takes them, {refused} refused")
    assert min(taken, refused) > lists // 20, "else this shows nothing"
    taken, refused = native_statements_fuzz.run(options.seed, lists)
    print(f"{taken} rows shown as Python shows them, {refused} refused")
    assert min(taken, refused) > lists // 20, "else this shows nothing"
    taken, refused = native_rows_fuzz.run(options.seed, lists)
    print(f"{taken} lists of rows laid out as Python lays them out, {refused} refused")
    assert min(taken, refused) > lists // 20, "else this shows nothing"


if __name__ == "__main__":
    main()
