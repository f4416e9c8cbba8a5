"""The transient queries of one worker's clients: begun for a push query, renewed, ended with it.

    SELECT … GROUP BY … ─► where its sources end ─► POST /execute ─► this node's map has it
                        ─► a push query on what it writes … ─► TERMINATE, whatever ended it

A worker renews only what it serves now, at the leader through its node's controller. So a query
ends even if nobody can say so any more: the worker or the node was killed, the answer to /execute
was lost, TERMINATE failed. The leader ends what is not renewed (`node.controller.leases`).

Not here: what such a query is for Spark (`sql.spark.transient`), its rows (`push_query.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NoReturn

import structlog

from standpipe.adapters.http.peer_client import PathFailed, PeerClient
from standpipe.adapters.kafka.connection import Kafka
from standpipe.adapters.kafka.read_once import log_ends, read_topic
from standpipe.control.metadata import feature_levels, isolation
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.seal import NO_SEAL, ProgressReader, ProgressSeal
from standpipe.data.query.record_rows import topic_of, writer_of
from standpipe.errors import (
    BadRequest,
    LogUnavailable,
    NoPipeline,
    OutcomeUnknown,
    ServerError,
    StandpipeError,
    TooManyRequests,
)
from standpipe.model import Snapshot, Source
from standpipe.node.worker.push.push_query import READ_S_MAX, new_query_id, starts_at_end
from standpipe.node.worker.request import control_client
from standpipe.node.worker.request.body import PUSH_TOKEN, Lookup
from standpipe.node.worker.request.cluster_view import Map
from standpipe.sql import analyzer
from standpipe.sql.lookup.push import pushed
from standpipe.sql.plans import PushPlan, TransientPlan
from standpipe.sql.syntax.ast import Query
from standpipe.topics import progress_topic

RENEW_S: Final = 2.0
RENEW_S_MAX: Final = 4.0  # for one answer
END_S_MAX: Final = 10.0  # for TERMINATE; after that the leader ends the query
#: threads that ask Kafka where topics end
ASKERS: Final = 2
#: push queries that may wait for such an answer at a worker
ASKING_MAX: Final = 16
#: how long a worker that stops waits for TERMINATE
CLOSE_S_MAX: Final = 0.3

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: topic -> partition -> offset
Starts = Mapping[str, Mapping[int, int]]


@dataclass
class TransientQueries:
    """Those of one worker."""

    map: Map
    control: PeerClient
    internal_address: str
    kafka: Kafka
    seal: ProgressSeal = NO_SEAL
    _served: set[str] = field(default_factory=set[str])
    #: how many wait for one of `_askers`
    _asking: int = 0
    _ending: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])
    _askers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(ASKERS, thread_name_prefix="ends")
    )

    @property
    def are_known(self) -> bool:
        """Whether every node of the cluster can read such queries in the log."""
        return self.map.view.snapshot.feature_level >= feature_levels.TRANSIENT

    def planned(self, statement: Query, asked: Lookup) -> tuple[str, TransientPlan]:
        """The id of a new query, and its plan as this node sees it. Raises StatementError,
        NoPipeline, and BadRequest for a token: a query that has ended cannot be continued."""
        if PUSH_TOKEN in asked.properties or asked.session is not None:
            raise BadRequest(
                "a push query with GROUP BY, WINDOW, JOIN or PARTITION BY ends with its connection"
                " and cannot be continued, nor be part of a session: send it again, or keep its"
                " result with CREATE TABLE … AS SELECT and push on that"
            )
        view = self.map.view
        query_id = new_query_id(statement.relation.name)
        context = analyzer.Context(
            properties=asked.properties,
            next_index=view.snapshot.log_index + 1,
            types=view.snapshot.types,
        )
        plan = analyzer.transient(statement, view.sources, context, query_id)
        if not isolation.shared(view.snapshot.pipelines, view.snapshot.isolated):
            raise NoPipeline(
                "this push query needs Spark, and no shared pipeline is registered to run it. Start"
                " one with `standpipe pipeline`; one that was just started registers once its Spark"
                " is up: then send the query again"
            )
        return query_id, plan

    @asynccontextmanager
    async def running(
        self, statement: Query, asked: Lookup, query_id: str, plan: TransientPlan
    ) -> AsyncGenerator[PushPlan]:
        """Begin a query; its end is the end of this context. Raises StandpipeError. If the task is
        cancelled before the statement is sent, nothing is begun."""
        starts = await self._starts(asked, plan)
        self._served.add(query_id)
        # in a task of its own: TERMINATE must not overtake a statement that was sent
        begun = asyncio.create_task(self._begin(statement, asked, query_id, starts))
        try:
            index = (await asyncio.shield(begun)).log_index
            late = LogUnavailable(
                f"the push query has begun (index {index}), but this node has not learned of it"
                " yet, and ends it: send it again"
            )
            await self.map.has(index, late)
            yield pushed(self._logged(query_id, plan), statement.limit)
        finally:
            self._served.discard(query_id)
            ending = asyncio.create_task(self._end(query_id, begun))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def keep_renewed(self) -> NoReturn:
        """Renew what is served, every RENEW_S."""
        while True:
            await asyncio.sleep(RENEW_S)
            if served := sorted(self._served):
                why = await self._renewed(served)
                if why:
                    _log.info("push queries are not renewed", why=why)

    async def _renewed(self, query_ids: list[str]) -> str:
        """Why they are not; "": they are."""
        path, request = "/pushes/renew", {"query_ids": query_ids}
        try:
            reply = await control_client.ask(
                self.control, self.internal_address, path, request, timeout_s=RENEW_S_MAX
            )
        except PathFailed as error:
            return str(error)
        return "" if reply.status == HTTPStatus.OK else reply.body.decode(errors="replace")

    async def close(self) -> None:
        """Give TERMINATE a moment, as this worker stops."""
        self._askers.shutdown(wait=False, cancel_futures=True)
        if self._ending:
            await asyncio.wait(self._ending, timeout=CLOSE_S_MAX)

    # ------------------------------------------------------------------------ begin and end

    async def _starts(self, asked: Lookup, plan: TransientPlan) -> Starts:
        """Where it begins to read; empty: at the beginning. Raises TooManyRequests, and
        KafkaUnavailable."""
        if not starts_at_end(asked.properties):
            return {}
        if self._asking >= ASKING_MAX:
            raise TooManyRequests(
                f"{self._asking} push queries wait to hear from Kafka where their streams end: try"
                " again in a moment"
            )
        self._asking += 1
        try:
            loop, snapshot = asyncio.get_running_loop(), self.map.view.snapshot
            return await loop.run_in_executor(self._askers, self._ends, plan, snapshot)
        finally:
            self._asking -= 1

    async def _begin(
        self, statement: Query, asked: Lookup, query_id: str, starts: Starts
    ) -> control_client.Executed:
        snapshot = self.map.view.snapshot
        request = {
            "ksql": statement.text,
            "streamsProperties": asked.properties,
            **control_client.request_id(snapshot),
            "push": {"query_id": query_id, "node_id": snapshot.node_id, "starts": starts},
        }
        try:
            return await control_client.execute(
                self.control, self.internal_address, request, statement.text
            )
        except OutcomeUnknown as unknown:  # `_end` ends it, so that it may be repeated
            raise LogUnavailable(
                "nobody knows whether the push query has begun, so this node ends it: send it again"
                f" ({unknown.message})"
            ) from unknown

    def _ends(self, plan: TransientPlan, snapshot: Snapshot) -> dict[str, dict[int, int]]:
        """Where the streams end that it reads. A table is always read from its beginning: its rows
        are what is joined or counted (ksqlDB)."""
        known = {source.name: source for source in snapshot.sources}
        streams = {each.source for each in plan.query.plan.inputs if not each.is_table}
        return {topic_of(known[name]): self._end_of(known[name], snapshot) for name in streams}

    def _end_of(self, source: Source, snapshot: Snapshot) -> dict[int, int]:
        """In the topic of one of our queries, where its last commit ends: a batch that is being
        written is not cut in two. Raises KafkaUnavailable."""
        topic = topic_of(source)
        writer = writer_of(topic, snapshot)
        if writer is None:
            return log_ends(self.kafka, topic, source.partitions)
        committed, reader = Committed(writer), ProgressReader(self.seal)
        deadline = time.monotonic() + READ_S_MAX
        for record in read_topic(self.kafka, progress_topic(snapshot.service_id), 1, deadline):
            if record.value is not None:
                found = reader.read(record.key, record.value, record.headers)
                if found is not None:
                    committed.take(found)
        return {number: committed.end(number) for number in range(source.partitions)}

    def _logged(self, query_id: str, plan: TransientPlan) -> TransientPlan:
        """The plan with what the log has of it. Raises ServerError if that has ended already, or
        differs because one of its sources was changed in between."""
        view = self.map.view
        made = next((s for s in view.snapshot.transients if s.query_id == query_id), None)
        if made is None or made.columns != plan.source.columns:
            raise ServerError("what the query reads was changed or dropped meanwhile: try again")
        return TransientPlan(source=made, query=plan.query, shown=plan.shown)

    async def _end(self, query_id: str, begun: asyncio.Task[control_client.Executed]) -> None:
        """Best effort: what fails here, the leader does when the lease has run out."""
        await asyncio.wait((begun,))
        _ = begun.cancelled() or begun.exception()  # nobody else asks for it
        text = f"TERMINATE `{query_id}`;"
        request = {"ksql": text, **control_client.request_id(self.map.view.snapshot)}
        with suppress(StandpipeError, TimeoutError):
            async with asyncio.timeout(END_S_MAX):
                await control_client.execute(self.control, self.internal_address, request, text)
