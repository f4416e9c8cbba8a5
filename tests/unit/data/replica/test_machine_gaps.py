"""What a replica shows, and whether it answers, where compaction took records: the fine print."""

from __future__ import annotations

import pytest
from tests.unit.data.replica.test_machine import B0, B1, B2, applied, fetched, machine, target
from tests.unit.data.rows import IDENTITY, commit, key_of, record

from standpipe.data.replica.events import (
    EndReached,
    Fetched,
    LeftOutReport,
    LogEndReported,
    ProgressCaughtUp,
)
from standpipe.data.replica.machine import ApplyMachine
from standpipe.data.replica.positions import ReplicaEvent, StoreMeta, opened
from standpipe.model import NO_BATCH, BatchId, LeaseEpoch, Offset, ReplicaState

B3, B4, ZOMBIE = commit(1, 3), commit(1, 4), commit(0, 9)


def running() -> ApplyMachine:
    """At offset 1, with one row."""
    one = machine()
    one.handle(target(B0, 1))
    one.handle(ProgressCaughtUp())
    one.handle(fetched(record(0, "a", 1, B0)))
    assert one.state is ReplicaState.RUNNING
    return one


def at(position: int) -> StoreMeta:
    return StoreMeta(
        identity=IDENTITY,
        position=Offset(position),
        batch=BatchId(1),
        lease_epoch=LeaseEpoch(1),
    )


# ------------------------------------------------------------------------------ again and again


def test_records_that_were_applied_and_come_again_are_not_foreign() -> None:
    one = machine()
    one.handle(target(B0, 2))
    rows = (record(0, "a", 1, B0), record(1, "b", 1, B0))
    one.handle(fetched(*rows))
    one.handle(target(B1, 3))
    orders = one.handle(fetched(*rows, record(2, "c", 1, B1)))
    assert applied(orders) == [({"c": "[1]"}, [], 3, 1)]
    assert not [order for order in orders if isinstance(order, LeftOutReport)]


def test_records_that_wait_and_come_again_take_nothing_back() -> None:
    one = machine()
    first, second = record(0, "a", 1, B0), record(1, "b", 1, B0)
    for records in ((first, second), (first,)):
        one.handle(fetched(*records))
    assert applied(one.handle(target(B0, 2))) == [({"a": "[1]", "b": "[1]"}, [], 2, 0)]


def test_the_target_that_a_store_is_at_is_nothing_new() -> None:
    assert machine(at(2)).handle(target(B1, 2)) == []


def test_a_watermark_does_not_fall() -> None:
    one = machine()
    one.handle(target(B0, 0, watermark_ms=9))
    one.handle(target(B1, 0, watermark_ms=5))
    assert one.status(confirmed_boot_ms=0, rows=0).watermark_ms == 9


# -------------------------------------------------------------------------------- when it is whole


def test_all_that_was_in_the_log_when_a_gap_was_met_is_waited_for() -> None:
    one = machine()
    one.handle(target(B0, 2))
    one.handle(ProgressCaughtUp())
    one.handle(LogEndReported(Offset(6)))
    one.handle(LogEndReported(Offset(3)))  # of a leader that has just taken over
    one.handle(fetched(record(1, "b", 1, B0)))  # offset 0 is gone
    assert one.meta.batch == NO_BATCH
    one.handle(fetched(record(4, "z", 9, ZOMBIE)))
    one.handle(EndReached(Offset(6)))
    assert one.meta.batch == NO_BATCH, "4 lies below 6, and nobody has judged it"


def test_a_replica_is_whole_once_it_is_known_that_nothing_more_was_there() -> None:
    one = machine()
    one.handle(target(B0, 2))
    one.handle(ProgressCaughtUp())
    one.handle(LogEndReported(Offset(4)))
    one.handle(fetched(record(1, "b", 1, B0)))  # offset 0 is gone
    assert (one.meta.batch, one.state) == (NO_BATCH, ReplicaState.BOOTSTRAP)
    assert one.meta.whole_at > one.meta.position, "stopped now, it is made anew"
    one.handle(EndReached(Offset(4)))
    assert (one.meta.batch, one.state) == (0, ReplicaState.RUNNING)
    assert one.meta.whole_at <= one.meta.position


def test_a_row_that_is_settled_is_shown_although_another_may_be_missing() -> None:
    one = machine()
    one.handle(target(B0, 4))
    one.handle(ProgressCaughtUp())
    rows = (record(1, "a", 9, ZOMBIE), record(2, "b", 1, B0), record(3, "c", 9, ZOMBIE))
    one.handle(fetched(*rows))  # offset 0 is gone
    orders = one.handle(target(B0, 4, clean_through=2))
    assert applied(orders) == [({"a": "[9]"}, [], 4, NO_BATCH)]


