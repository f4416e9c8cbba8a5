"""The apply machine, boundary by boundary. Its dull twin is test_machine_twin.py."""

from __future__ import annotations

import pytest
from tests.unit.data.rows import CODEC, EMPTY, IDENTITY, commit, key_of, numbers, record, table

from standpipe.data.commit.progress import TargetSet
from standpipe.data.commit.topic_identity import LASTED_MS
from standpipe.data.replica.events import (
    ApplyBatch,
    EndReached,
    Fetched,
    LeftOutReport,
    LogEndReported,
    Order,
    PauseFetching,
    ProgressCaughtUp,
    RebuildStore,
    RecordsFetched,
    RecordsGone,
    ReportDataLoss,
    ResumeFetching,
    TopicReported,
)
from standpipe.data.replica.machine import ApplyMachine
from standpipe.data.replica.positions import StoreMeta
from standpipe.data.replica.stage import RowCodec
from standpipe.model import NO_BATCH, BatchId, Commit, LeaseEpoch, Offset, ReplicaState

B0, B1, B2 = commit(1, 0), commit(1, 1), commit(1, 2)


def target(by: Commit, end: int, **more: int | str) -> TargetSet:
    return TargetSet(commit=by, end=Offset(end), **more)  # type: ignore[arg-type]


def fetched(*records: Fetched) -> RecordsFetched:
    return RecordsFetched(records, Offset(records[-1][0] + 1))


def machine(meta: StoreMeta = EMPTY, **more: int) -> ApplyMachine:
    return ApplyMachine(CODEC, meta, **more)


def applied(orders: list[Order]) -> list[tuple[dict[str, str], list[bytes], int, int]]:
    """(rows, deletes, position, batch) of each ApplyBatch."""
    return [
        (
            {k[:-2].decode(): v.decode() for k, v in numbers(dict(order.puts)).items()},
            [*order.deletes],
            order.meta.position,
            order.meta.batch,
        )
        for order in orders
        if isinstance(order, ApplyBatch)
    ]


def test_a_batch_is_applied_when_its_target_and_all_its_records_are_there() -> None:
    for events in (
        [target(B0, 2), fetched(record(0, "a", 1, B0), record(1, "b", 2, B0))],
        [fetched(record(0, "a", 1, B0), record(1, "b", 2, B0)), target(B0, 2)],
    ):
        one = machine()
        assert one.handle(events[0]) == []
        assert applied(one.handle(events[1])) == [({"a": "[1]", "b": "[2]"}, [], 2, 0)]


def test_never_a_part_of_a_batch() -> None:
    one = machine()
    one.handle(target(B0, 3))
    assert one.handle(fetched(record(0, "a", 1, B0))) == []
    assert one.handle(fetched(record(1, "b", 1, B0))) == []
    assert applied(one.handle(fetched(record(2, "c", 1, B0))))[0][2:] == (3, 0)


def test_nothing_beyond_the_newest_target() -> None:
    one = machine()
    one.handle(fetched(record(0, "a", 1, B0), record(1, "b", 1, B1), record(2, "c", 1, B1)))
    assert applied(one.handle(target(B0, 1))) == [({"a": "[1]"}, [], 1, 0)]
    assert applied(one.handle(target(B1, 3))) == [({"b": "[1]", "c": "[1]"}, [], 3, 1)]


def test_several_whole_batches_are_one_transaction_and_the_later_row_wins() -> None:
    one = machine()
    one.handle(target(B0, 2))
    one.handle(target(B1, 4))
    orders = one.handle(
        fetched(
            record(0, "a", 1, B0),
            record(1, "b", 1, B0),
            record(2, "a", None, B1),
            record(3, "b", 2, B1),
            record(4, "a", 9, B2),
        )
    )
    assert applied(orders) == [({"b": "[2]"}, [key_of("a")], 4, 1)]


