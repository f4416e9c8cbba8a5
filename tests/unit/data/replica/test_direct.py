"""The direct machine, boundary by boundary. Whole lives of it are in tests/sim."""

from __future__ import annotations

from msgspec.structs import replace
from tests.unit.data.replica.test_direct_stage import PLAIN, VERSIONED, record
from tests.unit.data.rows import EMPTY, DictStore, numbers

from standpipe.data.commit.topic_identity import LASTED_MS
from standpipe.data.replica.direct import HELD_MS_MAX, DirectMachine
from standpipe.data.replica.direct_stage import DirectCodec
from standpipe.data.replica.events import (
    ApplyBatch,
    EndReached,
    EndTold,
    Event,
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
    TopicSilent,
)
from standpipe.data.replica.positions import StoreMeta
from standpipe.model import NO_BATCH, OF_LOG, Offset, ReplicaState

TOPIC = TopicReported("id-1", 0)
Pair = tuple[str, int | None]


class Replica:
    """A machine with a store in memory."""

    def __init__(
        self,
        meta: StoreMeta = EMPTY,
        codec: DirectCodec = PLAIN,
        *,
        hears: bool = True,
        topic_id: str = "",
        **more: int,
    ) -> None:
        self.store = DictStore()
        self.store.meta = meta
        rows = self.store.rows
        self.machine = DirectMachine(
            codec,
            meta,
            lambda keys: {k: rows[k] for k in keys if k in rows},
            topic_id=topic_id,
            **more,
        )
        if hears:
            self(TOPIC)

    def __call__(self, *events: Event) -> list[Order]:
        found: list[Order] = []
        for event in events:
            for order in self.machine.handle(event):
                found.append(order)
                if isinstance(order, ApplyBatch):
                    self.store.apply(order)
        return found

    @property
    def rows(self) -> dict[str, str]:
        return {k[:-2].decode(): v.decode() for k, v in numbers(self.store.rows).items()}

    @property
    def at(self) -> tuple[int, int, str]:
        meta = self.store.meta
        return meta.position, meta.batch, self.machine.state.name


def fetched(first: int, *pairs: Pair, next_offset: int | None = None) -> RecordsFetched:
    records = [record(first + n, *pair) for n, pair in enumerate(pairs)]
    end = first + len(pairs) if next_offset is None else next_offset
    return RecordsFetched(records, Offset(end), [1000] * len(records))


def told(end: int, fetched: int, asked_ms: int = 0) -> EndTold:
    return EndTold(Offset(end), Offset(fetched), asked_ms)


def running(**limits: int) -> Replica:
    """At offset 2 of a log that ends there."""
    one = Replica(EMPTY, PLAIN, hears=True, **limits)
    one(fetched(0, ("a", 1), ("b", 2)), EndReached(Offset(2)), told(2, 2))
    assert one.at == (2, OF_LOG, "RUNNING")
    return one


def test_a_new_replica_answers_once_it_was_at_the_end() -> None:
    one = Replica()
    one(told(4, 0), fetched(0, ("a", 1), ("b", 2)))
    assert one.at == (2, NO_BATCH, "BOOTSTRAP"), "rows may be missing until the end"
    one(fetched(2, ("a", 3), ("b", None)))
    assert one.at == (4, OF_LOG, "RUNNING")
    assert one.rows == {"a": "[3]"}
    assert one.machine.is_caught_up


def test_the_end_that_the_consumer_meets_serves_as_well() -> None:
    one = Replica()
    one(fetched(0, ("a", 1)))
    assert one.at == (1, NO_BATCH, "BOOTSTRAP")
    one(EndReached(Offset(1)))
    assert one.at == (1, OF_LOG, "RUNNING")


def test_an_empty_topic() -> None:
    one = Replica()
    one(told(0, 0))
    assert one.at == (0, OF_LOG, "RUNNING")


def test_nothing_is_applied_before_the_topic_is_known() -> None:
    one = Replica(hears=False)
    assert one(fetched(0, ("a", 1)), EndReached(Offset(1))) == []
    one(TOPIC)
    assert one.at == (1, OF_LOG, "RUNNING")
    assert one.store.meta.topic_id == "id-1"