def test_nothing_is_settled_before_all_that_is_clean_is_applied() -> None:
    """A committed row behind it may be what is right."""
    one = machine()
    one.handle(target(B0, 3))
    one.handle(ProgressCaughtUp())
    one.handle(fetched(record(1, "a", 9, ZOMBIE), record(2, "b", 1, B0)))  # offset 0 is gone
    assert one.handle(target(B1, 8, clean_through=8)) == []


# ------------------------------------------------------------------------------------- in doubt


def test_a_gap_before_a_record_is_doubted_as_one_at_the_end_is() -> None:
    one = machine(gone_ms=100)
    one.handle(target(B0, 3, since_ms=50))
    one.handle(fetched(record(1, "a", 1, B0), record(2, "b", 1, B0)))
    assert one.doubt(gone_ms=100)


def test_a_gap_in_what_is_clean_is_not_doubted() -> None:
    one = machine(gone_ms=100)
    one.handle(target(B0, 4, since_ms=50, clean_through=2))
    one.handle(fetched(record(1, "a", 1, B0), record(2, "b", 1, B0), record(3, "c", 1, B0)))
    assert (one.doubt(gone_ms=100), one.meta.batch) == ("", 0)


def test_a_running_replica_in_doubt_does_not_answer() -> None:
    one = machine(gone_ms=100)
    one.handle(target(B0, 1, since_ms=150))
    one.handle(ProgressCaughtUp())
    one.handle(fetched(record(0, "a", 1, B0)))
    assert one.state is ReplicaState.RUNNING
    one.handle(target(B1, 3, since_ms=50))
    one.handle(fetched(record(2, "b", 1, B1)))  # offset 1 is gone
    assert one.state is ReplicaState.BOOTSTRAP


def test_a_foreign_tombstone_that_left_the_topic_before_it_was_repaired_is_doubted() -> None:
    """Seed 5219 of `make sim-data`: a pipeline that came back too late did not see it, and the
    replica waited for a repair for ever, although a peer had the row."""
    one = machine()
    one.handle(target(B0, 3, committed_at_ms=200))
    one.handle(ProgressCaughtUp())
    one.handle(fetched(record(1, "a", None, ZOMBIE), record(2, "b", 1, B0)))  # offset 0 is gone
    assert (one.meta.batch, one.doubt(gone_ms=200)) == (NO_BATCH, ""), "a repair may come"
    assert "offset 1" in one.doubt(gone_ms=201)
    one.handle(target(B1, 4, committed_at_ms=300))
    one.handle(fetched(record(3, "a", 2, B1)))
    assert (one.meta.batch, one.doubt(gone_ms=201)) == (1, ""), "the next row of the key ends it"


def test_a_foreign_row_does_not_leave_the_topic_by_itself() -> None:
    one = machine()
    one.handle(target(B0, 3, committed_at_ms=200))
    one.handle(ProgressCaughtUp())
    one.handle(fetched(record(1, "a", 9, ZOMBIE), record(2, "b", 1, B0)))  # offset 0 is gone
    assert (one.meta.batch, one.doubt(gone_ms=900)) == (NO_BATCH, "")


# ------------------------------------------------------------------------------------- by order


def test_rows_by_order_are_no_batch_even_without_a_gap() -> None:
    """The repair of a foreign record may lie behind the target."""
    one = machine()
    one.handle(target(B1, 3))
    one.handle(target(B2, 6, start=3, after=3, clean_through=5))
    rows = (record(0, "a", 1, B0), record(1, "a", 9, ZOMBIE), record(2, "b", 1, B1))
    assert applied(one.handle(fetched(*rows)))[0][2:] == (3, NO_BATCH)
    assert one.state is ReplicaState.BOOTSTRAP
    repaired = (record(3, "a", 1, B1), record(4, "c", 1, B1), record(5, "d", 1, B2))
    one.handle(fetched(*repaired))
    assert (one.meta.batch, one.state) == (2, ReplicaState.CATCHING_UP)