def test_a_row_that_comes_back_after_its_tombstone_is_not_deleted() -> None:
    one = machine()
    one.handle(target(B0, 3))
    rows = (record(0, "a", 1, B0), record(1, "a", None, B0), record(2, "a", 3, B0))
    assert applied(one.handle(fetched(*rows))) == [({"a": "[3]"}, [], 3, 0)]


@pytest.mark.parametrize(
    ("by", "why"),
    [
        (commit(1, 0, attempt=8), "another attempt of the same batch: a retry that failed"),
        (commit(1, 1), "a later batch whose progress is not there: written too early"),
        (commit(0, 0), "an older lease epoch: a zombie driver"),
        (commit(2, 0), "a newer lease epoch that is not what the target names"),
        (None, "no header: a stranger"),
    ],
)
def test_what_is_not_an_exact_match_is_foreign(by: Commit | None, why: str) -> None:
    one = machine()
    one.handle(target(B0, 2))
    orders = one.handle(fetched(record(0, "a", 1, B0), record(1, "a", 666, by)))
    assert applied(orders) == [({"a": "[1]"}, [], 2, 0)], why
    assert orders[1:] == [LeftOutReport(foreign=1, mismatched=0, unreadable=0, example="")], why
    assert one.status(confirmed_boot_ms=0, rows=1).foreign_records == 1


def test_a_straggler_of_a_batch_is_foreign_in_the_range_of_the_next() -> None:
    one = machine()
    one.handle(target(B0, 1))
    one.handle(target(B1, 3))
    rows = (record(0, "a", 1, B0), record(1, "a", 2, B1), record(2, "a", 1, B0))
    assert applied(one.handle(fetched(*rows))) == [({"a": "[2]"}, [], 3, 1)]


def test_a_batch_without_rows_here_moves_the_label_only() -> None:
    one = machine()
    one.handle(target(B0, 1))
    one.handle(fetched(record(0, "a", 1, B0)))
    assert applied(one.handle(target(B1, 1))) == [({}, [], 1, 1)]


def test_an_end_of_long_ago_is_no_end() -> None:
    """A replica that was opened again reads all progress from its beginning: until it has, the end
    that it heard of lies below its own position, and its lag would be zero."""
    one = machine()
    for by, end in ((B0, 1), (B1, 2)):
        assert one.status(confirmed_boot_ms=0, rows=0).committed_end == -1
        one.handle(target(by, end))
    assert one.status(confirmed_boot_ms=0, rows=0).offset_lag is None
    one.handle(ProgressCaughtUp())
    assert one.status(confirmed_boot_ms=0, rows=0).offset_lag == 2


def test_an_empty_partition_of_a_committed_batch_is_whole() -> None:
    one = machine()
    one.handle(ProgressCaughtUp())
    assert one.state is ReplicaState.BOOTSTRAP, "nothing is committed: it knows nothing yet"
    assert applied(one.handle(target(B0, 0))) == [({}, [], 0, 0)]
    assert one.state is ReplicaState.RUNNING


def test_a_replay_of_the_same_batch_by_a_newer_epoch_supersedes() -> None:
    replay = commit(2, 0, attempt=9)
    one = machine()
    one.handle(target(B0, 1))
    one.handle(fetched(record(0, "a", 1, B0), record(1, "a", 2, replay)))
    assert applied(one.handle(target(replay, 2))) == [({"a": "[2]"}, [], 2, 0)]
    assert one.meta.lease_epoch == 2


def test_targets_that_come_again_change_nothing() -> None:
    one = machine()
    for _ in range(2):
        one.handle(target(B0, 1))
        one.handle(target(B1, 2))
    rows = (record(0, "a", 1, B0), record(1, "a", 2, B1))
    assert applied(one.handle(fetched(*rows))) == [({"a": "[2]"}, [], 2, 1)]
    assert one.handle(target(B0, 1)) == []
    assert one.handle(target(B1, 2)) == []


