"""Bugs put into the data path on purpose: the net must catch each of them, or it has a hole.

Two that it found itself in worlds that are otherwise drawn now hold in unit tests alone, for 300
seeds no more catch them: a range judged by its own commit (`progress._since_ms`) and a row called
absent although the sweep is blind (`repair.repairs`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from standpipe.control.routing import route
from standpipe.data.commit import progress, repair, takeover
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.progress import ProgressBook
from standpipe.data.commit.seal import HEADER_MAC, NO_SEAL, ProgressReader
from standpipe.data.encoding import stored_rows
from standpipe.data.encoding.store_keys import commit_header, parse_commit_header
from standpipe.data.replica import events as apply_events
from standpipe.data.replica import positions
from standpipe.data.replica.gaps import Gaps
from standpipe.data.replica.machine import ApplyMachine
from standpipe.data.replica.stage import Stage
from standpipe.model import Offset

from . import (
    data_groups_planted,
    data_janitor_planted,
    data_loads_planted,
    data_recreated_planted,
    data_windows_planted,
)
from .data_pipeline import SimDriver
from .data_tailer import SimTailer
from .runner import Plant, replacing


def _stage_if(fits: Callable[[Any, Any], bool]) -> list[Plant]:
    """Other commits than the wanted one are shown too, where `fits(found, wanted)`."""

    def make(add: Any) -> Any:
        def lax(stage: Any, records: Any, codec: Any, wanted: bytes | None) -> None:
            if wanted is None:
                add(stage, records, codec, None)
                return
            for record in records:
                found = dict(record[3] or ()).get("sp-commit")
                is_fit = found is not None and fits(
                    parse_commit_header(found), parse_commit_header(wanted)
                )
                add(stage, [record], codec, None if is_fit else wanted)

        return lax

    return [replacing(Stage, "add", make)]


def accept_another_attempt() -> list[Plant]:
    """The right lease epoch and batch are enough."""

    def fits(found: Any, wanted: Any) -> bool:
        return (found.lease_epoch, found.batch) == (wanted.lease_epoch, wanted.batch)

    return _stage_if(fits)


def accept_any_batch_of_the_epoch() -> list[Plant]:
    """A straggler of an older batch is shown."""
    return _stage_if(lambda found, wanted: found.lease_epoch == wanted.lease_epoch)


def skip_the_header_check_on_restore() -> list[Plant]:
    """A replica without a batch takes everything in its order."""

    def make(judge: Any) -> Any:
        def lax(machine: Any, records: Any, target: Any) -> None:
            if machine.meta.position == 0:
                target = msgspec.structs.replace(target, start=Offset(-1))
                newest = machine._newest
                machine._newest = msgspec.structs.replace(newest, clean_through=newest.end)
                judge(machine, records, target)
                machine._newest = newest
            else:
                judge(machine, records, target)

        return lax

    return [replacing(ApplyMachine, "_judge", make)]


def label_a_compacted_range() -> list[Plant]:
    """Gaps are not noticed."""
    return [(Gaps, "met", lambda gaps, *of: None)]


def whole_although_rows_may_be_missing() -> list[Plant]:
    """A foreign record that may stand for a committed row suspends nothing."""

    def make(met: Any) -> Any:
        def lax(gaps: Any, *of: Any) -> None:
            met(gaps, *of)
            gaps._suspect_end = Offset(0)

        return lax

    return [replacing(Gaps, "met", make)]


def trust_a_hole_from_before_the_tombstones() -> list[Plant]:
    """Neither the reader, in a range or behind it, nor the sweep asks whether what took a record
    has left as well."""

    def make(begin: Any) -> Any:
        return lambda sweep, clean_through, gone_ms=0: begin(sweep, clean_through, 0)

    return [
        (Gaps, "doubt", lambda gaps, clean_through: ""),
        *trust_the_end_of_the_log(),
        replacing(repair.Sweep, "__init__", make),
    ]


def trust_the_end_of_the_log() -> list[Plant]:
    """What lay behind the last batch, and is gone, was nobody's tombstone."""

    def make(are_rows_whole: Any) -> Any:
        def lax(gaps: Any, applied: Any, **known: Any) -> Any:
            applied = msgspec.structs.replace(applied, committed_at_ms=10**15)
            return are_rows_whole(gaps, applied, **known)

        return lax

    return [replacing(Gaps, "are_rows_whole", make)]


