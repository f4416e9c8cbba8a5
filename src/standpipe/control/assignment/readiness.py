"""What a lag report says about a copy's readiness when copies are moved.

Lag is in records of one table partition. Three reports are not numbers and must never be compared
as numbers: Kafka encodes them as -2 and -3, so that its "unknown" sorts as the best of all.

Not here: which copies move (`transition.py`); how lags are measured (`control/liveness/lag.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from standpipe.control.assignment.model import TablePartition
from standpipe.model import NodeId

#: largest lag on the wire; sums stop here instead of turning negative in other languages
LAG_RECORDS_MAX: Final = 2**63 - 1


class BadReport(StrEnum):
    """A report that is not a number."""

    SERVING = "active"  # the running active: nothing to catch up with
    NOTHING = "inf"  # no copy on disk
    UNKNOWN = "unknown"  # could not tell: never caught up, never better than a number


Lag = int | BadReport
#: a partition's nodes that are not listed have nothing on disk
Lags = Mapping[TablePartition, Mapping[NodeId, Lag]]


def is_caught_up(lag: Lag, limit: int | None) -> bool:
    """Whether a copy may become the active. KIP-441: acceptable.recovery.lag is inclusive.

    `limit` None: any copy is good enough, even one that starts from nothing.
    """
    if lag is BadReport.SERVING:
        return True
    if lag is BadReport.UNKNOWN:
        return False
    return limit is None or (lag is not BadReport.NOTHING and lag <= limit)


def catch_up_key(lag: Lag) -> tuple[int, int]:
    """Sorts copies by what they still have to read; equal keys are equally far."""
    if lag is BadReport.SERVING:
        return (0, 0)
    if isinstance(lag, int):
        return (0, lag)
    return (1, 0)


def lag_records(position: Lag, ends: Iterable[int]) -> Lag:
    """Lag of a copy at `position` in changelogs that end at `ends`, summed; clamped to 64 bits.

    A position beyond the end is from another topic: that copy starts from nothing, so its lag
    is everything (Kafka Streams' ClientState does the same).
    """
    end = min(sum(ends), LAG_RECORDS_MAX)
    if position is BadReport.NOTHING:
        return end
    if isinstance(position, BadReport):
        return position
    return end if position > end else end - position