def test_records_that_come_again_change_nothing() -> None:
    one = machine()
    one.handle(target(B0, 2))
    one.handle(fetched(record(0, "a", 1, B0)))
    again = fetched(record(0, "a", 1, B0), record(1, "b", 2, B0))
    assert applied(one.handle(again)) == [({"a": "[1]", "b": "[2]"}, [], 2, 0)]


# --------------------------------------------------------------------------------- compaction


def test_a_gap_hides_the_label_up_to_the_newest_target_of_that_moment() -> None:
    one = machine()
    for by, end in ((B0, 2), (B1, 4), (B2, 6)):
        one.handle(target(by, end))
    first = one.handle(fetched(record(1, "b", 1, B0)))  # offset 0 is gone: superseded later
    assert applied(first) == [({"b": "[1]"}, [], 2, NO_BATCH)]
    assert one.state is ReplicaState.BOOTSTRAP, "it was never whole: it must not answer"
    second = one.handle(fetched(record(2, "c", 1, B1), record(3, "d", 1, B1)))
    assert applied(second)[0][2:] == (4, NO_BATCH)
    third = one.handle(fetched(record(4, "a", 1, B2), record(5, "e", 1, B2)))
    assert applied(third)[0][2:] == (6, 2)
    assert one.state is ReplicaState.CATCHING_UP
    one.handle(ProgressCaughtUp())
    assert one.state is ReplicaState.RUNNING


def test_a_running_replica_that_meets_a_gap_is_catching_up_and_answers() -> None:
    one = machine()
    one.handle(target(B0, 1))
    one.handle(ProgressCaughtUp())
    one.handle(fetched(record(0, "a", 1, B0)))
    assert one.state is ReplicaState.RUNNING
    one.handle(target(B1, 3))
    one.handle(target(B2, 5))
    one.handle(fetched(record(2, "b", 1, B1)))
    assert (one.state, one.meta.batch) == (ReplicaState.CATCHING_UP, NO_BATCH)
    one.handle(fetched(record(3, "b", 1, B2), record(4, "c", 1, B2)))
    assert (one.state, one.meta.batch) == (ReplicaState.RUNNING, 2)


@pytest.mark.parametrize(
    ("gone_ms", "clean_through", "is_whole"),
    [(0, 0, True), (100, 0, False), (100, 2, False), (100, 3, True)],
)
def test_a_hole_from_before_the_tombstones_is_doubted_until_it_is_called_clean(
    gone_ms: int, clean_through: int, is_whole: bool
) -> None:
    """A foreign tombstone may have taken the row along, and then gone itself."""
    one = machine(gone_ms=gone_ms)
    one.handle(target(B0, 3, since_ms=50, clean_through=clean_through))
    one.handle(ProgressCaughtUp())
    one.handle(fetched(record(0, "a", 1, B0), record(1, "b", 1, B0)))
    one.handle(EndReached(Offset(3)))
    assert one.state.answers is is_whole
    assert bool(one.doubt(gone_ms=0)) is not is_whole
    if not is_whole:  # somebody who swept in time says so
        one.handle(target(B1, 3, since_ms=200, clean_through=3))
        assert one.state is ReplicaState.RUNNING


def test_a_range_whose_last_records_are_gone_ends_with_the_partition() -> None:
    one = machine()
    one.handle(target(B0, 3))
    one.handle(fetched(record(0, "a", 1, B0)))
    assert applied(one.handle(EndReached(Offset(3))))[0][2:] == (3, 0), "whole at the newest target"


def test_a_range_whose_last_records_are_gone_ends_with_the_next_record() -> None:
    one = machine()
    one.handle(target(B0, 3))
    one.handle(fetched(record(0, "a", 1, B0)))
    assert applied(one.handle(fetched(record(5, "a", 1, B1))))[0][2] == 3