def grow_old_while_idle() -> list[Plant]:
    """A store is as old as its last batch, whoever confirmed it since."""
    return [(positions, "must_note_current", lambda current_ms, now_ms, tombstones_ms: False)]


def say_nothing_while_idle() -> list[Plant]:
    """What became clean after the last batch is told with the next one, if there is one."""
    return [(repair.Sweep, "is_news", lambda sweep, published: False)]


def answer_while_going_by_order() -> list[Plant]:
    """A replica that was away goes by offset order below `clean_through`, and answers meanwhile."""
    states, events = positions.ReplicaState, positions.ReplicaEvent
    table = dict(positions.NEXT)
    for state in (states.CATCHING_UP, states.RUNNING):
        table[state, events.ORDER_APPLIED] = states.CATCHING_UP
    return [(positions, "NEXT", table)]


def bound_rows_between_two_batches() -> list[Plant]:
    """A read with a bound gets rows of a compacted range, by their lag alone."""
    rules = tuple(rule for rule in route.RULES if rule is not route.is_of_one_batch)
    return [(route, "RULES", rules)]


def apply_past_the_target() -> list[Plant]:
    """What was fetched is applied, committed or not."""

    def make(set_target: Any) -> Any:
        def hasty(machine: Any, target: Any) -> None:
            end = max(target.end, machine._fetched)
            set_target(machine, msgspec.structs.replace(target, end=Offset(end)))

        return hasty

    return [replacing(ApplyMachine, "_set_target", make)]


def commit_position_before_rows() -> list[Plant]:
    """Two transactions, and a crash may come between them."""

    def apply_(tailer: SimTailer, order: Any) -> None:
        tailer.store.apply(msgspec_order(order, [], []), tailer.world.now_ms)
        if tailer.random.random() < 0.05:
            tailer.world.kill_between_steps(tailer)
            return
        tailer.store.apply(order, tailer.world.now_ms)

    def msgspec_order(order: Any, puts: Any, deletes: Any) -> Any:
        return apply_events.ApplyBatch(puts, deletes, order.meta)

    return [(SimTailer, "apply", apply_)]


def progress_before_the_sinks_flush() -> list[Plant]:
    """The last row is still under way when the ends are read."""

    def make(write_rows: Any) -> Any:
        def hasty(driver: Any, rows: Any, commit: Any) -> Any:
            late = rows[-1:]
            yield from write_rows(driver, rows[:-1], commit)
            driver.world.after(100, lambda: driver.world.write(late, commit))

        return hasty

    return [
        replacing(SimDriver, "_write_rows", make),
        (takeover, "ends_refused", lambda before, answered, rows: None),
    ]


def believe_any_end_offset() -> list[Plant]:
    """The ends that a broker answers are committed, whatever they are."""
    return [(takeover, "ends_refused", lambda before, answered, rows: None)]


def resume_a_store_older_than_tombstones() -> list[Plant]:
    """However long it slept."""

    def make(must_rebuild: Any) -> Any:
        def lax(meta: Any, now: Any, **known: Any) -> Any:
            return must_rebuild(meta, now, **{**known, "tombstones_ms": 10**12})

        return lax

    return [replacing(positions, "must_rebuild", make)]


def go_on_with_a_torn_store() -> list[Plant]:
    """A store that was stopped while it was being made is taken for one that only lags."""

    def make(must_rebuild: Any) -> Any:
        def lax(meta: Any, now: Any, **known: Any) -> Any:
            return must_rebuild(msgspec.structs.replace(meta, whole_at=Offset(0)), now, **known)

        return lax

    return [replacing(positions, "must_rebuild", make)]


def repair_with_a_stale_row() -> list[Plant]:
    """A row that was found is appended, whatever was committed since."""

    def make(repairs: Any) -> Any:
        def lax(shadows: Any, finder: Any, **known: Any) -> Any:
            finder.shadows = {**shadows}
            return repairs(shadows, finder, **known)

        return lax

    return [replacing(repair, "repairs", make)]


