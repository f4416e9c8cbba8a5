"""What the controller published about the peers and their replicas (`run/liveness`, `run/lags`), in
the form that routing needs.

A `PeerState` is one state of both files; it is replaced whole, so a decision made with it can be
kept until then. What is too old counts as unknown and is left out: verdicts that control no longer
renews (it stopped; all peers count as alive and the breakers of `node.worker.pull.forward` decide),
lags that were not confirmed for a while, lags of a node that is down. A lag that is only an upper
bound is marked as one. A committed end is never too old: it only grows. All this is judged at the
time of use, even while no file changes.

Not here: how it is used (`control.routing.route`), who writes the files (`node.liveness.loop`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from standpipe.adapters.clock import Clock
from standpipe.adapters.files.published import RecordReader
from standpipe.config.liveness import BEAT_WINDOW
from standpipe.config.registry import (
    Config,
)
from standpipe.control.liveness.lag import FRESH_MS
from standpipe.control.routing.route import NO_END, NO_REPORTS, PeerReports
from standpipe.model import Health, NodeId, Offset, ReplicaId
from standpipe.model_liveness import KnownLag, KnownLags, Liveness, PeerLiveness

#: Control renews its verdicts twice a second.
VERDICTS_AGE_MS_MAX: Final = 3000
_NEVER: Final = 2**63 - 1


@dataclass(frozen=True)
class PeerState:
    """One state of both files, at an instant of the boot clock."""

    liveness: Mapping[NodeId, PeerLiveness] = field(default_factory=dict[NodeId, PeerLiveness])
    lags: Mapping[ReplicaId, list[KnownLag]] = field(
        default_factory=dict[ReplicaId, list[KnownLag]]
    )
    #: lags confirmed before this instant are unknown
    lags_since_ms: int = 0
    fresh_since_ms: int = 0  # those confirmed before it are upper bounds
    refused_count: int = 0  # `KnownLags.refused_count`

    def of(self, replica: ReplicaId) -> PeerReports:
        """What routing needs to know about one partition."""
        known = self.lags.get(replica)
        if not known:
            return PeerReports(liveness=self.liveness) if self.liveness else NO_REPORTS
        return PeerReports(
            liveness=self.liveness,
            lags={one.node_id: one for one in known if self._is_believed(one)},
            committed_end=self.end_of(replica),
            fresh_since_ms=self.fresh_since_ms,
        )

    def lags_of(self, node: NodeId) -> list[KnownLag]:
        """Lags of all replicas of a node, as far as they are believed."""
        listed = (one for known in self.lags.values() for one in known if one.node_id == node)
        return [one for one in listed if self._is_believed(one)]

    def end_of(self, replica: ReplicaId) -> Offset:
        """The largest committed end that any node reported of its partition; NO_END: none."""
        known = self.lags.get(replica, ())
        return max((one.lag.committed_end for one in known), default=NO_END)

    def _is_believed(self, known: KnownLag) -> bool:
        peer = self.liveness.get(known.node_id)
        is_down = peer is not None and peer.health is Health.DOWN
        return known.at_boot_ms >= self.lags_since_ms and not is_down


class PeerStateReader:
    """The newest `PeerState`. `refresh` is called every 20 ms and costs two `stat`s.

    A `PeerState` is valid until a file changes or something in it expires: a lag becomes an upper
    bound, or is no longer believed.
    """

    def __init__(
        self, liveness: Path, lags: Path, settings: Config, clock: Clock | None = None
    ) -> None:
        self._liveness = RecordReader(liveness, Liveness)
        self._lags = RecordReader(lags, KnownLags)
        self._clock = clock or Clock()
        self._lags_age_ms_max = lags_age_ms_max(settings)
        self._is_old: bool = True
        #: when each lag was last true, ascending
        self._instants_ms: Sequence[int] = ()
        self._turns_ms = _NEVER
        self.state = PeerState()

    def refresh(self) -> bool:
        """Read what is new, and drop what became old. True: `state` was replaced."""
        is_new_liveness, is_new_lags = self._liveness.refresh(), self._lags.refresh()
        now_ms = self._clock.boot_ms()
        verdicts = self._liveness.record
        published_ms = verdicts.published_boot_ms if verdicts else 0
        is_old = now_ms - published_ms > VERDICTS_AGE_MS_MAX
        is_turned = is_old != self._is_old or now_ms >= self._turns_ms
        if not (is_new_liveness or is_new_lags or is_turned):
            return False
        self._is_old = is_old
        believed = () if verdicts is None or is_old else verdicts.peers
        lags = self._lags.record
        by_reports_ms_max = lags.age_ms_max if lags else 0
        age_ms_max = by_reports_ms_max or self._lags_age_ms_max
        if is_new_lags:
            self._instants_ms = sorted({one.at_boot_ms for one in lags.known} if lags else ())
        self._turns_ms = min(
            _turn(self._instants_ms, now_ms, age) for age in (FRESH_MS, age_ms_max)
        )
        self.state = PeerState(
            liveness={peer.node_id: peer for peer in believed},
            lags=_by_replica(lags) if is_new_lags else self.state.lags,
            lags_since_ms=now_ms - age_ms_max,
            refused_count=lags.refused_count if lags else 0,
            # lags from reports are of a different instant at each node: always upper bounds
            fresh_since_ms=now_ms + 1 if by_reports_ms_max else now_ms - FRESH_MS,
        )
        return True


def _turn(instants_ms: Sequence[int], now_ms: int, age_ms_max: int) -> int:
    """When the next of the ascending instants becomes older than `age_ms_max`."""
    place = bisect_left(instants_ms, now_ms - age_ms_max)
    return instants_ms[place] + age_ms_max + 1 if place < len(instants_ms) else _NEVER


def lags_age_ms_max(settings: Config) -> int:
    """How long to believe a lag that heartbeats keep confirming."""
    return max(settings[BEAT_WINDOW], VERDICTS_AGE_MS_MAX)


def _by_replica(lags: KnownLags | None) -> dict[ReplicaId, list[KnownLag]]:
    found: dict[ReplicaId, list[KnownLag]] = {}
    for known in lags.known if lags else ():
        found.setdefault(known.lag.replica_id, []).append(known)
    return found
