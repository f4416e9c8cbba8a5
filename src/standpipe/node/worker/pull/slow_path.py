"""The slow path of a pull query: any query, over any replicas, with an error that says why not.

    LargeTexts.plan      as on the fast path; a large text is planned beside the event loop
    keys_by_partition    the partitions that are read; a scan reads all of them
    RouteCache.of        verdicts on each partition's replicas, in the order of the tries
    HedgedReads.first    the first answer: from here (`OwnRows`) or a peer (`Forwarder`)
    first_covered        at level `session`, if all replicas are behind: the first that catches up
    of_one_batch         at level `snapshot`: parts that are behind others are read again
    Barriers.begun       at level `linearizable`, before the plan; then first_caught_up: likewise
    render_rows          one of three layouts

A query over several partitions gets a complete answer or an error. A partition is read from the
first replica that gives its rows; if none does, the error names what each one said.

Not here: HTTP (`node.worker.query_endpoint`), keys of this node (`fast_path`), peers (`forward`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from standpipe.adapters.clock import Clock
from standpipe.adapters.metrics import Metrics
from standpipe.control.routing.route import Verdict, excluded
from standpipe.control.routing.session import SessionVerdict, Stamp
from standpipe.data.query.partition_keys import keys_by_partition
from standpipe.errors import NoReplica
from standpipe.freshness import Freshness
from standpipe.model import NodeId, Snapshot, Source
from standpipe.node.worker.pull import forward_checks
from standpipe.node.worker.pull.forward import Forwarder, ForwardRefused, PartitionAnswer
from standpipe.node.worker.pull.forward_checks import excess_lag, table_name
from standpipe.node.worker.pull.forward_headers import (
    ForwardedRead,
    ForwardHeaders,
    RequestFormat,
)
from standpipe.node.worker.pull.hedging import AllRefused, HedgedRead, HedgedReads, is_costly
from standpipe.node.worker.pull.linearizable import Barriers, LinearRead, first_caught_up
from standpipe.node.worker.pull.own_rows import OwnRows
from standpipe.node.worker.pull.pull_query import PullQuery, check_partition
from standpipe.node.worker.pull.refusals import (
    Failure,
    Unanswered,
    client_error,
    fault_of_all,
    refusal_to_peer,
    with_map,
)
from standpipe.node.worker.pull.response import PullResponse, of_query, of_stream
from standpipe.node.worker.pull.route_cache import RouteCache, newer_owners
from standpipe.node.worker.pull.scans import Scans
from standpipe.node.worker.pull.session_read import SessionRead, SessionTokens
from standpipe.node.worker.pull.session_waits import first_covered
from standpipe.node.worker.pull.snapshot_read import of_one_batch
from standpipe.node.worker.pull.stream_pull import StreamPulls
from standpipe.node.worker.request.answer import ArrivingRows, against, oldest
from standpipe.node.worker.request.answer_pieces import AnswerPieces
from standpipe.node.worker.request.body import Lookup, refuse_levels, refuse_unbatched
from standpipe.node.worker.request.cluster_view import ClusterView, Map, Replicas
from standpipe.node.worker.request.drawn import settled
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.large_texts import LargeTexts
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.node.worker.request.wait_limits import WaitLimits
from standpipe.sql.plans import PullPlan

#: Nodes apply the same command within this time of each other.
MOVE_S: Final = 0.1

Answer = TypeVar("Answer")


@dataclass
class SlowPath:
    """Pull queries at one worker."""

    node_id: NodeId
    map: Map
    replicas: Replicas
    forwarder: Forwarder
    metrics: Metrics
    routes: RouteCache
    hedged_reads: HedgedReads
    forward_timeout_ms: int
    routing_timeout_ms: int
    scan_timeout_ms: int
    in_hand: TextsInHand = field(default_factory=TextsInHand)
    scans: Scans = field(default_factory=Scans)
    large_texts: LargeTexts = field(default_factory=LargeTexts)
    stream_pulls: StreamPulls = field(default_factory=lambda: StreamPulls(""))
    tokens: SessionTokens = field(default_factory=SessionTokens)
    clock: Clock = field(default_factory=Clock)
    barriers: Barriers = field(default_factory=Barriers)
    #: raises TooManyRequests while the worker has no memory for one more read that waits
    may_begin: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        limits = self.limits = WaitLimits(self.metrics, self.may_begin)
        self.own = OwnRows(
            self.node_id, self.replicas, self.routes, self.in_hand, self.scans, self.clock, limits
        )

    async def answer(
        self,
        request_format: RequestFormat,
        body: bytes,
        requester: ScanRequester | None = None,
    ) -> PullResponse:
        """Raises StandpipeError (the statement's own, NotReady, NoReplica), TakesLong."""
        known = requester or ScanRequester()
        forward, linear = request_format.forward, None
        asked, body = settled(body, is_forwarded=forward is not None)
        if asked.is_linearizable:
            limit_ms = self.routing_timeout_ms
            with self.limits.barrier.place():
                linear = await self.barriers.begun(self.map, forward, limit_ms, known)

        async def once() -> PullResponse:
            return await self._answer(
                request_format, asked, body, self.map.view, known, linear=linear
            )

        return await (once() if forward is not None else self.again(once, asked.text))

    async def again(self, once: Callable[[], Awaitable[Answer]], text: str) -> Answer:
        """A client's answer to `text`, tried again while no replica answers and reads of the table
        move to its next generation, node by node. Raises NotReady, NoReplica, TokenRefused."""
        self.map.refresh()  # another worker may just have acknowledged its CREATE
        loop = asyncio.get_running_loop()
        last_s = loop.time() + self.routing_timeout_ms / 1000 - MOVE_S
        while True:
            try:
                return await once()
            except Unanswered as error:
                is_moving = error.source.name in self.map.moving_tables()
                if error.is_final or not is_moving or loop.time() > last_s:
                    raise client_error(text, error, now_boot_ms=self.clock.boot_ms()) from None
            except NoReplica:  # the session's token is newer than this node's map
                if not self.map.moving_tables() or loop.time() > last_s:
                    raise
            await asyncio.sleep(MOVE_S)

    async def _answer(
        self,
        request_format: RequestFormat,
        asked: Lookup,
        body: bytes,
        view: ClusterView,
        requester: ScanRequester,
        *,
        linear: LinearRead | None,
    ) -> PullResponse:
        started, arrived_boot_ms = time.perf_counter(), self.clock.boot_ms()
        digest = self.in_hand.admitted(asked.text)
        plan = await self.large_texts.plan(view.plans, asked, requester=requester, digest=digest)
        if plan.source.kind == "STREAM":
            refuse_levels(asked.properties, "streams")
            return await self._stream(request_format.form, plan, view.snapshot, digest)
        refuse_unbatched(asked.properties, plan.source)
        check_partition(asked.partition, plan)
        limit_ms = self.scan_timeout_ms if plan.is_scan else self.routing_timeout_ms
        query = PullQuery(
            text=asked.text,
            body=body,
            view=view,
            plan=plan,
            bounds=self.routes.bounds(asked.bounds, plan.source),
            requester=requester,
            time_limit_ms=limit_ms if linear is None else linear.left_ms(limit_ms),
            digest=digest,
            keys={} if plan.is_scan else keys_by_partition(plan),
            session=self._session(asked, plan.source, view, arrived_boot_ms),
            linear=linear,
            partition=asked.partition,
        )
        forward, wanted = request_format.forward, query.partitions
        if asked.is_snapshot:
            query = query.wanting(None if forward is None else forward.wanted)
        if forward is not None:
            part = await self._forwarded(query, forward, wanted)
        elif len(wanted) == 1:
            part = await self._part(query, wanted[0])
        else:
            part = self._whole(await self.parts([(query, each) for each in wanted]))
        route_taken = "local" if part.fresh.served_by == self.node_id else "remote"
        self.metrics.answered(route_taken, time.perf_counter() - started)
        return of_query(request_format, query, part)

    def _session(
        self, asked: Lookup, source: Source, view: ClusterView, arrived_boot_ms: int
    ) -> SessionRead | None:
        """None: level `eventual`. Raises TokenRefused, NoReplica."""
        if asked.session is None:
            return None
        known = self.tokens.by_map(asked.session, source, view.snapshot, self.replicas.covered)
        return SessionRead(known, arrived_boot_ms)

    async def _stream(
        self, form: Form, plan: PullPlan, snapshot: Snapshot, digest: bytes
    ) -> PullResponse:
        """A stream has no replicas: the node that was asked reads its topic."""
        fresh = Freshness(served_by=self.node_id, role="none", state="NONE")
        layout = AnswerPieces(form, plan, int(time.time() * 1000))
        return await of_stream(layout, fresh, self.stream_pulls.batches(plan, snapshot, digest))

    async def parts(self, wanted: Sequence[tuple[PullQuery, int]]) -> list[PartitionAnswer]:
        """Rows of partitions of a client's query, in the order asked; at level `snapshot`, of one
        batch. Raises Unanswered, NoReplica."""
        if len(wanted) < 2 or (first := wanted[0][0]).snapshot is None:
            return await self._parts(wanted)

        async def ask(
            places: Sequence[int], batch: Stamp | None, left_ms: int
        ) -> list[PartitionAnswer]:
            chosen = [wanted[place] for place in places]
            return await self._parts([(one.wanting(batch, left_ms), at) for one, at in chosen])

        at = [partition for _, partition in wanted]
        return await of_one_batch(ask, at, first.time_limit_ms, first.dropped, self.metrics)

    async def _parts(self, wanted: Sequence[tuple[PullQuery, int]]) -> list[PartitionAnswer]:
        """The same, each of any batch that it may show.

        It waits for all, so that an error says what is wrong with each of them, no later than
        `time_limit_ms` allows. A cancelled query cancels its parts and waits for their end. Raises
        Unanswered.
        """
        ends = await asyncio.gather(
            *(self._part(query, partition) for query, partition in wanted), return_exceptions=True
        )
        faults = [end for end in ends if isinstance(end, BaseException)]
        if faults:
            for (query, _), end in zip(wanted, ends, strict=True):
                if isinstance(end, PartitionAnswer):  # a further try charges for its rows again
                    query.dropped(end)
            ends.clear()  # the error's traceback refers to this frame: it must not keep the rows
            raise fault_of_all(faults)
        return [end for end in ends if isinstance(end, PartitionAnswer)]

    def _whole(self, parts: Sequence[PartitionAnswer]) -> PartitionAnswer:
        """Several partitions as one answer, or none if all keys are null."""
        rows = [row for part in parts for row in part.rows]
        none_read = Freshness(served_by=self.node_id, role="none", state="NONE")
        fresh = oldest(part.fresh for part in parts) if parts else none_read
        stamps = tuple(stamp for part in parts for stamp in part.stamps)
        return PartitionAnswer(rows=rows, fresh=fresh, stamps=stamps)

    # ------------------------------------------------- a partition of a client's query

    async def _part(self, query: PullQuery, partition: int) -> PartitionAnswer:
        """Rows of one partition from the first replica that gives them. Raises Unanswered."""
        until_s = asyncio.get_running_loop().time() + query.time_limit_ms / 1000
        verdicts = self.own.route(query, partition).verdicts
        named: list[Verdict] = []  # by refusals

        async def attempt(verdict: Verdict, left_ms: int) -> PartitionAnswer:
            return await self._try(query, partition, verdict, left_ms)

        def further(refusal: ForwardRefused) -> list[Verdict]:
            known = (*verdicts, *named)
            found = newer_owners(query.view, refusal.owners, refusal.assignment_epoch, known)
            named.extend(found)
            return found

        read = HedgedRead(
            candidates=verdicts,
            attempt=attempt,
            further=further,
            total_ms=query.time_limit_ms,
            is_scan=query.plan.is_scan,
            is_costly=is_costly(query.text, query.plan),
        )
        try:
            if query.linear is not None:
                return await self._at_barrier(query, partition, verdicts)
            return await self.hedged_reads.first(read)
        except AllRefused as refused:
            refusals = refused.refusals
        try:
            return await self._waited(query, partition, refusals, until_s)
        except AllRefused as refused:
            again = {verdict.node_id for verdict, _ in refused.refusals}
            refusals = [one for one in refusals if one[0].node_id not in again] + refused.refusals
        order = [verdict.node_id for verdict in (*verdicts, *named)]
        tried = sorted(refusals, key=lambda one: order.index(one[0].node_id))
        raise Unanswered(query.plan.source, [Failure(partition, tried)])

    async def _at_barrier(
        self, query: PullQuery, partition: int, verdicts: Sequence[Verdict]
    ) -> PartitionAnswer:
        """Rows of the first replica that reaches the barrier. Raises AllRefused."""

        async def attempt(verdict: Verdict, left_ms: int) -> PartitionAnswer:
            return await self._try(query, partition, verdict, left_ms, waits=True)

        return await first_caught_up(verdicts, attempt, query.time_limit_ms, query.requester)

    async def _waited(
        self,
        query: PullQuery,
        partition: int,
        refusals: Sequence[tuple[Verdict, ForwardRefused]],
        until_s: float,
    ) -> PartitionAnswer:
        """Rows of the first replica that covers the session's token, or reaches the batch of the
        other parts, of those that were behind. Raises AllRefused when the time is over, or at once
        if none was behind."""
        left_ms = int(1000 * (until_s - asyncio.get_running_loop().time()))
        behind = [one for one, why in refusals if why.session is SessionVerdict.BEHIND]
        if left_ms <= 0 or not behind:
            raise AllRefused([])
        return await first_covered(
            [(one, self._try(query, partition, one, left_ms, waits=True)) for one in behind],
            query.requester,
        )

    async def _try(
        self,
        query: PullQuery,
        partition: int,
        verdict: Verdict,
        left_ms: int,
        *,
        waits: bool = False,
    ) -> PartitionAnswer:
        """`waits`: until its rows are as new as the level wants."""
        if verdict.is_local:
            return query.stamped(await self.own.read(query, partition, left_ms, waits=waits))
        if not verdict.ok or verdict.info is None:
            raise ForwardRefused(verdict.why)
        is_long = query.plan.is_scan or waits
        read = ForwardedRead(
            body=query.body,
            partition=partition,
            table=table_name(query.plan.source),
            timeout_ms=left_ms if is_long else min(self.forward_timeout_ms, left_ms),
            silence_ms=self.forward_timeout_ms if is_long else None,
            waits=waits,
            barrier=None if query.linear is None else query.linear.barrier,
            wanted=None if query.snapshot is None else query.snapshot.wanted,
            assignment_epoch=query.view.snapshot.assignment.epoch,
            committed_end=self.own.known_end(query, partition) if query.bounds.is_bounded else None,
        )
        try:
            with ArrivingRows(query.requester.hold) as arriving:
                part = await self.forwarder.read(verdict.info, read, arriving)
                forward_checks.check_answer(part.fresh, query.bounds)
                if query.session is not None:
                    query.session.check_answer(part.fresh)
                if query.snapshot is not None:
                    query.snapshot.check_answer(part.fresh)
        except ForwardRefused:
            self.metrics.count("standpipe_pull_forwards", "refused")
            raise
        self.metrics.count("standpipe_pull_forwards", "answered")
        fresh = against(part.fresh, self.own.known_end(query, partition))
        return query.stamped(PartitionAnswer(rows=part.rows, fresh=fresh))

    # --------------------------------------------------- a partition that a peer asks for

    async def _forwarded(
        self, query: PullQuery, forward: ForwardHeaders, held: Sequence[int]
    ) -> PartitionAnswer:
        """The part that another node asks for; `held`: partitions that hold keys of the query.

        Raises NotReady or NoReplica with the reason.
        """
        source = query.plan.source
        try:
            forward_checks.check(forward, source, held)
            asked_for = held if forward.partition is None else (forward.partition,)
            parts = [await self._here_only(query, partition, forward) for partition in asked_for]
        except ForwardRefused as refusal:
            self.metrics.count("standpipe_pull_forwarded_in", "refused")
            owners = forward_checks.owners(forward, source, held, query.view.placements)
            epoch = query.view.snapshot.assignment.epoch
            answered = with_map(refusal, forward.assignment_epoch, epoch, owners)
            raise refusal_to_peer(answered) from refusal
        self.metrics.count("standpipe_pull_forwarded_in", "answered")
        rows = [row for part in parts for row in part.rows]
        return PartitionAnswer(rows=rows, fresh=oldest(part.fresh for part in parts))

    async def _here_only(
        self, query: PullQuery, partition: int, forward: ForwardHeaders
    ) -> PartitionAnswer:
        if forward.committed_end is not None:
            status, _ = self.own.local(query, partition).page()
            lag = excess_lag(forward, status, query.bounds)
            if lag is not None:
                raise ForwardRefused(excluded(lag, query.bounds), lag_records=lag)
        left_ms = query.time_limit_ms if forward.timeout_ms is None else forward.timeout_ms
        return await self.own.read(query, partition, left_ms, forward, waits=forward.waits)
