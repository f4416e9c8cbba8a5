"""POST /ksql: all statements are judged before the first one is carried out, then one by one.

    the map has the statement of commandSequenceNumber, if that is given
    parse ─► the newest catalog, if the request or a SET in it asks for that
          ─► judge_all: each against the catalog that those before it would make
          ─► per statement: SHOW and DESCRIBE from this node's map, INSERT into Kafka, all others
             to the metadata log through the node's own control, until the map has that log index

So a request with one mistake changes nothing, and each statement sees those before it. A statement
is judged once here and once by the leader, by the same functions against the same catalog
(`from_snapshot`). If one still fails when it is carried out (Kafka is unreachable, another client
was faster), its error names those already done.

Parsing and judging run in a thread (`node.worker.statements.lanes`): reads share the event loop.
Source: ksqlDB's REST API, POST /ksql.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from standpipe.adapters.clock import Clock
from standpipe.adapters.http.peer_client import PeerClient
from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.producer import RowProducer
from standpipe.adapters.metrics import Metrics
from standpipe.adapters.schema_registry import SchemaRegistry
from standpipe.config.registry import Config
from standpipe.control.ddl.limits import StatementLimits
from standpipe.control.metadata.catalog import from_snapshot
from standpipe.errors import (
    BadRequest,
    LogUnavailable,
    OutcomeUnknown,
    QueryOnStatementEndpoint,
    StandpipeError,
    TooManyRequests,
)
from standpipe.model import Source
from standpipe.node.batched import Shared
from standpipe.node.topic_partitions import KafkaTopics
from standpipe.node.worker.inspect.route import Routes
from standpipe.node.worker.request import control_client
from standpipe.node.worker.request.body import asked_bounds, parse_statements, property_text
from standpipe.node.worker.request.cluster_view import Map, Replicas
from standpipe.node.worker.request.drawn import statement_values
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.schemas import SchemaFetcher
from standpipe.node.worker.statements import describe, explain, lags, show
from standpipe.node.worker.statements.answers import Answers
from standpipe.node.worker.statements.assert_topic import TopicAsserts
from standpipe.node.worker.statements.inserts import Inserts, inserts_of
from standpipe.node.worker.statements.judge import (
    QUERY_HINT,
    JudgedStatement,
    RequestSession,
    judge_all,
    sets_linearizable,
)
from standpipe.node.worker.statements.lanes import (
    StatementLane,
    StatementLanes,
    lane_of,
    may_ask_kafka,
)
from standpipe.node.worker.statements.own_replicas import OwnReplicas
from standpipe.node.worker.statements.read_index import is_linearizable, read_index
from standpipe.node.worker.statements.show import AnswerTime, Entity, Scene
from standpipe.sql.declarations.names import check_name
from standpipe.sql.expressions.statement_values import in_tree
from standpipe.sql.plans import (
    LOGGED,
    AssertTopicPlan,
    DefinePlan,
    DescribeFunctionPlan,
    DescribePlan,
    ExplainAssignmentPlan,
    ExplainPlan,
    ExplainRoutePlan,
    InsertValuesPlan,
    SetPropertyPlan,
    ShowLagPlan,
    ShowPlan,
)
from standpipe.sql.syntax import variables

if TYPE_CHECKING:
    from standpipe.adapters.kafka.admin import KafkaAdmin

#: for a request's commandSequenceNumber; ksqlDB's default
NUMBERED_S_MAX: Final = 5.0
#: requests that may wait for that at once: a number may be one that no statement ever had
NUMBERED_MAX: Final = 100


class LogBehind(StandpipeError):
    """The node does not get to the `commandSequenceNumber` of the request in time: it hears of a
    statement late, or another cluster gave the number. Try again, or without the number."""

    status = 503
    code = 50301
    retry_after_s = 1


class StatementFailed(Exception):
    """A statement could not be carried out. `done`: entities of those before it."""

    def __init__(self, cause: StandpipeError, statement: str, done: Sequence[msgspec.Raw]) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.statement = statement
        self.done = list(done)

    def body(self) -> dict[str, object]:
        """The cause's body, with the statement and the entities of those already done."""
        return {
            **self.cause.body(),
            "@type": "statement_error",
            "statementText": self.statement,
            "entities": self.done,
        }


