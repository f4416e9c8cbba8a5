"""What readers of a query's topic may see: boundaries of ranges, holes, shares of a batch."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.samples import sample_table
from tests.unit.data.rows import commit

from standpipe.data.commit.committed import (
    RANGES_MAX,
    Committed,
    Range,
    written_by_one_query,
)
from standpipe.data.commit.progress import fence
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.model import Commit, LeaseEpoch, Progress

B0, B1, B2 = commit(1, 0), commit(1, 1), commit(1, 2)
M0, M1, M2 = map(commit_header, (B0, B1, B2))


def progress(by: Commit, end: int, start: int | None, clean_through: int = 0) -> Progress:
    return Progress(
        query_id="Q",
        commit=by,
        sinks={0: end},
        starts={} if start is None else {0: start},
        clean_through={0: clean_through},
    )


def committed(*records: Progress) -> Committed:
    found = Committed("Q")
    for record in records:
        found.take(record)
    return found


WHOLE = (progress(B0, 5, 0), progress(B1, 5, 5), progress(B2, 9, 5))
HOLE = (progress(B0, 5, 0), progress(B2, 9, 7, clean_through=7))


@pytest.mark.parametrize(
    ("records", "low", "high", "ranges", "why"),
    [
        (WHOLE, 0, 9, [Range(0, 5, M0), Range(5, 9, M2)], "a batch without records is none"),
        (WHOLE, 5, 9, [Range(5, 9, M2)], "begins at a boundary"),
        (WHOLE, 4, 6, [Range(4, 5, M0), Range(5, 6, M2)], "cut on both sides"),
        (WHOLE, 8, 12, [Range(8, 9, M2)], "beyond the committed end is nothing"),
        (WHOLE, 9, 12, [], "at the committed end"),
        ((), 0, 5, [], "nothing is committed"),
        (HOLE, 0, 9, [Range(0, 5, M0), Range(5, 7, None), Range(7, 9, M2)], "a hole, and clean"),
        ((progress(B2, 9, 5, 5),), 0, 9, [Range(0, 5, None), Range(5, 9, M2)], "tombstoned before"),
        ((progress(B2, 9, None, 5),), 0, 9, [Range(0, 5, None), Range(5, 9, M2)], "does not say"),
    ],
)
def test_ranges(
    records: tuple[Progress, ...], low: int, high: int, ranges: list[Range], why: str
) -> None:
    assert committed(*records).ranges(0, low, high) == ranges, why


@pytest.mark.parametrize(
    ("offset", "by", "shows", "why"),
    [
        (4, B0, True, "the last of its range"),
        (5, B0, False, "a straggler of a batch that is committed"),
        (4, B2, False, "written too early"),
        (4, commit(1, 0, attempt=8), False, "another attempt"),
        (4, None, False, "a stranger"),
        (9, B2, False, "beyond the committed end"),
    ],
)
def test_exact_matches_only(offset: int, by: Commit | None, shows: bool, why: str) -> None:
    headers = [] if by is None else [("x", None), (HEADER_COMMIT, commit_header(by))]
    assert committed(*WHOLE).shows(0, offset, headers) == shows, why


@pytest.mark.parametrize(("offset", "by_order"), [(4, False), (5, True), (6, True), (7, False)])
def test_where_any_record_counts(offset: int, by_order: bool) -> None:
    assert committed(*HOLE).is_by_order(0, offset) is by_order


def test_zombies_and_other_queries_commit_nothing() -> None:
    zombie = progress(commit(1, 1), 9, 5)
    other = Progress(query_id="R", commit=B1, sinks={0: 9})
    found = committed(progress(B0, 5, 0), fence("Q", LeaseEpoch(2), nonce=1), zombie, other)
    assert found.ends() == {0: 5}


def test_a_hole_that_nothing_calls_clean_yet_is_not_read() -> None:
    found = committed(progress(B0, 5, 0), progress(B2, 9, 7))
    assert found.end(0) == 5
    found.take(progress(commit(1, 3), 9, 9, clean_through=7))
    assert found.end(0) == 9


def test_a_record_that_does_not_say_its_start_counts_by_order_up_to_its_end_at_most() -> None:
    found = committed(progress(B1, 5, None), progress(B2, 9, 5, clean_through=7))
    assert found.ranges(0, 0, 9) == [Range(0, 5, None), Range(5, 9, M2)]


@pytest.mark.parametrize(
    ("starts", "records_max", "ends", "why"),
    [
        ({0: 0, 1: 0}, 100, {0: 8, 1: 2}, "all that is committed"),
        ({0: 0, 1: 0}, 10, {0: 8, 1: 2}, "just fits"),
        ({0: 0, 1: 0}, 5, {0: 4, 1: 1}, "shares by what there is"),
        ({0: 0, 1: 0}, 1, {0: 1, 1: 1}, "never nothing, or it would wait for ever"),
        ({0: 8, 1: 2}, 5, {0: 8, 1: 2}, "nothing new"),
        ({0: 9, 1: 0}, 5, {0: 9, 1: 2}, "never back"),
    ],
)
def test_where_a_batch_ends(
    starts: dict[int, int], records_max: int, ends: dict[int, int], why: str
) -> None:
    found = committed(Progress(query_id="Q", commit=B0, sinks={0: 8, 1: 2}, starts={0: 0, 1: 0}))
    assert found.next_ends(starts, records_max) == ends, why


def test_a_batch_has_few_ranges_and_ends_with_a_hole() -> None:
    many = [progress(commit(1, n), n + 1, n) for n in range(RANGES_MAX + 1)]
    assert committed(*many).next_ends({0: 0}, 10_000) == {0: RANGES_MAX}
    assert committed(*HOLE).next_ends({0: 0}, 10_000) == {0: 7}, "one range of any record, no more"


def test_what_was_passed_is_forgotten() -> None:
    found = committed(*WHOLE)
    found.forget({0: 6})
    assert found.ranges(0, 6, 9) == [Range(6, 9, M2)]
    assert found.end(0) == 9


@pytest.mark.parametrize(
    ("ids", "topic_id", "why"),
    [
        ([], "", "nothing is committed"),
        (["T1", "T1"], "T1", "both name it"),
        (["T1", ""], "T1", "an older release has repaired it since, and names none"),
    ],
)
def test_which_topic_it_is_about(ids: list[str], topic_id: str, why: str) -> None:
    records = zip((progress(B0, 5, 0), progress(B1, 5, 5)), ids, strict=False)
    named = [structs.replace(record, topic_id=each) for record, each in records]
    assert committed(*named).topic_id == topic_id, why


CLEAN = (progress(B0, 5, 0), progress(B1, 7, 5), progress(B2, 9, 7, clean_through=6))


@pytest.mark.parametrize(
    ("records", "ranges", "why"),
    [
        ((), {}, "nothing is committed"),
        (WHOLE, {0: [Range(0, 5, M0), Range(5, 9, M2)]}, "nothing is declared clean"),
        (CLEAN, {0: [Range(0, 6, None), Range(6, 7, M1), Range(7, 9, M2)]}, "clean up to 6"),
        (HOLE, {0: [Range(0, 7, None), Range(7, 9, M2)]}, "a hole is clean, or there is none"),
        ((progress(B2, 9, 5, 9),), {0: [Range(0, 9, None)]}, "all of it is clean"),
        ((progress(B2, 9, 5, 12),), {0: [Range(0, 9, None)]}, "never beyond the committed end"),
        ((progress(B0, 5, 0), progress(B2, 9, 7)), None, "a hole that nothing calls clean yet"),
        ((*WHOLE, fence("Q", LeaseEpoch(2), nonce=1)), {0: [Range(0, 5, M0), Range(5, 9, M2)]}, ""),
    ],
)
def test_ranges_of_a_table(
    records: tuple[Progress, ...], ranges: dict[int, list[Range]] | None, why: str
) -> None:
    assert committed(*records).table_ranges() == ranges, why


@pytest.mark.parametrize(
    ("clean", "log_end", "committed_ms", "doubtful", "why"),
    [
        (5, 9, (10, 30), {}, "each range is younger than a tombstone lasts"),
        (5, 9, (9, 30), {0: (5, 9)}, "what precedes the last batch was committed too long ago"),
        (9, 9, (9, 30), {}, "all of it is clean, and nothing lies beyond"),
        (9, 11, (9, 9), {0: (9, 11)}, "its program was away: what lies beyond is as old"),
        (9, 11, (9, 10), {}, "what lies beyond is younger"),
        (9, 9, (9, 9), {}, "away, and nobody has written meanwhile"),
    ],
)
def test_where_a_foreign_tombstone_may_have_come_and_gone(
    clean: int,
    log_end: int,
    committed_ms: tuple[int, int],
    doubtful: dict[int, tuple[int, int]],
    why: str,
) -> None:
    first, second = progress(B0, 5, 0), progress(B1, 9, 5, clean_through=clean)
    at = [structs.replace(first, committed_at_ms=committed_ms[0], since_ms=30)]
    at.append(structs.replace(second, committed_at_ms=committed_ms[1]))
    assert committed(*at).doubtful({0: log_end}, gone_ms=10) == doubtful, why


def test_the_newest_commit_is_that_of_no_zombie() -> None:
    assert committed().newest() is None
    fenced = fence("Q", LeaseEpoch(2), nonce=1)
    found = committed(progress(B0, 5, 0), fenced, progress(B1, 9, 5))
    assert found.newest() == progress(B0, 5, 0)


def test_topics_that_one_query_writes() -> None:
    """Those whose records a progress record names, each and all."""
    table = sample_table(query_id="Q", topic="own")
    again = structs.replace(table, name="AGAIN", query_id=None)
    copied = structs.replace(table, topic="users", query_id="CST", changelog="copy")
    shared = structs.replace(table, topic="shared", query_id="CSAS")
    inserted = structs.replace(shared, name="OTHER", query_id=None, takes_inserts=True)
    sources = [table, again, copied, shared, inserted]
    assert written_by_one_query(sources) == {"own": "Q"}