def test_a_new_store_takes_no_other_topic_than_the_table_was_made_for() -> None:
    """It begins after the topic was made again."""
    one = Replica(topic_id="id-1", hears=False)
    again = TopicReported("id-2", 100)
    one(again, told(1, 0, 100), fetched(0, ("a", 9)), EndReached(Offset(1)))
    assert (one.at[2], one.rows) == ("BOOTSTRAP", {})
    (lost,) = one(TopicReported("id-2", 100 + LASTED_MS))
    assert isinstance(lost, ReportDataLoss)
    assert one.rows == {}


def test_a_new_store_takes_the_topic_that_the_table_was_made_for() -> None:
    one = Replica(topic_id="id-1", hears=False)
    one(TOPIC, fetched(0, ("a", 1)), EndReached(Offset(1)))
    assert (one.at, one.store.meta.topic_id) == ((1, OF_LOG, "RUNNING"), "id-1")


def test_the_id_is_kept_before_any_row() -> None:
    one = Replica()
    assert (one.at, one.store.meta.topic_id) == ((0, NO_BATCH, "BOOTSTRAP"), "id-1")


def test_records_show_at_once() -> None:
    one = running()
    one(fetched(2, ("c", 3)))
    assert (one.at, one.rows["c"]) == ((3, OF_LOG, "RUNNING"), "[3]")
    assert one.machine.is_caught_up, "as far as it knows"
    one(told(9, 3))
    assert not one.machine.is_caught_up
    status = one.machine.status(confirmed_boot_ms=7, rows=3)
    assert (status.offset_lag, status.log_end, status.batch) == (6, 9, OF_LOG)


def test_a_replica_that_answers_holds_back_what_follows_a_gap() -> None:
    one = running()
    one(fetched(2, ("c", 3)), fetched(5, ("a", 9)))
    assert (one.at, one.rows) == ((3, OF_LOG, "RUNNING"), {"a": "[1]", "b": "[2]", "c": "[3]"})
    one(told(7, 3))
    assert one.at[0] == 3, "asked before the gap was read: the end may be older than the cleaning"
    one(told(7, 6))
    assert one.at[0] == 3, "not there yet"
    one(fetched(6, ("b", 8)))
    assert (one.at, one.rows) == ((7, OF_LOG, "RUNNING"), {"a": "[9]", "b": "[8]", "c": "[3]"})


def test_a_marker_at_the_end_is_no_doubt() -> None:
    one = running()
    one(fetched(2, ("c", 3)), EndReached(Offset(4)))
    assert one.at == (4, OF_LOG, "RUNNING")


def test_rows_without_a_label_if_there_is_no_room_to_hold_them() -> None:
    one = running(held_rows_max=2)
    one(fetched(4, ("a", 9)))
    assert one.at[0] == 2
    one(fetched(5, ("b", 9)))
    assert one.at == (6, NO_BATCH, "CATCHING_UP")
    one(fetched(6, ("c", 9)))
    assert one.at == (7, NO_BATCH, "CATCHING_UP"), "once shown, there is nothing left to protect"
    one(EndReached(Offset(7)))
    assert one.at == (7, OF_LOG, "RUNNING")


def test_rows_are_not_held_for_long() -> None:
    """Transactions that follow each other closely: each marker is a gap, and the end is not met."""
    one = running()
    at_ms = list(range(100, 100 + HELD_MS_MAX, 100))
    offset = number = 0
    for number, asked_ms in enumerate(at_ms):
        offset = 4 + 2 * number
        one(fetched(offset, ("a", number)), told(offset + 2, offset + 1, asked_ms))
        assert one.at == (2, OF_LOG, "RUNNING")
    one(told(offset + 2, offset + 1, at_ms[0] + HELD_MS_MAX))
    assert one.at == (offset + 1, NO_BATCH, "CATCHING_UP")
    assert one.rows["a"] == f"[{number}]"
    one(EndReached(Offset(offset + 2)), fetched(offset + 3, ("b", 7)))
    assert one.at == (offset + 2, OF_LOG, "RUNNING"), "the next gap has all the time again"
    one(told(offset + 5, offset + 4, at_ms[0] + HELD_MS_MAX + 100))
    assert one.at == (offset + 2, OF_LOG, "RUNNING")


def test_large_rows_are_not_held() -> None:
    one = running(bytes_max=5)
    one(fetched(4, ("a", 9)))
    assert one.at == (5, NO_BATCH, "CATCHING_UP")


def test_a_newer_gap_needs_a_newer_end() -> None:
    one = running()
    one(fetched(4, ("a", 9)), told(6, 5), fetched(7, ("b", 9)))
    assert one.at[0] == 2, "offset 6 is reached, and what is missing at 5 and 6 may be further on"
    one(told(8, 8))
    assert one.at == (8, OF_LOG, "RUNNING")


