"""How stale an answer may be: what a request, a table or a node asks for. Pure.

Source: ksqlDB's `ksql.query.pull.max.allowed.offset.lag`; KLIP-12. Not here: which replica is
within a bound (`control.routing.route`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: ksqlDB's default of `ksql.query.pull.max.allowed.offset.lag`: no bound at all
LAG_UNBOUNDED: Final = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How stale an answer may be. `lag_records_max` at or above 2^63 - 1: no bound."""

    lag_records_max: int = LAG_UNBOUNDED
    standby_reads: bool = True

    @property
    def is_bounded(self) -> bool:
        """Whether a lag can be too large."""
        return self.lag_records_max < LAG_UNBOUNDED


ANYTHING: Final = Bounds()


def lag_bound(
    *, request: int | None, table: int | None, node: int = LAG_UNBOUNDED, limit: int = LAG_UNBOUNDED
) -> int:
    """The bound in force: the request's, else the table's (WITH), else the node's; capped."""
    asked = request if request is not None else table if table is not None else node
    return min(asked, limit)
