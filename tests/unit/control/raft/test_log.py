"""The log's four rules: comparing, cutting, voter sets, what is durable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.raft_bench import key, log, voters
from tests.unit.control.scenarios import covers

from standpipe.control.raft.log import (
    Diverges,
    Entry,
    EpochEnd,
    LogView,
    LogViolation,
    NeedsSnapshot,
    SnapshotInfo,
)

EMPTY = SnapshotInfo(0, 0, voters(1, 2, 3))


def a_log(*epochs: int) -> LogView:
    return LogView(EMPTY, EMPTY, log(*epochs))


def after_snapshot(end: int, epoch: int, *epochs: int) -> LogView:
    start = SnapshotInfo(end, epoch, voters(1, 2, 3), 10)
    return LogView(start, start, log(*epochs, start=end))


#: e1 0-2, e3 3-5, e5 6-8
THREE = (1, 1, 1, 3, 3, 3, 5, 5, 5)


@covers("FD-05", "FD-06", "FD-07", "FD-08", "FD-09", "FD-10")
@pytest.mark.parametrize(
    ("offset", "last", "expected", "why"),
    [
        (9, 5, None, "at the end"),
        (7, 5, None, "inside the last epoch"),
        (6, 3, None, "exactly where the next epoch begins"),
        (0, 0, None, "an empty log is a prefix"),
        (6, 2, (1, 3), "an epoch that we do not know: the largest below it"),
        (6, 4, (3, 6), "between two known epochs"),
        (9, 7, (5, 9), "newer than ours"),
        (5, 1, (1, 3), "beyond the end of that epoch"),
        (12, 5, (5, 9), "beyond our end"),
        (2, 0, (0, 0), "no epoch at all, yet not empty"),
    ],
)
def test_check_fetch(offset: int, last: int, expected, why: str) -> None:
    verdict = a_log(*THREE).check_fetch(offset, last)
    assert verdict == (None if expected is None else Diverges(EpochEnd(*expected))), why


@covers("SN-01", "SN-02", "SN-03", "SN-04", "SN-05", "SN-06")
@pytest.mark.parametrize(
    ("offset", "last", "expected", "why"),
    [
        (3, 2, "snapshot", "below the start"),
        (0, 0, "snapshot", "a new replica: the snapshot is cheaper"),
        (5, 2, None, "at the start with its epoch"),
        (5, 1, "snapshot", "at the start with another epoch: what was before is gone"),
        (7, 1, "snapshot", "an epoch older than the start's"),
        (7, 2, (2, 5), "the snapshot's epoch ended at the snapshot"),
        (7, 3, (2, 5), "an epoch between the snapshot's and the next"),
        (7, 4, None, "inside the log"),
    ],
)
def test_check_fetch_above_a_snapshot(offset: int, last: int, expected, why: str) -> None:
    view = after_snapshot(5, 2, 4, 4, 4)
    verdict = view.check_fetch(offset, last)
    if expected == "snapshot":
        assert verdict == NeedsSnapshot(view.snapshot), why
    else:
        assert verdict == (None if expected is None else Diverges(EpochEnd(*expected))), why


EPOCHS = st.lists(st.integers(1, 5), max_size=8).map(sorted)


@given(EPOCHS, st.integers(0, 6))
def test_end_of_epoch_agrees_with_counting(epochs: list[int], asked: int) -> None:
    below = [epoch for epoch in epochs if epoch <= asked]
    expected = (below[-1] if below else 0, len(below))
    assert a_log(*epochs).end_of_epoch(asked) == expected


def tails(*epochs: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(epochs), max_size=5).map(sorted)


@given(tails(1, 2), tails(4, 6), tails(3, 5))
def test_divergence_ends_in_the_common_prefix(
    both: list[int], leaders: list[int], mine: list[int]
) -> None:
    """Fetch, truncate, fetch: what the two wrote alone is cut, what they share is kept."""
    leader, follower = a_log(*both, *leaders), a_log(*both, *mine)
    for _ in range(4):
        verdict = leader.check_fetch(follower.end, follower.last_epoch)
        if verdict is None:
            break
        follower.truncate(follower.truncation_for(verdict.end))
    assert verdict is None
    assert follower.end == len(both)


def test_the_bootstrap_snapshot_is_never_shipped() -> None:
    assert a_log(1, 1).check_fetch(0, 0) is None


@covers("FD-11", "FD-12")
@pytest.mark.parametrize(
    ("mine", "end", "cut", "why"),
    [
        ((3, 3, 3), (3, 2), 2, "the same epoch ended earlier there"),
        ((1, 3, 3), (2, 4), 1, "an epoch that we do not have: our largest below it"),
        ((1, 2, 2), (1, 5), 1, "ours of that epoch is shorter"),
        ((2, 2), (1, 3), 0, "nothing in common"),
    ],
)
def test_truncation_for(mine, end, cut: int, why: str) -> None:
    assert a_log(*mine).truncation_for(EpochEnd(*end)) == cut, why


@covers("FD-14", "FD-13", "SN-20")
def test_committed_entries_are_never_cut() -> None:
    view = a_log(1, 1, 1)
    view.commit(2)
    with pytest.raises(LogViolation, match="below the high watermark"):
        view.truncate(1)
    with pytest.raises(LogViolation, match="below the high watermark"):
        view.install(SnapshotInfo(1, 1, voters(1)))
    view.truncate(2)
    assert view.end == 2


@covers("FD-22", "HW-10")
@pytest.mark.parametrize("entry", [Entry(3, 1, b""), Entry(1, 1, b""), Entry(2, 0, b"")], ids=str)
def test_appends_continue_the_log(entry: Entry) -> None:
    with pytest.raises(LogViolation, match="after"):
        a_log(1, 1).append([entry])


@covers("HW-05", "FD-21")
def test_the_high_watermark_rises_up_to_the_end() -> None:
    view = a_log(1, 1)
    assert view.commit(9)
    assert view.high_watermark == 2
    assert not view.commit(1)
    assert view.high_watermark == 2


@covers("RC-25", "RC-04")
def test_a_cut_brings_the_former_voters_back() -> None:
    view = a_log(1)
    view.append([Entry(1, 1, voters(1, 2, 3, 4)), Entry(2, 1, b"")])
    assert view.voters == voters(1, 2, 3, 4)
    assert view.voters_at(1) == voters(1, 2, 3)
    view.truncate(1)
    assert view.voters == voters(1, 2, 3)


@covers("RC-26", "SN-25")
def test_a_trimmed_log_keeps_the_voters_at_its_start() -> None:
    view = a_log(1)
    view.append([Entry(1, 1, voters(1, 2)), Entry(2, 1, b""), Entry(3, 1, voters(1))])
    view.commit(4)
    first = SnapshotInfo(3, 1, view.voters_at(3), 10)
    view.keep_snapshot(first)
    view.keep_snapshot(SnapshotInfo(4, 1, view.voters_at(4), 10))
    assert view.start == first
    assert view.start.voters == voters(1, 2)
    assert view.voters == voters(1), "what the log records above the snapshot overrides it"


@covers("SN-18")
@pytest.mark.parametrize(
    ("end", "epoch", "why"),
    [(3, 1, "above the high watermark"), (2, 2, "another epoch"), (9, 1, "not in the log")],
)
def test_refuses_snapshot(end: int, epoch: int, why: str) -> None:
    view = a_log(1, 1, 1)
    view.commit(2)
    assert view.refuses_snapshot(end, epoch) is not None, why
    assert view.refuses_snapshot(2, 1) is None


@covers("SN-23", "SN-21")
def test_the_log_starts_at_the_snapshot_before_the_newest() -> None:
    view = a_log(1, 1, 2, 2, 3)
    view.commit(5)
    for end, epoch, start in ((2, 1, 0), (3, 2, 2), (5, 3, 3)):
        view.keep_snapshot(SnapshotInfo(end, epoch, voters(1), 1))
        assert view.start.end_offset == start
        assert view.epoch_before(start) == view.start.epoch
    assert view.end_of_epoch(2) == (2, 4)
    assert view.end_of_epoch(1) == (2, 3), "the start's own epoch is the oldest that is known"


@covers("HW-21", "PE-11")
def test_a_flush_from_before_a_cut_confirms_nothing_above_it() -> None:
    view = a_log(1)
    view.append(log(1, 1, start=1))
    first = view.wrote()
    view.truncate(1)
    view.wrote()
    view.append(log(2, 2, start=1))
    last = view.wrote()
    view.flushed(first)
    assert view.flushed_end == 1
    assert not view.is_flushed
    view.flushed(last)
    assert view.flushed_end == 3
    assert view.is_flushed


@covers("SN-22")
def test_installing_replaces_everything_and_counts_once_flushed() -> None:
    view = a_log(1, 1)
    view.install(SnapshotInfo(9, 4, voters(1, 2), 3))
    number = view.wrote()
    assert (view.end, view.last_epoch, view.high_watermark) == (9, 4, 9)
    assert view.flushed_end == 0
    view.flushed(number)
    assert view.flushed_end == 9


def test_may_stand_until_the_removal_is_known_to_be_committed() -> None:
    """A leader that removed itself may be the only one who can finish it (found by seed 82)."""
    view = a_log(1)
    view.append([Entry(1, 1, voters(2, 3))])
    assert view.may_be_candidate(key(1))
    view.commit(2)
    assert not view.may_be_candidate(key(1))
    assert view.may_be_candidate(key(2))
