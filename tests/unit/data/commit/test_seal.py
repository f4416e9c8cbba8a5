"""MACs of progress records: who wrote them, and that no other record is believed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.commit.progress import ProgressBook, fence, removable, serialise
from standpipe.data.commit.seal import (
    HEADER_MAC,
    MAC_BYTES,
    NO_SEAL,
    Headers,
    Ignored,
    ProgressReader,
    ProgressSeal,
    left_of,
    said,
)
from standpipe.model import BatchId, Commit, LeaseEpoch, Offset, Progress

SEAL = ProgressSeal("secret", "default__progress")
GUESS = ProgressSeal("guess", "default__progress")
ELSEWHERE = ProgressSeal("secret", "other_progress")
Row = tuple[bytes, bytes | None, Headers]


def commit(epoch: int, batch: int, query: str = "Q", end: int = 5) -> Progress:
    by = Commit(lease_epoch=LeaseEpoch(epoch), batch=BatchId(batch), attempt=1)
    return Progress(query_id=query, commit=by, sinks={0: Offset(end)})


def forged_fence(query: str = "Q") -> Progress:
    return fence(query, LeaseEpoch(10**6), nonce=7)


def signed(record: Progress, seal: ProgressSeal = SEAL) -> Row:
    key, value = serialise(record)
    return key, value, seal.headers(key, value)


def unsigned(record: Progress) -> Row:
    return (*serialise(record), ())


def book_of(rows: Sequence[Row], seal: ProgressSeal = SEAL) -> tuple[ProgressBook, ProgressReader]:
    reader, book = ProgressReader(seal), ProgressBook()
    for key, value, headers in rows:
        if value is not None and (record := reader.read(key, value, headers)) is not None:
            book.take(record)
    return book, reader


def relabelled(row: Row, *, key: bytes | None = None, value: bytes | None = None) -> Row:
    return key or row[0], value or row[1], row[2]


GOOD = signed(commit(1, 0))


@pytest.mark.parametrize(
    ("row", "why_ignored", "why"),
    [
        (signed(commit(1, 1)), None, "ours"),
        (unsigned(forged_fence()), Ignored.UNSIGNED, "the issue's: a fence by INSERT INTO"),
        (unsigned(commit(9, 9)), Ignored.UNSIGNED, "a commit of what nobody wrote"),
        (
            signed(forged_fence(), GUESS),
            Ignored.FORGED,
            "no secret",
        ),
        (
            signed(forged_fence(), ELSEWHERE),
            Ignored.FORGED,
            "another topic",
        ),
        (relabelled(GOOD, key=b"k"), Ignored.FORGED, "under another key"),
        (relabelled(GOOD, value=serialise(commit(1, 7))[1]), Ignored.FORGED, "another value"),
        ((*GOOD[:2], [(HEADER_MAC, b"")]), Ignored.FORGED, "an empty MAC"),
        ((*GOOD[:2], [(HEADER_MAC, GOOD[2][0][1][:-1])]), Ignored.FORGED, "a part of the MAC"),  # type: ignore[index]
        ((*GOOD[:2], [(HEADER_MAC, None)]), Ignored.UNSIGNED, "a header without a value"),
        ((b"k", b"{", ()), Ignored.UNREADABLE, "rubbish"),
        ((b"k", b"{", SEAL.headers(b"k", b"{")), Ignored.UNREADABLE, "our rubbish"),
        (unsigned(commit(1, 0, query="NEW")), Ignored.UNSIGNED, "before its query's first sealed"),
    ],
)
def test_what_is_believed(row: Row, why_ignored: Ignored | None, why: str) -> None:
    _, reader = book_of([GOOD, row])
    assert reader.newest_ignored == why_ignored, why
    assert said(reader.ignored) == ({why_ignored.value: 1} if why_ignored else {})


def test_a_record_that_is_nested_without_end_is_ignored() -> None:
    """Anyone who may write to the topic can append it. It ended each tailer and each pipeline that
    read it, also after every restart, since they read from the beginning."""
    deep = b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    rows: list[Row] = [signed(commit(1, 0)), (b"k", deep, ()), signed(commit(1, 1, end=8))]
    book, reader = book_of(rows)
    assert book.committed_end("Q", 0) == 8
    assert reader.ignored == {Ignored.UNREADABLE: 1}


@pytest.mark.parametrize(
    "forged",
    [forged_fence(), commit(10**6, 10**6, end=10**9)],
    ids=["a fence", "an end beyond all offsets"],
)
def test_what_is_forged_before_the_first_sealed_record_is_ignored(forged: Progress) -> None:
    """A query's id is its statement's and an index of the log, so it can be known before."""
    ours = [signed(fence("Q", LeaseEpoch(2), nonce=2)), signed(commit(2, 1, end=9))]
    book, reader = book_of([unsigned(forged), *ours])
    assert [target.end for target in book.targets("Q", 0)] == [9]
    assert reader.ignored == {Ignored.UNSIGNED: 1}
    assert book_of([unsigned(forged), *ours], NO_SEAL)[0].committed_end("Q", 0) != 9


def test_a_forged_fence_voids_nothing() -> None:
    """It froze a table for ever, with a lag of 0: all later commits were void."""
    rows = [signed(commit(1, 0)), unsigned(forged_fence()), signed(commit(1, 1, end=8))]
    assert book_of(rows)[0].committed_end("Q", 0) == 8
    assert book_of(rows, NO_SEAL)[0].committed_end("Q", 0) == 5, "without a secret it does"


def test_without_a_secret_nothing_is_signed_and_all_is_believed() -> None:
    assert NO_SEAL.headers(b"k", b"v") == []
    _, reader = book_of([GOOD, unsigned(forged_fence()), signed(commit(1, 1))], NO_SEAL)
    assert not reader.ignored


def test_a_mac_has_half_of_the_digest() -> None:
    ((name, mac),) = SEAL.headers(b"k", b"v")
    assert (name, len(mac or b"")) == (HEADER_MAC, MAC_BYTES)


@given(st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9))
def test_a_mac_fits_one_record(key: bytes, value: bytes, key2: bytes, value2: bytes) -> None:
    """Also where key and value together are the same bytes."""
    ((_, mac),) = SEAL.headers(key, value)
    assert mac is not None
    assert SEAL.fits(key2, value2, mac) is ((key, value) == (key2, value2))


RECORDS = st.builds(
    lambda epoch, batch, query, kind: {
        "signed": lambda: signed(commit(epoch, batch, query)),
        "fence": lambda: signed(fence(query, LeaseEpoch(epoch), nonce=batch)),
        "unsigned": lambda: unsigned(commit(epoch, batch, query, end=77)),
        "forged": lambda: unsigned(fence(query, LeaseEpoch(10**6), nonce=batch)),
    }[kind](),
    st.integers(1, 3),
    st.integers(0, 4),
    st.sampled_from("QR"),
    st.sampled_from(["signed", "fence", "unsigned", "forged"]),
)


@given(st.lists(RECORDS, max_size=14), st.integers(0, 10**6))
def test_who_reads_a_pruned_topic_believes_no_more_than_who_read_it_all(
    rows: list[Row], cut: int
) -> None:
    """At any moment of a pruning, whatever goes first."""
    rows = list({row[0]: row for row in [GOOD, signed(commit(1, 0, "R")), *rows]}.values())
    left = left_of(rows, ProgressReader(SEAL))
    gone = [*left.ignored]
    for query in "QR":
        gone += [
            serialise(each)[0] for each in removable(left.records, query, now_ms=10**9, keep_ms=0)
        ]
    removed = set(gone[: cut % (len(gone) + 1)])
    kept = [row for row in rows if row[0] not in removed]
    before, after = book_of(rows)[0], book_of(kept)[0]
    for query in "QR":
        assert after.newest(query) == before.newest(query)
        assert after.lease_epoch(query) <= before.lease_epoch(query)


def test_a_key_that_a_true_record_has_is_not_tombstoned() -> None:
    """The forger chose the key of a true record, which was written again after it."""
    forged = (GOOD[0], b"{", ())
    left = left_of([forged, GOOD], ProgressReader(SEAL))
    assert (left.records, left.ignored) == ([commit(1, 0)], [])
    left = left_of([GOOD, forged, (forged[0], None, ())], ProgressReader(SEAL))
    assert (left.records, left.ignored) == ([], [])
