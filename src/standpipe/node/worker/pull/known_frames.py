"""Lookups by one text whose requests differ only in that text: the shortest way through a worker.

A *frame* is the body of a request without the text between its quotes. When the fast path has
answered a body, `learn` keeps what is the same for all bodies of its frame: plan, bounds, layout.
`answer` then needs the text only, and reads no JSON and no SQL. `learn_message` keeps the same for
the whole message, with its head, and `answer_message` reads no head either.

    cut, known_text        frame, hash and store key of the text, in one step
    _KnownPart             of frame and partition: verdict, freshness headers, begin of the body;
                           made again when a cause has changed, and dated in each millisecond
    one LMDB read          the row, and the number of its transaction
    response               checks and splices the row between the bytes that are there

Whether a frame may be known is checked once, with other texts in it (`_means_its_text`): each must
arrive in the statement as it is, as the only literal and the only key. Whatever is unusual is left
to the other steps of the fast path, which find the same (a test compares the bytes).

Not here: the rest of the fast path (`node.worker.pull.fast_path`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from standpipe.adapters.clock import Clock
from standpipe.adapters.store.reader import StoreReader
from standpipe.adapters.store.status_page import StatusReader
from standpipe.control.routing.bounds import Bounds
from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.query.pull import is_plain, partition_of_key
from standpipe.data.query.text_lookup import (
    MESSAGE_BYTES_MAX,
    Around,
    KnownText,
    cut,
    known_text,
    response,
)
from standpipe.data.replica.positions import StoreMeta, may_judge
from standpipe.errors import StandpipeError
from standpipe.model import NodeId, ReplicaId, ReplicaStatus
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.route_cache import CachedRoute, RouteCache
from standpipe.node.worker.request.answer import freshness_of, render_rows
from standpipe.node.worker.request.body import Lookup, parse_lookup
from standpipe.node.worker.request.cluster_view import ClusterView, Replicas
from standpipe.node.worker.request.dated_response import DatedResponse
from standpipe.sql.plans import PullPlan

#: Frames of a listener, and partitions of all of them, of 1 KiB each; when there are more, all are
#: dropped (a client could vary them).
FRAMES_MAX: Final = 256
PARTS_MAX: Final = 4096
#: A longer body has no frame: a frame keeps all of it but its text.
FRAME_BYTES_MAX: Final = 4_096
#: Messages without their texts; the length of a text is in their heads.
MESSAGES_MAX: Final = 1_024
#: Frames that were met once, by their hashes: one is learnt when it is met again, so that a client
#: whose bodies all differ costs little, and drops nobody's frame.
MET_MAX: Final = 1_024
#: texts that are put into a frame to see whether it passes them on
_PROBES: Final = ("", "a", "Zz 9", "7")
NO_RESPONSE: Final = Around(b"", b"", b"", 0)


@dataclass(slots=True)
class _KnownPart:
    """One partition as the last answer from it left it."""

    replica_id: ReplicaId
    page: StatusReader
    store: StoreReader
    route: CachedRoute
    #: the ms that `around` is as of; its other causes: status, route and meta
    at_ms: int
    #: the page gives another object when it has changed, or the replica was closed
    status: ReplicaStatus
    meta: StoreMeta | None = None
    dated: DatedResponse | None = None
    around: Around = NO_RESPONSE


@dataclass(slots=True)
class _Frame:
    """What all bodies of a frame have in common."""

    plan: PullPlan
    bounds: Bounds
    token: RequestFormat
    #: by partition, of those that were read
    parts: dict[int, _KnownPart] = field(default_factory=dict[int, _KnownPart])


@dataclass
class KnownFrames:
    """The frames of one listener."""

    node_id: NodeId
    replicas: Replicas
    routes: RouteCache
    clock: Clock = field(default_factory=Clock)
    #: None: bodies of this frame always take the other steps
    _frames: dict[bytes, _Frame | None] = field(default_factory=dict[bytes, _Frame | None])
    _met: set[int] = field(default_factory=set[int])
    _parts_count: int = 0
    #: the map that the frames hold for
    _view: ClusterView | None = None
    #: the last body that was asked for has a frame that is not known
    is_new: bool = False
    #: by message without its text
    _messages: dict[bytes, KnownText[_Frame]] = field(
        default_factory=dict[bytes, KnownText[_Frame]]
    )

    def __post_init__(self) -> None:
        # without two calls in between, which take a tenth of the time of a lookup
        self._known_text = native.compiled("known_text") or known_text
        self._response = native.compiled("response") or response

    def __len__(self) -> int:
        return len(self._frames)

    def answer(self, token: RequestFormat, body: bytes, view: ClusterView) -> bytes | None:
        """The response to a body of a known frame; None: find it by the other steps.

        Raises NotReady, DamagedRow.
        """
        self.is_new = False
        found = cut(token.head, body) if len(body) <= FRAME_BYTES_MAX else None
        if found is None:
            return None
        if view is not self._view:
            self._adopt(view)
        mark, text_hash, key = found
        frame = self._frames.get(mark)
        if frame is None:
            self.is_new = mark not in self._frames and self._is_met_again(mark)
            return None
        return self._row_of(frame, text_hash % frame.plan.source.partitions, key, view)

    def answer_message(self, message: bytes, view: ClusterView) -> bytes | None:
        """The response to bytes that may be a whole message, head included; None: they are none
        that is known, or its answer has to be found by the other steps.

        Raises NotReady, DamagedRow.
        """
        if view is not self._view:
            self._adopt(view)
        found = self._known_text(self._messages, message)
        if found is None:
            return None
        frame, number, key = found
        return self._row_of(frame, number, key, view)

    def _row_of(self, frame: _Frame, number: int, key: bytes, view: ClusterView) -> bytes | None:
        part = frame.parts.get(number)
        now_ms = int(time.time() * 1000)
        if (
            part is None
            or part.status is not part.page.read()
            or not self.routes.is_current(part.route, view)
        ):
            part = self._opened(frame, number, now_ms, view)
            if part is None:
                return None
        elif part.at_ms != now_ms:
            self._date(frame, part, now_ms)
        store = part.store
        instant = store.begin()
        try:
            stored, meta = instant.get(key), store.meta_of(instant)
        finally:
            instant.abort()
        if part.meta is not meta and not self._describe(frame, part, meta):
            return None
        if stored is None:
            return self._without_row(frame, part)
        made = self._response(part.around, key, stored)
        return response(part.around, key, stored) if made is None else made

    def learn(
        self, token: RequestFormat, body: bytes, query: Lookup, view: ClusterView, plan: PullPlan
    ) -> None:
        """A body, whose frame `is_new`, was answered by its plan: keep its frame, if other texts in
        it would be answered by it, too; else keep that they would not."""
        found = cut(token.head, body)
        if found is None:
            return
        if len(self._frames) >= FRAMES_MAX:
            self.forget()
        mark, text_hash, key = found
        self._frames[mark] = None
        if not (
            _is_of_one_text(plan)
            and view.plans.takes_any_text(query.text, query.properties)
            and _means_its_text(body, query)
        ):
            return
        source = plan.source
        assert key == store_key(plan.keys[0], ("STRING",))
        assert text_hash % source.partitions == partition_of_key(source, plan.keys[0])
        self._frames[mark] = _Frame(
            plan=plan,
            bounds=self.routes.bounds(query.bounds, source),
            token=token,
        )

    def learn_message(self, token: RequestFormat, message: bytes, head_bytes: int) -> bool:
        """Keep a message without its text, if its body has a known frame. True: it is kept.

        `token`: what its head says. A head with a quote is not kept, so there is one text, in the
        body, and a message that is equal without it, and as long, has an equal head.
        """
        if len(message) > MESSAGE_BYTES_MAX or message.find(b"'", 0, head_bytes) >= 0:
            return False
        of_body, of_message = cut(token.head, message[head_bytes:]), cut(b"", message)
        frame = self._frames.get(of_body[0]) if of_body else None
        if frame is None or of_message is None:
            return False
        if len(self._messages) >= MESSAGES_MAX:
            self._messages.clear()
        known = KnownText(len(message), frame.plan.source.partitions, frame)
        self._messages[of_message[0]] = known
        return True

    def forget(self) -> None:
        """Drop all frames; they are learnt again."""
        self._frames.clear()
        self._messages.clear()
        self._parts_count = 0

    def _is_met_again(self, mark: bytes) -> bool:
        place = hash(mark)
        if place in self._met:
            self._met.discard(place)
            return True
        if len(self._met) >= MET_MAX:
            self._met.clear()
        self._met.add(place)
        return False

    def _adopt(self, view: ClusterView) -> None:
        """Go on with a newer map: frames mean the same in it while the catalog is the same. Control
        publishes one a second, and each holds every table and node: none but the newest is kept."""
        if self._view is not None and self._view.plans is not view.plans:
            self.forget()
        for frame in self._frames.values():
            if frame is not None:
                frame.parts.clear()
        self._parts_count = 0
        self._view = view

    def _date(self, frame: _Frame, part: _KnownPart, now_ms: int) -> None:
        """Nothing has changed but the time."""
        self.replicas.get(part.replica_id)  # it is in use: others are closed before it
        part.at_ms = now_ms
        if part.dated is None or frame.bounds.is_time_bounded:
            part.meta = None
        else:
            part.around = part.dated.at(self.clock.boot_ms(), now_ms)

    def _opened(
        self, frame: _Frame, number: int, now_ms: int, view: ClusterView
    ) -> _KnownPart | None:
        """The partition as it is now; None: this node is not to answer for it."""
        replica_id = frame.plan.source.replica_id(number)
        replica = self.replicas.get(replica_id)
        status = replica.status()
        route = self.routes.of(view, replica_id, status, frame.bounds)
        if status is None or route.first_here(is_forward=False) is None:
            return None
        if number not in frame.parts:
            self._parts_count += 1
            if self._parts_count > PARTS_MAX:
                self.forget()
        part = _KnownPart(replica_id, replica.page, replica.store, route, now_ms, status)
        frame.parts[number] = part
        return part

    def _describe(self, frame: _Frame, part: _KnownPart, meta: StoreMeta) -> bool:
        """False: the page may not decide about the rows, or they are too old."""
        if not may_judge(part.status, meta):
            return False
        here = part.route.first_here(is_forward=False)
        assert here is not None
        boot_ms = self.clock.boot_ms()
        fresh = freshness_of(
            part.status,
            meta,
            reported_end=part.route.reported_end,
            served_by=self.node_id,
            role=here.role.lower(),
            boot_ms=boot_ms,
            unix_ms=part.at_ms,
        )
        bounds, token = frame.bounds, frame.token
        if bounds.is_time_bounded and bounds.late(fresh.replica_lag_ms, fresh.source_lag_ms):
            return False
        part.dated = DatedResponse.of(
            token.head, token.form, frame.plan, status=part.status, meta=meta, fresh=fresh
        )
        part.around = part.dated.at(boot_ms, part.at_ms)
        part.meta = meta
        return True

    def _without_row(self, frame: _Frame, part: _KnownPart) -> bytes:
        body = render_rows(frame.token.form, frame.plan, (), part.at_ms)
        middle = part.around.middle
        label = middle[: middle.index(b"\r\n\r\n") + 4]
        return b"%b%d%b%b" % (part.around.before, len(body), label, body)


def _is_of_one_text(plan: PullPlan) -> bool:
    """Whether one get finds the whole row, by a key that is a text."""
    source = plan.source
    columns = source.key_columns
    return (
        is_plain(plan)
        and plan.projection is None
        and plan.limit is None
        and source.key_format == "KAFKA"
        and len(columns) == 1
        and columns[0].type == "STRING"
    )


def _means_its_text(body: bytes, query: Lookup) -> bool:
    """Whether the statement of a body has its text, as it is; so do all bodies of its frame."""
    begin, end = body.index(b"'") + 1, body.rindex(b"'")
    head, tail = body[:begin], body[end:]
    if b"\\" in head or b"\\" in tail or b"sessionVariables" in head + tail:
        return False  # a quote may be written in another way, and ${a} in the text mean something
    begin, end = query.text.find("'") + 1, query.text.rfind("'")
    try:
        for text in _PROBES:
            other = parse_lookup(head + text.encode() + tail)
            expected = query.text[:begin] + text + query.text[end:]
            if other != Lookup(expected, query.properties, query.bounds):
                return False
    except StandpipeError:
        return False
    return True