def test_a_store_that_stopped_in_a_gap_is_in_it_still() -> None:
    meta = replace(EMPTY, position=Offset(5), batch=NO_BATCH, topic_id="id-1")
    one = Replica(meta)
    one(fetched(5, ("a", 1)))
    assert one.at == (6, NO_BATCH, "BOOTSTRAP")
    one(told(6, 6))
    assert one.at == (6, OF_LOG, "RUNNING")


def test_a_store_that_is_whole_answers_at_once_and_continues() -> None:
    meta = replace(EMPTY, position=Offset(5), batch=OF_LOG, topic_id="id-1")
    one = Replica(meta)
    assert one.at == (5, OF_LOG, "CATCHING_UP")
    assert not one.machine.is_caught_up
    one(fetched(5, ("a", 1)), told(6, 6))
    assert one.at == (6, OF_LOG, "RUNNING")


def test_a_replica_that_is_far_behind_gathers() -> None:
    one = running(backlog_records=10, transaction_rows=3)
    one(told(100, 2), fetched(2, ("c", 1), ("d", 1)))
    assert one.at[0] == 2
    one(fetched(4, ("e", 1)))
    assert one.at == (5, OF_LOG, "RUNNING")
    one(fetched(5, *[("f", n) for n in range(85)]))
    assert one.at[0] == 90, "no longer far behind"


def test_what_changes_no_row_is_not_gathered_without_end() -> None:
    """A replay of a whole topic, or a flood of bad records: each takes memory, or a restart would
    read it again."""
    one = Replica(codec=VERSIONED, backlog_records=1, transaction_rows=3)
    one(fetched(0, *[(key, 9) for key in "abcdef"]), EndReached(Offset(6)), told(99, 6))
    one(fetched(6, ("a", 1), ("b", 1)))
    assert one.at[0] == 6
    one(fetched(8, ("c", 1)))
    assert (one.at[0], one.store.meta.superseded_records) == (9, 3)
    one(RecordsFetched([(9 + n, b"a", b"{", None) for n in range(3)], Offset(12), [0] * 3))
    assert (one.at[0], one.store.meta.unreadable_records) == (12, 3)


def test_records_that_come_twice_are_taken_once() -> None:
    one = running()
    one(fetched(1, ("b", 7), ("c", 3)))
    assert (one.at[0], one.rows["b"]) == (3, "[2]")
    assert one(fetched(0, ("a", 7))) == []


def test_what_is_left_out_is_counted_with_the_rows() -> None:
    one = running()
    bad = RecordsFetched([(2, b"a", b"{", None)], Offset(3), [0])
    applied, report = one(bad)
    assert isinstance(applied, ApplyBatch)
    assert isinstance(report, LeftOutReport)
    assert (one.at[0], one.store.meta.unreadable_records) == (3, 1)
    assert one.rows["a"] == "[1]"


def test_versions_are_held_against_the_store() -> None:
    one = Replica(codec=VERSIONED)
    one(fetched(0, ("a", 5)), EndReached(Offset(1)))
    one(fetched(1, ("a", 4)))
    assert (one.rows, one.store.meta.superseded_records) == ({"a": "[5]"}, 1)
    one(fetched(2, ("a", None)), fetched(3, ("a", 4)))
    assert one.rows == {"a": "[4]"}


def test_a_topic_made_again_is_data_loss_after_a_while() -> None:
    one = running()
    assert one(TopicReported("id-2", 100)) == []
    assert one(fetched(2, ("a", 7))) == [], "not this topic's, perhaps"
    (lost,) = one(TopicReported("id-2", 100 + LASTED_MS))
    assert isinstance(lost, ReportDataLoss)
    assert (one.at, one.rows["a"]) == ((2, OF_LOG, "DATA_LOSS"), "[1]")
    assert one(fetched(2, ("a", 7)), EndReached(Offset(3))) == []


def test_a_topic_of_which_nothing_is_heard_is_not_applied() -> None:
    one = running()
    assert one(TopicSilent(), fetched(2, ("a", 7))) == []
    assert not one.machine.is_caught_up
    one(TOPIC)
    assert one.rows["a"] == "[7]"