def repair_nothing() -> list[Plant]:
    """Shadows are not seen, so everything is called clean."""
    return [(repair, "_cast", lambda shadows, record: None)]


def call_a_missing_row_absent() -> list[Plant]:
    """What compaction may have taken is repaired with a tombstone."""

    def make(repairs: Any) -> Any:
        def lax(shadows: Any, finder: Any, **known: Any) -> Any:
            return repairs(shadows, finder, **{**known, "compaction_lag_ms": 10**12})

        return lax

    return [replacing(repair, "repairs", make)]


def ignore_the_epoch_of_a_progress_record() -> list[Plant]:
    """A zombie's progress record commits its batch."""

    def make(take: Any) -> Any:
        def lax(book: Any, record: Any) -> Any:
            book._lease_epochs[record.query_id] = 0
            return take(book, record)

        return lax

    return [replacing(ProgressBook, "take", make)]


def one_key_for_all_fences_of_an_epoch() -> list[Plant]:
    """Compaction lets the second fence take the place of the first."""

    def make(progress_key: Any) -> Any:
        def short(record: Any) -> bytes:
            if progress.is_fence(record):
                commit = msgspec.structs.replace(record.commit, attempt=0)
                record = msgspec.structs.replace(record, commit=commit)
            return progress_key(record)

        return short

    return [replacing(progress, "progress_key", make)]


def one_key_for_all_attempts_of_a_batch() -> list[Plant]:
    """Compaction lets a repair take the place of the batch that it repairs."""

    def make(progress_key: Any) -> Any:
        def short(record: Any) -> bytes:
            if not progress.is_fence(record):
                commit = msgspec.structs.replace(record.commit, attempt=0)
                record = msgspec.structs.replace(record, commit=commit)
            return progress_key(record)

        return short

    return [replacing(progress, "progress_key", make)]


def tombstone_what_is_not_clean() -> list[Plant]:
    """Progress records go by age alone."""

    def make(removable: Any) -> Any:
        def lax(records: Any, *rest: Any) -> Any:
            every = {0: 10**9, 1: 10**9}
            clean = [msgspec.structs.replace(record, clean_through=every) for record in records]
            return removable(clean, *rest)

        return lax

    return [replacing(progress, "removable", make)]


def lag_against_the_logs_end() -> list[Plant]:
    """A foreign tail makes every replica late for ever."""

    def make(status: Any) -> Any:
        def wrong(machine: Any, **known: Any) -> Any:
            return msgspec.structs.replace(status(machine, **known), committed_end=machine.log_end)

        return wrong

    return [replacing(ApplyMachine, "status", make)]


def derived_query_reads_unfiltered() -> list[Plant]:
    """Up to the committed ends, but whatever lies below them."""
    return [(Committed, "shows", lambda committed, partition, offset, headers: True)]


def derived_query_reads_up_to_the_logs_end() -> list[Plant]:
    """What matches no commit yet is left out, and never looked at again."""

    def make(next_ends: Any) -> Any:
        def hasty(committed: Any, starts: Any, records_max: int) -> Any:
            ends = next_ends(committed, starts, records_max)
            return {p: end + 3 if end > starts[p] else end for p, end in ends.items()}

        return hasty

    return [
        replacing(Committed, "next_ends", make),
        replacing(Committed, "end", lambda end: lambda found, p: end(found, p) + 3),
    ]


def derived_query_matches_any_commit() -> list[Plant]:
    """A straggler of a batch that was committed long ago is seen once more."""

    def shows(committed: Any, partition: int, offset: int, headers: Any) -> bool:
        marks = {commit_header(t.commit) for t in committed._targets(partition)}
        return dict(headers).get("sp-commit") in marks

    return [(Committed, "shows", shows)]


def no_digest_for_deletes() -> list[Plant]:
    """A row that goes stays in the digest."""

    def make(digest_after: Any) -> Any:
        return lambda old, replaced, deleted, puts: digest_after(old, replaced, (), puts)

    return [replacing(stored_rows, "digest_after", make)]


def take_nothing_back() -> list[Plant]:
    """Spark goes on after its own commit log, whatever readers have seen."""
    return [(takeover, "surplus", lambda commits, offsets, valid: takeover.Surplus())]