def test_a_gap_beyond_all_targets_counts_when_a_target_covers_it() -> None:
    one = machine()
    one.handle(fetched(record(1, "a", 1, B0)))
    one.handle(target(B0, 2))
    assert one.meta.whole_at == 2


def test_a_torn_store_does_not_answer_until_it_is_whole() -> None:
    torn = StoreMeta(
        identity=IDENTITY, position=Offset(2), whole_at=Offset(4), lease_epoch=LeaseEpoch(1)
    )
    one = machine(torn)
    one.handle(target(B0, 2))
    one.handle(target(B1, 3))
    one.handle(target(B2, 4))
    one.handle(ProgressCaughtUp())
    assert one.state is ReplicaState.BOOTSTRAP
    one.handle(fetched(record(2, "a", 1, B1)))
    assert one.state is ReplicaState.BOOTSTRAP
    one.handle(fetched(record(3, "a", 1, B2)))
    assert one.state is ReplicaState.RUNNING


@pytest.mark.parametrize(
    ("clean_through", "rows", "why"),
    [
        (0, {}, "nothing is repaired: only exact matches"),
        (1, {"a": "[1]"}, "below it any record counts: its progress was tombstoned"),
    ],
)
def test_below_clean_through_the_order_decides(
    clean_through: int, rows: dict[str, str], why: str
) -> None:
    one = machine()
    one.handle(target(B2, 2, clean_through=clean_through))
    orders = one.handle(fetched(record(0, "a", 1, B0), record(1, "b", 1, B2)))
    assert applied(orders) == [({**rows, "b": "[1]"}, [], 2, 2)], why


def test_where_progress_records_are_gone_the_order_decides_once_it_is_clean() -> None:
    """Seed 272: a slow reader met a record whose predecessors had been tombstoned, took their
    rows for foreign, and missed their deletions."""
    one = machine()
    one.handle(target(B0, 1))
    one.handle(fetched(record(0, "a", 1, B0)))
    one.handle(target(B2, 3, start=2, after=1))
    rows = fetched(record(1, "a", None, B1), record(2, "b", 1, B2))
    assert applied(one.handle(rows)) == [], "who knows what lies below its start"
    orders = one.handle(target(commit(1, 3), 3, start=3, after=3, clean_through=2))
    assert applied(orders) == [({"b": "[1]"}, [key_of("a")], 3, 3)]


def test_a_shadow_ends_when_its_row_is_applied_not_when_it_is_fetched() -> None:
    """Seed 314: half of the batch that ends a shadow made the one before it whole."""
    one = machine()
    one.handle(target(B1, 3))
    one.handle(target(B2, 6))
    one.handle(ProgressCaughtUp())
    one.handle(LogEndReported(Offset(6)))
    one.handle(fetched(record(1, "a", 9, B0), record(2, "b", 1, B1)))  # offset 0 is gone
    one.handle(fetched(record(3, "b", 1, B0), record(4, "a", 2, B2)))
    assert (one.meta.position, one.meta.batch) == (3, NO_BATCH), "a row of a may be missing"
    one.handle(fetched(record(5, "b", 3, B2)))
    assert (one.meta.position, one.meta.batch) == (6, 2)


def test_a_shadow_ends_with_a_row_that_is_clean_by_now() -> None:
    """Seed 27: the row that ended it was read when its batch's target had been tombstoned, so the
    replica never became whole again."""
    one = machine()
    one.handle(target(B0, 3))
    one.handle(ProgressCaughtUp())
    one.handle(fetched(record(1, "a", 9, B2), record(2, "b", 1, B0)))  # offset 0 is gone
    assert (one.meta.position, one.meta.batch) == (3, NO_BATCH), "a row of a may be missing"
    one.handle(target(B2, 6, start=5, after=5, clean_through=5))
    one.handle(fetched(record(3, "a", 2, B1), record(4, "c", 1, B1), record(5, "b", 3, B2)))
    assert (one.meta.position, one.meta.batch) == (6, 2)


