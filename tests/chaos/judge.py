"""What became of a read, judged against the truth after all is over. Pure.

    FAILED   no row came: refused, reset, out of time, an error
    WRONG    a row that no batch ever left: missing, half of a batch, or never committed
    STALE    a row further behind than the read allowed
    GOOD     anything else

A row that shows N stands for a replica which has not applied the key's next committed row; so the
replica was at least (committed end - offset of that next row) records behind. The end that counts
is the one the test knew `known_s` before the read was sent: a node cannot refuse by what it could
not have heard yet, and beats travel every 100 ms (and later on a machine that is starved).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tests.chaos.truth import Facts

#: For an end to get from Kafka to every node, on a small and busy machine.
KNOWN_S = 2.0


class Verdict(Enum):
    GOOD = auto()
    FAILED = auto()
    WRONG = auto()
    STALE = auto()


@dataclass(frozen=True)
class Sample:
    """One read. `row`: (N, V); None: no row. Instants on the monotonic clock, in s."""

    key: str
    partition: int
    due_s: float
    sent_s: float
    ended_s: float
    entry: str
    lag_max: int | None = None
    row: tuple[int, int] | None = None
    is_answered: bool = False
    is_retried: bool = False  # the first try failed
    is_lost: bool = False  # ... and so did the second
    why: str = ""
    again: str = ""  # ... and why
    served_by: str = ""


class Judge:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._rows = facts.rows_of()

    def verdict(self, sample: Sample, known_s: float = KNOWN_S) -> tuple[Verdict, str]:
        if not sample.is_answered:
            return Verdict.FAILED, sample.why
        if sample.row is None:
            return Verdict.WRONG, f"no row of {sample.key}, which exists"
        number, newest = sample.row
        if number != newest:
            return Verdict.WRONG, f"{sample.key}: N {number} and V {newest} are of two batches"
        known = self._rows.get(sample.key, [])
        if all(number != committed for _, committed in known):
            return Verdict.WRONG, f"{sample.key}: N {number} was never committed"
        behind = self._behind(sample, number, known_s)
        if sample.lag_max is not None and behind > sample.lag_max:
            why = f"{sample.key}: at least {behind} records behind, {sample.lag_max} allowed"
            return Verdict.STALE, f"{why}, from {sample.served_by}"
        return Verdict.GOOD, ""

    def _behind(self, sample: Sample, number: int, known_s: float) -> int:
        newer = [offset for offset, other in self._rows[sample.key] if other > number]
        if not newer:
            return 0
        end = self._facts.end_known_at(sample.partition, sample.sent_s - known_s)
        return max(0, end - min(newer))
