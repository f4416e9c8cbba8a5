"""What is known of a partition while lookups of it are answered in the shortest way.

A frame is what requests have in common that differ in their literals only. For each of its
partitions a `KnownPart` keeps what the last answer was made of: verdict, freshness headers, the
begin of the body. It is made again when a cause has changed, and dated in each millisecond.

Not here: which requests have a frame (`node.worker.pull.known.frames`, for one literal, and
`node.worker.pull.known.statements`, for several).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from standpipe.adapters.clock import Clock
from standpipe.adapters.store.reader import StoreReader
from standpipe.adapters.store.status_page import StatusReader
from standpipe.control.routing.bounds import Bounds
from standpipe.data.query.literal_lookup import KINDS, Around
from standpipe.data.replica.positions import StoreMeta, may_judge
from standpipe.model import UNLABELLED, NodeId, ReplicaId, ReplicaStatus
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.route_cache import CachedRoute, RouteCache
from standpipe.node.worker.pull.session_read import KnownToken
from standpipe.node.worker.request.answer import freshness_of, render_rows
from standpipe.node.worker.request.cluster_view import ClusterView, Replicas
from standpipe.node.worker.request.dated_response import DatedResponse
from standpipe.sql.plans import PullPlan

#: What the partitions of all frames of one kind take; when it is more, all are dropped. Each has
#: the layout of its answer twice, as long as the schema: names and types of the columns.
PARTS_BYTES_MAX: Final = 16 * 1024 * 1024
#: of a partition besides; 280 of it are what a frame of one literal holds
PART_BYTES: Final = 1280
#: Of a schema: an answer with a longer one has no frame. A SELECT list may name a column hundreds
#: of times, and a type may be a page long.
SCHEMA_CHARS_MAX: Final = 16 * 1024
#: Frames that were met once, by their hashes: one is learnt when it is met again, so that a client
#: whose bodies all differ costs little, and drops nobody's frame.
MET_MAX: Final = 1_024
NO_RESPONSE: Final = Around(b"", b"", b"", 0, is_text=True)


@dataclass(slots=True)
class KnownPart:
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
    #: what the answer says to a session that asked
    token: str | None = None
    dated: DatedResponse | None = None
    around: Around = NO_RESPONSE


@dataclass(slots=True)
class KnownFrame:
    """What all bodies of a frame have in common."""

    plan: PullPlan
    bounds: Bounds
    token: RequestFormat
    is_snapshot: bool
    #: other nodes ask: any replica that may answers, and says what its lag counts against
    is_forward: bool = False
    #: of the session that asked: its token is a part of the frame
    session: KnownToken | None = None
    #: by partition, of those that were read
    parts: dict[int, KnownPart] = field(default_factory=dict[int, KnownPart])

    def leave_map(self) -> None:
        """Keep nothing that refers to a map of the cluster."""
        self.parts.clear()


@dataclass
class KnownParts:
    """The partitions of all frames of one kind, of one listener."""

    node_id: NodeId
    replicas: Replicas
    routes: RouteCache
    clock: Clock = field(default_factory=Clock)
    _met: set[int] = field(default_factory=set[int])
    _parts_bytes: int = 0
    #: the map that the frames hold for
    _view: ClusterView | None = None
    #: frames of another kind, which are asked after these: they must not keep an older map
    beside: KnownParts | None = None

    def forget(self) -> None:
        """Drop all frames; they are learnt again."""
        raise NotImplementedError

    def _frames_known(self) -> Iterable[KnownFrame]:
        raise NotImplementedError

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
        for frame in self._frames_known():
            frame.leave_map()
        self._parts_bytes = 0
        self._view = view
        if self.beside is not None:
            self.beside._adopt(view)

    def _part(
        self, frame: KnownFrame, number: int, view: ClusterView, now_ms: int
    ) -> KnownPart | None:
        """A partition of a frame as of now; None: this node is not to answer for it."""
        part = frame.parts.get(number)
        if (
            part is None
            or part.status is not part.page.read()
            or not self.routes.is_same(part.route, view)
        ):
            return self._opened(frame, number, now_ms, view)
        return part if part.at_ms == now_ms else self._dated(frame, number, part, now_ms, view)

    def _dated(
        self, frame: KnownFrame, number: int, part: KnownPart, now_ms: int, view: ClusterView
    ) -> KnownPart | None:
        """A partition for which nothing has changed but the time. What becomes unknown or too old
        by that is looked at here, once in each ms."""
        boot_ms = self.clock.boot_ms()
        if part.route.is_over(boot_ms):
            return self._opened(frame, number, now_ms, view)
        self.replicas.get(part.replica_id)  # it is in use: others are closed before it
        part.at_ms, dated, bounds = now_ms, part.dated, frame.bounds
        if dated is None or (bounds.is_time_bounded and bounds.late(*dated.lags(boot_ms, now_ms))):
            part.meta = None
        else:
            part.around = dated.at(boot_ms, now_ms)
        return part

    def _opened(
        self, frame: KnownFrame, number: int, now_ms: int, view: ClusterView
    ) -> KnownPart | None:
        """The partition as it is now; None: this node is not to answer for it."""
        replica_id = frame.plan.source.replica_id(number)
        replica = self.replicas.get(replica_id)
        status = replica.status()
        route = self.routes.of(view, replica_id, status, frame.bounds)
        if status is None or route.first_here(is_forward=frame.is_forward) is None:
            return None
        if number not in frame.parts:
            self._parts_bytes += PART_BYTES + 2 * len(frame.plan.schema)
            if self._parts_bytes > PARTS_BYTES_MAX:
                self.forget()
        part = KnownPart(replica_id, replica.page, replica.store, route, now_ms, status)
        frame.parts[number] = part
        return part

    def _describe(self, frame: KnownFrame, part: KnownPart, meta: StoreMeta) -> bool:
        """False: the page may not decide about the rows, or they are too old, or of no batch."""
        if not may_judge(part.status, meta):
            return False
        if frame.is_snapshot and meta.batch in UNLABELLED:
            return False
        if frame.session is not None:
            part.token = frame.session.token_if_covered(meta)
            if part.token is None:
                return False
        here = part.route.first_here(is_forward=frame.is_forward)
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
        if frame.is_forward:
            end = max(part.route.reported_end, part.status.committed_end)
            fresh = replace(fresh, committed_end=end)
        bounds, token = frame.bounds, frame.token
        if bounds.is_time_bounded and bounds.late(fresh.replica_lag_ms, fresh.source_lag_ms):
            return False
        part.dated = DatedResponse.of(
            token.head,
            token.form,
            frame.plan,
            status=part.status,
            meta=meta,
            fresh=fresh,
            token=part.token,
        )
        part.around = part.dated.at(boot_ms, part.at_ms)
        part.meta = meta
        return True

    def _without_row(self, frame: KnownFrame, part: KnownPart) -> bytes:
        body = render_rows(frame.token.form, frame.plan, (), part.at_ms, token=part.token)
        middle = part.around.middle
        label = middle[: middle.index(b"\r\n\r\n") + 4]
        return b"%b%d%b%b" % (part.around.before, len(body), label, body)


def kind_of_key(plan: PullPlan) -> int | None:
    """The kind of a table's key, if a literal is the whole of it; None: it is another one, or the
    schema of the answer is too long for a frame."""
    columns = plan.source.key_columns
    is_literal = plan.source.key_format == "KAFKA" and len(columns) == 1
    is_short = len(plan.schema) <= SCHEMA_CHARS_MAX
    return KINDS.get(columns[0].type) if is_literal and is_short else None