def test_a_shadow_that_is_clean_itself_counts_in_the_end() -> None:
    """Seed 659: nothing that came would have ended it."""
    one = machine()
    one.handle(target(B0, 3))
    one.handle(ProgressCaughtUp())
    one.handle(fetched(record(1, "a", 9, B2), record(2, "b", 1, B0)))  # offset 0 is gone
    one.handle(target(B1, 4))
    orders = one.handle(fetched(record(3, "b", 2, B1)))
    assert (one.meta.position, one.meta.batch) == (4, NO_BATCH), "a row of a may be missing"
    orders = one.handle(target(B1, 4, clean_through=4))
    assert applied(orders) == [({"a": "[9]"}, [], 4, 1)], (
        "it is the last of its key, so it is right"
    )


# ---------------------------------------------------------------------------------- restart


@pytest.mark.parametrize(
    ("position", "batch", "expected", "why"),
    [
        (1, 0, [({"b": "[1]"}, [], 2, 1)], "goes on behind what it has"),
        (2, 1, [], "has everything"),
        (0, NO_BATCH, [({"a": "[1]", "b": "[1]"}, [], 2, 1)], "empty"),
    ],
)
def test_a_restart_goes_on_from_the_store(
    position: int, batch: BatchId, expected: list[object], why: str
) -> None:
    lease = LeaseEpoch(1 if position else 0)
    at = StoreMeta(identity=IDENTITY, position=Offset(position), batch=batch, lease_epoch=lease)
    one = machine(at)
    one.handle(target(B0, 1))
    one.handle(target(B1, 2))
    one.handle(ProgressCaughtUp())
    rows = [record(0, "a", 1, B0), record(1, "b", 1, B1)][position:]
    orders = one.handle(fetched(*rows)) if rows else []
    assert applied(orders) == expected, why
    assert one.state is ReplicaState.RUNNING, why
    assert one.is_caught_up


def test_it_is_running_only_when_no_progress_can_be_missing() -> None:
    one = machine(StoreMeta(identity=IDENTITY, position=Offset(1), batch=BatchId(0)))
    one.handle(target(B0, 1))
    assert one.state is ReplicaState.CATCHING_UP
    assert not one.is_caught_up
    one.handle(ProgressCaughtUp())
    assert one.state is ReplicaState.RUNNING


# -------------------------------------------------------------------------------- data loss


@pytest.mark.parametrize(
    ("events", "lost", "why"),
    [
        ([target(B0, 4), ProgressCaughtUp()], True, "the committed end lies below the position"),
        ([target(B0, 5), ProgressCaughtUp()], False, "the boundary"),
        ([target(B0, 4)], False, "more targets may come"),
        ([ProgressCaughtUp()], True, "a progress topic that was made anew"),
        ([RecordsGone()], True, "a table topic that was made anew"),
        ([target(B0, 5, went_back=True)], True, "the writer found its log shorter than it was"),
        ([LogEndReported(Offset(3))], False, "a new leader may not know its end yet"),
    ],
)
def test_a_position_beyond_the_end_is_data_loss(
    events: list[TargetSet | ProgressCaughtUp | RecordsGone | LogEndReported], lost: bool, why: str
) -> None:
    one = machine(StoreMeta(identity=IDENTITY, position=Offset(5), batch=BatchId(0)))
    orders = [order for event in events for order in one.handle(event)]
    assert any(isinstance(order, ReportDataLoss) for order in orders) == lost, why
    assert (one.state is ReplicaState.DATA_LOSS) == lost, why
    if lost:
        assert one.handle(target(B2, 9)) == [], "nothing happens any more"


def test_a_bootstrap_whose_records_are_gone_begins_again() -> None:
    """Records of expired windows are deleted while a slow replica reads below them."""
    one = machine()
    one.handle(target(B0, 1000))
    one.handle(fetched(*[record(n, "a", n, B0) for n in range(6)]))
    assert one.handle(RecordsGone()) == [RebuildStore("the topic no longer has offset 6")]
    assert one.state is ReplicaState.BOOTSTRAP


