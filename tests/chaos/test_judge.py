"""The judge, the truth and the closing table: a judge that never finds anything is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.chaos.judge import KNOWN_S, Judge, Sample, Verdict
from tests.chaos.report import Phase, figures, on_record, outcome, table
from tests.chaos.truth import Facts, commit_of

from standpipe.data.encoding.store_keys import commit_header
from standpipe.model import BatchId, Commit, LeaseEpoch


def facts() -> Facts:
    """Key k: N 1 at offset 0, 2 at 10, 3 at 20; a foreign record at 15. Ends: 5, then 21."""
    made = Facts()
    for batch, (offset, number) in enumerate([(0, 1), (10, 2), (20, 3)]):
        made.row((1, batch, 7), 0, offset, "k", number)
        made.progress((1, batch, 7), {0: offset + 1}, float(10 * batch))
    made.row((1, 2, 99), 0, 15, "k", 9)  # an attempt that no progress record names
    return made


def read(row: tuple[int, int] | None, *, sent_s: float = 100.0, lag_max: int | None = 5) -> Sample:
    return Sample(
        key="k",
        partition=0,
        due_s=sent_s,
        sent_s=sent_s,
        ended_s=sent_s + 0.01,
        entry="a",
        lag_max=lag_max,
        row=row,
        is_answered=True,
    )


@pytest.mark.parametrize(
    ("sample", "verdict", "why"),
    [
        (read((3, 3)), Verdict.GOOD, "the newest row"),
        (read(None), Verdict.WRONG, "the key exists: an empty answer is a lie"),
        (read((3, 2)), Verdict.WRONG, "half of a batch"),
        (read((9, 9)), Verdict.WRONG, "only a foreign record says so"),
        (read((4, 4)), Verdict.WRONG, "nobody ever wrote it"),
        (read((2, 2), lag_max=1), Verdict.GOOD, "end 21, next row at 20: 1 behind, 1 allowed"),
        (read((2, 2), lag_max=0), Verdict.STALE, "1 behind, none allowed"),
        (read((1, 1), lag_max=10), Verdict.STALE, "11 behind"),
        (read((1, 1), lag_max=None), Verdict.GOOD, "any row was asked for"),
        (read((1, 1), sent_s=20.0 + KNOWN_S / 2), Verdict.GOOD, "end 21 had not come round yet"),
        (read((1, 1), sent_s=20.0 + KNOWN_S * 2), Verdict.STALE, "by now it had"),
    ],
)
def test_verdicts(sample: Sample, verdict: Verdict, why: str) -> None:
    assert Judge(facts()).verdict(sample)[0] is verdict, why


def test_a_commit_is_read_as_it_was_written() -> None:
    commit = Commit(lease_epoch=LeaseEpoch(3), batch=BatchId(-1), attempt=2**64 - 5)
    assert commit_of(commit_header(commit)) == (3, -1, 2**64 - 5)


def test_progress_of_a_fenced_epoch_commits_nothing() -> None:
    made = facts()
    made.progress((2, -1, 1), {}, 30.0)  # a fence
    made.row((1, 3, 7), 0, 30, "k", 4)
    made.progress((1, 3, 7), {0: 31}, 31.0)
    assert Judge(made).verdict(read((4, 4)))[0] is Verdict.WRONG


def lost(due_s: float) -> Sample:
    return Sample("k", 0, due_s, due_s, due_s + 4, "a", is_lost=True, why="refused")


@pytest.mark.parametrize(
    ("samples", "was_there", "closing", "why"),
    [
        ([read((3, 3), sent_s=t) for t in range(40, 50)], True, "1 passed, 0 failed", "all good"),
        ([read((3, 3), sent_s=t) for t in range(40, 50)], False, "0 passed, 1 failed", "no fault"),
        ([read((3, 3), sent_s=45)], True, "0 passed, 1 failed", "too few reads were done"),
        ([read((3, 2), sent_s=t) for t in range(40, 50)], True, "0 passed, 1 failed", "wrong"),
        ([lost(t) for t in range(40, 50)], True, "0 passed, 1 failed", "nothing was answered"),
        (
            [*(read((3, 3), sent_s=t) for t in range(40, 43)), *(lost(t) for t in range(43, 50))],
            True,
            "0 passed, 1 failed",
            "it never came back",
        ),
    ],
)
def test_closing_line(samples: list[Sample], was_there: bool, closing: str, why: str) -> None:
    phase = Phase("f", began_s=40, healed_s=48, ended_s=50, was_there=was_there, has_settled=True)
    found = outcome(phase, samples, Judge(facts()))
    assert table([found], rate=1.0).splitlines()[-1] == closing, why


@pytest.mark.parametrize(
    ("lag_max", "again", "unknown", "refused", "why"),
    [
        (5, '503 {"error_code":50306}', {0}, 1, "nobody could know how far behind it is"),
        (None, '503 {"error_code":50306}', {0}, 0, "any row was asked for"),
        (5, "no answer within 4000 ms", {0}, 0, "it is no refusal"),
        (5, '503 {"error_code":50306}', {1}, 0, "another replica was there"),
    ],
)
def test_reads_with_a_bound_may_be_refused_where_no_lag_is_known(
    lag_max: int | None, again: str, unknown: set[int], refused: int, why: str
) -> None:
    phase = Phase("f", began_s=40, healed_s=48, ended_s=50, was_there=True, has_settled=True)
    phase.unknown = frozenset(unknown)
    found = outcome(phase, [replace(lost(45), lag_max=lag_max, again=again)], Judge(facts()))
    assert (found.refused, found.lost, found.failed) == (refused, 1 - refused, 1 - refused), why


def test_harm_beside_what_readers_saw_fails_a_phase() -> None:
    phase = Phase("f", began_s=40, healed_s=48, ended_s=50, was_there=True, has_settled=True)
    phase.harm = ["node-2: a store is made anew"]
    samples = [read((3, 3), sent_s=t) for t in range(40, 50)]
    lines = table([outcome(phase, samples, Judge(facts()))], rate=1.0).splitlines()
    assert "    NOT PASSED: node-2: a store is made anew" in lines
    assert lines[-1] == "0 passed, 1 failed"


def test_runs_on_record_are_added_up() -> None:
    phase = Phase("f", began_s=40, healed_s=48, ended_s=50, was_there=True, has_settled=True)
    good = [read((3, 3), sent_s=t) for t in range(40, 49)]
    first = figures([outcome(phase, [*good, lost(49)], Judge(facts()))], rate=1.0)
    second = figures([outcome(phase, [*good, read((3, 2), sent_s=49)], Judge(facts()))], rate=1.0)
    report = on_record(on_record({}, first), second)
    assert (report["reads"], report["checked_reads"]) == (20, 19)
    assert (report["failed"], report["lost"], report["wrong"], report["stale"]) == (1, 1, 1, 0)
    assert second["faults"][0]["not_passed"] == ["1 wrong answers"]
    assert [run["reads"] for run in report["runs"]] == [10, 10]
    assert report["faults"]["f"]["count"] == 2
    assert report["faults"]["f"]["not_passed"] == ["1 reads were lost", "1 wrong answers"]
