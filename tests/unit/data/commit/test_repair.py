"""Shadows: who casts them, who ends them, and what is appended again."""

from __future__ import annotations

import pytest
from tests.unit.data.rows import commit, record

from standpipe.data.commit.progress import TargetSet
from standpipe.data.commit.repair import (
    Finder,
    Repair,
    Repairs,
    Repeated,
    Shadow,
    Sweep,
    SweptRecord,
    headers_under,
    repairs,
)
from standpipe.data.encoding.store_keys import HEADER_COMMIT, HEADER_REPAIR, commit_header
from standpipe.model import Commit, Offset

B0, B1, ZOMBIE = commit(1, 0), commit(1, 1), commit(0, 9)
LAG_MS = 1000


def log(*entries: tuple[str, int | None, Commit | None]) -> list[SweptRecord]:
    """Records at offsets 0, 1, …, written at ms 100, 101, …."""
    return [
        SweptRecord(*record(offset, key, number, by), 100 + offset)
        for offset, (key, number, by) in enumerate(entries)
    ]


def target(by: Commit, start: int, end: int) -> TargetSet:
    return TargetSet(commit=by, start=Offset(start), end=Offset(end))


def swept(records: list[SweptRecord], *targets: TargetSet) -> Sweep:
    sweep = Sweep(Offset(0))
    for each in targets:
        sweep.target(each)
    sweep.records(records, Offset(len(records)))
    return sweep


@pytest.mark.parametrize(
    ("entries", "ends", "shadows", "clean", "why"),
    [
        ([("a", 1, B0)], [1], {}, 1, "nothing foreign"),
        ([("a", 1, B0), ("a", 2, ZOMBIE)], [2], {b"a": 1}, 0, "a zombie on top"),
        ([("a", 2, ZOMBIE), ("a", 1, B0)], [2], {}, 2, "the committed row came later"),
        ([("a", 1, B0), ("b", 2, ZOMBIE)], [2], {b"b": 1}, 0, "a key that was never committed"),
        ([("a", 2, ZOMBIE), ("a", 3, None)], [2], {b"a": 0}, 0, "since the first of them"),
        ([("a", 1, B0), ("a", 2, B0)], [1], {}, 1, "what comes behind the newest target is open"),
        ([("a", 1, B0), ("a", 2, B0)], [1, 2], {b"a": 1}, 1, "right attempt, wrong range"),
        ([("a", 9, ZOMBIE), ("a", 1, B1)], [1, 2], {}, 2, "the next batch ends a shadow"),
        ([("a", 1, B0), ("b", 1, B1)], [1, 2], {}, 2, "clean all the way"),
    ],
)
def test_sweep(
    entries: list[tuple[str, int | None, Commit]],
    ends: list[int],
    shadows: dict[bytes, int],
    clean: int,
    why: str,
) -> None:
    targets = [target(by, -1, end) for by, end in zip((B0, B1), ends, strict=False)]
    sweep = swept(log(*entries), *targets)
    assert {key: shadow.first_offset for key, shadow in sweep.shadows.items()} == shadows, why
    assert (sweep.position, sweep.clean_through) == (ends[-1], clean), why


def test_a_sweep_waits_for_records_and_for_targets() -> None:
    records = log(("a", 1, B0), ("a", 2, ZOMBIE), ("a", 3, B1))
    sweep = Sweep(Offset(0))
    sweep.records(records[:1], Offset(1))
    assert sweep.position == 0
    sweep.target(target(B0, -1, 2))
    assert (sweep.position, sweep.is_behind) == (0, True)
    sweep.records(records, Offset(3))  # a consumer that began again further back
    assert (sweep.position, sweep.clean_through, sweep.foreign) == (2, 0, 1)
    sweep.target(target(B0, -1, 2))
    sweep.target(target(B1, 2, 3))
    assert (sweep.position, sweep.clean_through, sweep.is_behind) == (3, 3, False)


def test_a_tail_that_nobody_commits_casts_shadows_too() -> None:
    sweep = swept(log(("a", 1, B0), ("a", 2, ZOMBIE), ("b", 2, ZOMBIE)), target(B0, -1, 1))
    assert sweep.shadows == {}
    assert sweep.all_shadows() == {b"a": Shadow(Offset(1), 101), b"b": Shadow(Offset(2), 102)}