def test_nothing_is_applied_before_its_topic_is_known_to_be_the_committed_one() -> None:
    one = machine(waiting_bytes_max=1500)
    one.handle(target(B0, 6, topic_id="I"))
    records = [record(n, "a", n, B0) for n in range(6)]
    assert one.handle(fetched(*records)) == [PauseFetching()], "nor does memory fill meanwhile"
    orders = one.handle(TopicReported("I", 0))
    assert applied(orders) == [({"a": "[5]"}, [], 6, 0)]
    assert orders[-1] == ResumeFetching()


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        (EMPTY, "a restore: what it would read passes for what was committed"),
        (StoreMeta(identity=IDENTITY, position=Offset(5), batch=BatchId(0)), "one that answers"),
    ],
)
def test_a_topic_that_was_made_anew_is_data_loss(meta: StoreMeta, why: str) -> None:
    one = machine(meta)
    one.handle(target(B1, 7, topic_id="I", clean_through=7))
    one.handle(TopicReported("J", 0))
    records = [record(n, "a", n, B1) for n in range(7)]
    assert one.handle(fetched(*records)) == [], why
    assert one.handle(ProgressCaughtUp()) == [], why
    (order,) = one.handle(TopicReported("J", LASTED_MS))
    assert isinstance(order, ReportDataLoss), why
    assert "recreated" in order.reason
    assert one.state is ReplicaState.DATA_LOSS


# ------------------------------------------------------------------------ bad records, memory


def test_bad_records_are_left_out_and_reported() -> None:
    one = ApplyMachine(RowCodec.of(table(partitions=2), 1), EMPTY)  # "a" lives in partition 0 of 2
    one.handle(target(B0, 4))
    good = record(1, "abc", 1, B0)
    bad_value = (1, b"abc", b"not json", good[3])
    no_rowtime = (2, b"abc", b'{"N":1}', (good[3] or ())[:1])
    orders = one.handle(
        fetched(record(0, None, 1, B0), bad_value, no_rowtime, record(3, "a", 1, B0))
    )
    assert isinstance(orders[1], LeftOutReport)
    assert (orders[1].unreadable, orders[1].mismatched) == (2, 1)
    assert "offset 1" in orders[1].example
    assert applied(orders) == [({"a": "[1]", "abc": "[1]"}, [], 4, 0)]
    assert one.meta.unreadable_records == 2
    assert one.meta.mismatched_records == 1


def test_fetching_pauses_while_too_much_waits_and_goes_on_afterwards() -> None:
    one = machine(waiting_bytes_max=1500)
    assert one.handle(fetched(record(0, "a", 1, B0))) == []
    more = [record(n, "a", n, B0) for n in range(1, 6)]
    assert one.handle(fetched(*more)) == [PauseFetching()]
    assert one.handle(fetched(record(6, "a", 6, B0))) == [], "what was under way still comes"
    orders = one.handle(target(B0, 9))
    assert orders == [ResumeFetching()], "a range that is longer than the limit must go on"
    rest = [record(n, "a", n, B0) for n in range(7, 9)]
    assert applied(one.handle(fetched(*rest))) == [({"a": "[8]"}, [], 9, 0)]


def test_a_replica_far_behind_gathers_batches() -> None:
    one = machine(transaction_rows=2, backlog_records=1)
    batches = [commit(1, n) for n in range(5)]
    for n, by in enumerate(batches):
        one.handle(target(by, n + 1))
    seen = [applied(one.handle(fetched(record(n, f"k{n}", n, by)))) for n, by in enumerate(batches)]
    assert [[(len(rows), at) for rows, _, at, _ in each] for each in seen] == [
        [], [(2, 2)], [], [(2, 4)], [(1, 5)],
    ]  # fmt: skip
    assert one.meta.batch == 4
