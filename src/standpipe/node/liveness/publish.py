"""What the controller publishes for its node's workers: `run/liveness` (verdicts) and `run/lags`.

Written when something changed, and every PUBLISH_MS even if nothing did: their reader
(`node.liveness.peer_state`) can tell an old verdict from one that is still valid. So it can on a
full disk, where they cannot be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standpipe.adapters.clock import Clock
from standpipe.adapters.files.published import RecordWriter
from standpipe.control.liveness.failure_detector import Verdicts
from standpipe.control.liveness.gossip import WELL, Note
from standpipe.control.liveness.lag import Ledger
from standpipe.model import Health, NodeId
from standpipe.model_liveness import KnownLags, Liveness, PeerLiveness
from standpipe.node.configuration import NodePaths
from standpipe.node.liveness.wire import BeatExtra

PUBLISH_MS: Final = 500


class LivenessPages:
    """Writer of both. `said`: the newest heartbeat of each peer; `beats`: whether there are any."""

    def __init__(
        self,
        paths: NodePaths,
        clock: Clock,
        verdicts: Verdicts,
        ledger: Ledger,
        said: Mapping[NodeId, BeatExtra],
        *,
        beats: bool,
    ) -> None:
        self._clock, self._beats = clock, beats
        self._lags_file = RecordWriter(paths.lags)
        self._verdicts_file = RecordWriter(paths.liveness)
        self._verdicts, self._ledger, self._said = verdicts, ledger, said
        self._published_ms = self._lags_published_ms = 0
        self._published_changes = -1

    def publish(self, *, age_ms_max: int) -> None:
        """Write what changed, and what would look old. `age_ms_max`: see `KnownLags`."""
        now_ms = self._clock.boot_ms()
        if now_ms - self._published_ms >= PUBLISH_MS:
            self.publish_verdicts()
        is_changed = self._ledger.changes != self._published_changes
        if is_changed or now_ms - self._lags_published_ms >= PUBLISH_MS:
            self._published_changes, self._lags_published_ms = self._ledger.changes, now_ms
            known = tuple(self._ledger.known())
            record = KnownLags(
                published_boot_ms=now_ms,
                known=known,
                age_ms_max=age_ms_max,
                refused_count=self._ledger.refused_count,
            )
            self._lags_file.write(record)

    def publish_verdicts(self) -> None:
        """Write `run/liveness` now: a verdict or a note changed."""
        self._published_ms = self._clock.boot_ms()
        peers = self._verdicts.health.items() if self._beats else ()
        self._verdicts_file.write(
            Liveness(
                published_boot_ms=self._published_ms,
                peers=tuple(self._verdict(node, health) for node, health in peers),
            )
        )

    def _verdict(self, node: NodeId, health: Health) -> PeerLiveness:
        note = self._verdicts.note_of(node)
        if note is None:
            said = self._said.get(node)
            note = said.note if said else WELL
        return PeerLiveness(
            node_id=node,
            health=health,
            is_held_down=health is Health.DOWN and self._verdicts.is_held_down(node),
            beat_boot_ms=int(self._verdicts.last_message_ms(node) or 0),
            workers_ok=Note.WORKERS_SICK not in note,
            tailer_ok=Note.TAILER_SICK not in note,
            is_leaving=Note.LEAVING in note,
        )
