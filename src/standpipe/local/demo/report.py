"""The demo's figures, as `report.json`: "fields" explains each of them.

Pure functions of the samples. Not here: the picture (`picture.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from standpipe.local.demo.check import CheckResult
from standpipe.local.demo.questions import ProbeSample, ReadSample

NOTES_MAX = 20

#: field of report.json -> what it means
FIELDS: dict[str, str] = {
    "events_in": "events produced into the flights topic and acknowledged by Kafka",
    "events_in_tables": "of them, events that every table has committed at the end",
    "tables": "tables made of them, in the order of creation",
    "nodes": "number of nodes of the cluster",
    "reads_ok": "reads answered correctly, while running and in the comparison at the end",
    "reads_failed": "reads that got no rows from two nodes",
    "reads_wrong": "answers that were wrong: impossible while running, or different at the end",
    "reads_retried": "reads that were answered by the second node asked",
    "reads_per_second": "correct answers per second of the live phase",
    "rows_compared": "rows compared with the pandas recompute at the end, through every node",
    "latency_ms": "of correct answers in the live phase, from the instant a read was due",
    "freshness_ms": "from Kafka's acknowledgement of an event to its count being read over HTTP",
    "freshness_probes": "events that were followed for it",
    "killed_node": "node that got SIGKILL, the whole process group; active of a partition of table",
    "killed_after_s": "seconds into the live phase",
    "first_good_read_after_kill_ms": (
        "from the kill to the first right answer to a read, due after it, of a key that the killed "
        "node had been serving"
    ),
    "longest_gap_after_kill_ms": "longest stretch without a right answer to such a read",
    "restarted_after_s": "seconds into the live phase",
    "first_answer_after_restart_ms": "from the restart to the first answer served by that node",
    "pipeline_events_per_second": "bulk load: events / time until every table had them, cold start",
    "bulk_events": "events of the bulk load",
    "bulk_seconds": "duration of the bulk load",
    "live_seconds": "duration of the live phase",
    "live_events_per_second": "rate of events in the live phase",
    "idle_percent": "of the machine's processors in the live phase; null: unknown",
    "setup_seconds": "from the command to a cluster with its tables created",
    "seconds": "the whole run",
    "notes": "rates for a machine that was too slow; the first failed or wrong reads in words",
}


@dataclass
class RunLog:
    """Everything that happened. Instants are Unix seconds; None: it did not happen."""

    started: float = 0.0
    ready: float = 0.0
    bulk_started: float = 0.0
    bulk_done: float = 0.0
    live_started: float = 0.0
    live_done: float = 0.0
    finished: float = 0.0
    killed_at: float | None = None
    restarted_at: float | None = None
    killed_node: str = ""
    #: names under which answers show that the killed node served them
    killed_names: tuple[str, ...] = ()
    nodes: int = 0
    tables: tuple[str, ...] = ()
    events_in: int = 0
    events_in_tables: int = 0
    bulk_events: int = 0
    live_events_per_second: float = 0.0
    live_reads_per_second: float = 0.0
    #: (idle, in all) of the machine's processors in the live phase; None: unknown
    live_ticks: tuple[int, int] | None = None
    reads: Sequence[ReadSample] = ()
    probes: Sequence[ProbeSample] = ()
    check: CheckResult = field(default_factory=CheckResult)


def percentile(values: Iterable[float], share: float) -> float | None:
    """Nearest rank, 0 < share ≤ 1; None if there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


def latencies_ms(reads: Iterable[ReadSample]) -> list[float]:
    """Latency of each read, from its due instant."""
    return [(read.done - read.due) * 1000 for read in reads]


def freshness_ms(probes: Iterable[ProbeSample]) -> list[float]:
    """Freshness of each probe that was seen."""
    return [(probe.seen - probe.acked) * 1000 for probe in probes if probe.seen]


def report(log: RunLog) -> dict[str, object]:
    """The body of report.json."""
    good = [read for read in log.reads if read.outcome == "ok"]
    failed = [read.note for read in log.reads if read.outcome == "failed"] + log.check.failed
    wrong = [read.note for read in log.reads if read.outcome == "wrong"] + log.check.wrong
    wrong_at_end = len(log.check.wrong)
    live_s = log.live_done - log.live_started
    first_good, gap = after_kill(log)
    values: dict[str, object] = {
        "events_in": log.events_in,
        "events_in_tables": log.events_in_tables,
        "tables": list(log.tables),
        "nodes": log.nodes,
        "reads_ok": len(good) + max(0, log.check.reads - len(log.check.failed) - wrong_at_end),
        "reads_failed": len(failed),
        "reads_wrong": len(wrong),
        "reads_retried": sum(read.is_retried for read in good),
        "reads_per_second": _rounded(len(good) / live_s if live_s > 0 else None, 1),
        "rows_compared": log.check.rows,
        "latency_ms": _spread(latencies_ms(good)),
        "freshness_ms": _spread(freshness_ms(log.probes)),
        "freshness_probes": len(log.probes),
        "killed_node": log.killed_node,
        "killed_after_s": _since(log.live_started, log.killed_at),
        "first_good_read_after_kill_ms": _rounded(first_good),
        "longest_gap_after_kill_ms": _rounded(gap),
        "restarted_after_s": _since(log.live_started, log.restarted_at),
        "first_answer_after_restart_ms": _rounded(after_restart(log)),
        "pipeline_events_per_second": round(log.bulk_events / (log.bulk_done - log.bulk_started)),
        "bulk_events": log.bulk_events,
        "bulk_seconds": _rounded(log.bulk_done - log.bulk_started),
        "live_seconds": _rounded(live_s),
        "live_events_per_second": _rounded(log.live_events_per_second),
        "idle_percent": _idle_percent(log),
        "setup_seconds": _rounded(log.ready - log.started),
        "seconds": _rounded(log.finished - log.started),
        "notes": [*_advice(log, failed), *failed[:NOTES_MAX], *wrong[:NOTES_MAX]],
    }
    assert values.keys() == FIELDS.keys(), values.keys() ^ FIELDS.keys()
    return {**values, "fields": FIELDS}


