"""Lookups by one literal whose requests differ only in it: the shortest way through a worker.

A *frame* is the body of a request without its literal: a text between its quotes, or the digits of
a whole number. When the fast path has answered a body, `learn` keeps what is the same for all
bodies of its frame: plan, bounds, layout. `answer` then needs the literal only, and reads no JSON
and no SQL. `learn_message` keeps the same for the whole message, with its head, and
`look_up` reads no head either.

    known_part             frame, partition and store key of the literal, in one step, and the
    KnownPart              of frame and partition, if no cause has changed in this millisecond:
                           verdict, freshness headers, begin of the body; else `_now` looks again
    one LMDB read          the row, and the number of its transaction
    response               checks and splices the row between the bytes that are there

Whether a frame may be known is checked once, with other literals in it (`_means_its_literal`): each
must arrive in the statement as it is, as the only literal and the only key. Whatever is unusual is
left to the other steps of the fast path, which find the same (a test compares the bytes).

Not here: the rest of the fast path (`node.worker.pull.fast_path`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from standpipe.adapters.http.fast_path import Awaited
from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.query.literal_lookup import (
    MESSAGE_BYTES_MAX,
    Around,
    HeldPart,
    KnownLiteral,
    cut,
    known_literal,
    known_part,
    place_in,
    response,
)
from standpipe.data.query.lookup_pack import pack_front
from standpipe.data.query.pull import is_plain, partition_of_key
from standpipe.errors import StandpipeError
from standpipe.node.worker.pull.fast_forward import PASSED_FORMS, Way
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.hedging import CHEAP_CHARS_MAX
from standpipe.node.worker.pull.known.packed_forwards import PackedForward, PackedForwards
from standpipe.node.worker.pull.known.parts import (
    MET_MAX,
    KnownFrame,
    KnownPart,
    KnownParts,
    kind_of_key,
)
from standpipe.node.worker.pull.session_read import SessionTokens
from standpipe.node.worker.request.body import Lookup, parse_lookup
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.sql.declarations.added_columns import count_added
from standpipe.sql.plans import PullPlan

#: Frames of a listener; when there are more, all are dropped (a client could vary them).
FRAMES_MAX: Final = 256
#: Messages without their literals; the length of a literal is in their heads.
MESSAGES_MAX: Final = 1_024
#: how often the frame of a session is found to be new until it is learnt
ASKED_MIN: Final = 4
#: literals that are put into a frame to see whether it passes them on
TEXTS: Final = ("", "a", "Zz 9", "7")
NUMBERS: Final = ("0", "7", "2147483648")

#: around, key, stored row -> the response, or None
Respond = Callable[[Around, bytes, bytes], bytes | None]


@dataclass(slots=True)
class LiteralFrame(KnownFrame):
    """What all bodies of a frame have in common. `added`: how many columns its table got in place;
    `respond`: `response` of that table."""

    added: int = 0
    respond: Respond = response
    #: by partition, those of `parts` that were read last, and until when they hold
    held: dict[int, HeldPart] = field(default_factory=dict[int, HeldPart])
    #: by partition, of those whose replicas are all elsewhere
    ways: dict[int, Way] = field(default_factory=dict[int, Way])
    #: the begin of a pack of such bodies, and what the literal in them is
    front: bytes = b""
    is_text: bool = False
    #: by partition, those that are not written yet
    packs: dict[int, PackedForward] = field(default_factory=dict[int, PackedForward])

    def leave_map(self) -> None:
        """Keep nothing that refers to a map of the cluster."""
        super(
            LiteralFrame, self
        ).leave_map()  # slots make the class twice, and super() has the first
        self.held.clear()
        self.ways.clear()

    def may_be_forwarded(self) -> bool:
        """Whether another node may answer the reads of it without a task."""
        is_plain = self.session is None and not self.is_snapshot and not self.is_forward
        return is_plain and not self.bounds.is_bounded and self.token.form in PASSED_FORMS


#: by bytes without their literal; None: they always take the other steps
Known = dict[bytes, KnownLiteral[LiteralFrame] | None]


@dataclass
class KnownFrames(KnownParts):
    """The frames of one listener."""

    #: by body without its literal
    bodies: Known = field(default_factory=dict[bytes, KnownLiteral[LiteralFrame] | None])
    #: the last body that was asked for has a frame that is not known
    is_new: bool = False
    #: what tokens of sessions want of a table
    tokens: SessionTokens = field(default_factory=SessionTokens)
    #: how often a frame with a token was asked for, by its hash
    _asked: dict[int, int] = field(default_factory=dict[int, int])
    #: by message without its literal
    messages: Known = field(default_factory=dict[bytes, KnownLiteral[LiteralFrame] | None])
    #: reads that another node answers; None: they are left to the other steps
    packs: PackedForwards | None = None

    def __post_init__(self) -> None:
        # without two calls in between, which take a tenth of the time of a lookup
        self._known = native.compiled("known_part") or known_part
        self._respond: Respond = native.compiled("response") or response
        self._peers, self._forwarder = self.routes.peers, self.routes.forwarder

    def __len__(self) -> int:
        return len(self.bodies)

    def answer(
        self, token: RequestFormat, body: bytes, view: ClusterView, now_s: float
    ) -> bytes | Awaited | None:
        """The response to a body of a known frame, at once or later; None: find it by the other
        steps.

        `now_s`: of the monotonic clock. Raises NotReady, DamagedRow.
        """
        self.is_new = False
        only = None if token.forward is None else token.forward.partition
        return self.look_up(self.bodies, token.mark, body, view, now_s, only=only)

    def note(self, token: RequestFormat, body: bytes) -> None:
        """`answer` did not know a body, and others will answer it: whether `is_new`."""
        mark = cut(token.mark, body) if len(body) <= MESSAGE_BYTES_MAX else None
        self.is_new = mark is not None and mark not in self.bodies and self._is_met_again(mark)

    def look_up(
        self,
        known: Known,
        mark: bytes,
        message: bytes,
        view: ClusterView,
        now_s: float,
        *,
        only: int | None = None,
    ) -> bytes | Awaited | None:
        """The response to bytes that behind `mark` and without their literal are `known`: a body,
        or a whole message, head included. None: they are none that is known, or their answer has to
        be found by the other steps. One function, as each call in it costs every lookup.
        `mark` is empty for messages only.

        `now_s`: of the monotonic clock; `only`: the partition that a forward wants. Raises
        NotReady, DamagedRow.
        """
        if view is not self._view:
            self._adopt(view)
        found = self._known(
            known, mark, message, time.time(), self._peers.state, self._forwarder.open_paths
        )
        if found is None:
            return None
        frame, number, key, part, older = found
        if only is not None and number != only:
            return None
        if part is None:
            pack = frame.packs.get(number)
            if pack is not None:
                return pack.add(number, key)
            if number not in frame.ways:
                part = self._now(frame, number, older, view)
            if part is None:
                return self._forwarded(frame, number, key, view)
        stored, meta = part.store.read(key, now_s)
        if part.meta is not meta and not self._describe(frame, part, meta):
            return None
        if stored is None:
            return self._without_row(frame, part)
        made = frame.respond(part.around, key, stored)
        return response(part.around, key, stored, frame.added) if made is None else made

    def _now(
        self, frame: LiteralFrame, number: int, older: HeldPart | None, view: ClusterView
    ) -> KnownPart | None:
        """A partition of a frame as of now; None: this node is not to answer for it. From then on
        it is held until a cause changes. `older`: it is, as of another millisecond."""
        now_ms = int(time.time() * 1000)
        if older is None:
            part = self._part(frame, number, view, now_ms)
        else:
            was, _, page, front, causes = older
            part = self._dated(frame, number, was, now_ms, view)
            if part is was:
                frame.held[number] = HeldPart(was, now_ms, page, front, causes)
                return part
        settled = None if part is None else part.page.settled()
        if part is None or settled is None:
            frame.held.pop(number, None)
            return part
        route = part.route
        frame.held[number] = HeldPart(part, now_ms, *settled, (route.state, route.open_paths))
        return part

    def _forwarded(
        self, frame: LiteralFrame, number: int, key: bytes, view: ClusterView
    ) -> Awaited | None:
        """What another node answers; None: the other steps find the answer."""
        packs = self.packs
        if packs is None:
            return None
        forwards = packs.forwards
        way = frame.ways.get(number)
        if way is None or not forwards.is_current(way, view):
            frame.ways.pop(number, None)
            source = frame.plan.source
            # a large one may be what silences a peer
            is_cheap = len(frame.front) <= CHEAP_CHARS_MAX and frame.may_be_forwarded()
            if not is_cheap or not forwards.is_elsewhere(view, source.replica_id(number)):
                return None
            way = forwards.way(source, number, frame.token.form, view, frame.bounds)
            if way is None:
                return None
            frame.ways[number] = way
        return packs.send(way, frame, number, key)

    def learn(
        self, token: RequestFormat, body: bytes, query: Lookup, view: ClusterView, plan: PullPlan
    ) -> None:
        """A body, whose frame `is_new`, was answered by its plan: keep its frame, if other literals
        in it would be answered by it, too; else keep that they would not."""
        mark = cut(token.mark, body)
        if mark is None or (query.session is not None and not self._is_often_asked(mark)):
            return
        if len(self.bodies) >= FRAMES_MAX:
            self.forget()
        self.bodies[mark] = None
        place = view.plans.any_key_at(query.text, query.properties)
        kind = kind_of_rows(plan)
        if kind is None or place is None or not _means_its_literal(body, query, place):
            return
        source, session = plan.source, None
        if query.session is not None:
            session = self.tokens.by_map(
                query.session, source, view.snapshot, self.replicas.covered
            )
            if session.before.offsets:  # rows may cover what was written without a new batch
                return
        added, place = count_added(source), place_in(body)
        assert place is not None
        frame = LiteralFrame(
            plan=plan,
            bounds=self.routes.bounds(query.bounds, source),
            token=token,
            is_snapshot=query.is_snapshot,
            is_forward=token.forward is not None,
            session=session,
            added=added,
            front=pack_front(body[: place.begin], body[place.end :]),
            is_text=place.is_text,
            respond=partial(response, added=added) if added else self._respond,
        )
        known = KnownLiteral(0, kind, source.partitions, frame, frame.held)
        key, partition = plan.keys[0], partition_of_key(source, plan.keys[0])
        stored = store_key(key, (source.key_columns[0].type,))
        assert known_literal({mark: known}, token.mark, body) == (frame, partition, stored)
        self.bodies[mark] = known

    def _is_often_asked(self, mark: bytes) -> bool:
        """Whether a frame with a session's token is worth to be kept: the next batch makes other
        tokens, and to learn a frame takes as long as some reads without."""
        place = hash(mark)
        if len(self._asked) >= MET_MAX:
            self._asked.clear()
        self._asked[place] = asked = self._asked.get(place, 0) + 1
        return asked >= ASKED_MIN

    def learn_message(self, token: RequestFormat, message: bytes, head_bytes: int) -> bool:
        """Keep a message without its literal, if its body has a known frame. True: it is kept.

        `token`: what its head says. A head with a quote is not kept, so the literal that is cut out
        of a message is that of its body: it has the only quotes, or stands behind the last equals
        sign. A message that is equal without it, and as long, has an equal head.
        """
        if len(message) > MESSAGE_BYTES_MAX or message.find(b"'", 0, head_bytes) >= 0:
            return False
        of_body, of_message = cut(token.mark, message[head_bytes:]), cut(b"", message)
        known = self.bodies.get(of_body) if of_body else None
        if known is None or of_message is None:
            return False
        if len(self.messages) >= MESSAGES_MAX:
            self.messages.clear()
        self.messages[of_message] = known._replace(size=len(message))
        return True

    def forget(self) -> None:
        """Drop all frames; they are learnt again."""
        self.bodies.clear()
        self.messages.clear()
        self._parts_bytes = 0

    def _frames_known(self) -> Iterable[KnownFrame]:
        return [known.meaning for known in self.bodies.values() if known is not None]


def kind_of_rows(plan: PullPlan) -> int | None:
    """The kind of its keys, if one get for each finds whole rows; None: it takes more."""
    is_one_get = is_plain(plan) and plan.projection is None and plan.limit is None
    return kind_of_key(plan) if is_one_get else None


def _means_its_literal(body: bytes, query: Lookup, at: slice) -> bool:
    """Whether the literal of a body is what its statement has at a place, as it is; so it is in all
    bodies of its frame."""
    place = place_in(body)
    if place is None:
        return False
    head, tail = body[: place.begin], body[place.end :]
    if b"\\" in head or b"\\" in tail or b"sessionVariables" in head + tail:
        return False  # a quote may be written in another way, and ${a} in the text mean something
    own = body[place.begin : place.end].decode()
    try:
        for literal in (own, *(TEXTS if place.is_text else NUMBERS)):
            other = parse_lookup(head + literal.encode() + tail)
            expected = query.text[: at.start] + literal + query.text[at.stop :]
            if other != replace(query, text=expected):
                return False
    except StandpipeError:
        return False
    return True
