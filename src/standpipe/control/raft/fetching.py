"""Fetching: how a replica that does not lead gets the log from the one that does.

    flushed ─► fetch, or the next chunk of a snapshot ─► entries, and the fetch timer begins anew
                    └ no answer or a refusal: again after a pause, of the next peer if nobody leads

Not here: what of it is kept (`raft_follower`), what a leader answers (`raft_leader`). Sources:
KIP-595 (pull-based replication, discovery of the leader), KIP-630 (snapshots in chunks).
"""

from collections.abc import Sequence

from standpipe.control.raft.elections import Elections
from standpipe.control.raft.events import Order
from standpipe.control.raft.inflight import Kind
from standpipe.control.raft.messages import (
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from standpipe.control.raft.roles import Role
from standpipe.control.raft.state import FETCHING
from standpipe.model import NodeId


class Fetching(Elections):
    """A replica that follows whoever leads."""

    def _fetch(self) -> None:
        """Send the next fetch, if one is due and everything that it acknowledges is flushed."""
        if self.role not in FETCHING or not self.log.is_flushed:
            return
        if self._calls.is_open(FetchRequest) or self._calls.is_open(FetchSnapshotRequest):
            return
        to = self.leader or self._next_peer()
        if to is None:
            return
        # Without a leader there is nothing to download: the plain fetch asks who leads.
        request = self._following.next_request(self._calls.number(), self.epoch)
        due_ms = self.now_ms + self.settings.wait_ms + self.settings.request_ms
        self._calls.await_answer(type(request), to, request.request, due_ms)
        self._send(to, request)

    def _next_peer(self) -> NodeId | None:
        peers = sorted({*self.bootstrap, *(key.node for key in self.log.voters.keys)})
        peers = [peer for peer in peers if peer != self.me.node]
        self._discovery_turn += 1
        return peers[self._discovery_turn % len(peers)] if peers else None

    def _fetch_failed(self, to: NodeId) -> None:
        """Try again after a pause; an observer elsewhere: its leader may be gone (KIP-595)."""
        if self.role is Role.OBSERVER:
            self.leader = None
        self._calls.pause(FetchRequest, to, self.now_ms + self.settings.retry_ms)

    def _take(
        self, kind: Kind, sender: NodeId, answer: FetchResponse | FetchSnapshotResponse
    ) -> bool:
        """Whether this is the awaited answer of the leader that we follow, and not a refusal."""
        if not self._calls.close(kind, sender, answer.request):
            return False
        was = self._following
        current = self._hear(answer.epoch, answer.leader)
        if current and answer.error is Error.NONE and sender == self.leader:
            return True
        if answer.error in {Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE}:
            self._following.drop_download()
        if self._following is was:
            self._fetch_failed(sender)
        return False

    def _on_fetch_answer(self, sender: NodeId, answer: FetchResponse) -> None:
        if self._take(FetchRequest, sender, answer):
            self._progressed(sender, self._following.fetched(answer))

    def _on_chunk(self, sender: NodeId, answer: FetchSnapshotResponse) -> None:
        if self._take(FetchSnapshotRequest, sender, answer):
            self._progressed(sender, self._following.loaded(answer))

    def _progressed(self, sender: NodeId, orders: Sequence[Order] | None) -> None:
        if orders is None:
            self._fetch_failed(sender)  # and the fetch timer runs on
            return
        self._orders += orders
        self._timer_ms = self._fetch_due_ms()
        self._settle_membership()