#: below, reads wait for the processor, and some until they are given up
IDLE_PERCENT_MIN = 5.0
#: of what a cold start loads, tables keep up with this part beside reads
STEADY_PART = 0.1


def _idle_percent(log: RunLog) -> float | None:
    if log.live_ticks is None or log.live_ticks[1] <= 0:
        return None
    idle, ticks = log.live_ticks
    return round(100 * idle / ticks, 1)


def _advice(log: RunLog, failed: Sequence[str]) -> list[str]:
    """Rates that such a machine keeps up with, if reads failed for want of processor time."""
    idle = _idle_percent(log)
    if not failed or idle is None or idle >= IDLE_PERCENT_MIN:
        return []
    loaded = log.bulk_events / max(0.001, log.bulk_done - log.bulk_started)
    part = min(0.5, STEADY_PART * loaded / max(1.0, log.live_events_per_second))
    events, reads = (
        max(1, round(part * rate))
        for rate in (log.live_events_per_second, log.live_reads_per_second)
    )
    why = f"the processors were {idle:g} % idle: this machine is too slow for these rates"
    what = f"standpipe demo --events-per-second {events} --reads-per-second {reads}"
    return [f"{why}. Try {what}"]


def _shown(fresh: Mapping[str, float | None]) -> str:
    if fresh["p50"] is None:
        return "no event that was followed could be read in time,"
    return f"p50 {fresh['p50']} ms, p99 {fresh['p99']} ms"


def summary(figures: Mapping[str, Any]) -> list[str]:
    """The figures in words, for the end of the run."""
    f = figures
    latency, fresh = f["latency_ms"], f["freshness_ms"]
    lines = f"""
  events     {f["events_in"]:,} in, {f["events_in_tables"]:,} in all tables; \
bulk load {f["pipeline_events_per_second"]:,} events/s from a cold start
  reads      {f["reads_ok"]:,} ok, {f["reads_failed"]} failed, {f["reads_wrong"]} wrong; \
{f["reads_per_second"]} per second, {f["reads_retried"]} needed the retry
  latency    p50 {latency["p50"]} ms, p99 {latency["p99"]} ms, max {latency["max"]} ms
  freshness  {_shown(fresh)} at {f["live_events_per_second"]:,.0f} events/s
  kill -9    {f["killed_node"]}: next good read of its keys after \
{f["first_good_read_after_kill_ms"]} ms, longest gap {f["longest_gap_after_kill_ms"]} ms
  restart    it answered again after {f["first_answer_after_restart_ms"]} ms
  checked    {f["rows_compared"]:,} rows against pandas
  time       set-up {f["setup_seconds"]} s, all {f["seconds"]} s; \
processors {"?" if f["idle_percent"] is None else f["idle_percent"]} % idle
"""
    return [*lines.splitlines(), *(f"  ! {note}" for note in f["notes"][:5])]


def after_kill(log: RunLog) -> tuple[float | None, float | None]:
    """(first good read, longest gap) in ms, for keys that the killed node had served before."""
    if log.killed_at is None:
        return None, None
    served: dict[int, str] = {}
    done: list[float] = []
    for read in sorted(log.reads, key=lambda read: read.done):
        if read.outcome != "ok":
            continue
        if read.done < log.killed_at:
            served[read.question] = read.served_by
        elif read.due >= log.killed_at and served.get(read.question) in log.killed_names:
            done.append(read.done)
    if not done:
        return None, None
    until = log.restarted_at or log.live_done
    ends = [log.killed_at, *(instant for instant in done if instant < until)]
    gaps = [later - earlier for earlier, later in pairwise(ends)]
    return (done[0] - log.killed_at) * 1000, max(gaps) * 1000 if gaps else None


def after_restart(log: RunLog) -> float | None:
    """ms from the restart to the first answer that the node served itself."""
    if log.restarted_at is None:
        return None
    answers = (
        read.done
        for read in log.reads
        if read.done > log.restarted_at and read.served_by in log.killed_names
    )
    first = min(answers, default=None)
    return (first - log.restarted_at) * 1000 if first is not None else None


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {
        "p50": _rounded(percentile(values, 0.50)),
        "p99": _rounded(percentile(values, 0.99)),
        "max": _rounded(max(values, default=None)),
    }


def _since(start: float, instant: float | None) -> float | None:
    return _rounded(instant - start) if instant is not None else None


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)
