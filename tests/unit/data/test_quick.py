"""What is compiled says what Python says, or nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from standpipe.data import quick
from standpipe.data.digest import rows_digest
from standpipe.data.records import commit_header
from standpipe.data.rows import pack_row
from standpipe.data.values import UnreadableValue, object_names

from .quick_fuzz import (
    LABELS,
    NAMES,
    OURS,
    ROWTIME,
    SLOW,
    WANTED,
    agrees,
    packed,
    source,
    value_of,
)
from .rows import commit

ROOT = Path(__file__).resolve().parents[3]
COMPILER = str(sysconfig.get_config_var("CC") or "cc").split()[0]
compiled = pytest.mark.skipif(not quick.IS_COMPILED, reason="nothing was compiled")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ODD = st.sampled_from(
    [
        *(b"01 1. .5 1e 1e+ - -0 0x1 +1 1e5 -0.0E-7 NaN nul nulls tru true1".split()),
        *(b'"\\ud800" "\\u0041" "\\n" "\\x" "\\" "\x7f" "\xff" "\xc0\x80" "\xe2\x82"'.split()),
        *(b'"\xed\xa0\x80" "\xf4\x90\x80\x80" "\xf0\x90\x80" "\xf0\x9f\x92\xa7"'.split()),
        *(b'{} [] {"a"} {"a":} {"a":1,} [1,] [,1] {"a":1,"a":2} [[]] {1:2} ]  }'.split()),
        b"",
        b'"\t"',
        b" 1",
        b"[1, 2]",
        b"1\n",
        b'"a","\xc3\xa9":"b"',
        b"[" * 31 + b"]" * 31,
        b"[" * 40 + b"]" * 40,
        b"[" * 5000 + b"]" * 5000,
    ]
)


@compiled
@given(st.tuples(PLAIN, PLAIN, PLAIN))
def test_what_our_writer_makes_is_packed(cells: tuple[object, ...]) -> None:
    value = msgspec.json.encode(dict(zip(NAMES, cells, strict=True)))
    assert agrees(value) or b"\\u" in value


@compiled
@given(st.tuples(*3 * [ODD | PLAIN.map(msgspec.json.encode)]))
def test_odd_values_are_refused_or_mean_the_same(cells: tuple[bytes, ...]) -> None:
    agrees(value_of(*cells))


@compiled
@given(
    st.tuples(*3 * [PLAIN.map(msgspec.json.encode)]),
    st.lists(st.tuples(st.integers(0), st.integers(-1, 255)), min_size=1, max_size=3),
    st.integers(0, 3),
)
@example((b"1", b"2", b"3"), [(0, ord(" "))], 0)
def test_spoiled_values_are_refused_or_mean_the_same(
    cells: tuple[bytes, ...], spoiled: list[tuple[int, int]], cut: int
) -> None:
    value = bytearray(value_of(*cells))
    for place, byte in spoiled:
        at = place % (len(value) or 1)
        value[at : at + 1] = bytes([byte]) if byte >= 0 else b""
    agrees(bytes(value[: len(value) - cut]))


@compiled
@pytest.mark.parametrize("end", range(len(value_of(b"1", b'"\xc3\xa9"', b"[1.5]"))))
def test_a_value_that_was_cut_off_is_refused(end: int) -> None:
    value = value_of(b"1", b'"\xc3\xa9"', b"[1.5]")
    assert packed(value) is not None
    assert packed(value[:end]) is None
    with pytest.raises(UnreadableValue):
        SLOW(value[:end])


@compiled
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
        [OURS[0], ("sp-rowtimes", ROWTIME)],
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


@compiled
def test_one_unusual_record_sends_all_the_other_way() -> None:
    value = value_of(b"1", b"2", b"3")
    assert packed(value, b"{}", value) is None
    rows = quick.pack_rows([value, None], [OURS, OURS], WANTED, LABELS)
    assert rows is None, "a tombstone has no row"
    assert quick.pack_rows([value], [OURS, OURS], WANTED, LABELS) is None
    assert quick.pack_rows([value], [OURS], None, LABELS) is None, "any commit: not one comparison"
    assert quick.pack_rows([value], [OURS], WANTED, ()) is None, "not an object"


@compiled
@pytest.mark.parametrize(
    ("names", "labels"), [(("a",), (b"x",)), (("a", "b"), ()), ((1, 2), (b"",))]
)
def test_a_call_that_makes_no_sense_is_an_error(names: object, labels: object) -> None:
    with pytest.raises(TypeError):
        quick._quick.pack_rows([], [], names, b"", labels)  # type: ignore[union-attr,arg-type]


@compiled
@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=40), max_size=5))
def test_digests(rows: dict[bytes, bytes]) -> None:
    stored = [(key, pack_row(row, 7)) for key, row in rows.items()]
    assert quick.digest(stored) == rows_digest(iter(stored))
    assert quick.digest([*stored, (b"k", b"abc")]) is None, "no room for a CRC"
    assert rows_digest([*stored, (b"k", b"abc")]) == rows_digest(iter([*stored, (b"k", b"abc")]))


def test_names_of_objects() -> None:
    assert object_names(source("A", "B")) == ("A", "B")
    assert object_names(msgspec.structs.replace(source("A"), wrap_single_value=False)) == ()


def built(folder: Path, **environment: str) -> Path | None:
    """The extension, built there; None where that is not possible."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "-b", folder, "-t", folder]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return next(folder.rglob("_quick*.so"), None)


def test_it_is_built_where_there_is_a_compiler(tmp_path: Path) -> None:
    """It must not fail unseen, `optional` as it is."""
    has_compiler = shutil.which(COMPILER) is not None
    assert (built(tmp_path) is not None) is has_compiler
    assert quick.IS_COMPILED is has_compiler, "make setup compiles it"


def test_without_a_compiler_nothing_is_lost_but_speed(tmp_path: Path) -> None:
    assert built(tmp_path, CC="/nowhere/cc") is None


@compiled
def test_it_touches_no_memory_but_its_own(tmp_path: Path) -> None:
    """Found by this: a cell behind which the other labels were missing was longer than its row."""
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
    fuzz = [sys.executable, "-m", "tests.unit.data.quick_fuzz", "--count", "100000"]
    ran = subprocess.run(
        [*fuzz, "--module", module], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()[:2000]
