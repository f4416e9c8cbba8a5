"""The digest changes by what a batch removes and adds, and is that of a full count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.encoding.stored_rows import (
    EMPTY_DIGEST,
    digest_after,
    pack_row,
    rows_digest,
    sound_digest,
)

KEYS = st.sampled_from([b"a", b"b", b"c", b"ab"])
BATCH = st.dictionaries(KEYS, st.one_of(st.none(), st.integers(0, 3)), max_size=4)


def row(number: int) -> bytes:
    return pack_row(b"[%d]" % number, 7)


@given(st.lists(BATCH, max_size=6))
def test_the_digest_agrees_with_a_full_count(batches: list[dict[bytes, int | None]]) -> None:
    rows: dict[bytes, bytes] = {}
    digest = EMPTY_DIGEST
    for batch in batches:
        puts = {key: row(number) for key, number in batch.items() if number is not None}
        deletes = [key for key, number in batch.items() if number is None]
        replaced = [(key, rows[key]) for key in puts if key in rows]
        deleted = [(key, rows[key]) for key in deletes if key in rows]
        digest = digest_after(digest, replaced, deleted, puts.items())
        rows = {key: value for key, value in rows.items() if key not in deletes} | puts
        assert digest == rows_digest(rows.items())
    assert 0 <= digest < 2**64


def test_a_damaged_row_has_no_digest() -> None:
    rows = [(b"a", row(1)), (b"b", row(2))]
    assert sound_digest(rows) == rows_digest(rows)
    damaged = rows[1][1][:-1] + b"x"
    assert sound_digest([rows[0], (b"b", damaged)]) is None


def test_other_rows_have_another_digest() -> None:
    digests = {
        rows_digest([]),
        rows_digest([(b"a", row(1))]),
        rows_digest([(b"b", row(1))]),
        rows_digest([(b"a", row(2))]),
        rows_digest([(b"a", row(1)), (b"b", row(2))]),
        rows_digest([(b"a", row(2)), (b"b", row(1))]),
    }
    assert len(digests) == 6