@pytest.mark.parametrize(
    ("entries", "ends", "published", "is_news", "why"),
    [
        ([("a", 1, B0), ("b", 1, B0)], [2], 0, True, "to be trusted when tombstones are gone"),
        ([("a", 2, ZOMBIE), ("a", 1, B0)], [2], 0, True, "a foreign record is behind all that"),
        ([("a", 2, ZOMBIE), ("a", 1, B0)], [2], 2, False, "all have heard of it"),
        ([("a", 1, B0), ("a", 2, ZOMBIE)], [2], 0, False, "it is shadowed: repair will tell"),
    ],
)
def test_what_an_idle_query_still_has_to_tell(
    entries: list[tuple[str, int | None, Commit]],
    ends: list[int],
    published: int,
    is_news: bool,
    why: str,
) -> None:
    sweep = swept(log(*entries), *(target(B0, -1, end) for end in ends))
    assert sweep.is_news(Offset(published)) is is_news, why


@pytest.mark.parametrize(
    ("taken", "since_ms", "clean", "why"),
    [
        ([], 50, 3, "nothing is missing"),
        ([1], 150, 3, "tombstones of that time are all there: it was superseded by what is there"),
        ([1], 50, 0, "who knows whether a foreign tombstone took it along, and went"),
        ([2], 50, 0, "missing at the end"),
    ],
)
def test_a_hole_from_before_the_tombstones_is_never_called_clean(
    taken: list[int], since_ms: int, clean: int, why: str
) -> None:
    sweep = Sweep(Offset(0), gone_ms=100)
    sweep.target(TargetSet(commit=B0, end=Offset(3), since_ms=since_ms))
    records = log(("a", 1, B0), ("b", 1, B0), ("c", 1, B0))
    sweep.records([each for each in records if each.offset not in taken], Offset(3))
    assert sweep.clean_through == clean, why
    assert bool(sweep.blind) is (clean == 0)
    sweep.target(TargetSet(commit=B1, end=Offset(3), since_ms=200))
    assert sweep.clean_through == clean, "and what comes later does not heal it"


def found_in(records: list[SweptRecord], sweep: Sweep, *targets: TargetSet) -> Finder:
    finder = Finder(sweep.all_shadows(), targets, Offset(0))
    finder.records(records)
    return finder


def test_the_committed_row_is_appended_again_and_an_absent_one_as_a_tombstone() -> None:
    records = log(("a", 1, B0), ("a", 2, B1), ("a", 8, ZOMBIE), ("b", 9, ZOMBIE))
    targets = [target(B0, -1, 1), target(B1, 1, 4)]
    sweep = swept(records, *targets)
    found = repairs(
        sweep.all_shadows(),
        found_in(records, sweep, *targets),
        now_ms=200,
        compaction_lag_ms=LAG_MS,
    )
    assert [(each.key, each.value) for each in found.records] == [(b"a", b'{"N":2}'), (b"b", None)]
    assert (found.unknown, found.too_late) == ((), ())


def test_a_repaired_record_says_what_it_repeats() -> None:
    """Also of one that was repaired before; and of a key that never had a row."""
    records = log(("a", 1, B0), ("a", 8, ZOMBIE), ("a", 1, B1), ("b", 9, ZOMBIE), ("a", 8, ZOMBIE))
    before = (HEADER_REPAIR, b"x" * 24)
    records[2] = records[2]._replace(headers=[before, *(records[2].headers or ())])
    targets = [target(B0, -1, 2), target(B1, 2, 5)]
    sweep = swept(records, *targets)
    finder = found_in(records, sweep, *targets)
    found = repairs(sweep.all_shadows(), finder, now_ms=200, compaction_lag_ms=LAG_MS)
    headers = {each.key: list(each.headers or ()) for each in found.records}
    assert Repeated.of(headers[b"a"]) == (2, 4, 104)
    assert Repeated.of(headers[b"b"]) == (3, 3, 103)
    assert before not in headers[b"a"]
    assert [name for name, _ in headers[b"a"]].count("sp-rowtime") == 1
    for other in (None, [], [(HEADER_REPAIR, None)], [(HEADER_REPAIR, b"x" * 23)]):
        assert Repeated.of(other) is None


