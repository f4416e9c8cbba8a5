"""Who may go on with a query, from which batch, and which ends it may commit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.data.rows import commit

from standpipe.data.commit.progress import fence
from standpipe.data.commit.takeover import (
    Logs,
    Surplus,
    ends_refused,
    furthest_behind,
    has_counted,
    heir_of,
    is_apart,
    is_in_place,
    is_lost,
    is_planned_otherwise,
    next_batch,
    standing,
    streamed,
    surplus,
    takes_part,
)
from standpipe.model import NO_BATCH, BatchId, LeaseEpoch, Progress


def record(epoch: int, batch: int, query_id: str = "Q") -> Progress:
    return Progress(query_id=query_id, commit=commit(epoch, batch), sinks={0: batch})


def wall(epoch: int, query_id: str = "Q") -> Progress:
    return fence(query_id, LeaseEpoch(epoch), nonce=epoch)


@pytest.mark.parametrize(
    ("records", "valid", "fenced_by", "why"),
    [
        ([], NO_BATCH, None, "a new query"),
        ([wall(2)], NO_BATCH, None, "a fence commits nothing"),
        ([wall(1), record(1, 0), record(1, 1), wall(2)], 1, None, "as they come"),
        ([wall(1), record(1, 0), wall(2), record(1, 1)], 0, None, "a zombie's record is void"),
        ([record(1, 0), wall(2), record(1, 1), record(2, 1)], 1, None, "and its replay is valid"),
        ([record(1, 0), wall(3), wall(2)], 0, 3, "ours came too late: hands off the checkpoint"),
        ([wall(2), record(3, 0)], 0, 3, "a record fences as a fence does"),
        ([record(1, 5, "OTHER"), record(1, 0)], 0, None, "other queries do not count"),
        ([wall(3, "OTHER"), wall(2)], NO_BATCH, None, "nor do their epochs"),
    ],
)
def test_standing(records: list[Progress], valid: int, fenced_by: int | None, why: str) -> None:
    found = standing(records, "Q", LeaseEpoch(2))
    assert (found.valid, found.fenced_by) == (valid, fenced_by), why


def logs(commits: list[int], covers: dict[int, int]) -> Logs:
    """`covers`: {batch: offset up to which it covers the only source}."""
    return Logs(frozenset(commits), {batch: {"s": {0: end}} for batch, end in covers.items()})


@pytest.mark.parametrize(
    ("found", "heir", "why"),
    [
        ({}, None, "all are lost"),
        ({1: logs([0], {0: 5, 1: 9})}, 1, "killed before the commit log"),
        ({1: logs([0], {0: 5})}, None, "an old copy"),
        ({1: logs([0, 1], {0: 5, 1: 8})}, None, "its batch covers other events"),
        ({1: logs([0, 1], {0: 5, 1: 9}), 2: logs([0], {0: 5, 1: 8})}, 1, "a zombie's is later"),
        ({1: logs([0, 1], {1: 9}), 2: logs([0, 1], {1: 9, 2: 11})}, 2, "of two, the later"),
    ],
)
def test_heir_of(found: dict[int, Logs], heir: int | None, why: str) -> None:
    newest = Progress(query_id="Q", commit=commit(1, 1), sources={"s": {0: 9}})
    by_epoch = {LeaseEpoch(epoch): each for epoch, each in found.items()}
    assert heir_of(by_epoch, newest) == heir, why
    assert heir_of(by_epoch, None) is None


def committed(query_id: str, batch: int, end: int) -> Progress:
    return Progress(query_id=query_id, commit=commit(1, batch), sources={"s": {0: end}})


@pytest.mark.parametrize(
    ("batches", "found", "heir", "why"),
    [
        ((1, 1), {1: logs([0, 1], {0: 5, 1: 9})}, 1, "both have the same"),
        ((0, 1), {1: logs([0], {0: 5, 1: 9})}, 1, "killed between two progress records"),
        ((None, 0), {1: logs([], {0: 5})}, 1, "in the first batch"),
        ((0, 1), {1: logs([0], {0: 5})}, None, "what the one ahead covers is gone"),
        ((0, 1), {1: logs([0], {0: 5, 1: 8})}, None, "it covers other events"),
        ((0, 1), {1: logs([0], {0: 5, 1: 9}), 2: logs([0], {0: 5, 1: 8})}, 1, "a zombie's"),
    ],
)
def test_heir_of_a_group(
    batches: tuple[int | None, ...], found: dict[int, Logs], heir: int | None, why: str
) -> None:
    ends = {0: 5, 1: 9}
    newest = [
        None if batch is None else committed(f"Q{place}", batch, ends[batch])
        for place, batch in enumerate(batches)
    ]
    by_epoch = {LeaseEpoch(epoch): each for epoch, each in found.items()}
    assert heir_of(by_epoch, *newest) == heir, why
    assert furthest_behind(newest) == min(-1 if batch is None else batch for batch in batches)


@pytest.mark.parametrize(
    ("commits", "offsets", "valid", "gone", "why"),
    [
        ([], [], -1, Surplus(commits=(), offsets=()), "new"),
        ([0, 1], [0, 1], 1, Surplus(commits=(), offsets=()), "in step"),
        ([0, 1], [0, 1, 2], 2, Surplus(commits=(), offsets=()), "killed before the commit log"),
        ([0, 1], [0, 1, 2], 1, Surplus(commits=(), offsets=()), "killed before the progress"),
        ([0, 1, 2], [0, 1, 2], 1, Surplus(commits=(2,), offsets=()), "2 is void: run it again"),
        (
            [0, 1, 2, 3],
            [0, 1, 2, 3, 4],
            1,
            Surplus(commits=(2, 3), offsets=(3, 4)),
            "2 is run again; 3 would make Spark skip it",
        ),
        ([0], [0, 1], -1, Surplus(commits=(0,), offsets=(1,)), "nothing was ever valid"),
        ([], [0, 1], 0, Surplus(offsets=(1,)), "the commit of 0 is lost: run 0 again, not 1"),
        ([0, 1], [0, 1, 2, 3], 2, Surplus(offsets=(3,)), "the same later on"),
        ([0, 2], [0, 1, 2], 1, Surplus(commits=(2,), offsets=(2,)), "that of 1 alone is lost"),
    ],
)
def test_surplus(
    commits: list[int], offsets: list[int], valid: int, gone: Surplus, why: str
) -> None:
    assert surplus(commits, offsets, BatchId(valid)) == gone, why


@pytest.mark.parametrize(
    ("commits", "valid", "ahead", "apart", "why"),
    [
        ([0, 1, 2], 2, 2, False, "all members have it"),
        ([0, 1, 2], 2, 3, False, "the driver died between two of its progress records"),
        ([0, 1, 2, 3, 4], 2, 4, False, "4 is planned again, and it takes part in that"),
        ([0, 1, 2, 3, 4], 2, 5, True, "a zombie went on: it would be left out of the new 4"),
        ([0, 1], 2, 2, False, "the entry of 2 is lost: 2 is replayed as it was"),
        ([0, 1], 2, 3, False, "and it takes part in 3"),
        ([], -1, 1, False, "one member has two batches"),
        ([0, 1], -1, 2, True, "or three"),
    ],
)
def test_a_member_is_apart_if_it_would_miss_events(
    commits: list[int], valid: int, ahead: int, apart: bool, why: str
) -> None:
    following = next_batch(commits, BatchId(valid))
    assert is_apart(record(1, ahead), following) is apart, why
    planned_again = surplus(commits, range(9), BatchId(valid)).offsets
    assert any(each < ahead for each in planned_again) is apart, why
    assert not is_apart(None, following)


@pytest.mark.parametrize(
    ("newest", "batch", "ends", "is_other", "why"),
    [
        (None, 0, {0: 3}, False, "nothing was committed before"),
        (replace(record(1, 4), sources={"s": {0: 9}}), 5, {0: 12}, False, "a new batch"),
        (replace(record(1, 4), sources={"s": {0: 9}}), 4, {0: 9}, False, "replayed as it was"),
        (replace(record(1, 4), sources={"s": {0: 9}}), 4, {0: 7}, True, "rows would go back"),
        (
            replace(record(1, 4), sources={"s": {0: 9, 1: 2}}),
            4,
            {0: 7, 1: 8},
            True,
            "more records, but fewer of one partition",
        ),
        (replace(record(1, 4), sources={"s": {0: 9}}), 4, {0: 11}, True, "it covers more"),
        (replace(record(1, 0), is_load=True), 0, {0: 3}, False, "a load before all batches"),
    ],
)
def test_a_batch_that_readers_saw_is_planned_otherwise(
    newest: Progress | None, batch: int, ends: dict[int, int], is_other: bool, why: str
) -> None:
    assert is_planned_otherwise(newest, batch, {"s": ends}) is is_other, why


@pytest.mark.parametrize(
    ("commits", "offsets", "valid", "lost", "why"),
    [
        ([], [], -1, False, "new"),
        ([], [], 0, True, "the checkpoint is gone"),
        ([0, 1], [0, 1], 1, False, "in step"),
        ([0], [0, 1], 1, False, "begun: a replay covers the same events"),
        ([0], [0], 1, True, "an old copy: 1 would cover other events"),
        ([0], [0, 1, 2], 2, True, "a hole in the commit log"),
    ],
)
def test_is_lost(commits: list[int], offsets: list[int], valid: int, lost: bool, why: str) -> None:
    assert is_lost(commits, offsets, BatchId(valid)) is lost, why


@pytest.mark.parametrize(
    ("before", "answered", "rows", "refused", "why"),
    [
        ({}, {0: 3}, 3, False, "the first batch"),
        ({0: 5, 1: 5}, {0: 5, 1: 5}, 0, False, "an empty batch"),
        ({0: 5, 1: 5}, {0: 7, 1: 6}, 3, False, "as many as were written"),
        ({0: 5, 1: 5}, {0: 7, 1: 7}, 3, False, "more: somebody else wrote too"),
        ({0: 5, 1: 5}, {0: 6, 1: 6}, 3, True, "fewer: the answer is old"),
        ({0: 5, 1: 5}, {0: 6, 1: 6}, None, False, "nobody counted"),
        ({0: 5, 1: 5}, {0: 9, 1: 4}, 3, True, "below what was committed"),
        ({0: 5, 1: 5}, {0: 9}, 3, True, "a partition does not answer"),
    ],
)
def test_ends_refused(
    before: dict[int, int], answered: dict[int, int], rows: int | None, refused: bool, why: str
) -> None:
    assert (ends_refused(before, answered, rows) is not None) is refused, why


@pytest.mark.parametrize(
    ("newest", "batch", "expected", "why"),
    [
        (None, 0, True, "it has none"),
        (4, 5, True, "the next one"),
        (4, 4, True, "replayed: the same rows under another attempt"),
        (4, 3, False, "replayed for others: its rows would be older than those that are there"),
    ],
)
def test_which_members_of_a_group_a_batch_commits(
    newest: int | None, batch: int, expected: bool, why: str
) -> None:
    before = None if newest is None else record(1, newest)
    assert takes_part(before, batch) is expected, why


BATCH = replace(record(1, 4), sources={"s": {0: 9}})
LOAD = replace(BATCH, commit=commit(2, 4), is_load=True, is_first=False)
FIRST_LOAD = replace(record(1, 0), is_load=True, is_first=True)
#: of a release that does not say whether a batch came before the load
OLD_LOAD = replace(LOAD, is_first=None)
OLD_FIRST_LOAD = replace(FIRST_LOAD, is_first=None)
#: a batch of a topic pattern that no topic matched yet, and a load after it
BARE_BATCH = record(1, 0)
BARE_LOAD = replace(BARE_BATCH, commit=commit(2, 0), is_load=True, is_first=False)


@pytest.mark.parametrize(
    ("newest", "of_batches", "why"),
    [
        (None, None, "nothing is committed"),
        (BATCH, BATCH, "a batch of a stream"),
        (LOAD, LOAD, "it has the number and the sources of that batch"),
        (FIRST_LOAD, None, "no checkpoint has it: the first batch is still to come"),
        (OLD_LOAD, OLD_LOAD, "it has sources, so a batch came before it"),
        (OLD_FIRST_LOAD, None, "it has none, so no batch did"),
        (BARE_BATCH, BARE_BATCH, "a batch without sources is a batch"),
        (BARE_LOAD, BARE_LOAD, "a load after it has none either, but is not the first"),
    ],
)
def test_what_a_checkpoint_must_have(
    newest: Progress | None, of_batches: Progress | None, why: str
) -> None:
    assert streamed(newest) == of_batches, why


@pytest.mark.parametrize(
    ("newest", "batch", "is_stream", "in_place", "why"),
    [
        (None, 0, True, False, "nothing is committed"),
        (BATCH, 4, True, True, "a stream's events are there already"),
        (BATCH, 5, True, False, "the next batch"),
        (BATCH, 4, False, False, "rows of a table replace each other"),
        (LOAD, 4, False, True, "its rows would replace those of the load"),
        (LOAD, 5, False, False, "the next batch is newer than the load"),
        (FIRST_LOAD, 0, False, False, "the first batch is newer than the load"),
        (BARE_LOAD, 0, False, True, "the batch had no topic, and was before the load"),
    ],
)
def test_which_replay_leaves_its_rows_in_place(
    newest: Progress | None, batch: int, is_stream: bool, in_place: bool, why: str
) -> None:
    assert is_in_place(newest, batch, is_stream=is_stream) == in_place, why


@pytest.mark.parametrize(
    ("records", "counts", "why"),
    [
        ([wall(2), LOAD], True, "as it was written"),
        ([wall(2), LOAD, wall(3)], True, "a later takeover leaves it in place"),
        ([wall(2), wall(3), LOAD], False, "it was paused, and another one took over"),
        ([wall(2), wall(3, "OTHER"), LOAD], True, "another query"),
        ([wall(2), replace(LOAD, commit=commit(2, 4, attempt=9))], None, "another attempt"),
        ([wall(3), record(3, 5)], None, "it was paused until its record was removed"),
    ],
)
def test_whether_readers_see_a_commit(
    records: list[Progress], counts: bool | None, why: str
) -> None:
    assert has_counted(records, LOAD) is counts, why
