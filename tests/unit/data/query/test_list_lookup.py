"""Which lists are cut out of a body: C and Python cut out the same ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.encoding.native_statements_fuzz import LIST_PIECES, list_alike
from tests.unit.data.encoding.test_native import needs_it

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import partition_of
from standpipe.data.query.list_lookup import KnownList, cut_list, known_list

BODIES = st.lists(st.sampled_from(LIST_PIECES) | st.binary(max_size=2), max_size=10).map(b"".join)


@needs_it
@given(BODIES, BODIES)
def test_lists_are_cut_out_alike(body: bytes, other: bytes) -> None:
    list_alike(body, other)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("body", "frame"),
    [
        (b"K IN ('a','b');", b"K IN ('\1','\1');"),
        (b"K IN ('a' ,  'b' ,  '');", b"K IN ('\1' ,  '\1');"),
        (b"'a','" + b"x" * 501 + b"'", b"'\1','\1'"),
        (b"'a','" + b"x" * 502 + b"'", None),
        (b"'a'" + b",'a'" * 255, b"'\1','\1'"),
        (b"'a'" + b",'a'" * 256, None),
        (b"'a','b'" + b" " * 16_377, b"'\1','\1'" + b" " * 16_377),
        (b"'a','b'" + b" " * 16_378, None),
        (b"'a'", None),
        (b"'a' 'b'", None),
        (b"'a''b'", None),
        (b"'a',,'b'", None),
        (b"'a',\t'b'", None),
        (b"'a','b', 'c'", None),
        (b"'a','b", None),
        (b"'a','\xc3\xa9'", None),
        (b"'a','\"'", None),
        (b"'a','\\'", None),
        (b"'a','\1'", None),
    ],
)
def test_which_lists_are_cut_out(
    body: bytes, frame: bytes | None, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    assert cut_list(b"m", body) == (None if frame is None else b"m" + frame)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_keys_by_partition(is_compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    names = [b"x%d" % number for number in range(256)]
    frame = cut_list(b"", b"'a','b'")
    assert frame is not None
    known = {frame: KnownList(5, "its meaning"), b"other": None}
    found = known_list(known, b"", b"'%b'" % b"','".join(names))
    assert found is not None
    meaning, keys = found
    assert meaning == "its meaning"
    assert keys == {
        number: [name + b"\0\1" for name in names if partition_of(name, 5) == number]
        for number in keys
    }
    assert sum(map(len, keys.values())) == len(names)
    assert known_list(known, b"", b"'x1','x2','x1'") is None, "twice"
    assert known_list(known, b"", b"'x1', 'x2'") is None, "another frame"
    assert known_list({frame: None}, b"", b"'x1','x2'") is None
