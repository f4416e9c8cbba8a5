"""report.json from samples."""

import pytest

from standpipe.local.demo.check import CheckResult
from standpipe.local.demo.questions import ProbeSample, ReadSample
from standpipe.local.demo.report import FIELDS, RunLog, percentile, report, summary


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        ([], 0.5, None),
        ([3], 0.99, 3),
        ([1, 2, 3, 4], 0.5, 2),
        ([1, 2, 3, 4], 0.99, 4),
        (list(range(1, 101)), 0.99, 99),
    ],
)
def test_percentile_is_nearest_rank(values: list[float], share: float, found: float | None) -> None:
    assert percentile(values, share) == found


def read(due: float, took_ms: float, **more: object) -> ReadSample:
    fields: dict[str, object] = {"outcome": "ok", "question": 0, "served_by": "node-1", **more}
    return ReadSample(due=due, done=due + took_ms / 1000, **fields)  # type: ignore[arg-type]


def run_log(*reads: ReadSample, **more: object) -> RunLog:
    fields: dict[str, object] = {
        "bulk_done": 1.0,
        "live_started": 100.0,
        "live_done": 110.0,
        "killed_at": 103.0,
        "restarted_at": 106.0,
        "killed_node": "node-1",
        "killed_names": ("node-1", "127.0.0.1:8088"),
        **more,
    }
    return RunLog(reads=reads, **fields)  # type: ignore[arg-type]


def test_first_good_read_counts_only_keys_that_the_killed_node_served() -> None:
    log = run_log(
        read(101, 1),
        read(102, 1, question=1, served_by="node-2"),
        read(103.001, 1, question=1, served_by="node-2"),  # never was on the killed node
        read(103.010, 30, served_by="node-2", is_retried=True),
        read(104, 2, served_by="node-2"),
        read(106.2, 300),  # the restarted node itself
    )
    found = report(log)
    assert found["first_good_read_after_kill_ms"] == 40.0
    assert found["longest_gap_after_kill_ms"] == 962.0
    assert found["first_answer_after_restart_ms"] == 500.0
    assert found["reads_retried"] == 1
    assert found["reads_ok"] == 6


def test_failed_and_wrong_add_up_over_the_run_and_the_comparison() -> None:
    check = CheckResult(rows=50, reads=40, wrong=["row"], failed=["lookup"])
    log = run_log(
        read(101, 1, outcome="failed", note="refused"),
        read(102, 1, outcome="wrong", note="went back"),
        check=check,
    )
    found = report(log)
    assert (found["reads_failed"], found["reads_wrong"]) == (2, 2)
    assert found["notes"] == ["refused", "lookup", "went back", "row"]
    assert "  ! refused" in summary(found)


def test_freshness_leaves_out_what_was_never_seen_but_counts_the_probe() -> None:
    log = run_log(probes=[ProbeSample(acked=1.0, seen=1.25), ProbeSample(acked=2.0, seen=0.0)])
    found = report(log)
    assert found["freshness_ms"] == {"p50": 250.0, "p99": 250.0, "max": 250.0}
    assert found["freshness_probes"] == 2


def test_every_field_has_its_meaning_beside_it() -> None:
    found = report(run_log())
    assert found.keys() - {"fields"} == FIELDS.keys()
    assert all(FIELDS.values())


@pytest.mark.parametrize(
    ("idle", "outcome", "advice", "why"),
    [
        (2, "failed", "--events-per-second 350 --reads-per-second 70", "a tenth of the bulk load"),
        (20, "failed", None, "there was time: that is no reason"),
        (2, "ok", None, "it was busy, and nothing failed"),
        (None, "failed", None, "not known here"),
    ],
)
def test_a_machine_that_is_too_slow_is_told_what_it_keeps_up_with(
    idle: int | None, outcome: str, advice: str | None, why: str
) -> None:
    log = run_log(
        read(101, 1, outcome=outcome, note="no answer"),
        bulk_events=3500,
        live_events_per_second=1000.0,
        live_reads_per_second=200.0,
        live_ticks=None if idle is None else (idle, 100),
    )
    found = report(log)
    shown = "\n".join(summary(found))
    assert found["idle_percent"] == idle
    assert ("this machine is too slow" in shown) == (advice is not None), why
    assert advice is None or advice in shown
    assert ("? % idle" in shown) == (idle is None)


def test_events_that_nobody_could_read_are_said_in_words() -> None:
    log = run_log(probes=[ProbeSample(acked=2.0, seen=0.0)])
    assert "no event that was followed could be read in time" in "\n".join(summary(report(log)))
