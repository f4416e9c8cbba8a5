"""Endless answers at /query and /query-stream: push queries and PRINT, and their closing.

    NotAPullQuery ─► plan ─► [a transient query] ─► PushAnswer or PrintAnswer ─► LiveAnswers

Source: ksqlDB's REST API. Not here: the loop (`node/worker/push/stream_loop.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

import msgspec

from standpipe.adapters.http.server import Headers, Receive, Send
from standpipe.adapters.kafka.connection import Kafka
from standpipe.data.commit.seal import NO_SEAL, ProgressSeal
from standpipe.errors import BadRequest, StandpipeError, StatementError
from standpipe.node.worker.push.encoding import PushForm
from standpipe.node.worker.push.print_topic import PrintAnswer
from standpipe.node.worker.push.push_query import RESET, PushAnswer, new_query_id
from standpipe.node.worker.push.stream_loop import Ending, Live, LiveAnswers
from standpipe.node.worker.push.transients import TransientQueries
from standpipe.node.worker.request.body import Lookup, refuse_levels
from standpipe.node.worker.request.cluster_view import Map
from standpipe.node.worker.request.drawn import drawn
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.large_texts import LargeTexts
from standpipe.node.worker.request.schemas import SchemaFetcher
from standpipe.node.worker.request.takes_long import TakesLong
from standpipe.session_token import EVENTUAL, SESSION
from standpipe.sql.lookup.push import needs_spark, print_topic, push
from standpipe.sql.plans import PrintPlan, PushPlan, TransientPlan
from standpipe.sql.syntax.ast import Query
from standpipe.sql.syntax.ast_statements import PrintTopic
from standpipe.sql.syntax.errors import located
from standpipe.topics import TopicRules


class CloseRequest(msgspec.Struct, frozen=True):
    """A body of /close-query."""

    queryId: str  # noqa: N815 ksqlDB's name


_decode = msgspec.json.Decoder(CloseRequest).decode


@dataclass
class Pushes:
    """Push queries and PRINTs at one worker."""

    map: Map
    live: LiveAnswers
    kafka: Kafka
    transients: TransientQueries
    rules: TopicRules = field(default_factory=TopicRules)
    seal: ProgressSeal = NO_SEAL
    #: raises TooManyRequests if the worker is short of memory
    may_begin: Callable[[], None] = lambda: None
    in_hand: TextsInHand = field(default_factory=TextsInHand)
    #: None: there is no schema registry
    schemas: SchemaFetcher | None = None
    texts: LargeTexts = field(default_factory=LargeTexts)

    async def answer(
        self,
        statement: Query | PrintTopic,
        asked: Lookup,
        form: Form,
        receive: Receive,
        send: Send,
        *,
        may_pass_on: bool = False,
    ) -> None:
        """Send the answer until it ends. Raises StandpipeError only before anything was sent, and
        TakesLong then, if a heavy worker may answer."""
        if isinstance(statement, PrintTopic):
            refuse_levels(asked.properties, "PRINT")
        else:
            refuse_levels(asked.properties, "push queries", (EVENTUAL, SESSION))
        self.may_begin()
        digest = self.in_hand.admitted(asked.text)
        queries = self.transients
        self.map.refresh()  # another worker may just have acknowledged its CREATE
        plan = partial(self._planned, statement, asked)
        planned = await self.texts.beside(asked.text, digest, plan)
        if isinstance(planned, tuple):
            assert isinstance(statement, Query)
            query_id, wanted = planned
            async with self.live.place(query_id, receive) as place, AsyncExitStack() as stack:
                running = queries.running(statement, asked, query_id, wanted)
                plan = await place.unless_ended(stack.enter_async_context(running))
                # its topic is new: all that is in it is the answer
                starts = {**asked.properties, RESET[0]: "earliest"}
                answer = self._pushing(query_id, plan, starts, form)
                await self.live.pump(place, _InHand(answer, self.in_hand, digest), send)
            return
        query_id, live = self._prepared(planned, asked, form)
        if may_pass_on and live.is_costly:
            raise TakesLong
        watched = _InHand(live, self.in_hand, digest)
        await self.live.answer(query_id, watched, receive, send)

    def _planned(
        self, statement: Query | PrintTopic, asked: Lookup
    ) -> PrintPlan | PushPlan | tuple[str, TransientPlan]:
        """The last one: it needs Spark. Called in a thread if the text is large."""
        try:
            if isinstance(statement, PrintTopic):
                return print_topic(statement, self.rules)
            if not (needs_spark(statement) and self.transients.are_known):
                return push(statement, self.map.view.sources, drawn)
        except StatementError as error:
            raise located(error, statement) from None
        return self.transients.planned(statement, asked)

    def _prepared(self, plan: PrintPlan | PushPlan, asked: Lookup, form: Form) -> tuple[str, Live]:
        if isinstance(plan, PrintPlan):
            return new_query_id(f"PRINT {plan.topic}"), PrintAnswer(plan, self.kafka, self.schemas)
        query_id = new_query_id(plan.source.name)
        return query_id, self._pushing(query_id, plan, asked.properties, form, asked.session)

    def _pushing(
        self,
        query_id: str,
        plan: PushPlan,
        properties: Mapping[str, str],
        form: Form,
        session: str | None = None,
    ) -> PushAnswer:
        return PushAnswer(
            plan=plan,
            properties=properties,
            form=PushForm(form),
            query_id=query_id,
            map=self.map,
            kafka=self.kafka,
            seal=self.seal,
            schemas=self.schemas,
            turn=self.in_hand.computing,
            session_text=session,
        )

    def close(self, body: bytes) -> None:
        """End the query that the body of /close-query names. Raises BadRequest."""
        try:
            query_id = _decode(body).queryId
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is not the expected JSON object: {error}") from error
        if not self.live.board.close(query_id):
            raise BadRequest(f"No query with id {query_id:.200}")


@dataclass(frozen=True)
class _InHand:
    """`Live` whose text is in hand while one of its steps runs."""

    live: Live
    texts: TextsInHand
    digest: bytes

    @property
    def headers(self) -> Headers:
        return self.live.headers

    @property
    def is_costly(self) -> bool:
        return self.live.is_costly

    @property
    def is_over(self) -> bool:
        return self.live.is_over

    def open(self) -> None:
        with self.texts.in_thread(self.digest, waits=True):
            self.live.open()

    def head(self) -> bytes:
        return self.live.head()

    def step(self) -> bytes | None:
        place = self.texts.in_thread if self.live.is_costly else self.texts.on_loop
        with place(self.digest):
            return self.live.step()

    def last(self, ending: Ending) -> bytes:
        return self.live.last(ending)

    def failed(self, error: StandpipeError) -> bytes:
        return self.live.failed(error)

    def close(self) -> None:
        self.live.close()
