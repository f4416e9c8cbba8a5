"""Lookups of a known frame that another node answers, in one message for each node.

    lookups of one frame ─► a pack for each peer, until its channel writes ─► one request
                                                     one response ─► each to its client

A forward of its own takes a head at both ends, its parse, and a timer's entry. In a pack all of
that is shared, and a lookup costs its literal and its partition. How many share it follows from the
load: those that arrive in one turn of the loop, or while the last pack is under way.

The answer to a lookup is the same as to a forward of its own. Whatever the target leaves takes the
slow path, and its partition, too, for LEFT_S: the slow path sends the whole body, from which the
target learns. A peer of an older release knows no packs, says so by 404, and gets forwards of their
own (`node.worker.pull.fast_forward`) for PACKLESS_S.

Not here: the bytes (`data.query.lookup_pack`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from standpipe.adapters.http.peer_channel import PeerChannel
from standpipe.adapters.http.peer_client import message_of
from standpipe.data.query.literal_lookup import literal_of
from standpipe.data.query.lookup_pack import PACKED_MAX, body_in, pack_lookup, parts_of
from standpipe.model import NodeId
from standpipe.node.worker.pull.fast_forward import (
    REFUSED_S,
    FastForward,
    FastForwards,
    Shunned,
    Way,
)
from standpipe.node.worker.pull.forward_headers import RequestFormat

#: So long a partition takes the slow path after a target has left a lookup of it.
LEFT_S: Final = 0.05
#: so long a peer gets no packs that did not know what one is
PACKLESS_S: Final = 60.0
_NO_LABEL: Final = (b"", b"")
_OK: Final = b"HTTP/1.1 200 "
_UNKNOWN: Final = b"HTTP/1.1 404 "


class PackedFrame(Protocol):
    """What the lookups of a frame have in common."""

    token: RequestFormat
    #: of a pack (`pack_front`)
    front: bytes
    #: what the literals are
    is_text: bool
    #: by partition, those that are not written yet
    packs: dict[int, PackedForward]


class PackedLookup:
    """One lookup of a pack: `adapters.http.fast_path.Awaited`."""

    __slots__ = ("key", "number", "take")

    take: Callable[[bytes | None], None] | None

    def __init__(self, number: int, key: bytes) -> None:
        self.number, self.key = number, key
        self.take = None

    def then(self, take: Callable[[bytes | None], None]) -> None:
        """As `Awaited.then`."""
        self.take = take

    def leave(self) -> None:
        """As `Awaited.leave`."""
        self.take = None


class PackedForward:
    """One pack: `adapters.http.peer_channel.Asker` and `node.worker.pull.fast_forward.Begun`."""

    __slots__ = (
        "_frame",
        "_head",
        "_is_given_up",
        "_lookups",
        "_shared",
        "_ways",
        "began_s",
        "channel",
        "has_ended",
        "late_s",
        "peer",
    )

    began_s: float
    late_s: float

    def __init__(
        self, shared: PackedForwards, frame: PackedFrame, way: Way, channel: PeerChannel
    ) -> None:
        self._shared, self._frame, self.channel = shared, frame, channel
        self._head, self.peer = way.pack_head, way.peer
        self._lookups: list[PackedLookup] = []
        #: by partition
        self._ways: dict[int, Way] = {}
        self.has_ended = self._is_given_up = False

    def open(self, number: int, way: Way) -> None:
        """From now on lookups of a partition are added to it."""
        self._ways[number] = way
        self._frame.packs[number] = self

    def add(self, number: int, key: bytes) -> PackedLookup:
        """One more lookup, of a partition that it is open for. `key`: in the store."""
        lookup = PackedLookup(number, key)
        self._lookups.append(lookup)
        if len(self._lookups) >= PACKED_MAX:
            self._close()
        return lookup

    def message(self) -> bytes:
        """The request: it is written now. Without lookups, if it has been late before that."""
        self._close()
        if self._is_given_up:
            self._lookups.clear()
        self._shared.forwards.count_reads(len(self._lookups), self.began_s)
        front, is_text = self._frame.front, self._frame.is_text
        packed = [pack_lookup(each.number, literal_of(each.key, is_text)) for each in self._lookups]
        return message_of(self._head, b"".join((front, *packed)))

    def give(self, answer: bytes | None) -> None:
        """As `Begun.give`: to all that have none yet."""
        self._close()
        self._is_given_up = True
        for lookup in self._lookups:
            take, lookup.take = lookup.take, None
            if take is not None:
                take(answer)

    def unanswered(self) -> None:
        """As `Asker.unanswered`."""
        self.has_ended = True
        self.give(None)

    def answered(self, head: bytes, body: bytes) -> None:
        """As `Asker.answered`."""
        self.has_ended = True
        forwards = self._shared.forwards
        now_s, took_s = forwards.took(self)
        try:
            if head.startswith(_OK):
                count = self._hand_out(body, now_s)
                forwards.metrics.count("standpipe_pull_forwards", "answered", count)
                forwards.metrics.answered("remote", took_s, count)
            elif head.startswith(_UNKNOWN):
                self._shared.packless.add(self.peer.node_id, now_s, PACKLESS_S)
            else:
                for way in self._ways.values():
                    forwards.refused.add(way.replica_id, now_s, REFUSED_S)
        finally:  # else nothing would answer the other clients
            self.give(None)

    def _hand_out(self, body: bytes, now_s: float) -> int:
        """To each lookup its answer. The number that got one. Raises ValueError."""
        forwards, ways, head, count = self._shared.forwards, self._ways, self._frame.token.head, 0
        #: by partition: the last peer's headers, and what a client gets for them
        labels: dict[int, tuple[bytes, bytes]] = {}
        for lookup, (said, rows) in zip(self._lookups, parts_of(body), strict=True):
            take, number = lookup.take, lookup.number
            if take is None:
                continue
            lookup.take = None
            if not said:
                forwards.refused.add(ways[number].replica_id, now_s, LEFT_S)
                take(None)
                continue
            label_of, label = labels.get(number, _NO_LABEL)
            if said != label_of:
                way = ways[number]
                label = way.labels.of(said, forwards.routes.reported_end(way.replica_id))
                labels[number] = said, label
            count += 1
            take(b"%bcontent-length: %d\r\n%b\r\n%b" % (head, len(rows), label, rows))
        return count

    def _close(self) -> None:
        """No lookup is added any more."""
        packs = self._frame.packs
        for number in self._ways:
            if packs.get(number) is self:
                del packs[number]


@dataclass
class PackedForwards:
    """Those of one listener."""

    forwards: FastForwards
    #: peers that do not know what a pack is
    packless: Shunned[NodeId] = field(default_factory=Shunned[NodeId])

    def send(
        self, way: Way, frame: PackedFrame, number: int, key: bytes
    ) -> PackedLookup | FastForward | None:
        """Ask the peer; None: it was refused lately, or no channel to it is free. `number`: of the
        partition, for which no pack is open; `key`: in the store."""
        forwards = self.forwards
        if forwards.refused.has(way.replica_id):
            return None
        if self.packless.has(way.peer.node_id):
            body = body_in(frame.front, literal_of(key, frame.is_text))
            return forwards.send(way, frame.token, body, None)
        pack = next((each for each in frame.packs.values() if each.peer is way.peer), None)
        if pack is None:
            channel = forwards.channel(way.peer)
            if channel is None:
                return None
            pack = PackedForward(self, frame, way, channel)
            forwards.wait_for(pack)
            channel.send(pack.message, pack)
        pack.open(number, way)
        return pack.add(number, key)
