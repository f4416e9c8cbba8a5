"""Which progress records count: order in the topic is the judge."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.unit.data.rows import commit

from standpipe.data.commit.progress import (
    ProgressBook,
    fence,
    is_fence,
    parse,
    progress_key,
    removable,
    serialise,
)
from standpipe.data.commit.seal import NO_SEAL, Headers, ProgressReader, left_of
from standpipe.model import NO_BATCH, LeaseEpoch, Offset, Progress


def progress(lease_epoch: int, batch: int, sinks: dict[int, int], attempt: int = 7) -> Progress:
    return Progress(
        query_id="Q",
        commit=commit(lease_epoch, batch, attempt),
        sinks=sinks,
        batch_started_ms=5,
        source_instant_ms=4,
    )


def test_records_survive_the_wire() -> None:
    record = Progress(
        query_id='a"b',
        commit=commit(3, 4, 2**64 - 1),
        sources={"events": {0: 10, 1: 20}},
        sinks={0: 7},
        clean_through={0: 1},
        watermark_ms=-1,
        batch_started_ms=2,
        committed_at_ms=3,
        topic_id="T1",
        source_topic_ids={"events": "S1"},
    )
    key, value = serialise(record)
    assert key == b'["a\\"b",3,4,18446744073709551615]'
    assert parse(value) == record


def test_a_target_says_which_topic_it_is_of() -> None:
    record = structs.replace(progress(1, 0, {0: 5}), topic_id="T1")
    (taken,) = ProgressBook().take(parse(serialise(record)[1]))
    assert taken.target.topic_id == "T1"


def test_a_record_of_an_older_release_names_no_topic() -> None:
    old = parse(
        b'{"query_id":"Q","commit":{"lease_epoch":1,"batch":0,"attempt":7},"sinks":{"0":5}}'
    )
    assert (old.topic_id, old.source_topic_ids) == ("", {})


def test_a_fence_has_a_key_of_its_own() -> None:
    record = fence("Q", LeaseEpoch(3), nonce=1)
    assert is_fence(record)
    assert progress_key(record) == b'["Q",3,-1,1]'
    assert progress_key(record) != progress_key(fence("Q", LeaseEpoch(3), nonce=2)), "see the code"
    assert parse(serialise(record)[1]).sinks == {}


@pytest.mark.parametrize(
    ("before", "record", "since_ms", "why"),
    [
        (None, {"committed_at_ms": 9}, 5, "nothing was committed before: the batch's own start"),
        (None, {"committed_at_ms": 9, "batch_started_ms": 0}, 9, "a writer that does not say it"),
        ({"committed_at_ms": 3}, {"committed_at_ms": 9}, 3, "whoever wrote since may be as old"),
        (None, {"committed_at_ms": 9, "since_ms": 3}, 3, "that record has left the topic"),
    ],
)
def test_how_old_a_record_of_a_range_may_be(
    before: dict[str, int] | None, record: dict[str, int], since_ms: int, why: str
) -> None:
    book = ProgressBook()
    if before is not None:
        book.take(structs.replace(progress(1, 0, {0: 2}), **before))
    (taken,) = book.take(structs.replace(progress(1, 1, {0: 4}), **record))
    assert taken.target.since_ms == since_ms, why


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{", b"[]", b'{"query_id":"Q"}', b"\xff"),
        b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    ],
)
def test_what_is_no_progress_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a progress record"):
        parse(value)


@pytest.mark.parametrize(
    ("records", "ends", "batches", "why"),
    [
        ([progress(1, 0, {0: 5}), progress(1, 1, {0: 9})], [5, 9], [0, 1], "in order"),
        ([progress(1, 0, {0: 5}), progress(1, 1, {0: 5})], [5, 5], [0, 1], "an empty batch"),
        ([progress(1, 0, {0: 5}), progress(1, 1, {})], [5, 5], [0, 1], "a sink that is not named"),
        ([progress(1, 0, {0: 9}), progress(1, 1, {0: 5})], [9, 9], [0, 1], "never back"),
        ([progress(2, 0, {0: 5}), progress(1, 1, {0: 9})], [5], [0], "older epoch: ignored"),
        ([progress(1, 0, {0: 5}), fence("Q", LeaseEpoch(2), nonce=1), progress(1, 1, {0: 9})],
         [5], [0], "a fence ends older writers"),
        ([progress(1, 0, {0: 5}), progress(2, 0, {0: 9})], [5, 9], [0, 0], "a replay by a newer"),
        ([progress(1, 0, {0: 5}), progress(1, 0, {0: 9}, 8)], [5, 9], [0, 0], "a retry"),
        ([fence("Q", LeaseEpoch(2), nonce=1)], [], [], "a fence commits nothing"),
    ],
)  # fmt: skip
def test_targets(records: list[Progress], ends: list[int], batches: list[int], why: str) -> None:
    book = ProgressBook()
    taken = [valid.target for record in records for valid in book.take(record)]
    assert [target.end for target in taken] == ends, why
    assert [target.commit.batch for target in taken] == batches, why
    assert list(book.targets("Q", 0)) == taken, why
    assert book.committed_end("Q", 0) == (ends[-1] if ends else -1), why
    assert book.newest_batch("Q") == (batches[-1] if batches else NO_BATCH), why


def test_every_known_partition_moves_with_a_batch() -> None:
    book = ProgressBook()
    book.take(progress(1, 0, {0: 5, 1: 6}))
    taken = book.take(progress(1, 1, {1: 8, 2: 1}))
    assert [(valid.partition, valid.target.end) for valid in taken] == [(0, 5), (1, 8), (2, 1)]
    assert {valid.target.source_instant_ms for valid in taken} == {4}


@pytest.mark.parametrize(
    ("sinks", "went_back", "why"),
    [
        ({0: 4}, True, "the log is shorter than it was"),
        ({0: 5}, False, "an empty batch: the boundary"),
        ({}, False, "not named"),
        ({0: 6}, False, ""),
    ],
)
def test_a_log_that_went_back_is_told(sinks: dict[int, int], went_back: bool, why: str) -> None:
    book = ProgressBook()
    book.take(progress(1, 0, {0: 5}))
    (taken,) = book.take(progress(1, 1, sinks))
    assert taken.target.went_back == went_back, why


@pytest.mark.parametrize(
    ("starts", "start", "waits", "why"),
    [
        ({0: 5}, 5, False, "it follows what is known"),
        ({0: 9}, 9, True, "records between were tombstoned, and nothing calls them clean yet"),
        ({}, 5, False, "a record that does not say"),
        ({0: 4}, 5, False, "never back"),
        ({0: 99}, 12, True, "never beyond its own end"),
    ],
)
def test_a_reader_knows_that_records_are_gone(
    starts: dict[int, int], start: int, waits: bool, why: str
) -> None:
    book = ProgressBook()
    book.take(progress(1, 0, {0: 5}))
    (taken,) = book.take(structs.replace(progress(1, 3, {0: 12}), starts=starts))
    assert (taken.target.after, taken.target.start) == (5, start), why
    assert taken.target.waits_for(taken.target) == waits, why
    clean = structs.replace(taken.target, clean_through=Offset(start))
    assert not taken.target.waits_for(clean), why


def test_the_first_record_of_a_topic_says_so() -> None:
    first = structs.replace(progress(1, 0, {0: 5}), starts={0: 0})
    (taken,) = ProgressBook().take(first)
    assert (taken.target.after, taken.target.start) == (-1, 0)
    assert not taken.target.waits_for(taken.target)


def test_queries_do_not_meet() -> None:
    book = ProgressBook()
    book.take(progress(5, 0, {0: 5}))
    other = Progress(query_id="R", commit=commit(1, 0), sinks={0: 3})
    assert [valid.query_id for valid in book.take(other)] == ["R"]
    assert book.committed_end("Q", 0) == 5
    assert book.partitions() == [("Q", 0), ("R", 0)]
    assert book.newest("R") == other
    assert (book.lease_epoch("Q"), book.lease_epoch("R"), book.lease_epoch("S")) == (5, 1, 0)


@pytest.mark.parametrize(
    ("applied", "left", "covered", "why"),
    [
        ([5], [5, 7, 9], 3, "the target at the position stays: its label may be wanted"),
        ([6], [7, 9], 5, "between two"),
        ([9, 7], [7, 9], 5, "the slowest replica decides"),
        ([9], [9], 7, ""),
        ([99], [9], 7, "the last one always stays"),
        ([], [9], 7, "no replica here: only the committed end is kept"),
        ([0], [3, 5, 7, 9], 0, "a new replica needs all"),
    ],
)
def test_pruning(applied: list[int], left: list[int], covered: int, why: str) -> None:
    book = ProgressBook()
    for batch, end in enumerate((3, 5, 7, 9)):
        book.take(progress(1, batch, {0: end}))
    book.prune("Q", 0, [Offset(position) for position in applied])
    assert [target.end for target in book.targets("Q", 0)] == left, why
    assert book.covers("Q", 0, Offset(covered)), why
    assert covered == 0 or not book.covers("Q", 0, Offset(covered - 1)), why
    book.prune("unknown", 0)


def at(record: Progress, *, clean: int = 0, ms: int = 0) -> Progress:
    return structs.replace(record, clean_through={0: clean}, committed_at_ms=ms)


WALL_1, WALL_2, WALL_2B = (fence("Q", LeaseEpoch(e), nonce=n) for e, n in ((1, 1), (2, 2), (2, 3)))
ONE, TWO, THREE = progress(1, 0, {0: 5}), progress(1, 1, {0: 9}), progress(2, 2, {0: 12})


@pytest.mark.parametrize(
    ("records", "gone", "why"),
    [
        ([], [], "nothing is there"),
        ([WALL_1, ONE], [], "the newest stays"),
        ([ONE, TWO, at(THREE, clean=9)], [ONE, TWO], "all that is wholly clean"),
        ([ONE, TWO, at(THREE, clean=8)], [ONE], "9 is beyond what is clean"),
        ([at(ONE, clean=9), TWO], [], "an older claim does not count: it may be a zombie's"),
        ([ONE, at(TWO, ms=90), at(THREE, clean=9)], [ONE], "young ones stay for those that return"),
        ([ONE, at(TWO, clean=9)], [ONE], "the newest says what is clean, so it stays"),
        ([at(ONE, ms=90), TWO, at(THREE, clean=9)], [], "no hole behind one that stays"),
        ([WALL_2, ONE, THREE], [ONE], "void ones go"),
        ([WALL_1, ONE, WALL_2, TWO, WALL_2B, at(THREE, clean=5)], [TWO, ONE, WALL_1, WALL_2],
         "fences go last, and the last one stays"),
    ],
)  # fmt: skip
def test_removable(records: list[Progress], gone: list[Progress], why: str) -> None:
    assert removable(records, "Q", now_ms=100, keep_ms=50) == gone, why


def test_what_was_pruned_is_not_pruned_again() -> None:
    """Found beside seed 480: each look wrote all tombstones again, until compaction came."""
    records = [progress(1, batch, {0: batch + 1}) for batch in range(3)]
    topic = [(*serialise(record), ()) for record in records]
    tombstones = [(progress_key(record), None, ()) for record in records[:2]]

    def left(rows: list[tuple[bytes, bytes | None, Headers]]) -> list[Progress]:
        return left_of(rows, ProgressReader(NO_SEAL)).records

    assert left([*topic]) == records
    assert left([*topic, *tombstones]) == records[2:]
    assert left([*topic[1:], *tombstones]) == records[2:], "compaction has taken one"


def test_a_second_fence_must_not_take_the_place_of_the_first() -> None:
    """What a zombie wrote between them is void for whoever reads the topic, compacted or not."""
    topic = [WALL_1, ONE, WALL_2, TWO, WALL_2B]
    last = {progress_key(record): place for place, record in enumerate(topic)}
    compacted = [
        record for place, record in enumerate(topic) if last[progress_key(record)] == place
    ]
    for records in (topic, compacted):
        book = ProgressBook()
        for record in records:
            book.take(record)
        assert book.newest("Q") == ONE
