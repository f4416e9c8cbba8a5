"""The snapshots that a replica can load or send, and the one that it downloads, in memory.

They are whole files, as on disk (`adapters.raft.disk`): a catalog is small, and so sending a piece
needs no read and never blocks. Not here: when one is taken (`node.controller.raft_driver`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from standpipe.adapters.raft.disk import snapshot_state
from standpipe.control.raft import events as ev
from standpipe.control.raft.log import SnapshotId, SnapshotInfo
from standpipe.control.raft.majority import LogOffset
from standpipe.control.raft.messages import Error, FetchSnapshotResponse
from standpipe.model import NodeId


class SnapshotCache:
    """Snapshots by id: at most the log's start, the newest one, and one that was just taken."""

    def __init__(self, found: Mapping[SnapshotInfo, bytes]) -> None:
        self._files = {snapshot.id: data for snapshot, data in found.items()}
        self._partial: dict[SnapshotId, bytearray] = {}

    def put(self, snapshot: SnapshotId, data: bytes) -> None:
        """Add a snapshot that is on disk."""
        self._files[snapshot] = data

    def write_chunk(self, order: ev.WriteSnapshotChunk) -> None:
        """Take the next bytes of a download; position 0 restarts it and drops any other."""
        if order.position == 0:
            self._partial.clear()
        part = self._partial.setdefault(order.snapshot, bytearray())
        del part[order.position :]
        part += order.data

    def install(self, snapshot: SnapshotInfo) -> bytes:
        """The downloaded file, checked; it replaces all others. Raises DataDirectoryRefused."""
        data = bytes(self._partial.pop(snapshot.id))
        snapshot_state(data, Path(f"the leader's snapshot {snapshot.id}"))
        self._files = {snapshot.id: data}
        return data

    def trim(self, start: SnapshotInfo) -> None:
        """Drop snapshots older than the log's new start."""
        self._files = {
            known: data
            for known, data in self._files.items()
            if known.end_offset >= start.end_offset
        }

    def state(self, snapshot: SnapshotInfo) -> tuple[bytes, LogOffset]:
        """The state for the state machine, and the end offset that it covers."""
        _, state = snapshot_state(self._files[snapshot.id], Path(f"snapshot {snapshot.id}"))
        return state, snapshot.end_offset

    def piece(self, order: ev.SendSnapshotChunk, me: NodeId) -> FetchSnapshotResponse | None:
        """The requested bytes; None: trimmed since, and the follower will ask for a newer one."""
        data = self._files.get(order.snapshot.id)
        if data is None:
            return None
        return FetchSnapshotResponse(
            order.request,
            Error.NONE,
            order.epoch,
            me,
            order.snapshot.id,
            order.position,
            len(data),
            data[order.position : order.position + order.bytes_max],
        )
