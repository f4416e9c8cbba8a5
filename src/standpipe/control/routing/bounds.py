"""How stale an answer may be: what a request, a table or a node asks for. Pure.

    lag in records    behind the committed end
    replica lag, ms   since the replica had everything that was committed
    source lag, ms    since the rows had everything that the sources had

Source: ksqlDB's `ksql.query.pull.max.allowed.offset.lag`; KLIP-12. The times are ours. Not here:
which replica is within a lag in records (`control.routing.route`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from standpipe.model import Source

#: ksqlDB's default of `ksql.query.pull.max.allowed.offset.lag`: no bound at all
LAG_UNBOUNDED: Final = 2**63 - 1


class AskedBounds(NamedTuple):
    """What the properties of a request ask for, or a table (WITH). None: nothing."""

    lag_records_max: int | None = None
    replica_lag_ms_max: int | None = None
    source_lag_ms_max: int | None = None


NOTHING_ASKED: Final = AskedBounds()


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How stale an answer may be. A maximum at or above 2^63 - 1: no bound."""

    lag_records_max: int = LAG_UNBOUNDED
    replica_lag_ms_max: int = LAG_UNBOUNDED
    source_lag_ms_max: int = LAG_UNBOUNDED
    standby_reads: bool = True
    #: whether a lag in time can be too large: each lookup asks that
    is_time_bounded: bool = field(init=False)

    def __post_init__(self) -> None:
        is_bounded = min(self.replica_lag_ms_max, self.source_lag_ms_max) < LAG_UNBOUNDED
        object.__setattr__(self, "is_time_bounded", is_bounded)

    @property
    def is_lag_bounded(self) -> bool:
        """Whether a lag in records can be too large."""
        return self.lag_records_max < LAG_UNBOUNDED

    @property
    def is_bounded(self) -> bool:
        """Whether rows can be too old."""
        return self.is_lag_bounded or self.is_time_bounded

    def late(self, replica_lag_ms: int | None, source_lag_ms: int | None) -> str:
        """Why rows with these lags are too old, in the manner of ksqlDB; "": they are not. A lag
        that is not known (None) is within no bound."""
        for noun, lag_ms, maximum in (
            ("replica lag", replica_lag_ms, self.replica_lag_ms_max),
            ("source lag", source_lag_ms, self.source_lag_ms_max),
        ):
            if maximum >= LAG_UNBOUNDED:
                continue
            if lag_ms is None:
                return f"Host excluded because its {noun} is not known; {maximum} ms are allowed."
            if lag_ms > maximum:
                return (
                    f"Host excluded because {noun} {lag_ms} ms exceeds maximum allowed {noun} "
                    f"{maximum} ms."
                )
        return ""


ANYTHING: Final = Bounds()


def of_table(source: Source) -> AskedBounds:
    """The bounds that a table was created with."""
    replica_ms, source_ms = source.time_bounds or (None, None)
    return AskedBounds(source.offset_lag_max, replica_ms, source_ms)


def bounds_in_force(
    asked: AskedBounds,
    node: Bounds,
    *,
    table: AskedBounds = NOTHING_ASKED,
    limit: int = LAG_UNBOUNDED,
) -> Bounds:
    """Each bound of the request, else the table's (WITH), else the node's. `limit` caps the lag in
    records."""
    own = AskedBounds(node.lag_records_max, node.replica_lag_ms_max, node.source_lag_ms_max)
    records, replica_ms, source_ms = (
        next(bound for bound in each if bound is not None)
        for each in zip(asked, table, own, strict=True)
    )
    return Bounds(
        lag_records_max=min(records, limit),
        replica_lag_ms_max=replica_ms,
        source_lag_ms_max=source_ms,
        standby_reads=node.standby_reads,
    )