@dataclass
class Statements:
    """/ksql at one worker."""

    map: Map
    replicas: Replicas
    control: PeerClient
    internal_address: str
    producer: RowProducer
    settings: Config
    metrics: Metrics
    routes: Routes
    kafka: Kafka = ""
    #: None: there is no schema registry
    schemas: SchemaFetcher | None = None
    in_hand: TextsInHand = field(default_factory=TextsInHand)
    lanes: StatementLanes = field(default_factory=StatementLanes)
    _admin: KafkaAdmin | None = None
    _read_index: Shared[int] | None = None
    _asserts: TopicAsserts | None = None
    #: how many requests wait for a log index that they name
    _numbered: int = 0

    async def carry_out(self, body: bytes) -> list[msgspec.Raw]:
        """Entities of all statements, as JSON. Raises StandpipeError when nothing was done, else
        StatementFailed."""
        request = parse_statements(body)
        properties = {n: property_text(v) for n, v in (request.streamsProperties or {}).items()}
        session = RequestSession(properties, variables.folded(request.sessionVariables or {}))
        try:
            await self._has_numbered(request.commandSequenceNumber)
            statements = await self._judged_in_lane(request.ksql, session)
            inserts = inserts_of(self.producer, self.metrics, properties, statements)
            inserts.schemas = self._registry
        except StandpipeError:
            self.metrics.count("standpipe_statements", "refused")
            raise
        answers = Answers()
        for statement in statements:
            try:
                answers.add(await self._carry_out(statement, inserts))
                await asyncio.sleep(0)  # many SHOWs in one request must not hold up lookups
            except StandpipeError as error:
                self.metrics.count("standpipe_statements", "failed")
                done = await inserts.with_token(answers.encoded)
                raise StatementFailed(error, statement.text, done) from error
        self.metrics.count("standpipe_statements", "done")
        return await inserts.with_token(answers.encoded)

    async def _has_numbered(self, number: int | None) -> None:
        """Wait for the statement whose answer had this number: ksqlDB's clients send that of the
        last one, which another node may have taken. Raises LogBehind, TooManyRequests."""
        if number is None or number <= self.map.view.snapshot.log_index:
            return
        if self._numbered >= NUMBERED_MAX:
            raise TooManyRequests(f"{self._numbered} requests wait for their sequence numbers")
        late = LogBehind(  # ksqlDB's text
            "Timed out while waiting for a previous command to execute. command sequence number: "
            f"{number}"
        )
        self._numbered += 1
        try:
            await self.map.has(number, late, NUMBERED_S_MAX)
        finally:
            self._numbered -= 1

    # --------------------------------------------------------------- judging

    async def _judged_in_lane(self, text: str, session: RequestSession) -> list[JudgedStatement]:
        """All statements, judged against the newest catalog if the request or a SET in it asks for
        that. Raises StandpipeError."""
        is_settled = is_linearizable(session.properties)
        if is_settled:
            await self._settle()
        while True:
            self.map.refresh()  # another worker may just have acknowledged a CREATE
            digest = self.in_hand.admitted(text)
            judge = partial(self._judge, digest, text, session, is_settled=is_settled)
            if (statements := await self.lanes.run(lane_of(text), judge)) is not None:
                return statements
            await self._settle()
            is_settled = True

    def _judge(
        self, digest: bytes, text: str, session: RequestSession, *, is_settled: bool
    ) -> list[JudgedStatement] | None:
        with self.in_hand.in_thread(digest, waits=may_ask_kafka(text)):
            return self._judged(text, session, is_settled=is_settled)

    def _judged(
        self, text: str, session: RequestSession, *, is_settled: bool
    ) -> list[JudgedStatement] | None:
        """None: a SET asks for the newest catalog, and the map is not settled yet."""
        is_on = variables.substitutes(session.properties)
        for name in session.variables:
            check_name("variable", name, None)
        statements = variables.parse(text, session.variables, is_on=is_on)
        if not is_settled and sets_linearizable(statements):
            return None
        if not statements:
            raise BadRequest("the request holds no statement")
        statements = tuple(in_tree(each, statement_values()) for each in statements)
        snapshot = self.map.view.snapshot
        limits = StatementLimits.of(self.settings, snapshot.service_id)
        kafka = self._kafka_topics()
        catalog, schemas = from_snapshot(snapshot), self._registry
        return judge_all(statements, catalog, session, kafka, limits, schemas=schemas)

    @property
    def _registry(self) -> SchemaRegistry | None:
        return None if self.schemas is None else self.schemas.registry

    def _kafka_topics(self) -> KafkaTopics:
        from standpipe.adapters.kafka.admin import KafkaAdmin  # a slow import

        if self._admin is None and connection_of(self.kafka).bootstrap_servers:
            self._admin = KafkaAdmin(self.kafka)
        return KafkaTopics(self._admin.partition_counts if self._admin else None)

    # ---------------------------------------------------------- carrying out

    async def _carry_out(self, judged: JudgedStatement, inserts: Inserts) -> list[Entity]:
        plan, text, session = judged.plan, judged.text, judged.session
        match plan:
            case SetPropertyPlan():
                return []
            case InsertValuesPlan():
                await inserts.insert(plan)
                return []
            case ShowPlan():
                return [await self._show(plan, text, session)]
            case ShowLagPlan():
                return [await self._show_lag(plan, text)]
            case AssertTopicPlan():
                return [await self._topics().carry_out(plan, text)]
            case DefinePlan():
                return show.undefined(plan, text, session.variables)
            case DescribeFunctionPlan():
                return [show.function(plan.name, text)]
            case ExplainPlan():
                return [explain.explained(self._scene(), plan, text)]
            case DescribePlan():
                source = self._now(plan.source)
                entity = describe.source_description(
                    self._scene(), source, text, extended=plan.extended
                )
                return [entity]
            case ExplainRoutePlan():
                pull = msgspec.structs.replace(plan.pull, source=self._now(plan.pull.source))
                route = self.routes.explain(pull, asked_bounds(session.properties))
                return [show.route(route, text)]
            case ExplainAssignmentPlan():
                view = await control_client.assignment(self.control, self.internal_address)
                return [show.assignment(view, text)]
            case _ if isinstance(plan, LOGGED):
                return await self._execute(text, session.properties)
            case _:
                raise QueryOnStatementEndpoint(QUERY_HINT, statement=text)

    def _now(self, source: Source) -> Source:
        """The source as this node knows it now. A statement before this one may have made it; its
        ids were only predicted when this one was judged."""
        return self.map.view.sources.get(source.name, source)

    async def _execute(self, text: str, properties: Mapping[str, str]) -> list[Entity]:
        """One statement through the metadata log; returns when this node's map has it."""
        request = {
            "ksql": text,
            "streamsProperties": properties,
            **control_client.request_id(self.map.view.snapshot),
        }
        answer = await control_client.execute(self.control, self.internal_address, request, text)
        late = OutcomeUnknown(
            f"the statement is carried out and logged (index {answer.log_index}), but this node has"
            " not learned of it yet. Do not send it again: SHOW and DESCRIBE will have it"
        )
        await self.map.has(answer.log_index, late)
        return answer.entities

    async def _settle(self) -> None:
        """Wait until this node's map has all that was acknowledged. Raises LogUnavailable."""
        if self._read_index is None:
            ask = partial(read_index, self.control, self.internal_address)
            self._read_index = Shared(ask)
        index = await self._read_index.answer()
        late = LogUnavailable(
            f"this node has not learned yet of all that was acknowledged (up to index {index}), as"
            " a linearizable statement needs it. Nothing was logged: try again"
        )
        await self.map.has(index, late)

    # ---------------------------------------------------------------- showing

    async def _show(self, plan: ShowPlan, text: str, session: RequestSession) -> Entity:
        scene = self._scene()
        match plan.what:
            case "STREAMS" | "TABLES" if plan.extended:
                return await _described(scene, plan, text)
            case "STREAMS":
                return show.streams(scene, text)
            case "TABLES":
                return show.tables(scene, text)
            case "QUERIES":
                return show.queries(scene, text)
            case "TOPICS":
                return show.topics(await self._topics().replica_counts(), text)
            case "FUNCTIONS":
                return show.function_names(text)
            case "PROPERTIES":
                return show.properties(self.settings, text)
            case "TYPES":
                return show.types(scene, text)
            case "VARIABLES":
                return show.variables(session.variables, text)

    async def _show_lag(self, plan: ShowLagPlan, text: str) -> Entity:
        """Of one table, or of all; between two of them, lookups have their turn."""
        view, scene = self.map.view, self._scene()
        named = plan.source and self._now(plan.source)
        sources = [named] if named else [s for s in view.sources.values() if s.is_materialized]
        covered = self.replicas.covered
        found: list[lags.TableLag] = []
        for source in sources:
            covered.way(view.snapshot, source)
            known = lags.LagScene(
                scene=scene,
                peers=self.routes.route_cache.peers.state,
                placements=view.placements,
                ends=covered.newest_ends(scene.instant.boot_ms),
                covered=covered.of((source.table_id or "", source.generation)),
            )
            found.append(known.of(source))
            await asyncio.sleep(0)
        return lags.lag_entity(found, text, with_topics=named is not None)

    def _topics(self) -> TopicAsserts:
        if self._asserts is None:
            ask = self.producer.replica_counts
            self._asserts = TopicAsserts(lambda: self.lanes.run(StatementLane.KAFKA, ask))
        return self._asserts

    def _scene(self) -> Scene:
        view = self.map.view
        instant = AnswerTime(
            boot_ms=Clock().boot_ms(),
            unix_ms=int(time.time() * 1000),
        )
        return Scene(
            snapshot=view.snapshot,
            settings=self.settings,
            instant=instant,
            replicas=OwnReplicas(view, lambda each: self.replicas.get(each).status()),
            reported_ends=OwnReplicas(view, self.routes.route_cache.reported_end),
        )


async def _described(scene: Scene, plan: ShowPlan, text: str) -> Entity:
    """SHOW … EXTENDED. Between two sources, lookups have their turn."""
    items: list[msgspec.Raw] = []
    for item in describe.each_described(scene, plan.what.removesuffix("S")):
        items.append(msgspec.Raw(msgspec.json.encode(item)))
        await asyncio.sleep(0)
    return describe.source_descriptions(text, items)
