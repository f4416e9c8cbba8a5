"""From reads and faults to the closing table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.judge import KNOWN_S, Judge, Sample, Verdict

from standpipe.errors import NoReplica

#: Of the reads that were due, so many must have come to an end, or the run proved nothing.
DONE_SHARE_MIN = 0.5
#: Reads that failed twice, the second time through another node. On a quiet machine there are none;
#: where routing went to the victim all the time, it would be a third of them.
LOST_SHARE_MAX = 0.05
SUMS = ("reads", "failed", "refused", "lost", "wrong", "stale")
#: how a node says that no replica keeps a read's bound
REFUSED = f'"error_code":{NoReplica.code}'


@dataclass
class Phase:
    """One fault, from its injection to the end of its healing. Instants in s, monotonic."""

    name: str
    began_s: float
    healed_s: float = 0.0
    ended_s: float = 0.0
    was_there: bool = False
    has_settled: bool = False
    #: what it led to beside what readers saw (`Fault.harm`)
    harm: list[str] = field(default_factory=list[str])
    #: see `Fault.known_s`
    known_s: float = KNOWN_S
    #: partitions whose active was the victim
    partitions: frozenset[int] = frozenset()
    #: partitions of which no replica knows how far behind it is: they refuse reads with a bound
    unknown: frozenset[int] = frozenset()


@dataclass
class Outcome:
    """What readers saw of one phase."""

    phase: Phase
    reads: int = 0
    failed: int = 0
    refused: int = 0
    lost: int = 0
    wrong: int = 0
    stale: int = 0
    first_good_ms: float | None = None
    worst_ms: float = 0.0
    good_later: int = 0  # in the second half of the fault
    whys: list[str] = field(default_factory=list[str])

    def faults_found(self, rate: float) -> list[str]:
        """Why this phase did not pass; empty: it passed."""
        span_s = self.phase.ended_s - self.phase.began_s
        share = self.lost / self.reads if self.reads else 1.0
        checks = [
            (self.phase.was_there, "the fault was not there"),
            (self.phase.has_settled, "the cluster did not settle after it"),
            (self.reads >= DONE_SHARE_MIN * rate * span_s, f"only {self.reads} reads were done"),
            (self.wrong == 0, f"{self.wrong} wrong answers"),
            (self.stale == 0, f"{self.stale} rows beyond the bound"),
            (share <= LOST_SHARE_MAX, f"{self.lost} reads were lost"),
            (self.good_later > 0, "no good read in the second half of the fault"),
        ]
        return [*(why for is_met, why in checks if not is_met), *self.phase.harm]


def outcome(phase: Phase, samples: Sequence[Sample], judge: Judge) -> Outcome:
    """Of the reads that were due in the phase."""
    found = Outcome(phase)
    middle_s = (phase.began_s + phase.healed_s) / 2
    for sample in samples:
        if not phase.began_s <= sample.due_s < phase.ended_s:
            continue
        if _is_due_refusal(sample, phase):
            found.reads += 1
            found.refused += 1
            continue
        verdict, why = judge.verdict(sample, phase.known_s)
        found.lost += sample.is_lost
        if verdict is Verdict.FAILED:
            found.failed += 1
            found.reads += 1  # its second try is another sample
            _note(found, f"failed: {why}")
            continue
        found.reads += not sample.is_retried
        if verdict is not Verdict.GOOD:
            found.wrong += verdict is Verdict.WRONG
            found.stale += verdict is Verdict.STALE
            _note(found, f"{verdict.name.lower()}: {why}")
            continue
        found.worst_ms = max(found.worst_ms, 1000 * (sample.ended_s - sample.due_s))
        found.good_later += middle_s <= sample.due_s < phase.healed_s
        if not phase.partitions or sample.partition in phase.partitions:
            first_ms = 1000 * (sample.ended_s - phase.began_s)
            found.first_good_ms = min(found.first_good_ms or first_ms, first_ms)
    return found


def _is_due_refusal(sample: Sample, phase: Phase) -> bool:
    """Whether a read with a bound was refused, in the end, where nobody could know the lag."""
    return (
        sample.is_lost
        and sample.lag_max is not None
        and sample.partition in phase.unknown
        and REFUSED in sample.again
    )


def figures(outcomes: Sequence[Outcome], rate: float) -> dict[str, Any]:
    """One run, for the record."""
    faults = [
        {
            "fault": found.phase.name,
            "reads": found.reads,
            "failed": found.failed,
            "refused": found.refused,
            "lost": found.lost,
            "wrong": found.wrong,
            "stale": found.stale,
            "first_good_ms": round(found.first_good_ms) if found.first_good_ms else None,
            "worst_ms": round(found.worst_ms),
            "settled_ms": round(1000 * (found.phase.ended_s - found.phase.healed_s)),
            "not_passed": found.faults_found(rate),
        }
        for found in outcomes
    ]
    return {"rate": rate, "faults": faults}


def on_record(before: Mapping[str, Any], ran: Mapping[str, Any]) -> dict[str, Any]:
    """The record with one more run: sums, one line for each run, and the worst of each fault.

    Of reads, only those that were answered are checked.
    """
    head = {name: value for name, value in ran.items() if name != "faults"}
    own = {name: sum(fault[name] for fault in ran["faults"]) for name in SUMS}
    runs = [*before.get("runs", []), {**head, "faults": len(ran["faults"]), **own}]
    sums = {name: sum(run.get(name, 0) for run in runs) for name in SUMS}  # of old runs, too
    faults = {name: dict(row) for name, row in before.get("faults", {}).items()}
    for fault in ran["faults"]:
        faults[fault["fault"]] = _worst_of(faults.get(fault["fault"]), fault)
    return {
        "question": "Is any answer wrong, empty or beyond its bound, whatever fails?",
        "checked_reads": sums["reads"] - sums["failed"] - sums["refused"],
        **sums,
        "runs": runs,
        "faults": faults,
    }


def _worst_of(before: Mapping[str, Any] | None, fault: Mapping[str, Any]) -> dict[str, Any]:
    """One fault, all runs: how often, its sums, its slowest reads, why it did not pass."""
    known = before or {"count": 0, **dict.fromkeys(SUMS, 0), "not_passed": []}
    slowest = {
        f"{name}_max": max(known.get(f"{name}_max") or 0, fault.get(name) or 0)
        for name in ("first_good_ms", "worst_ms", "settled_ms")
    }
    return {
        "count": known["count"] + 1,
        **{name: known.get(name, 0) + fault[name] for name in SUMS},
        **slowest,
        "not_passed": [*known["not_passed"], *fault["not_passed"]],
    }


def _note(found: Outcome, why: str) -> None:
    if len(found.whys) < 4 and why not in found.whys:
        found.whys.append(why)


def table(outcomes: Sequence[Outcome], rate: float) -> str:
    """The closing table, and `N passed, N failed`."""
    words = f"{'reads':>7} {'failed':>7} {'refused':>7} {'lost':>5} {'wrong':>5} {'stale':>5}"
    lines = [f"{'fault':40} {words} {'first good':>11} {'worst':>9} {'settled':>9}"]
    failures = 0
    for found in outcomes:
        first = "-" if found.first_good_ms is None else f"{found.first_good_ms:.0f} ms"
        lines.append(
            f"{found.phase.name:40} {found.reads:7} {found.failed:7} {found.refused:7} "
            f"{found.lost:5} {found.wrong:5} {found.stale:5} {first:>11} {found.worst_ms:6.0f} ms "
            f"{found.phase.ended_s - found.phase.healed_s:7.1f} s"
        )
        reasons = found.faults_found(rate)
        failures += bool(reasons)
        lines += [f"    NOT PASSED: {reason}" for reason in reasons]
        lines += [f"    {why}" for why in found.whys]
    lines.append(f"{len(outcomes) - failures} passed, {failures} failed")
    return "\n".join(lines)
