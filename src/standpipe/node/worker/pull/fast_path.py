"""The fast path: keys whose rows lie on this node, from request bytes to response bytes.

    parse_lookup              the statement's text and the lag bound, out of the body
    PlanCache.cached          the plan of a shape that the slow path has parsed before: 3 us
    partition_of_key          from the table's own partition count, never from live nodes
    RouteCache.of             verdicts on the replicas; decided again only when a cause changed
    lookup                    one LMDB read: the row, and what was recorded with it
    render_rows, header_lines the answer's layout and its freshness headers

Several keys take the same steps for each of their partitions: `node.worker.pull.fast_many`.

It runs inside `adapters.http.server`, between reading and writing the socket: it awaits nothing,
forwards nothing and reports no errors. It leaves what it cannot answer to the slow path
(`node.worker.pull.slow_path`), which starts from the request's bytes and answers alike:

- a text whose shape is new; a null key, a scan or a merged answer; another replica is first, if
  only for one of several keys; a large answer; no usable replica or no status of it, or one that
  does not fit the rows; a lag beyond the bound of a forward;
- rows that are too old, by their lag in time or for a session's token: another replica may have
  newer ones;
- a linearizable read, which waits for a barrier; one at level `snapshot` whose rows are of no
  batch, of several, or of an older one than the sender of a forward wants;
- a text that the node refuses, as it stopped a worker;
- an error of `EXPECTED`: the slow path meets the same one and reports it.

Any other exception is a fault of this program. It is counted by kind
(`standpipe_pull_fast_path_faults_total`), logged once per kind, and the slow path answers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

import structlog
from msgspec.structs import replace

from standpipe.adapters.clock import Clock
from standpipe.adapters.http.fast_path import Awaited
from standpipe.adapters.http.server import Headers
from standpipe.adapters.metrics import Metrics
from standpipe.adapters.store.reader import View
from standpipe.control.routing.session import Stamp
from standpipe.data.query.lookup_pack import ASKED_BYTES_MAX, LEFT, PACK_BYTES_MAX, Pack
from standpipe.data.query.pull import TooManyWindows, lookup, partition_of_key
from standpipe.data.replica.positions import may_judge
from standpipe.errors import StandpipeError
from standpipe.freshness import END_HEADER, LEASE_EPOCH_HEADER
from standpipe.model import NodeId
from standpipe.node.worker.pull.fast_forward import ANSWER_BYTES_MAX, FastForwards
from standpipe.node.worker.pull.fast_many import ManyKeys
from standpipe.node.worker.pull.forward import ForwardRefused
from standpipe.node.worker.pull.forward_checks import check, excess_lag, furthest
from standpipe.node.worker.pull.forward_headers import ForwardHeaders, RequestFormat
from standpipe.node.worker.pull.known.frames import KnownFrames
from standpipe.node.worker.pull.known.lists import KnownLists
from standpipe.node.worker.pull.known.packed_forwards import PackedForwards
from standpipe.node.worker.pull.known.statements import KnownStatements
from standpipe.node.worker.pull.route_cache import RouteCache
from standpipe.node.worker.pull.session_read import SessionTokens
from standpipe.node.worker.pull.snapshot_read import is_one_batch, stamp_in
from standpipe.node.worker.request.answer import freshness_of, header_lines, render_rows
from standpipe.node.worker.request.answer_pieces import is_large
from standpipe.node.worker.request.body import Lookup, parse_lookup
from standpipe.node.worker.request.cluster_view import ClusterView, Map, Replicas
from standpipe.node.worker.request.head import PACK_PATH, PACK_TYPE, PULL_PATHS
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.page_guard import PageGuard
from standpipe.sql.plans import PullPlan

#: Errors that fall through to the slow path: it meets the same one, and reports it, or scans.
EXPECTED: Final = (
    TooManyWindows,
    StandpipeError,  # a wrong body, statement or key; no map or no store yet; a damaged row
    ForwardRefused,  # the sender of a forward means another table or partition
)

_END_HEADER: Final = END_HEADER.encode()
_EPOCH_HEADER: Final = LEASE_EPOCH_HEADER.encode()
_PACK_RESPONSE: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %%d\r\n\r\n%%b" % PACK_TYPE.encode()
)
#: the body of an answer, and its freshness headers
_Answer = tuple[bytes, bytes]
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass
class LookupFastPath:
    """The fast path of one listener: `adapters.http.fast_path.FastPath`."""

    node_id: NodeId
    map: Map
    replicas: Replicas
    routes: RouteCache
    metrics: Metrics
    body_bytes_max: int
    #: of the peer listener, where a request may be a forward
    is_peer: bool = False
    #: of the public listener; None: the peer one, which no web page can reach
    pages: PageGuard | None = None
    in_hand: TextsInHand = field(default_factory=TextsInHand)
    tokens: SessionTokens = field(default_factory=SessionTokens)
    clock: Clock = field(default_factory=Clock)
    #: of a listener for clients: lookups that another node answers; None: the slow path's, all
    forwards: FastForwards | None = None
    #: the last body was answered by a known list
    _is_list: bool = False
    #: kinds of faults that were logged
    _logged: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self._many_keys = ManyKeys(self.node_id, self.replicas, self.routes, self.clock)
        parts = (self.node_id, self.replicas, self.routes, self.clock)
        packs = None if self.forwards is None else PackedForwards(self.forwards)
        self._frames = KnownFrames(*parts, tokens=self.tokens, packs=packs)
        self._statements = KnownStatements(*parts)
        self._lists = KnownLists(*parts, count_snapshot=self._count_snapshot)
        self._frames.beside, self._statements.beside = self._statements, self._lists

    def classify(self, path: bytes, headers: Headers) -> RequestFormat | None:
        """What a head says about its answer; None: requests with it take the slow path."""
        try:
            is_pack = self.is_peer and path == PACK_PATH.encode()
            if path not in PULL_PATHS and not is_pack:
                return None
            if self.pages is not None and self.pages.refusal("POST", headers) is not None:
                return None
            length = next(int(value) for name, value in headers if name == b"content-length")
            if length > self.bytes_max(is_pack=is_pack):
                return None
            return RequestFormat.read(path, headers, is_peer=self.is_peer, is_pack=is_pack)
        except StandpipeError:
            return None

    def bytes_max(self, *, is_pack: bool) -> int:
        """Of the body of a request. The limit is on what a client sends, and a pack has what many
        have sent."""
        return max(self.body_bytes_max, ASKED_BYTES_MAX) if is_pack else self.body_bytes_max

    def answer(self, token: RequestFormat, body: bytes) -> bytes | Awaited | None:
        """The whole HTTP response, at once or later; None: the slow path answers."""
        started_s = time.monotonic()
        try:
            view = self.map.view
            may_be_known = token.is_usual and not self.in_hand.is_refusing
            if may_be_known:
                known, self._is_list = self._frames.answer(token, body, view, started_s), False
                if known is None:
                    known = self._known_otherwise(token, body, view, started_s)
                if known is not None:
                    if type(known) is bytes:
                        if token.forward is not None:
                            self.metrics.count("standpipe_pull_forwarded_in", "answered")
                        self.metrics.answered_here(time.monotonic() - started_s)
                    return known
            elif token.is_whole_pack:
                answers = self.answers(token, Pack.parse(body))
                return _PACK_RESPONSE % (len(answers), answers)
            query = parse_lookup(body)
            if self.in_hand.is_refusing and self.in_hand.refused_for_s(query.text) > 0:
                return None
            plan = view.plans.cached(query.text, query.properties)
            if plan is None or plan.is_merged or plan.has_costly_rows or query.is_linearizable:
                return None
            if query.partition is not None:
                return None  # the slow path scans it, or refuses it
            if plan.source.is_direct and (query.session is not None or query.is_snapshot):
                return None  # the slow path refuses it
            is_one = len(plan.keys) == 1
            found = (self._one if is_one else self._many)(token, query, view, plan)
            if may_be_known and found is not None:
                self._learn(token, body, query, view, plan)
            if found is None and may_be_known and is_one and self.forwards is not None:
                begun = self.forwards.begin(token, body, query, view, plan)
                if begun is not None and self._frames.is_new:
                    self._frames.learn(token, body, query, view, plan)
                return begun
        except EXPECTED:
            return None
        except Exception as fault:
            self._report(fault)
            return None
        if found is None:
            return None
        content, label = found
        if token.forward is not None:
            self.metrics.count("standpipe_pull_forwarded_in", "answered")
        self.metrics.answered_here(time.monotonic() - started_s)
        return b"%bcontent-length: %d\r\n%b\r\n%b" % (token.head, len(content), label, content)

    def answers(self, token: RequestFormat, pack: Pack) -> bytes:
        """The answers to a pack; `token`: what its head says."""
        answers, known_count, started_s = list[bytes](), 0, time.monotonic()
        room = PACK_BYTES_MAX - len(LEFT) * len(pack.lookups)
        may_be_known = token.part(0).is_usual and not self.in_hand.is_refusing
        for partition, literal in pack.lookups:
            body = pack.before + literal + pack.after
            found = self._known(token, partition, body, started_s) if may_be_known else None
            is_known = found is not None
            if not is_known:
                found = self.answer(token.part(partition), body)
            if type(found) is not bytes or len(found) > min(ANSWER_BYTES_MAX, room):
                answers.append(LEFT)
                continue
            room -= len(found)
            known_count += is_known
            answers.append(found)
        if known_count:
            self.metrics.count("standpipe_pull_forwarded_in", "answered", known_count)
            self.metrics.answered_here(time.monotonic() - started_s, known_count)
        return b"".join(answers)

    def _known(
        self, token: RequestFormat, partition: int, body: bytes, started_s: float
    ) -> bytes | Awaited | None:
        """The answer to a lookup of a pack whose frame is known; None: find it by the other
        steps."""
        frames, view = self._frames, self.map.newest
        if view is None:
            return None
        try:
            return frames.look_up(frames.bodies, token.mark, body, view, started_s, only=partition)
        except EXPECTED:
            return None
        except Exception as fault:
            self._report(fault)
            return None

    def answer_message(self, message: bytes) -> bytes | Awaited | None:
        """The whole HTTP response to a whole message that is known, at once or later; None: the
        other steps."""
        view = self.map.newest
        if view is None or self.in_hand.is_refusing:
            return None
        started_s, frames = time.monotonic(), self._frames
        try:
            known = frames.look_up(frames.messages, b"", message, view, started_s)
            if known is None and (others := self._statements).messages:
                known = others.look_up(others.messages, b"", message, view, started_s)
        except EXPECTED:
            return None
        except Exception as fault:
            self._report(fault)
            return None
        if type(known) is bytes:
            self.metrics.answered_here(time.monotonic() - started_s)
        return known

    def learn_message(self, token: RequestFormat, message: bytes, head_bytes: int) -> bool:
        """`answer` has just answered this message. True: others like it are known."""
        if token.forward is not None or self._is_list:  # to look for its literals takes long
            return False
        return self._frames.learn_message(
            token, message, head_bytes
        ) or self._statements.learn_message(token, message, head_bytes)

    def _known_otherwise(
        self, token: RequestFormat, body: bytes, view: ClusterView, started_s: float
    ) -> bytes | None:
        """The response to a body of a known list or statement; None: find it by the other steps.
        Raises as they do."""
        lists, statements = self._lists, self._statements
        if token.forward is not None:  # most are whole rows of one key
            self._frames.note(token, body)
            return None
        found = lists.answer(token, body, view, started_s)
        self._is_list = found is not None
        if found is None:
            found = statements.answer(token, body, view, started_s)
        # a body is noted once: for a frame of one literal, each other number would be another frame
        if found is None and not lists.note(token, body) and not statements.note(token, body):
            self._frames.note(token, body)
        return found

    def _learn(
        self, token: RequestFormat, body: bytes, query: Lookup, view: ClusterView, plan: PullPlan
    ) -> None:
        """The body was answered by its plan, and not by what is known."""
        lists, statements, frames = self._lists, self._statements, self._frames
        if token.forward is not None:
            if frames.is_new and query.session is None and not query.is_snapshot:
                frames.learn(token, body, query, view, plan)
            return
        if query.session is not None:  # a token is a part of a frame of one literal, of no other
            if frames.is_new:
                frames.learn(token, body, query, view, plan)
            return
        if lists.is_new:
            lists.learn(token, body, query, view, plan)
            return
        is_kept = statements.is_new and statements.learn(token, body, query, view, plan)
        if frames.is_new and not is_kept:
            frames.learn(token, body, query, view, plan)

    def _one(
        self, token: RequestFormat, query: Lookup, view: ClusterView, plan: PullPlan
    ) -> _Answer | None:
        """The rows of one key; None: the slow path finds them."""
        forward, source = token.forward, plan.source
        partition = partition_of_key(source, plan.keys[0])
        if partition < 0:
            return None
        if forward is not None:
            check(forward, source, (partition,))
        replica_id = source.replica_id(partition)
        if self.forwards is not None and self.forwards.is_elsewhere(view, replica_id):
            return None  # to look for a page that is not here takes longer than the rest
        replica = self.replicas.get(replica_id)
        status = replica.status()
        bounds = self.routes.bounds(query.bounds, source)
        route = self.routes.of(view, replica_id, status, bounds)
        here = route.first_here(is_forward=forward is not None)
        if here is None or status is None:
            return None
        if forward is not None and excess_lag(forward, status, bounds) is not None:
            return None
        store = replica.store
        with store.begin() as instant:
            rows, meta = lookup(plan, View(instant), partition), store.meta_of(instant)
        if is_large(rows) or (meta is not route.labelled[2] and not may_judge(status, meta)):
            return None
        if query.is_snapshot and not is_one_batch((meta,), _wanted(forward)):
            return None
        text = None
        if query.session is not None:
            session = self.tokens.by_map(
                query.session, source, view.snapshot, self.replicas.covered
            )
            text = session.token_if_covered(meta)
            if text is None:
                return None
        now_ms = int(time.time() * 1000)
        end = route.reported_end if forward is None else furthest(forward, route.reported_end)
        if route.labelled != (now_ms, end, meta):
            fresh = freshness_of(
                status,
                meta,
                reported_end=end,
                served_by=self.node_id,
                role=here.role.lower(),
                boot_ms=self.clock.boot_ms(),
                unix_ms=now_ms,
            )
            if bounds.is_time_bounded and bounds.late(fresh.replica_lag_ms, fresh.source_lag_ms):
                return None
            route.label, route.labelled = header_lines(fresh), (now_ms, end, meta)
        label = route.label
        if forward is not None:
            label = b"%b%b: %d\r\n" % (label, _END_HEADER, max(end, status.committed_end))
            if text is not None or query.is_snapshot:  # the node that was asked makes the token
                label, text = b"%b%b: %d\r\n" % (label, _EPOCH_HEADER, meta.lease_epoch), None
        return render_rows(token.form, plan, rows, now_ms, token=text), label

    def _many(
        self, token: RequestFormat, query: Lookup, view: ClusterView, plan: PullPlan
    ) -> _Answer | None:
        """The rows of several keys; None: the slow path finds them."""
        bounds = self.routes.bounds(query.bounds, plan.source)
        found = self._many_keys.read(plan, view, bounds, token.forward)
        if found is None:
            return None
        fresh, text = found.fresh, None
        if bounds.is_time_bounded and bounds.late(fresh.replica_lag_ms, fresh.source_lag_ms):
            return None
        if query.is_snapshot and not is_one_batch(found.metas, _wanted(token.forward)):
            return None
        if query.session is not None:
            session = self.tokens.by_map(
                query.session, plan.source, view.snapshot, self.replicas.covered
            )
            if not all(map(session.covers, found.metas)):
                return None
            if token.forward is None:
                text = session.token(list(map(stamp_in, found.metas)))
        if token.forward is not None and (query.session is not None or query.is_snapshot):
            if len(found.metas) > 1:
                return None  # no release forwards several partitions at once
            fresh = replace(fresh, lease_epoch=found.metas[0].lease_epoch)
        if query.is_snapshot and token.forward is None:
            self._count_snapshot()
        content = render_rows(token.form, plan, found.rows, int(time.time() * 1000), token=text)
        return content, header_lines(fresh)

    def _count_snapshot(self) -> None:
        self.metrics.count("standpipe_snapshot_reads", "1")

    def _report(self, fault: Exception) -> None:
        kind = type(fault).__name__
        self.metrics.count("standpipe_pull_fast_path_faults", kind)
        if kind not in self._logged:
            self._logged.add(kind)
            _log.error("fault on the fast path; the slow path answers", exc_info=fault)


def _wanted(forward: ForwardHeaders | None) -> Stamp | None:
    """The batch that a forward asks for, or a later one."""
    return None if forward is None else forward.wanted
