"""What is held of a partition until something changes: C and Python say alike whether it holds."""

from __future__ import annotations

import gc
import mmap
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.encoding.native_keys_fuzz import part_alike
from tests.unit.data.encoding.test_native import needs_it

from standpipe.data.encoding import native
from standpipe.data.query.literal_lookup import HeldPart, KnownLiteral, known_part

MESSAGE, FRAME = b"K = 'a';", b"K = '';"
NOW_S, NOW_MS = 1_700_000_000.0005, 1_700_000_000_000
FRONT, PAGE = b"12345678", b"12345678 and more"
ONE, OTHER = "a cause", ["another"]
HELD = HeldPart("its part", NOW_MS, PAGE, FRONT, (ONE, OTHER))


def closed_page() -> mmap.mmap:
    page = mmap.mmap(-1, 8)
    page.close()
    return page


def released_page() -> memoryview:
    page = memoryview(PAGE)
    page.release()
    return page


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("held", "holds", "why"),
    [
        (HELD, "now", "nothing has changed"),
        (None, "", "nothing is held"),
        (HELD._replace(at_ms=NOW_MS - 1), "older", "the ms before"),
        (HELD._replace(at_ms=NOW_MS + 1), "older", "a clock was put back"),
        (HELD._replace(page=FRONT), "now", "the page is as long as its front"),
        (HELD._replace(page=bytearray(PAGE)), "now", "any buffer"),
        (HELD._replace(page=b"12345679 and more"), "", "the page is another"),
        (HELD._replace(page=b"02345678 and more"), "", "another first byte"),
        (HELD._replace(page=b"1234567"), "", "a byte of it is missing"),
        (HELD._replace(page=b"1234567", front=b"1234567\0"), "", "C has a zero behind it"),
        (HELD._replace(page=b""), "", "it is empty"),
        (HELD._replace(front=b""), "", "an empty front would always be the same"),
        (HELD._replace(page=b"", front=b""), "", "as would be both"),
        (HELD._replace(page=closed_page()), "", "its page was closed"),
        (HELD._replace(page=released_page()), "", "it was released"),
        (HELD._replace(causes=(ONE, ["another"])), "", "a cause is equal, but another object"),
        (HELD._replace(causes=(OTHER, ONE)), "", "in another order"),
        (HELD._replace(causes=(ONE,)), "", "one is missing"),
        (HELD._replace(causes=(ONE, OTHER, ONE)), "", "one more"),
        (HELD._replace(causes=(ONE, ["another"]), at_ms=0), "", "older, and another cause"),
        (HELD._replace(page=b"", at_ms=0), "", "older, and another page"),
    ],
)
def test_what_is_held_holds(
    held: HeldPart | None, holds: str, why: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    of_all = None if held is None else {0: held, 1: HELD}
    known = {FRAME: KnownLiteral(0, 0, 1, "its frame", of_all)}
    found = known_part(known, b"", MESSAGE, NOW_S, ONE, OTHER)
    part = "its part" if holds == "now" else None
    older = held if holds == "older" else None
    assert found == ("its frame", 0, b"a\0\1", part, older), why
    assert known_part(known, b"", b"K : 'a';", NOW_S, ONE, OTHER) is None


@pytest.mark.parametrize("is_compiled", [True, False])
def test_what_is_held_is_found_by_its_partition(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    held = {number: HELD._replace(part=number) for number in range(4)}
    known = {FRAME: KnownLiteral(0, 0, 5, "its frame", held)}
    met = set[int | None]()
    for letter in b"abcdefghijklmnopqrstuvwxyz":
        found = known_part(known, b"", b"K = '%c';" % letter, NOW_S, ONE, OTHER)
        assert found is not None
        assert found[3] == (None if found[1] == 4 else found[1])
        met.add(found[3])
    assert met == {0, 1, 2, 3, None}


@needs_it
@given(
    st.sampled_from([b"'a'", b"K = 7", b"''", b"7"]),
    st.floats(0, 4e9) | st.integers(0, 10**13).map(lambda ms: ms / 1000),
    st.integers(-1, 1),
    st.binary(max_size=3),
    st.binary(max_size=3),
    st.lists(st.sampled_from([ONE, OTHER]), max_size=2).map(tuple),
    st.lists(st.sampled_from([ONE, OTHER]), max_size=2).map(tuple),
)
def test_a_part_is_known_alike(
    message: bytes,
    now_s: float,
    off_ms: int,
    front: bytes,
    more: bytes,
    causes: tuple[object, ...],
    others: tuple[object, ...],
) -> None:
    held = HeldPart("its part", int(now_s * 1000) + off_ms, front + more, front, causes)
    found = part_alike(message, now_s, held, causes)
    is_held = front != b""
    expected = None if message == b"7" else (is_held and not off_ms, is_held and bool(off_ms))
    assert found == expected
    part_alike(message, now_s, held, others)
    part_alike(message, now_s, held._replace(page=more), causes)


@needs_it
@pytest.mark.parametrize("now_s", [-1.0, float("nan"), float("inf"), 1e300])
def test_at_no_usual_time_nothing_holds(now_s: float) -> None:
    found = native.known_part({FRAME: (0, 0, 1, "", {0: HELD})}, b"", MESSAGE, now_s, ONE, OTHER)
    assert found is not None
    assert found[3:] == (None, None)


@needs_it
@pytest.mark.parametrize(
    ("odd", "error"),
    [
        ("no", TypeError),
        ([*HELD], TypeError),
        (HELD[:4], TypeError),
        ((*HELD, 1), TypeError),
        (HELD._replace(at_ms=1.0), TypeError),
        (HELD._replace(at_ms=2**64), OverflowError),
        (HELD._replace(front=bytearray(FRONT)), TypeError),
        (HELD._replace(causes=[ONE, OTHER]), TypeError),
        (HELD._replace(page="12345678"), TypeError),
        (HELD._replace(page=None), TypeError),
        (HELD._replace(page=memoryview(PAGE)[::2]), BufferError),
    ],
)
def test_what_is_nothing_held_is_an_error(odd: Any, error: type[Exception]) -> None:
    function = native.compiled("known_part")
    assert function is not None
    known = {FRAME: (0, 0, 1, "its frame", {0: odd})}
    before = sys.getrefcount(odd)
    with pytest.raises(error):
        function(known, b"", MESSAGE, NOW_S, ONE, OTHER)
    assert sys.getrefcount(odd) == before


@needs_it
@pytest.mark.parametrize(
    "odd",
    [
        (),
        ({}, b"", MESSAGE),
        ({}, b"", MESSAGE, 1),
        ({}, b"", MESSAGE, None, ONE),
        ([], b"", MESSAGE, 1.0),
        ({}, "", MESSAGE, 1.0),
        ({}, b"", bytearray(MESSAGE), 1.0),
        ({FRAME: (0, 0, 1, "")}, b"", MESSAGE, 1.0),
        ({FRAME: (0, 0, 1, "", HELD)}, b"", MESSAGE, 1.0),
    ],
)
def test_what_no_part_is_found_in_is_an_error(odd: tuple[Any, ...]) -> None:
    function = native.compiled("known_part")
    assert function is not None
    with pytest.raises(TypeError):
        function(*odd)


@needs_it
def test_a_lookup_holds_nothing_and_lets_its_page_go() -> None:
    page, closed, part, meaning = bytearray(PAGE), closed_page(), ["part"], ["meaning"]
    front, at_ms, now_s, causes = bytes([*FRONT]), int(str(NOW_MS)), float(str(NOW_S)), (ONE, OTHER)
    held = HeldPart(part, at_ms, page, front, causes)
    of_all: dict[int, Any] = {0: held}
    known = {FRAME: (0, 0, 1, meaning, of_all)}
    objects = (page, closed, part, meaning, front, at_ms, now_s, causes, ONE, OTHER, held, of_all)

    def look(this: Any) -> None:
        of_all[0] = this
        for others in ((ONE, OTHER), (ONE, ONE), ()):
            assert native.known_part(known, b"", MESSAGE, now_s, *others)

    gc.collect()  # others' garbage may have some of them
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(9):
        look(held._replace(at_ms=1))
        look(held._replace(page=closed))
        with pytest.raises(TypeError):
            look((part, page))
        look(held)
    assert [sys.getrefcount(each) for each in objects] == before
    page += b"a buffer that is in use cannot grow"


class DropsWhatIsHeld:
    """A key that is equal to any, and drops all that C has found so far."""

    def __init__(self, known: dict[bytes, Any]) -> None:
        self._known = known

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        for entry in self._known.values():
            entry[4].clear()
        self._known.clear()
        gc.collect()
        return True


@needs_it
def test_what_drops_an_entry_while_it_is_read_frees_nothing_that_is_in_use() -> None:
    for _ in range(3):
        known: dict[bytes, Any] = {}
        held = HeldPart(["its part"], NOW_MS, bytearray(PAGE), FRONT, (ONE, OTHER))
        known[FRAME] = (0, 0, 1, ["its frame"], {DropsWhatIsHeld(known): held})
        del held
        found = native.known_part(known, b"", MESSAGE, NOW_S, ONE, OTHER)
        assert found is not None
        assert found[:3] == (["its frame"], 0, b"a\0\1")
        assert known == {}