def test_a_log_that_ends_below_the_position_is_data_loss_after_a_while() -> None:
    one = running()
    assert one(told(1, 2, 100), told(1, 2, 100 + LASTED_MS - 1)) == []
    assert one(told(2, 2, 5_000), told(1, 2, 6_000)) == [], "a broker that lagged"
    (lost,) = one(told(1, 2, 6_000 + LASTED_MS))
    assert isinstance(lost, ReportDataLoss)
    assert "ends at 1, and 2 was applied" in lost.reason


def test_records_that_arrive_before_the_answer_are_no_sign_of_loss() -> None:
    """A partition with a thousand records a second: each answer is older than what was read."""
    one = running()
    for end in range(2, 82):
        assert one.at == (end, OF_LOG, "RUNNING")
        one(fetched(end, ("a", end)), told(end, end, 100 * end))
    assert one.machine.state is ReplicaState.RUNNING


def test_a_log_that_was_cut_off_above_the_position_is_complete_after_a_while() -> None:
    one = running()
    one(told(9, 2, 100), fetched(2, ("c", 3)), told(3, 3, 200))
    assert not one.machine.is_caught_up, "a broker that lagged, perhaps"
    one(told(9, 3, 1_000), told(3, 3, 2_000), told(3, 3, 1_999 + LASTED_MS))
    assert not one.machine.is_caught_up
    one(told(3, 3, 2_000 + LASTED_MS))
    assert (one.machine.is_caught_up, one.machine.committed_end) == (True, 3)


def test_the_end_of_another_log_says_nothing_of_a_gap() -> None:
    """A topic made again that is not noticed yet, with a few records."""
    one = running()
    one(fetched(5, ("a", 9)), told(1, 6))
    assert one.at == (2, OF_LOG, "RUNNING")
    assert one.rows["a"] == "[1]"


def test_a_topic_with_other_partitions_is_data_loss_after_a_while() -> None:
    """Producers put a key into another partition from then on, and its row here would stay."""
    one = running()
    assert one(TopicReported("id-1", 100, 2)) == []
    assert not one.machine.is_caught_up, "newer records may be elsewhere"
    one(TopicReported("id-1", 100 + LASTED_MS, 1), TopicReported("id-1", 8_000, 2))
    assert one.machine.state is ReplicaState.RUNNING, "a broker that was ahead"
    (lost,) = one(TopicReported("id-1", 8_000 + LASTED_MS, 2))
    assert isinstance(lost, ReportDataLoss)
    assert "has 2 partitions, and the table was made for 1" in lost.reason


def test_records_that_are_gone_because_the_log_begins_later() -> None:
    one = running()
    assert one(RecordsGone(), told(9, 2)) == [], "it may have been asked before"
    assert isinstance(one(told(9, 2))[0], RebuildStore)
    assert not one.machine.state.answers


def test_records_that_are_gone_because_the_log_was_cut_off() -> None:
    one = running()
    one(RecordsGone(), told(1, 2))
    assert isinstance(one(told(1, 2))[0], ReportDataLoss)


def test_records_that_are_gone_with_their_topic() -> None:
    """The next store would be made from another topic."""
    one = running()
    assert one(RecordsGone(), TopicReported("id-2", 0), told(9, 2), told(9, 2)) == []
    (lost,) = one(TopicReported("id-2", LASTED_MS))
    assert isinstance(lost, ReportDataLoss)


def test_fetching_pauses_while_it_is_not_known_which_topic_it_is() -> None:
    one = Replica(hears=False, bytes_max=500)
    assert one(fetched(0, ("a", 1))) == []
    assert one(fetched(1, ("b", 1))) == [PauseFetching()]
    assert one(fetched(2, ("c", 1))) == []
    assert one(TOPIC)[-1] == ResumeFetching()
    assert one.at[0] == 3


def test_what_is_about_progress_changes_nothing() -> None:
    one = running()
    assert one(ProgressCaughtUp(), LogEndReported(Offset(50))) == []
    assert one.machine.status(confirmed_boot_ms=0, rows=0).log_end == 50
    assert (one.machine.newest_rank, one.machine.shown_rank, one.machine.doubt(0)) == (
        *(None, None, ""),
    )


def test_brokers_without_ids() -> None:
    one = Replica(hears=False)
    one(TopicReported("", 0), fetched(0, ("a", 1)), EndReached(Offset(1)))
    assert one.at == (1, OF_LOG, "RUNNING")
    assert one.machine.state is ReplicaState.RUNNING
