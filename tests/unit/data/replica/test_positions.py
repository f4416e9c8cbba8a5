"""States, lags and status pages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.rows import EMPTY

from standpipe.data.replica import positions
from standpipe.data.replica.positions import NEXT, ReplicaEvent, StoreMeta, next_state
from standpipe.model import BatchId, Offset, ReplicaState, ReplicaStatus

LIVE = (ReplicaState.BOOTSTRAP, ReplicaState.CATCHING_UP, ReplicaState.RUNNING)


@pytest.mark.parametrize(
    ("state", "event", "end", "why"),
    [
        ("ABSENT", "OPENED_EMPTY", "BOOTSTRAP", ""),
        ("ABSENT", "OPENED_TORN", "BOOTSTRAP", "between two batches: it must not answer"),
        ("ABSENT", "OPENED_WHOLE", "CATCHING_UP", "whole at an older batch"),
        ("BOOTSTRAP", "GAP_APPLIED", "BOOTSTRAP", "still no whole batch"),
        ("BOOTSTRAP", "BATCH_APPLIED", "CATCHING_UP", ""),
        ("BOOTSTRAP", "END_REACHED", "RUNNING", ""),
        ("CATCHING_UP", "END_REACHED", "RUNNING", ""),
        ("RUNNING", "BATCH_APPLIED", "RUNNING", "a batch behind is a lag, not a state"),
        ("RUNNING", "GAP_APPLIED", "CATCHING_UP", ""),
        ("RUNNING", "ORDER_APPLIED", "BOOTSTRAP", "a foreign record may be among its rows"),
        ("CATCHING_UP", "ORDER_APPLIED", "BOOTSTRAP", "the same"),
        ("DATA_LOSS", "END_REACHED", "DATA_LOSS", "stays until it is rebuilt"),
        ("DATA_LOSS", "REBUILT", "BOOTSTRAP", ""),
        ("FAILED", "CLOSED", "ABSENT", ""),
    ],
)
def test_transitions(state: str, event: str, end: str, why: str) -> None:
    assert next_state(ReplicaState[state], ReplicaEvent[event]).name == end, why


def test_every_live_state_can_be_lost_fail_be_rebuilt_and_close() -> None:
    for state in LIVE:
        assert next_state(state, ReplicaEvent.DATA_LOST) is ReplicaState.DATA_LOSS
        assert next_state(state, ReplicaEvent.STORE_FAILED) is ReplicaState.FAILED
        assert next_state(state, ReplicaEvent.REBUILT) is ReplicaState.BOOTSTRAP
    assert all(next_state(s, ReplicaEvent.CLOSED) is ReplicaState.ABSENT for s in ReplicaState)


def test_nothing_but_a_whole_batch_makes_a_replica_answer() -> None:
    whole = {ReplicaEvent.OPENED_WHOLE, ReplicaEvent.BATCH_APPLIED, ReplicaEvent.END_REACHED}
    gained = {event for (state, event), end in NEXT.items() if end.answers and not state.answers}
    assert gained == whole


def test_a_pair_that_cannot_happen_is_an_error() -> None:
    with pytest.raises(KeyError):
        next_state(ReplicaState.RUNNING, ReplicaEvent.OPENED_EMPTY)


@pytest.mark.parametrize(
    ("meta", "event", "why"),
    [
        ({}, "OPENED_EMPTY", ""),
        ({"batch": 3, "position": 9}, "OPENED_WHOLE", ""),
        ({"batch": 0, "position": 0}, "OPENED_WHOLE", "an empty table is whole, too"),
        ({"batch": -1, "position": 9, "whole_at": 12}, "OPENED_TORN", ""),
        ({"batch": 3, "position": 12, "whole_at": 12}, "OPENED_WHOLE", "the boundary"),
    ],
)
def test_opened(meta: dict[str, int], event: str, why: str) -> None:
    assert positions.opened(msgspec.structs.replace(EMPTY, **meta)).name == event, why


@pytest.mark.parametrize(
    ("boot_id", "clean", "age_ms", "rebuild", "why"),
    [
        ("now", False, 1, False, "only the process died: the page cache has everything"),
        ("before", True, 1, False, "synced before the machine went down"),
        ("before", False, 1, True, "nobody knows what reached the disk"),
        ("", False, 1, False, "nothing was ever written"),
        ("now", True, 1000, False, "as old as the tombstones: the boundary"),
        ("now", True, 1001, True, "it may have missed a tombstone"),
    ],
)
def test_must_rebuild(boot_id: str, clean: bool, age_ms: int, rebuild: bool, why: str) -> None:
    meta = msgspec.structs.replace(EMPTY, boot_id=boot_id, last_applied_ms=10_000)
    found = positions.must_rebuild(
        meta, at(10_000 + age_ms), closed_cleanly=clean, tombstones_ms=1000
    )
    assert (found is not None) == rebuild, why


def at(wall_ms: int, boot_ms: int = 0, boot_id: str = "now") -> positions.Now:
    return positions.Now(wall_ms=wall_ms, boot_ms=boot_ms, boot_id=boot_id)


def test_a_store_that_was_behind_is_as_old_as_it_was_current() -> None:
    """What it applied last may have been old already, and so may the tombstones behind it."""
    meta = msgspec.structs.replace(EMPTY, last_applied_ms=10_000, current_ms=9_000)
    rules: dict[str, Any] = {"closed_cleanly": True, "tombstones_ms": 1000}
    assert positions.must_rebuild(meta, at(10_000), **rules) is None
    assert positions.must_rebuild(meta, at(10_001), **rules) is not None


@pytest.mark.parametrize(
    ("now", "unread_ms", "why"),
    [
        (at(10_030, 530), 30, "both clocks went on"),
        (at(4_000, 5_500), 5_000, "the wall clock was set back: the other one knows"),
        (at(9_000, 600, "next"), 0, "... but not beyond its boot"),
        (at(10_030, 5_500, "next"), 30, "the number of another boot says nothing"),
        (at(90_000, 530), 80_000, "set ahead, or the machine was held: who knows"),
        (at(9_000, 400), 0, "never less than nothing"),
    ],
)
def test_a_store_is_as_old_as_the_clock_says_that_saw_more(
    now: positions.Now, unread_ms: int, why: str
) -> None:
    meta = msgspec.structs.replace(EMPTY, current_ms=10_000, current_boot_ms=500, boot_id="now")
    assert positions.unread_ms(meta, now) == unread_ms, why


def test_a_store_keeps_its_age_when_it_is_opened_in_another_boot() -> None:
    """From then on the clock of that boot knows it, should the wall clock be set back."""
    meta = msgspec.structs.replace(EMPTY, current_ms=10_000, current_boot_ms=500, boot_id="before")
    opened = positions.opened_at(meta, at(10_070, 20))
    assert (opened.boot_id, opened.current_boot_ms) == ("now", -50), "50 ms before this boot"
    assert positions.unread_ms(opened, at(4_000, 120)) == 170


def test_age_that_the_boot_clock_alone_knows_survives_the_next_boot() -> None:
    """The wall clock was set back by five days, and the machine started twice."""
    day_ms = 86_400_000
    meta = msgspec.structs.replace(
        EMPTY, current_ms=10 * day_ms, current_boot_ms=0, last_applied_ms=10 * day_ms, boot_id="a"
    )
    first = positions.opened_at(
        meta, positions.Now(wall_ms=11 * day_ms, boot_ms=6 * day_ms, boot_id="a")
    )
    later = positions.Now(wall_ms=12 * day_ms, boot_ms=1000, boot_id="b")
    assert positions.unread_ms(first, later) == 7 * day_ms


def test_a_store_without_that_date_is_no_younger_for_a_batch_that_leaves_it_behind() -> None:
    old = msgspec.structs.replace(EMPTY, boot_id="a", last_applied_ms=1000)
    opened = positions.opened_at(old, at(61_000, 500))
    applied = positions.applied_at(opened, opened, at(61_000, 500), is_caught_up=False)
    assert positions.unread_ms(applied, at(61_000, 500)) == 60_000


def test_machines_that_cannot_tell_their_boot_are_not_the_same() -> None:
    meta = msgspec.structs.replace(EMPTY, boot_id="", current_ms=1000, current_boot_ms=5)
    now = positions.Now(wall_ms=1060, boot_ms=10**9, boot_id="")
    assert positions.unread_ms(meta, now) == 60


def test_an_empty_store_has_no_age() -> None:
    opened = positions.opened_at(EMPTY, at(10_000, 500))
    assert positions.unread_ms(opened, at(90_000, 80_500)) == 0


def test_a_store_that_was_opened_by_an_older_version_is_dated_by_its_rows() -> None:
    meta = msgspec.structs.replace(EMPTY, last_applied_ms=10_000)
    assert positions.opened_at(meta, at(10_040, 500)).current_boot_ms == 460


@pytest.mark.parametrize(
    ("current_ms", "is_caught_up", "since", "why"),
    [
        (0, False, (50, 5), "its first transaction"),
        (7, False, (7, 1), "behind: as old as before"),
        (7, True, (50, 5), "at the committed end"),
    ],
)
def test_applied_at(current_ms: int, is_caught_up: bool, since: tuple[int, int], why: str) -> None:
    before = msgspec.structs.replace(EMPTY, current_ms=current_ms, current_boot_ms=1)
    meta = positions.applied_at(EMPTY, before, at(50, 5), is_caught_up=is_caught_up)
    assert (meta.current_ms, meta.current_boot_ms) == since, why
    assert (meta.last_applied_ms, meta.boot_id) == (50, "now")


@pytest.mark.parametrize(
    ("now_ms", "is_due", "why"),
    [
        (1050, False, "the boundary"),
        (1051, True, "it has been quiet for long"),
        (950, False, "the boundary"),
        (949, True, "the clock was set back: what is written is yet to come"),
    ],
)
def test_a_store_that_is_current_says_so_though_no_batch_comes(
    now_ms: int, is_due: bool, why: str
) -> None:
    assert positions.must_note_current(1000, now_ms, tombstones_ms=1000) is is_due, why


@pytest.mark.parametrize(("silent_ms", "is_due"), [(1800, False), (1801, True)])
def test_who_knew_nothing_for_half_the_compaction_lag_begins_anew(
    silent_ms: int, is_due: bool
) -> None:
    assert positions.must_restart(silent_ms, compaction_lag_ms=3600) is is_due


@pytest.mark.parametrize(("silent_ms", "is_due"), [(1000, False), (1001, True)])
def test_a_partition_that_was_away_for_longer_than_tombstones_is_judged_anew(
    silent_ms: int, is_due: bool
) -> None:
    assert positions.must_reopen(silent_ms, tombstones_ms=1000) is is_due


def status(**fields: int) -> ReplicaStatus:
    return msgspec.structs.replace(positions.blank_status(ReplicaState.RUNNING), **fields)


@pytest.mark.parametrize(
    ("confirmed_boot_ms", "lag_ms", "why"),
    [
        (0, None, "never confirmed is unknown, not fresh"),
        (900, 100, ""),
        (1200, 0, "read an instant after the clock was"),
        (2001, None, "of the boot before: not fresh"),
    ],
)
def test_replica_lag(confirmed_boot_ms: int, lag_ms: int | None, why: str) -> None:
    found = positions.replica_lag_ms(status(confirmed_boot_ms=confirmed_boot_ms), 1000)
    assert found == lag_ms, why


@pytest.mark.parametrize(
    ("source_boot_ms", "instant_ms", "lag_ms", "why"),
    [
        (0, 0, None, "nobody knows"),
        (0, 99_000, 1000, "only the pipeline does"),
        (700, 99_000, 300, "this node has a clock of its own"),
        (700, 0, 300, ""),
        (1200, 0, 0, "read an instant after the clock was"),
        (2001, 99_000, 1000, "of the boot before"),
        (0, 100_001, 0, "the pipeline's clock is ahead"),
    ],
)
def test_source_lag(source_boot_ms: int, instant_ms: int, lag_ms: int | None, why: str) -> None:
    page = status(source_boot_ms=source_boot_ms)
    found = positions.source_lag_ms(page, instant_ms, now_ms=100_000, now_boot_ms=1000)
    assert found == lag_ms, why


@pytest.mark.parametrize(
    ("beat_boot_ms", "silent_ms", "why"),
    [
        (0, None, "a page that does not say it"),
        (10_000, 0, "just now"),
        (7000, 3000, "a while ago"),
        (10_999, 0, "the page was read after the clock"),
        (11_001, 10_000, "of the previous boot: silent since this one began"),
    ],
)
def test_tailer_silent_ms(beat_boot_ms: int, silent_ms: int | None, why: str) -> None:
    page = status(beat_boot_ms=beat_boot_ms)
    assert positions.tailer_silent_ms(page, 10_000) == silent_ms, why


NUMBERS = st.integers(-(2**63), 2**63 - 1)


TOPIC_IDS = st.sampled_from(["", "z2wJ8aYAQsS5cCDw_5-1Lg", "x" * 24])


@given(st.sampled_from(ReplicaState), st.lists(NUMBERS, min_size=14, max_size=14), TOPIC_IDS)
def test_status_pages_round_trip(state: ReplicaState, numbers: list[int], topic_id: str) -> None:
    others = ("state", "progress_topic_id")
    names = [name for name in ReplicaStatus.__struct_fields__ if name not in others]
    fields = dict(zip(names, numbers, strict=True))
    page = ReplicaStatus(state=state, progress_topic_id=topic_id, **fields)  # type: ignore[arg-type]
    data = positions.pack_status(page)
    assert len(data) == positions.STATUS_BYTES
    assert positions.unpack_status(data) == page


def test_the_id_of_a_topic_is_whole_or_unknown() -> None:
    """Two ids that are equal as far as they fit would be taken for one topic."""
    page = positions.unpack_status(positions.pack_status(status(progress_topic_id="x" * 25)))
    assert page is not None
    assert page.progress_topic_id == ""


def test_a_torn_page_is_unknown() -> None:
    old = positions.pack_status(status(position=1, rows=2))
    new = positions.pack_status(status(position=7, rows=9))
    for cut in range(1, len(old)):
        torn = new[:cut] + old[cut:]
        if torn not in (old, new):
            assert positions.unpack_status(torn) is None
    assert positions.unpack_status(b"") is None
    assert positions.unpack_status(bytes(positions.STATUS_BYTES)) is None, "never written"


def test_meta_keeps_unknown_fields_out_of_the_way() -> None:
    newer = msgspec.msgpack.encode({**msgspec.structs.asdict(EMPTY), "novelty": 1})
    assert msgspec.msgpack.decode(newer, type=StoreMeta) == EMPTY
    assert (Offset(0), BatchId(-1)) == (EMPTY.position, EMPTY.batch)
