"""The path of a pull query: text → plan → partitions → routes → rows → bytes.

    plans.plan(text)            the shape cache; 3 us for a repeated shape
    partition_of(key)           from the table's own partition count, never from live hosts
    control.routing.route       verdicts, in order
    here or over there          data.pull.lookup, node.scans, or node.forward
    render_rows                 one of three layouts

`quickly` walks it without waiting, for a single key whose rows lie on this node; everything else
takes `answer`, which says the same, may forward, gathers several partitions, and makes the errors.
A query over several partitions is whole or an error, never short.

Not here: HTTP (`adapters.http.server`, `node.worker.routes`), what a forward does
(`node.worker.pull.forward`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from msgspec.structs import replace

from standpipe.adapters.clock import Clock
from standpipe.adapters.metrics import Metrics
from standpipe.control.routing.route import Bounds, Verdict, excluded
from standpipe.data.query.order import merged
from standpipe.data.query.pull import lookup, partition_of_key, partitions
from standpipe.errors import BadRequest, NoReplica, NotReady
from standpipe.model import NodeId, Offset, ReplicaStatus, Snapshot, Source
from standpipe.node.worker.pull import forward_terms
from standpipe.node.worker.pull.forward import Forwarder, Part, Question, Refused
from standpipe.node.worker.pull.forward_terms import Ask, Terms, furthest, lag_beyond, table_name
from standpipe.node.worker.pull.hedging import AllRefused, Racing
from standpipe.node.worker.pull.refusals import (
    Failure,
    Unanswered,
    readable,
    refusal_to_peer,
    unanswered,
    with_map,
)
from standpipe.node.worker.pull.route_cache import Decisions, newer_owners
from standpipe.node.worker.pull.scans import Asker, Scans
from standpipe.node.worker.pull.stream_pull import read_stream
from standpipe.node.worker.request.bodies import Lookup, parse_lookup, render_rows
from standpipe.node.worker.request.cluster_view import Map, Replica, Replicas, View
from standpipe.node.worker.request.freshness import (
    END_HEADER,
    Freshness,
    against,
    freshness_of,
    header_lines,
    oldest,
)
from standpipe.sql.plans import PullPlan

#: nodes apply the same command within this
MOVE_SECONDS: Final = 0.1

_END_HEADER: Final = END_HEADER.encode()
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True)
class Answer:
    """Rows of a whole query, laid out."""

    body: bytes
    fresh: Freshness


@dataclass
class Pulls:
    """Pull queries at one worker."""

    node_id: NodeId
    map: Map
    replicas: Replicas
    forwarder: Forwarder
    metrics: Metrics
    decisions: Decisions
    racing: Racing
    forward_timeout_ms: int
    routing_timeout_ms: int
    scan_timeout_ms: int
    #: for pull queries on streams
    bootstrap_servers: str = ""
    scans: Scans = field(default_factory=Scans)

    # ------------------------------------------------------------- at once

    def quickly(self, ask: Ask, body: bytes) -> bytes | None:
        """The whole HTTP response of a lookup that this node can answer by itself.

        None: it cannot, or something is wrong; `answer` will say what.
        """
        started = time.perf_counter()
        try:
            asked = parse_lookup(body)
            view = self.map.view
            plan = view.plans.plan(asked.text, asked.properties)
            if len(plan.keys) != 1 or plan.is_merged:
                return None
            partition = partition_of_key(plan.source, plan.keys[0])
            if partition < 0:
                return None
            if ask.terms is not None:
                forward_terms.check(ask.terms, plan.source, (partition,))
            replica_id = plan.source.replica_id(partition)
            replica = self.replicas.get(replica_id)
            status = replica.status()
            bounds = self.decisions.bounds(asked.offset_lag_max, plan.source)
            decided = self.decisions.of(view, replica_id, status, bounds)
            here = _first_here(decided.verdicts, only_here=ask.terms is not None)
            if here is None or status is None:
                return None
            if lag_beyond(ask.terms, status, bounds) is not None:
                return None
            rows = lookup(plan, replica.store, partition)
        except Exception:
            return None  # the ordinary way meets the same fault, and reports it
        now_ms, end = int(time.time() * 1000), furthest(ask.terms, decided.heard_end)
        if decided.labelled != (now_ms, end):
            decided.label = header_lines(self._fresh(status, here, end))
            decided.labelled = (now_ms, end)
        label = decided.label
        content = render_rows(ask.form, plan, rows, now_ms)
        if ask.terms is not None:
            label = b"%b%b: %d\r\n" % (label, _END_HEADER, max(end, status.committed_end))
            self.metrics.count("standpipe_pull_forwarded_in", "answered")
        self.metrics.answered("local", time.perf_counter() - started)
        return b"%bcontent-length: %d\r\n%b\r\n%b" % (
            ask.head,
            len(content),
            label,
            content,
        )

    # ---------------------------------------------------------- with patience

    async def answer(self, ask: Ask, body: bytes, asker: Asker | None = None) -> Answer:
        """Raises StandpipeError: the statement's own, NotReady, NoReplica."""
        asker = asker or Asker()
        asked, view = parse_lookup(body), self.map.view
        try:
            return await self._answer(ask, asked, body, view, asker)
        except NoReplica:
            if ask.terms is not None or not self.map.is_moving:
                raise
        # nodes hear one after the other that reads move to another generation
        await asyncio.sleep(MOVE_SECONDS)
        return await self._answer(ask, asked, body, self.map.view, asker)

    async def _answer(
        self, ask: Ask, asked: Lookup, body: bytes, view: View, asker: Asker
    ) -> Answer:
        started = time.perf_counter()
        plan = view.plans.plan(asked.text, asked.properties)
        if plan.source.kind == "STREAM":
            return await self._stream(ask, plan, view.snapshot)
        bounds = self.decisions.bounds(asked.offset_lag_max, plan.source)
        patience_ms = self.scan_timeout_ms if plan.is_scan else self.routing_timeout_ms
        reading = _Reading(asked, body, view, plan, bounds, asker, patience_ms)
        wanted = partitions(plan)
        try:
            if ask.terms is not None:
                part = await self._forwarded(reading, ask.terms, wanted)
            elif len(wanted) == 1:
                part = await self._part(reading, wanted[0])
            else:
                part = await self._gather(reading, wanted)
        except Unanswered as error:
            raise unanswered(
                asked.text, plan.source, error.failures, now_boot_ms=Clock().boot_ms()
            ) from None
        rows = merged(plan, part.rows, is_final=ask.terms is None)
        route_taken = "local" if part.fresh.served_by == self.node_id else "remote"
        self.metrics.answered(route_taken, time.perf_counter() - started)
        at_ms = int(time.time() * 1000)
        return Answer(render_rows(ask.form, plan, rows, at_ms), part.fresh)

    async def _stream(self, ask: Ask, plan: PullPlan, snapshot: Snapshot) -> Answer:
        """A stream has no replicas: its topic is read, by whatever node was asked."""
        rows, message = await read_stream(plan, self.bootstrap_servers, snapshot)
        fresh = Freshness(served_by=self.node_id, role="none", state="NONE")
        at_ms = int(time.time() * 1000)
        return Answer(render_rows(ask.form, plan, rows, at_ms, message), fresh)

    async def _gather(self, reading: _Reading, wanted: Sequence[int]) -> Part:
        """Rows of several partitions, or of none where all keys are null.

        All are waited for, so that an error says what is wrong with each of them; it comes no later
        than `patience_ms` allows. Who is called off calls them off, and waits for their end.
        """
        ends = await asyncio.gather(
            *(self._part(reading, partition) for partition in wanted), return_exceptions=True
        )
        parts = [end for end in ends if isinstance(end, Part)]
        faults = [end for end in ends if isinstance(end, BaseException)]
        unforeseen = next((fault for fault in faults if not isinstance(fault, Unanswered)), None)
        if unforeseen is not None:
            raise unforeseen
        failures = [
            one for fault in faults if isinstance(fault, Unanswered) for one in fault.failures
        ]
        if failures:
            raise Unanswered(failures)
        rows = [row for part in parts for row in part.rows]
        none_read = Freshness(served_by=self.node_id, role="none", state="NONE")
        fresh = oldest(part.fresh for part in parts) if parts else none_read
        return Part(rows=rows, fresh=fresh)

    async def _part(self, reading: _Reading, partition: int) -> Part:
        """Rows of one partition from the first replica that gives them. Raises Unanswered."""
        verdicts = self._verdicts(reading, partition)
        named: list[Verdict] = []  # by refusals

        async def attempt(verdict: Verdict, left_ms: int) -> Part:
            return await self._try(reading, partition, verdict, left_ms)

        def further(refusal: Refused) -> list[Verdict]:
            known = (*verdicts, *named)
            found = newer_owners(reading.view, refusal.owners, refusal.assignment_epoch, known)
            named.extend(found)
            return found

        try:
            return await self.racing.first(
                *(verdicts, attempt, further, reading.patience_ms),
                is_scan=reading.plan.is_scan,
            )
        except AllRefused as refused:
            order = [verdict.node_id for verdict in (*verdicts, *named)]
            tried = sorted(refused.refusals, key=lambda one: order.index(one[0].node_id))
            raise Unanswered([Failure(partition, tried)]) from None

    async def _try(self, reading: _Reading, partition: int, verdict: Verdict, left_ms: int) -> Part:
        if verdict.is_local:
            return await self._here(reading, partition, verdict, left_ms)
        if not verdict.ok or verdict.info is None:
            raise Refused(verdict.why)
        is_scan = reading.plan.is_scan
        question = Question(
            body=reading.body,
            partition=partition,
            table=table_name(reading.plan.source),
            timeout_ms=left_ms if is_scan else min(self.forward_timeout_ms, left_ms),
            silence_ms=self.forward_timeout_ms if is_scan else None,
            assignment_epoch=reading.view.snapshot.assignment.epoch,
            committed_end=self._known_end(reading, partition)
            if reading.bounds.is_bounded
            else None,
        )
        try:
            part = await self.forwarder.ask(verdict.info, question)
        except Refused:
            self.metrics.count("standpipe_pull_forwards", "refused")
            raise
        self.metrics.count("standpipe_pull_forwards", "answered")
        fresh = against(part.fresh, self._known_end(reading, partition))
        return Part(rows=part.rows, fresh=fresh)

    async def _here(
        self,
        reading: _Reading,
        partition: int,
        verdict: Verdict,
        left_ms: int,
        terms: Terms | None = None,
    ) -> Part:
        plan = reading.plan
        replica = self._replica(plan.source, partition)

        def judged_anew() -> tuple[ReplicaStatus, Verdict]:
            found = self._verdict_here(reading, partition)
            return readable(replica.status(), found), found

        try:
            if plan.is_scan:
                until_s = time.monotonic() + left_ms / 1000
                rows, (status, verdict) = await self.scans.rows(
                    *(plan, replica.store, judged_anew, reading.asker), until_s=until_s
                )
            else:
                status = readable(replica.status(), verdict)
                rows = lookup(plan, replica.store, partition)
        except (Refused, BadRequest):
            raise
        except NotReady as error:
            raise Refused(error.message, is_not_ready=True) from error
        except Exception as error:  # a damaged row or file: another replica may be sound
            _log.error("replica cannot be read", exc_info=error)
            raise Refused(f"Store cannot be read: {error}") from error
        heard_end = self.decisions.heard_end(reading.plan.source.replica_id(partition))
        end = furthest(terms, heard_end)
        fresh = self._fresh(status, verdict, end)
        if terms is not None:
            fresh = replace(fresh, committed_end=max(end, status.committed_end))
        return Part(rows=rows, fresh=fresh)

    async def _forwarded(self, reading: _Reading, terms: Terms, held: Sequence[int]) -> Part:
        """The part that another node asked for; `held`: partitions that hold keys of the query.

        Raises NotReady or NoReplica with the reason.
        """
        try:
            forward_terms.check(terms, reading.plan.source, held)
            asked_for = held if terms.partition is None else (terms.partition,)
            parts = [await self._here_only(reading, partition, terms) for partition in asked_for]
        except Refused as refusal:
            self.metrics.count("standpipe_pull_forwarded_in", "refused")
            view = reading.view
            owners = forward_terms.owners(terms, reading.plan.source, held, view.placements)
            epoch = view.snapshot.assignment.epoch
            told = with_map(refusal, terms.assignment_epoch, epoch, owners)
            raise refusal_to_peer(told) from refusal
        self.metrics.count("standpipe_pull_forwarded_in", "answered")
        rows = [row for part in parts for row in part.rows]
        return Part(rows=rows, fresh=oldest(part.fresh for part in parts))

    async def _here_only(self, reading: _Reading, partition: int, terms: Terms) -> Part:
        here = self._verdict_here(reading, partition)
        if here.ok and terms.committed_end is not None:  # else the page need not be read again
            status = self._replica(reading.plan.source, partition).status()
            lag = lag_beyond(terms, status, reading.bounds) if status is not None else None
            if lag is not None:
                raise Refused(excluded(lag, reading.bounds), lag_records=lag)
        left_ms = reading.patience_ms if terms.timeout_ms is None else terms.timeout_ms
        return await self._here(reading, partition, here, left_ms, terms)

    # ------------------------------------------------------------------ shared

    def _verdicts(self, reading: _Reading, partition: int) -> list[Verdict]:
        replica_id = reading.plan.source.replica_id(partition)
        status = self.replicas.get(replica_id).status()
        return self.decisions.of(reading.view, replica_id, status, reading.bounds).verdicts

    def _verdict_here(self, reading: _Reading, partition: int) -> Verdict:
        """On the own replica. Raises Refused where there is none."""
        verdicts = self._verdicts(reading, partition)
        here = next((verdict for verdict in verdicts if verdict.is_local), None)
        if here is None:
            why = "NOT_OWNER: no replica of this partition is assigned to this host."
            raise Refused(why, is_not_owner=True)
        return here

    def _known_end(self, reading: _Reading, partition: int) -> Offset | None:
        replica_id = reading.plan.source.replica_id(partition)
        return self.decisions.known_end(replica_id, self.replicas.get(replica_id).status())

    def _replica(self, source: Source, partition: int) -> Replica:
        return self.replicas.get(source.replica_id(partition))

    def _fresh(self, status: ReplicaStatus, verdict: Verdict, heard_end: Offset) -> Freshness:
        return freshness_of(
            status,
            heard_end=heard_end,
            served_by=self.node_id,
            role=verdict.role.lower(),
            boot_ms=Clock().boot_ms(),
            unix_ms=int(time.time() * 1000),
        )


@dataclass(frozen=True)
class _Reading:
    """One query on its way, and the map that it began with."""

    asked: Lookup
    body: bytes
    view: View
    plan: PullPlan
    bounds: Bounds
    asker: Asker
    #: for all tries at a partition
    patience_ms: int


def _first_here(verdicts: Sequence[Verdict], *, only_here: bool) -> Verdict | None:
    """The verdict that lets this node answer now; None: another is first, or it may not."""
    if only_here:
        return next((v for v in verdicts if v.is_local and v.ok), None)
    return verdicts[0] if verdicts and verdicts[0].is_local and verdicts[0].ok else None