def test_who_goes_by_order_does_not_answer_until_it_is_whole_and_then_as_if_it_never_had() -> None:
    one = running()
    one.handle(target(B2, 4, start=3, after=1))
    one.handle(target(B3, 6, start=4, after=4, clean_through=3))
    one.handle(fetched(record(1, "a", 9, ZOMBIE), record(2, "b", 1, B1), record(3, "c", 1, B2)))
    assert (one.meta.position, one.state) == (4, ReplicaState.BOOTSTRAP)
    one.handle(fetched(record(4, "a", 2, B3), record(5, "d", 1, B3)))
    assert (one.meta.batch, one.state) == (3, ReplicaState.RUNNING)
    one.handle(target(B4, 8, start=6, after=6))
    one.handle(target(commit(1, 5), 9, start=8, after=8))
    one.handle(fetched(record(7, "d", 2, B4)))  # offset 6 is gone
    assert (one.meta.position, one.state) == (8, ReplicaState.CATCHING_UP), "a gap, and no order"


def test_a_long_range_by_order_is_applied_in_parts_that_nobody_reads() -> None:
    """Most of an old table is one range; a replica that is made from it need not hold it all."""
    one = machine(transaction_rows=2)
    one.handle(target(B2, 6, start=4, clean_through=5))
    assert one.handle(fetched(record(0, "a", 1, B0))) == []
    part = one.handle(fetched(record(1, "b", 9, ZOMBIE), record(2, "a", None, B0)))
    assert applied(part) == [({"b": "[9]"}, [key_of("a")], 3, NO_BATCH)]
    assert one.state is ReplicaState.BOOTSTRAP
    assert opened(one.meta) is ReplicaEvent.OPENED_TORN, "it is made anew where it stops here"
    rest = (record(3, "b", 2, B1), record(4, "c", 1, B2), record(5, "d", 1, B2))
    assert applied(one.handle(fetched(*rest))) == [
        ({"b": "[2]", "c": "[1]", "d": "[1]"}, [], 6, BatchId(2))
    ]
    assert (one.state, opened(one.meta)) == (ReplicaState.CATCHING_UP, ReplicaEvent.OPENED_WHOLE)


def test_a_replica_that_answers_goes_on_answering_until_all_that_goes_by_order_is_there() -> None:
    one = machine(at(2), transaction_rows=1)
    one.handle(target(B3, 6, start=5, after=1, clean_through=5))
    assert one.handle(fetched(record(2, "a", 1, B0), record(3, "b", 1, B1))) == []
    assert (one.state, one.meta.position) == (ReplicaState.CATCHING_UP, 2)
    rest = one.handle(fetched(record(4, "c", 1, B2), record(5, "d", 1, B3)))
    assert applied(rest)[0][2:] == (6, BatchId(3))


def test_what_is_not_called_clean_is_never_applied_in_part() -> None:
    one = machine(transaction_rows=1)
    one.handle(target(B1, 6, start=2, clean_through=3))
    assert len(applied(one.handle(fetched(record(0, "a", 1, B0), record(1, "b", 1, B0))))) == 1
    assert one.handle(fetched(record(2, "c", 1, B1), record(3, "d", 1, B1))) == []
    assert one.meta.position == 2


def test_targets_that_are_known_are_applied_as_batches_below_what_is_clean() -> None:
    one = running()
    one.handle(target(B1, 2, start=1, after=1))
    one.handle(target(B2, 3, start=2, after=2, clean_through=3))
    assert applied(one.handle(fetched(record(1, "a", 2, B1)))) == [({"a": "[2]"}, [], 2, 1)]
    assert one.state is ReplicaState.RUNNING


def test_who_has_applied_what_is_gone_from_the_topic_of_progress_waits_for_nobody() -> None:
    one = machine(at(2))
    one.handle(target(B2, 3, start=2, after=1))
    assert applied(one.handle(fetched(record(2, "a", 2, B2)))) == [({"a": "[2]"}, [], 3, 2)]


# ----------------------------------------------------------------- a topic without its beginning


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ((record(4, "b", 2, B1), record(5, "c", 2, B1)), "the first commit is gone as a whole"),
        ((record(2, "b", 1, B0), record(4, "c", 2, B1)), "half of it is, and gaps besides"),
        ((), "all is: every window has expired"),
    ],
)
def test_a_topic_whose_beginning_was_deleted_is_enough(
    records: tuple[Fetched, ...], why: str
) -> None:
    """Windows that expired are deleted below what is called clean (`data/commit/expiry.py`)."""
    one = machine()
    one.handle(target(B0, 3, clean_through=6))
    one.handle(target(B1, 6, clean_through=6))
    one.handle(ProgressCaughtUp())
    one.handle(LogEndReported(Offset(6)))
    if records:
        one.handle(fetched(*records))
    one.handle(EndReached(Offset(6)))
    assert (one.state, one.meta.position, one.meta.batch) == (ReplicaState.RUNNING, 6, 1), why
    assert one.doubt(gone_ms=10**15) == "", why