def test_a_row_that_compaction_may_have_taken_is_not_called_absent() -> None:
    records = log(("b", 9, ZOMBIE))
    sweep = swept(records, target(B0, -1, 1))
    finder = found_in(records, sweep, target(B0, -1, 1))
    for now_ms, late in ((100 + LAG_MS - 1, ()), (100 + LAG_MS, (b"b",))):
        found = repairs(sweep.shadows, finder, now_ms=now_ms, compaction_lag_ms=LAG_MS)
        assert found.too_late == late


def test_a_blind_sweep_calls_no_row_absent() -> None:
    """Seed 59: a foreign tombstone took a row along and left; a repair of it that nobody committed
    was the next shadow, a young one, and the row was deleted by the repair after that."""
    records = log(("b", 9, ZOMBIE))
    sweep = swept(records, target(B0, -1, 1))
    finder = found_in(records, sweep, target(B0, -1, 1))
    known = {"now_ms": 100, "compaction_lag_ms": LAG_MS, "is_blind": True}
    assert repairs(sweep.shadows, finder, **known) == Repairs((), (), (b"b",))
    row = Repair(b"b", b"1", ())
    found = repairs(sweep.shadows, finder, replica_rows={b"b": row}, **known)
    assert found == Repairs((row,), (), ())


def test_a_finder_reads_up_to_the_shadow_and_not_the_shadow() -> None:
    records = log(("a", 1, B0), ("a", 8, ZOMBIE))
    sweep = swept(records, target(B0, -1, 2))
    finder = found_in(records, sweep, target(B0, -1, 2))
    assert finder.end == 1, "the row right before it is read"


def test_what_is_handed_in_twice_is_swept_once() -> None:
    records = log(("a", 1, B0), ("a", 1, B1))
    sweep = Sweep(Offset(0))
    sweep.target(target(B0, -1, 1))
    sweep.records(records[:1], Offset(1))
    sweep.records(records[:1], Offset(1))
    sweep.records([], Offset(0))
    sweep.records(records, Offset(2))
    sweep.target(target(B1, 1, 2))
    assert (sweep.foreign, sweep.shadows, sweep.clean_through) == (0, {}, 2)


def test_shadows_of_what_is_not_committed_yet_are_no_part_of_the_sweep() -> None:
    sweep = swept(log(("a", 1, B0), ("a", 2, B1)), target(B0, -1, 1))
    assert [*sweep.all_shadows()] == [b"a"]
    assert sweep.shadows == {}


def test_a_row_that_was_found_for_an_older_shadow_is_stale() -> None:
    records = log(("a", 1, B0), ("a", 8, ZOMBIE), ("a", 2, B1), ("a", 9, ZOMBIE))
    first = swept(records[:2], target(B0, -1, 2))
    finder = found_in(records[:2], first, target(B0, -1, 2))
    now = swept(records, target(B0, -1, 2), target(B1, 2, 4))
    found = repairs(now.shadows, finder, now_ms=0, compaction_lag_ms=LAG_MS)
    assert (found.records, found.unknown) == ((), (b"a",))


def test_below_clean_through_any_record_counts() -> None:
    records = log(("a", 1, None), ("a", 8, ZOMBIE))
    finder = Finder({b"a": Shadow(Offset(1), 0)}, [target(B1, -1, 2)], Offset(1))
    finder.records(records)
    assert finder.found[b"a"].offset == 0


def test_the_record_at_clean_through_is_not_below_it() -> None:
    records = log(("a", 1, B0), ("a", 8, ZOMBIE), ("a", 9, ZOMBIE))
    finder = Finder({b"a": Shadow(Offset(2), 0)}, [target(B0, -1, 2)], Offset(1))
    finder.records(records)
    assert finder.found[b"a"].offset == 0, "offset 1 needs its commit, and has another"


def test_a_repaired_record_keeps_its_other_headers() -> None:
    mine = (HEADER_COMMIT, commit_header(B1))
    theirs = [(HEADER_COMMIT, commit_header(B0)), ("sp-rowtime", b"12345678")]
    assert headers_under(theirs, mine) == [mine, ("sp-rowtime", b"12345678")]
