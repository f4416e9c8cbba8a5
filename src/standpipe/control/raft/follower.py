"""What a replica keeps about the leader from which it fetches: the next request, the download.

    Fetch(end of our log) ─► entries: append, flush, fetch again        (the fetch is the ack)
                          ├► diverging: truncate, flush, fetch again
                          └► snapshot: FetchSnapshot until whole ─► install ─► fetch from its end

Not here: when to fetch, and what a failed fetch means (`core.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from standpipe.control.raft.events import (
    AppendLog,
    InstallSnapshot,
    Order,
    TruncateLog,
    WriteSnapshotChunk,
)
from standpipe.control.raft.log import LogView, SnapshotInfo
from standpipe.control.raft.majority import LeaderEpoch, ReplicaKey, Round
from standpipe.control.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from standpipe.control.raft.timeouts import RaftSettings

#: the first may be a broken connection; a live process accepts the next one
LOST_AFTER_FAILURES: Final = 2


@dataclass(slots=True)
class _Download:
    snapshot: SnapshotInfo
    position: int = 0  # bytes that we have


class Following:
    """One replica's state under one leader of one epoch."""

    def __init__(self, me: ReplicaKey, log: LogView, settings: RaftSettings) -> None:
        """Begins before the first fetch, so without any reason to vouch for the leader."""
        self._me = me
        self._log = log
        self._settings = settings
        self.has_fetched = False
        self._failures = 0  # consecutive fetches that certainly got no answer
        self.round = Round(0)
        self._download: _Download | None = None

    def next_request(self, number: int, epoch: LeaderEpoch) -> FetchRequest | FetchSnapshotRequest:
        """The request that continues where the last answer ended.

        Send it only when the log is flushed: its offset acknowledges everything below.
        """
        if (load := self._download) is not None:
            bytes_max = self._settings.chunk_bytes_max
            snapshot = load.snapshot.id
            return FetchSnapshotRequest(number, epoch, self._me, snapshot, load.position, bytes_max)
        return FetchRequest(
            number,
            epoch,
            self._me,
            offset=self._log.end,
            last_epoch=self._log.last_epoch,
            high_watermark=self._log.high_watermark,
            round=self.round,
            wait_ms=self._settings.wait_ms,
        )

    def fetched(self, answer: FetchResponse) -> Sequence[Order] | None:
        """Handle a successful answer: returns orders for the disk, or None if it makes no sense.

        None must not count as contact with the leader, so that a broken leader is replaced.
        Raises LogViolation if the leader asks to truncate committed entries (KIP-595).
        """
        orders: list[Order] = []
        if answer.snapshot is not None:
            if not self._begin_download(answer.snapshot):
                return None
        elif answer.diverging is not None:
            self._log.truncate(self._log.truncation_for(answer.diverging))
            orders.append(TruncateLog(self._log.wrote(), self._log.end))
        elif answer.entries:
            if answer.entries[0].offset != self._log.end:
                return None
            self._log.append(answer.entries)
            orders.append(AppendLog(self._log.wrote(), answer.entries))
        if answer.diverging is None and answer.snapshot is None:
            # Only now is our whole log known to be a prefix of the leader's.
            self._log.commit(answer.high_watermark)
        self._hears()
        self.round = max(self.round, answer.round)
        return orders

    def _hears(self) -> None:
        self.has_fetched = True
        self._failures = 0

    def failed(self) -> bool:
        """A fetch will get no answer; returns whether a leader that had answered is now lost.

        A killed process resets our connection and then refuses the next one: two failures in a row.
        A single failure may be the connection's. We do not vouch for a lost leader (pre-votes are
        granted), and it is not lost again before it has answered again.
        """
        self._failures += 1
        if self._failures < LOST_AFTER_FAILURES or not self.has_fetched:
            return False
        self.has_fetched = False
        return True

    def _begin_download(self, snapshot: SnapshotInfo) -> bool:
        if snapshot.epoch < 0 or snapshot.end_offset <= self._log.high_watermark:
            return False  # negative, or behind what is committed here: KIP-630
        if self._download is None or self._download.snapshot != snapshot:
            self._download = _Download(snapshot)
        return True

    def loaded(self, answer: FetchSnapshotResponse) -> Sequence[Order] | None:
        """Handle a piece; the last one replaces the log.  None: it does not fit."""
        load = self._download
        if load is None or answer.snapshot != load.snapshot.id or answer.position != load.position:
            return None
        if answer.size != load.snapshot.size or not answer.data:
            return None
        orders: list[Order] = [WriteSnapshotChunk(load.snapshot.id, load.position, answer.data)]
        load.position += len(answer.data)
        self._hears()
        if load.position >= load.snapshot.size:
            self._download = None
            self._log.install(load.snapshot)
            orders.append(InstallSnapshot(self._log.wrote(), load.snapshot))
        return orders

    def drop_download(self) -> None:
        """The leader no longer has that snapshot: fetch again (KIP-630)."""
        self._download = None
