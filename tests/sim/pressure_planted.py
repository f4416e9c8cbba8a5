"""Bugs put into bounded replication lag on purpose: the judge must catch each of them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from standpipe.data.commit import back_pressure
from standpipe.data.commit.back_pressure import LagBound, Pressure, ReplicaPositions
from standpipe.model import ReplicaId
from standpipe.model_liveness import ReplicaLag

from .runner import Plant, replacing


def wait_begins_at_the_bound() -> list[Plant]:
    """Then the batch that is let go takes the replica beyond it."""
    return [(back_pressure, "BEGIN", 1.0)]


def wait_ends_where_it_begins() -> list[Plant]:
    """Batches go on and stop by turns, as the replica hovers at one threshold."""
    return [(back_pressure, "END", 0.5)]


def batches_as_large_as_the_bound() -> list[Plant]:
    """Half of the bound is gone when a batch begins."""
    return [(LagBound, "batch_records_max", lambda self, _: 2 * self.records)]


def silent_node_counts() -> list[Plant]:
    """What a dead node said last is waited for."""
    return [(back_pressure, "SILENT_S", 1e9)]


def stuck_replica_counts() -> list[Plant]:
    """A replica that will never move holds up the others."""
    return [(back_pressure, "STUCK_S", 1e9)]


def stuck_for_a_moment() -> list[Plant]:
    """A replica that is only slow is taken for dead."""
    return [(back_pressure, "STUCK_S", 0.4)]


def no_limit_of_one_wait() -> list[Plant]:
    """A slow replica stops the query for as long as its share allows."""

    def make(left_s: Any) -> Any:
        def generous(self: Pressure, now_s: float) -> Any:
            bound, self.bound = self.bound, self.bound._replace(wait_s_max=1e9)
            try:
                return left_s(self, now_s)
            finally:
                self.bound = bound

        return generous

    return [replacing(Pressure, "_left_s", make)]


def waits_of_a_minute_forgotten() -> list[Plant]:
    """Each batch may wait as long as if none had."""

    def make(left_s: Any) -> Any:
        def forgetful(self: Pressure, now_s: float) -> Any:
            self._waits.clear()
            return left_s(self, now_s)

        return forgetful

    return [replacing(Pressure, "_left_s", make)]


def taken_away_and_kept() -> list[Plant]:
    """A replica that its node does not name any more is still waited for."""

    def make(take: Any) -> Any:
        def kept(self: ReplicaPositions, node: Any, lags: Any, now_s: float) -> None:
            known = [each.lag for (of, _), each in self._of.items() if of == node]
            named = {lag.replica_id for lag in lags}
            take(self, node, [*lags, *(lag for lag in known if lag.replica_id not in named)], now_s)

        return kept

    return [replacing(ReplicaPositions, "take", make)]


def any_generation_counts() -> list[Plant]:
    """The next generation, which is being built, holds up the one that answers."""
    return [(ReplicaLag, "replica_id", property(_of_first_generation))]


def positions_as_of_the_end() -> list[Plant]:
    """A position that is old is told with the end of today."""

    def make(take: Any) -> Any:
        def rosy(self: ReplicaPositions, node: Any, lags: Any, now_s: float) -> None:
            shown = [replace(lag, position=max(lag.position, lag.committed_end)) for lag in lags]
            take(self, node, shown, now_s)

        return rosy

    return [replacing(ReplicaPositions, "take", make)]


def _of_first_generation(lag: ReplicaLag) -> Any:
    return ReplicaId(lag.table_id, 1, lag.partition)


PRESSURE_PLANTS = (
    wait_begins_at_the_bound,
    wait_ends_where_it_begins,
    batches_as_large_as_the_bound,
    silent_node_counts,
    stuck_replica_counts,
    stuck_for_a_moment,
    no_limit_of_one_wait,
    waits_of_a_minute_forgotten,
    taken_away_and_kept,
    any_generation_counts,
    positions_as_of_the_end,
)