def go_on_although_fenced() -> list[Plant]:
    """A pipeline that was taken over reads on in the checkpoint that is newest now."""

    def make(standing: Any) -> Any:
        def blind(records: Any, query_id: str, lease_epoch: Any) -> Any:
            found = standing(records, query_id, lease_epoch)
            return takeover.Standing(newest=found.newest, fenced_by=None)

        return blind

    return [replacing(takeover, "standing", make)]


def share_one_checkpoint() -> list[Plant]:
    """A zombie goes on choosing what our batches cover."""

    def inherit(driver: SimDriver, newest: Any) -> Any:
        checkpoints = driver.world.checkpoints
        if not checkpoints:
            checkpoints[driver.lease_epoch] = takeover_checkpoint()
        return next(iter(checkpoints.values()))

    def takeover_checkpoint() -> Any:
        from .data_pipeline import SimCheckpoint

        return SimCheckpoint()

    return [(SimDriver, "_inherit", inherit)]


def judge_after_a_stall_with_old_progress() -> list[Plant]:
    """A tailer that heard nothing for long goes on with the targets that it knew."""
    return [(positions, "must_restart", lambda silent_ms, compaction_lag_ms: False)]


def read_on_after_the_tombstones_went() -> list[Plant]:
    """A partition that was away for long is read on from where it was."""
    return [(positions, "must_reopen", lambda silent_ms, tombstones_ms: False)]


def believe_an_unsigned_record() -> list[Plant]:
    """A forged fence makes all later commits void."""

    def make(judge: Any) -> Any:
        def lax(reader: Any, key: bytes, value: bytes, headers: Any) -> Any:
            if all(name != HEADER_MAC for name, _ in headers):
                reader = ProgressReader(NO_SEAL)
            return judge(reader, key, value, headers)

        return lax

    return [replacing(ProgressReader, "_judged", make)]


def believe_what_is_unsigned_until_the_first_sealed_record() -> list[Plant]:
    """What came before it may be forged, too: query ids can be known."""

    def make(judge: Any) -> Any:
        has_sealed: dict[int, Any] = {}  # it keeps them: the id of one that is gone comes again

        def lax(reader: Any, key: bytes, value: bytes, headers: Any) -> Any:
            if any(name == HEADER_MAC for name, _ in headers):
                has_sealed[id(reader)] = reader
            elif id(reader) not in has_sealed:
                return judge(ProgressReader(NO_SEAL), key, value, headers)
            return judge(reader, key, value, headers)

        return lax

    return [replacing(ProgressReader, "_judged", make)]


PLANTS: tuple[Callable[[], list[Plant]], ...] = (
    accept_another_attempt,
    accept_any_batch_of_the_epoch,
    skip_the_header_check_on_restore,
    label_a_compacted_range,
    whole_although_rows_may_be_missing,
    trust_a_hole_from_before_the_tombstones,
    trust_the_end_of_the_log,
    grow_old_while_idle,
    say_nothing_while_idle,
    answer_while_going_by_order,
    bound_rows_between_two_batches,
    apply_past_the_target,
    commit_position_before_rows,
    progress_before_the_sinks_flush,
    believe_any_end_offset,
    resume_a_store_older_than_tombstones,
    go_on_with_a_torn_store,
    repair_with_a_stale_row,
    repair_nothing,
    call_a_missing_row_absent,
    ignore_the_epoch_of_a_progress_record,
    one_key_for_all_fences_of_an_epoch,
    one_key_for_all_attempts_of_a_batch,
    tombstone_what_is_not_clean,
    lag_against_the_logs_end,
    derived_query_reads_unfiltered,
    derived_query_reads_up_to_the_logs_end,
    derived_query_matches_any_commit,
    no_digest_for_deletes,
    take_nothing_back,
    go_on_although_fenced,
    share_one_checkpoint,
    judge_after_a_stall_with_old_progress,
    read_on_after_the_tombstones_went,
    believe_an_unsigned_record,
    believe_what_is_unsigned_until_the_first_sealed_record,
    *data_groups_planted.PLANTS,
    *data_janitor_planted.PLANTS,
    *data_loads_planted.PLANTS,
    *data_recreated_planted.PLANTS,
    *data_windows_planted.PLANTS,
)
