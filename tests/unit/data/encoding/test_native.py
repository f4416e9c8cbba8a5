"""What is compiled says what Python says, or nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from operator import itemgetter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.data.encoding.native_fuzz import (
    HEADS,
    NAMES,
    OURS,
    ROWTIME,
    SLOW,
    WANTED,
    packed,
    packed_alike,
    packed_by_itself_alike,
    run,
    source,
    value_of,
)
from tests.unit.data.rows import commit

from standpipe.data.encoding import native
from standpipe.data.encoding.row_values import UnreadableValue, object_names
from standpipe.data.encoding.store_keys import commit_header
from standpipe.data.encoding.stored_rows import pack_row, rows_digest

ROOT = Path(__file__).resolve().parents[4]
COMPILER = str(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
CAN_COMPILE = (
    shutil.which(COMPILER) is not None
    and Path(sysconfig.get_paths()["include"], "Python.h").exists()
)
needs_it = pytest.mark.skipif(not native.IS_COMPILED, reason="nothing was compiled")

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@needs_it
@given(st.tuples(PLAIN, PLAIN, PLAIN))
def test_what_our_writer_makes_is_packed(cells: tuple[object, ...]) -> None:
    value = msgspec.json.encode(dict(zip(NAMES, cells, strict=True)))
    assert packed_alike(value) or b"\\u" in value


@needs_it
@given(st.lists(PLAIN, min_size=1, max_size=3))
def test_a_value_of_a_writer_that_knew_fewer_columns_is_packed(cells: list[object]) -> None:
    value = msgspec.json.encode(dict(zip(NAMES, cells, strict=False)))
    assert packed_by_itself_alike(value) or b"\\u" in value


PACKED = [
    *(b"0 -0 1 -12 1.5 -0.25 1e5 1E+5 -0.0e-7 123456789012345678901234567890".split()),
    *(b'true false null "" "x" "\\n\\"\\\\\\/" "\x7f" "\xc3\xa9" "\xe2\x82\xac"'.split()),
    *(b'"\xf0\x9f\x92\xa7" {} [] [[]] [1,"a"] {"a":1} {"a":{"b":[null]},"a":2}'.split()),
    b'" "',
    b"[" * 32 + b"]" * 32,
]
REFUSED = [
    *(b"01 00 1. .5 - 1e 1e+ 0x1 +1 NaN Infinity nul nulls tru falsy x".split()),
    *(b'" "x "\\" "\\x" "\\u0041" "\\ud800" "\xff" "\xc0\x80" "\xed\xa0\x80"'.split()),
    *(b'"\xf4\x90\x80\x80" "\xf0\x90\x80" "\xe2\x82" "\xe0\x80\x80"'.split()),
    *(b'{"a"} {"a":} {"a":1,} {1:2} {a:1} [1,] [,1] [1 [1} {"a":1] ] } 1,2 {},{}'.split()),
    *(b"", b" ", b" 1", b"1 ", b"1\n", b"[1, 2]", b'{"a": 1}', b'"\t"', b'"\n"', b'"\0"'),
    b"[" * 33 + b"]" * 33,
    b"[" * 5000 + b"]" * 5000,
]


@needs_it
@pytest.mark.parametrize("place", range(len(NAMES)))
@pytest.mark.parametrize(
    ("cell", "is_packed"),
    [*((cell, True) for cell in PACKED), *((cell, False) for cell in REFUSED)],
)
def test_a_cell(cell: bytes, is_packed: bool, place: int) -> None:
    cells = [b"1", b'"x"', b"[2]"]
    cells[place] = cell
    assert packed_alike(value_of(*cells)) is is_packed


@needs_it
@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: value + b"}",
        lambda value: value + b" ",
        lambda value: value + b"1",
        lambda value: b" " + value,
        lambda value: value[:-1] + b" }",
        lambda value: value[:-1] + b"]",
        lambda value: value[:-1] + b',"C":4}',
        lambda value: value[1:],
        lambda value: value.replace(b'"A"', b'"a"'),
        lambda value: value.replace(b'"A"', b'"B"'),
        lambda value: value.replace(b'"A":', b'"A" :'),
        lambda value: value.replace(HEADS[1], b","),
        lambda value: value.replace(HEADS[2] + b"3", b""),
        lambda value: value.replace(HEADS[1] + b"2", b"") + b"," + HEADS[1][1:] + b"2}",
        lambda _: b"",
        lambda _: b"{}",
        lambda _: b'{"A":"' + b"long" * 20 + b'"}',
        lambda _: b'{"A":"' + b"long" * 20,
    ],
)
def test_a_spoiled_value_is_refused(spoil) -> None:
    value = value_of(b"1", b"2", b"3")
    assert packed_alike(value)
    assert not packed_alike(spoil(value))
    packed_by_itself_alike(spoil(value))


@needs_it
@pytest.mark.parametrize("end", range(len(value_of(b"1", b'"\xc3\xa9"', b"[1.5]"))))
def test_a_value_that_was_cut_off_is_refused(end: int) -> None:
    value = value_of(b"1", b'"\xc3\xa9"', b"[1.5]")
    assert packed_alike(value)
    assert not packed_alike(value[:end])
    assert not packed_by_itself_alike(value[:end])
    with pytest.raises(UnreadableValue):
        SLOW(value[:end])


@needs_it
@pytest.mark.parametrize("seed", range(3))
def test_random_values_are_refused_or_packed_alike(seed: int) -> None:
    count = examples(5_000, thorough=20_000)
    packed_count, refused = run(seed, count)
    assert min(packed_count, refused) > count // 20


@needs_it
@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        OURS[:1],
        [*reversed(OURS)],
        [*OURS, ("more", b"")],
        tuple(OURS),
        [OURS[0], ("sp-rowtime", None)],
        [OURS[0], ("sp-rowtime", bytes(7))],
        [OURS[0], ("sp-rowtime", bytes(9))],
        [OURS[0], ("sp-rowtimes", ROWTIME)],
        [("sp-commit", None), OURS[1]],
        [("sp-commit", commit_header(commit(1, 1))), OURS[1]],
        [("sp-commit", WANTED[:-1]), OURS[1]],
        [("sp-commit", WANTED, 1), OURS[1]],
        ["sp-commit", "sp-rowtime"],
    ],
)
def test_other_headers_are_refused(headers: object) -> None:
    value = value_of(b"1", b"2", b"3")
    assert packed(value) is not None
    assert packed(value, headers=headers) is None


@needs_it
def test_one_unusual_record_sends_all_the_other_way() -> None:
    value = value_of(b"1", b"2", b"3")
    assert packed(value, value) is not None
    assert packed(value, b"{}", value) is None
    rows = native.pack_rows([value, None], [OURS, OURS], WANTED, HEADS)
    assert rows is None, "a tombstone has no row"
    assert native.pack_rows([value], [OURS, OURS], WANTED, HEADS) is None
    assert native.pack_rows([value], [OURS], WANTED, ()) is None, "not an object"


@needs_it
@pytest.mark.parametrize(
    ("names", "heads"),
    [
        (("a",), (b"x",)),
        (("a", "b"), ()),
        ((1, 2), (b"x",)),
        (("a", "b"), ("x",)),
        (("a", "b"), (b"x", None)),
    ],
)
def test_a_call_that_makes_no_sense_is_an_error(names: object, heads: object) -> None:
    with pytest.raises(TypeError):
        native._native.pack_rows([], [], names, b"", heads, 1)  # type: ignore[union-attr,arg-type]


@needs_it
@pytest.mark.parametrize("first", [0, -1, len(HEADS) + 1])
def test_how_many_columns_there_are_at_least(first: int) -> None:
    with pytest.raises(ValueError, match="first: 1 to the number of heads"):
        packed(first=first)


@needs_it
@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=40), max_size=5))
def test_digests(rows: dict[bytes, bytes]) -> None:
    stored = [(key, pack_row(row, 7)) for key, row in rows.items()]
    assert native.digest(stored) == rows_digest(stored)


@needs_it
@pytest.mark.parametrize(
    "odd", [(b"k", b"abc"), (b"k", bytearray(9)), (b"k",), [b"k", b"abcd"], None]
)
def test_an_odd_row_has_no_digest(odd: object) -> None:
    rows = [(b"a", b"abcd"), odd]
    assert native.digest(rows) is None  # type: ignore[arg-type]
    assert native.digest(tuple(rows[:1])) is None, "a list is what it takes"  # type: ignore[arg-type]


#: some with much in common, some equal, some the beginning of others, some that end in zeros
KEYS = st.lists(st.sampled_from([b"", b"\0", b"a", b"\xff", b"stand", b"pipe" * 3]), max_size=5)


@needs_it
@given(st.lists(KEYS.map(b"".join) | st.binary(max_size=12), max_size=300))
def test_pairs_in_order(keys: list[bytes]) -> None:
    pairs = [(key, b"%d" % place) for place, key in enumerate(keys)]
    assert native._native.in_order(pairs) == sorted(pairs, key=itemgetter(0))  # type: ignore[union-attr]


@needs_it
def test_pairs_in_order_are_held_once_more_each_and_let_go() -> None:
    pairs = [(b"%d" % number, b"") for number in (3, 1, 2, 1)]
    before = [sys.getrefcount(pair) for pair in pairs]
    found = native._native.in_order(pairs)  # type: ignore[union-attr]
    assert [sys.getrefcount(pair) for pair in pairs] == [count + 1 for count in before]
    del found
    assert [sys.getrefcount(pair) for pair in pairs] == before


@needs_it
@pytest.mark.parametrize("odd", [(b"k",), (bytearray(b"k"), b""), ("k", b""), [b"k", b""], None])
def test_an_odd_pair_is_not_put_in_order(odd: object) -> None:
    assert native._native is not None
    assert native._native.in_order([(b"a", b""), odd]) is None  # type: ignore[list-item]
    assert native._native.in_order(((b"a", b""),)) is None, "a list is what it takes"


def test_names_of_objects() -> None:
    assert object_names(source("A", "B")) == ("A", "B")
    assert object_names(msgspec.structs.replace(source("A"), wrap_single_value=False)) == ()
    assert native.heads_of(()) == ()
    assert native.heads_of(['q"', "é"]) == (b'{"q\\"":', ',"é":'.encode())


def test_without_it_python_goes_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_native", None)
    assert packed(value_of(b"1", b"2", b"3")) is None
    assert native.digest([]) is None
    assert native.in_order([(b"b", b"1"), (b"a", b"2")]) == [(b"a", b"2"), (b"b", b"1")]


def built(folder: Path, **environment: str) -> Path | None:
    """The extension, built there; None where that is not possible."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "-b", folder, "-t", folder]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return next(folder.rglob("_native*.so"), None)


def test_it_is_built_where_that_is_possible(tmp_path: Path) -> None:
    """It must not fail unseen, `optional` as it is."""
    assert (built(tmp_path) is not None) is CAN_COMPILE
    assert native.IS_COMPILED or not CAN_COMPILE, "rm .venv/.done/standpipe, then make setup"


def test_without_a_compiler_nothing_is_lost_but_speed(tmp_path: Path) -> None:
    assert built(tmp_path, CC="/nowhere/cc") is None


@needs_it
def test_it_touches_no_memory_but_its_own(tmp_path: Path) -> None:
    """Found by this: a cell behind which the other heads were missing was longer than its row."""
    flags = "-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined"
    module = built(tmp_path, CFLAGS=flags, LDFLAGS=flags)
    asked = [COMPILER, "-print-file-name=libasan.so"]
    library = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if module is None or not Path(library).is_absolute():
        pytest.skip("a compiler without sanitizers")
    environment = {
        **os.environ,
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's
        "PYTHONMALLOC": "malloc",
    }
    count = str(examples(5_000, thorough=50_000))
    fuzz = [sys.executable, "-m", "tests.unit.data.encoding.native_fuzz", "--count", count]
    ran = subprocess.run(
        [*fuzz, "--module", module], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()[:2000]
