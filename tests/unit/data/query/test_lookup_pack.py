"""Packs: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.encoding.store_keys import store_key
from standpipe.data.query.literal_lookup import literal_of, place_in
from standpipe.data.query.lookup_pack import (
    LEFT,
    PACKED_MAX,
    Pack,
    body_in,
    pack_front,
    pack_lookup,
    parts_of,
)
from standpipe.errors import BadRequest

LOOKUPS = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=PACKED_MAX
)
#: as headers are: without an empty line, and each closed
LABELS = st.lists(st.sampled_from([b"a: 1\r\n", b"standpipe-role: active\r\n"]), min_size=1)


def written(before: bytes, after: bytes, lookups: list[tuple[int, bytes]]) -> bytes:
    return pack_front(before, after) + b"".join(pack_lookup(*lookup) for lookup in lookups)


@given(st.binary(max_size=5_000), st.binary(max_size=5_000), LOOKUPS)
def test_what_is_written_is_read(
    before: bytes, after: bytes, lookups: list[tuple[int, bytes]]
) -> None:
    pack = Pack.parse(written(before, after, lookups))
    assert (pack.before, pack.after, pack.lookups) == (before, after, lookups)
    for _, literal in lookups:
        assert pack.body(literal) == before + literal + after


@given(st.binary(max_size=50), LOOKUPS.filter(bool), st.data())
def test_what_is_cut_off_is_refused(
    before: bytes, lookups: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    whole = written(before, b"", lookups)
    front = len(pack_front(before, b""))
    ends = {front}
    for lookup in lookups:
        ends.add(max(ends) + len(pack_lookup(*lookup)))
    cut = data.draw(st.integers(0, len(whole) - 1).filter(lambda at: at not in ends))
    with pytest.raises(BadRequest):
        Pack.parse(whole[:cut])


def test_a_pack_has_not_too_many() -> None:
    with pytest.raises(BadRequest, match="too many"):
        Pack.parse(written(b"", b"", [(1, b"a")] * (PACKED_MAX + 1)))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_pack_or_refused(data: bytes) -> None:
    try:
        pack = Pack.parse(data)
    except BadRequest:
        return
    assert written(pack.before, pack.after, pack.lookups) == data


@given(st.lists(st.one_of(st.none(), st.tuples(LABELS.map(b"".join), st.binary(max_size=99)))))
def test_answers_are_read_as_they_were_laid_out(parts: list[tuple[bytes, bytes] | None]) -> None:
    data = b"".join(
        LEFT if part is None else b"content-length: %d\r\n%b\r\n%b" % (len(part[1]), *part)
        for part in parts
    )
    expected = [(b"", b"") if part is None else part for part in parts]
    assert parts_of(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"content-length: 5\r\nx: y\r\n\r\nfour",
        b"content-length: x\r\n\r\n",
        b"content-length: -1\r\n\r\n",
        b"content-length: 1\r\n",
        b"oh",
    ],
)
def test_malformed_answers_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|not found|invalid literal"):
        parts_of(data)


PLAIN = st.text(st.sampled_from("azAZ09 -_%:/~"), max_size=80)


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), PLAIN))
def test_a_literal_comes_back_from_its_key(key: int | str) -> None:
    """A pack has the literal, of which a frame keeps the key only."""
    is_text = isinstance(key, str)
    body = (f"ID = '{key}';" if is_text else f"ID = {key};").encode()
    place = place_in(body)
    assert place is not None
    stored = store_key((key,), ("STRING" if is_text else "BIGINT",))
    literal = literal_of(stored, is_text)
    assert literal == body[place.begin : place.end]
    assert body_in(pack_front(body[: place.begin], body[place.end :]), literal) == body
