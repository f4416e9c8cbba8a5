"""When windows expire, and which beginning of a table topic nobody needs any more."""

from __future__ import annotations

import pytest

from standpipe.data.commit.expiry import Expiry, by_edge, deletable_below, edges_after, store_key_of
from standpipe.data.commit.repair import SweptRecord
from standpipe.data.encoding.kafka_keys import session_key, windowed_key
from standpipe.data.encoding.store_keys import store_key
from standpipe.model import Offset, Window

HOUR_MS = 3_600_000


def window(kind: str = "TUMBLING", grace_ms: int = 100, retention_ms: int = 1000) -> Window:
    return Window(
        kind=kind,  # type: ignore[arg-type]
        size_ms=10,
        advance_ms=10,
        grace_ms=grace_ms,
        retention_ms=retention_ms,
    )


def expiry(kind: str = "TUMBLING", grace_ms: int = 100) -> Expiry:
    found = Expiry.of(window(kind, grace_ms))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("of", "found", "why"),
    [
        (None, None, "no windows"),
        (window(retention_ms=0), None, "somebody else writes it"),
        (window(), Expiry(1, 100, 1000), "one bound: the start"),
        (window("SESSION"), Expiry(2, 100, 1000), "two bounds: start and end"),
    ],
)
def test_which_tables_expire(of: Window | None, found: Expiry | None, why: str) -> None:
    assert Expiry.of(of) == found, why


@pytest.mark.parametrize(
    ("watermark_ms", "start_ms", "is_expired", "why"),
    [
        (0, -(10**15), False, "no watermark: nothing is known of time"),
        (1900, 1000, True, "start + retention = watermark + grace: Kafka Streams leaves it out"),
        (1900, 1001, False, "a millisecond later"),
        (1899, 1000, False, "a millisecond earlier"),
        (1, -899, True, "windows before 1970 are in order, too"),
        (1, -898, False, "and so is the next one"),
    ],
)
def test_expired_at(watermark_ms: int, start_ms: int, is_expired: bool, why: str) -> None:
    edge_ms = expiry().newest_expired_ms(watermark_ms)
    turned = by_edge(store_key(("k",), ("STRING",), start_ms))
    assert (edge_ms is not None and turned < edges_after(edge_ms)) is is_expired, why


def test_a_session_counts_from_its_end() -> None:
    session = by_edge(store_key(("k",), ("STRING",), 5, 1000))
    assert session[:8] == by_edge(store_key(("other",), ("STRING",), 1000))[:8]
    assert expiry("SESSION").edge_of_record_ms(session_key(b"k", 5, 1000)) == 1000


def test_a_shortened_key_ends_with_its_window() -> None:
    long_key = store_key(("k" * 2000,), ("STRING",), 77)
    assert by_edge(long_key)[:8] == by_edge(store_key(("k",), ("STRING",), 77))[:8]


@pytest.mark.parametrize("name", ["", "k", "k" * 2000])
def test_a_turned_key_turns_back(name: str) -> None:
    key = store_key((name,), ("STRING",), 77)
    assert (store_key_of(by_edge(key)), len(by_edge(key))) == (key, len(key))


@pytest.mark.parametrize("watermark_ms", [2**63 - 1, 2**62])
def test_a_watermark_of_the_far_future_expires_everything_and_breaks_nothing(
    watermark_ms: int,
) -> None:
    edge_ms = expiry(grace_ms=2**62).newest_expired_ms(watermark_ms)
    assert edge_ms is not None
    assert by_edge(store_key(("k",), ("STRING",), 10**15)) < edges_after(edge_ms)


def row(offset: int, start_ms: int, written_ms: int = 0, value: bytes | None = b"v") -> SweptRecord:
    return SweptRecord(offset, windowed_key(b"k", start_ms), value, None, written_ms)


OLD, LIVE = 1000, 5000  # of windows, at watermark 1900


@pytest.mark.parametrize(
    ("records", "below", "why"),
    [
        ([], 0, "an empty topic"),
        ([row(0, OLD), row(1, OLD)], 2, "all of them expired"),
        ([row(7, OLD), row(9, OLD)], 10, "with gaps: compaction, or deleted before"),
        ([row(0, LIVE), row(1, OLD)], 0, "a beginning is deleted, nothing in between"),
        ([row(0, OLD), row(1, LIVE), row(2, OLD)], 1, "up to the first that lives"),
        ([row(0, OLD), row(1, OLD, written_ms=HOUR_MS)], 1, "written lately: some may not have it"),
        ([row(0, LIVE, value=None), row(1, OLD)], 2, "a tombstone with all that it deleted"),
        ([row(19, OLD), row(20, OLD)], 20, "not called clean: a foreign record may hide a row"),
        ([SweptRecord(0, b"short", b"v", None, 0), row(1, OLD)], 2, "no replica could read it"),
        ([SweptRecord(0, None, b"v", None, 0), row(1, LIVE)], 1, "no row of the table"),
    ],
)
def test_deletable_below(records: list[SweptRecord], below: int, why: str) -> None:
    found = deletable_below(
        expiry(),
        records,
        clean_through=Offset(20),
        watermark_ms=1900,
        written_before_ms=HOUR_MS,
    )
    assert found == below, why


def test_nothing_is_deletable_without_a_watermark() -> None:
    records = [row(0, -(10**15))]
    limits = {"clean_through": Offset(20), "watermark_ms": 0, "written_before_ms": HOUR_MS}
    assert deletable_below(expiry(), records, **limits) == 0  # type: ignore[arg-type]
