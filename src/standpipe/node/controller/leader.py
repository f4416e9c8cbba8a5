"""Writing the metadata log: the leader judges and proposes, every other node asks it.

    a write at any node ─► Writer ─┬─► leading here: judge ─► propose ─► applied ─► answer
                                   └─► POST to the leader ─► wait for this node's catalog

One command at a time is judged, against a catalog that has everything before it, and appended in
the leader epoch in which it was judged or not at all. If the leader is lost meanwhile, the write is
retried with the same request id, which the catalog applies once.

Not here: how a write finds the leader (`node.controller.leader_proxy`), what a statement means
(`control.ddl.propose`), who leads (`control.raft.core`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NoReturn

import structlog

from standpipe.adapters.clock import Clock
from standpipe.adapters.http.internal import Call, Reply, json_reply
from standpipe.adapters.kafka.admin import TopicKeeper
from standpipe.control.assignment import switchover
from standpipe.control.ddl import (
    direct_tables,
    passed_over,
    propose,
    registered_schemas,
    responses,
)
from standpipe.control.ddl.limits import StatementLimits
from standpipe.control.metadata import feature_levels, topic_reconciler
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import (
    Command,
    DrainNode,
    FoundCluster,
    RecordTopics,
    RegisterNode,
    RemoveNode,
    SetFeatureLevel,
    SetPlacementRules,
    TopicDeleted,
    encode,
)
from standpipe.control.metadata.requests import AppliedRequest, check_not_forgotten
from standpipe.control.raft.majority import LeaderEpoch
from standpipe.control.raft.messages import Error
from standpipe.errors import BadRequest
from standpipe.model import LogIndex, PlacementRules
from standpipe.node.controller import member_checks
from standpipe.node.controller.catalog_replica import CatalogReplica
from standpipe.node.controller.feature_probe import FeatureProbe, UpgradeRequest
from standpipe.node.controller.leases import LOOK_MS, LeaseWrites, Leasing, grants_due
from standpipe.node.controller.placements import Placements
from standpipe.node.controller.planner import REVIEW_S, PlacementFailed, Placing
from standpipe.node.controller.raft_driver import ProposalRefused, Quorum
from standpipe.node.controller.voters import VoterName, VoterRoutes
from standpipe.node.topic_partitions import (
    KafkaSilence,
    KafkaTopics,
    TopicPartitions,
    topic_id_of,
)
from standpipe.sql.schemas.registry import Schemas

RETRY_S: Final = 0.05
TOPICS_S_MAX: Final = 10.0  # how long a statement waits for its topics
TOPICS_RETRY_S: Final = 1.0
TOPICS_CHECK_S: Final = 30.0  # between checks of Kafka while nothing changes

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


async def first_of(works: Sequence[Awaitable[object]]) -> None:
    """Wait until one of them returns, then cancel the others. Raises what it raises."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in ended:
        task.result()


class Leading:
    """What only the leader does. A write raises ProposalRefused if this node does not lead."""

    def __init__(
        self,
        copy: CatalogReplica,
        quorum: Quorum,
        topics: Callable[[], TopicKeeper],
        placing: Placing,
        rules: PlacementRules,
        *,
        probe: FeatureProbe,
        leasing: Leasing,
        limits: StatementLimits,
        placement_s: float,
        schemas: Schemas | None = None,
    ) -> None:
        """`topics` is called once, when this node first leads. `rules`: placement rules of a new
        cluster. `probe`: asks the members for their feature levels. `placement_s`: how long a
        statement waits for the replicas of its table. `schemas`: None: there is no registry."""
        self._copy = copy
        self._quorum = quorum
        self._make_topics = topics
        self._topics: TopicKeeper | None = None
        self._placing = placing
        self._rules = rules
        self._probe = probe
        self._leasing = leasing
        self._limits = limits
        self._schemas = schemas
        self._turn = asyncio.Lock()
        self._silence = KafkaSilence()
        self._placements = Placements(
            placing, lambda: copy.catalog, self._log_if, timeout_s=placement_s
        )
        voters = VoterRoutes(copy, quorum, self._epoch)
        leases = LeaseWrites(
            leasing, lambda: copy.catalog, self._epoch, log=self._log, once=self._once
        )
        self._writes: Mapping[str, Callable[[Call], Awaitable[object]]] = {
            "/execute": self._execute,
            "/register": self._register,
            **leases.by_path,
            "/nodes/drain": self._drain,
            "/nodes/remove": self._remove,
            "/assignment/rules": self._set_rules,
            "/quorum/add-voter": voters.add,
            "/quorum/remove-voter": voters.remove,
            "/quorum/transfer": voters.transfer,
            "/quorum/upgrade": self._upgrade,
        }

    @property
    def write_paths(self) -> Collection[str]:
        """Paths of the POST requests that `write` takes."""
        return self._writes.keys()

    async def write(self, call: Call) -> Reply:
        """Carry out one of these writes. Raises ProposalRefused if this node does not lead."""
        return json_reply(await self._writes[call.path](call))

    async def run(self) -> NoReturn:
        """Whenever this node leads: found the cluster if it is new, then do the leader's tasks."""
        await asyncio.to_thread(propose.warm_up)
        while True:
            if self._quorum.leading is None:
                await self._quorum.changed()
                continue
            try:
                await self._lead()
            except* ProposalRefused:
                await asyncio.sleep(RETRY_S)  # leadership is lost, or about to be handed over

    async def _lead(self) -> None:
        self._placing.begin()
        async with self._turn:
            await self._found(self._epoch())
        self._leasing.begin(self._copy.catalog)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_topics())
                group.create_task(self._keep_placed())
                group.create_task(self._keep_leases())
                group.create_task(self._keep_successions())
        finally:
            self._copy.note_topics(())

    async def _keep_placed(self) -> None:
        """Move replicas to where they should be, a step at a time: the next one once the replicas
        of the step before have caught up (KIP-441)."""
        while self._quorum.leading is not None:
            try:
                await self._placements.settle()
            except PlacementFailed as failed:
                _log.error("replicas are not placed", why=failed.message)
            catalog = self._copy.catalog
            news = [self._copy.wait_for(catalog.index + 1, REVIEW_S), self._placing.news()]
            await first_of([*news, self._quorum.changed()])

    async def _keep_leases(self) -> None:
        """Grant the queries of a silent pipeline to the other pipelines, and end the transient
        queries that no worker renews."""
        while self._quorum.leading is not None:
            async with self._turn:  # otherwise a lease could be granted twice
                if command := self._leasing.due(self._copy.catalog):
                    _log.info("leases move", command=str(command))
                    await self._append(command, self._epoch())
            await first_of([asyncio.sleep(LOOK_MS / 1000), self._quorum.changed()])

    async def _keep_successions(self) -> None:
        """Move reads to the next generation of a table once it has caught up."""
        watch = switchover.Watch()
        while self._quorum.leading is not None:
            if self._copy.catalog.successors:
                async with self._turn:
                    catalog, heard = self._copy.catalog, self._placing.observer.told()
                    now_ms = Clock().boot_ms()
                    if command := watch.due(catalog, self._copy.statuses, heard, now_ms):
                        _log.info("reads are about to move", command=str(command))
                        await self._append(command, self._epoch())
            await first_of([asyncio.sleep(LOOK_MS / 1000), self._quorum.changed()])

    async def _keep_topics(self) -> None:
        epoch = self._epoch()
        while self._quorum.leading is not None:
            catalog = self._copy.catalog
            outcome = await self._keeper.reconcile_topics(catalog, self._stands)
            if self._quorum.leading != epoch:
                raise ProposalRefused(Error.NOT_LEADER_OR_FOLLOWER, self._quorum.leader)
            self._copy.note_topics(outcome.faults if self._keeper.admin else ())
            if outcome.records:
                await self._log(RecordTopics(ids=outcome.records))
            for name in outcome.gone:
                await self._log(TopicDeleted(name=name))
            pause_s = TOPICS_RETRY_S if outcome.faults else TOPICS_CHECK_S
            await self._wait_for_news(catalog, pause_s)

    async def _stands(self, order: topic_reconciler.KafkaOrder, catalog: Catalog) -> bool:
        """Whether the newest catalog, which a majority confirms, still wants the order.

        A leader that was stopped or replaced while it waited for Kafka would otherwise delete a
        topic that its successor has deleted and created again.
        """
        try:
            await self._quorum.read()
        except ProposalRefused:
            return False
        return topic_reconciler.is_still_valid(order, catalog, self._copy.catalog)

    async def _wait_for_news(self, catalog: Catalog, pause_s: float) -> None:
        """Wait for another command or another leader, at most `pause_s`."""
        await first_of([self._copy.wait_for(catalog.index + 1, pause_s), self._quorum.changed()])

    @property
    def _keeper(self) -> TopicKeeper:
        if self._topics is None:
            self._topics = self._make_topics()
        return self._topics

    # -- statements, nodes, pipelines -------------------------------------------------------------

    async def _execute(self, call: Call) -> object:
        request = call.json(propose.Request)
        request_id = request.request_id
        touched: frozenset[str] | None = None  # of a repeated request: all topics
        new: Command | None = None
        async with self._turn:
            epoch, before = self._epoch(), self._copy.catalog
            if request_id not in before.applied_requests:
                check_not_forgotten(request.known_index, before.forgotten_index)
                verdict = await asyncio.to_thread(self._judged, request, before)
                if isinstance(verdict, responses.StatementReply):
                    return {"log_index": before.index, "entities": verdict.entities}
                new = verdict
                await self._append(new, epoch)
                touched = responses.topics_touched(before, self._copy.catalog)
            applied = self._copy.catalog.applied_requests[request_id]
        placed = await self._placements.wait(request_id, applied)
        # another copy of the request may have taken the statement back meanwhile
        applied = self._copy.catalog.applied_requests.get(request_id, applied)
        failures: Mapping[str, str] = {}
        if touched is None or touched:
            failures = await self._keeper.followed(applied.index, touched, TOPICS_S_MAX)
        said: tuple[str, ...] = ()
        if new is not None:
            said = await asyncio.to_thread(passed_over.warnings_of, new, before)
        warnings = (*said, *placed, *responses.topic_warnings(failures))
        index = self._copy.catalog.index  # with the assignment that followed
        return {"log_index": index, "entities": responses.entities(applied, warnings)}

    def _judged(
        self, request: propose.Request, before: Catalog
    ) -> Command | responses.StatementReply:
        """Blocks while Kafka and the schema registry are asked. Raises StandpipeError."""
        admin = self._keeper.admin
        ask = self._silence.unless_silent(admin.partition_counts) if admin else None
        topics = TopicPartitions(KafkaTopics(ask))
        verdict = propose.judge(request, before, topics, self._limits, schemas=self._schemas)
        if isinstance(verdict, responses.StatementReply):
            return verdict
        verdict = registered_schemas.register(verdict, before, self._schemas)
        if admin is None:
            return verdict
        return direct_tables.of_one_topic(verdict, partial(topic_id_of, admin.observe))

    async def _register(self, call: Call) -> object:
        asked = call.json(member_checks.NodeRegistration)
        node = asked.node()
        async with self._turn:
            epoch = self._epoch()
            await self._found(epoch)
            member_checks.check_rules(asked, self._copy.catalog.placement_rules)
            level = self._copy.catalog.feature_level
            feature_levels.check_member(node, level)
            node = feature_levels.node_at(node, level)
            if self._copy.catalog.nodes.get(node.node_id) != node:
                await self._append(RegisterNode(node=node), epoch)
            return {"log_index": self._copy.catalog.index}

    async def _drain(self, call: Call) -> object:
        asked = call.json(member_checks.DrainRequest)
        self._epoch()
        member_checks.check_known(self._copy.catalog, asked.node_id)
        if (asked.node_id in self._copy.catalog.draining) == asked.undo:
            await self._log(DrainNode(node_id=asked.node_id, is_draining=not asked.undo))
        copies = member_checks.copies_of(self._copy.catalog, asked.node_id)
        return {"log_index": self._copy.catalog.index, "copies": copies}

    async def _remove(self, call: Call) -> object:
        node_id = call.json(VoterName).node_id
        self._epoch()
        votes = self._quorum.voters.key_of(node_id) is not None
        member_checks.check_removable(self._copy.catalog, node_id, votes=votes)
        await self._log(RemoveNode(node_id=node_id))
        return {"log_index": self._copy.catalog.index}

    async def _set_rules(self, call: Call) -> object:
        rules = call.json(PlacementRules)
        self._epoch()
        if rules != self._copy.catalog.placement_rules:
            await self._log(SetPlacementRules(rules=rules))
        return {"log_index": self._copy.catalog.index}

    async def _once(self, command: Command, known_index: LogIndex | None) -> AppliedRequest:
        """The outcome of a command with a request id, logged now or before. Raises
        OutcomeUnknown."""
        async with self._turn:
            epoch = self._epoch()
            if command.request_id not in self._copy.catalog.applied_requests:
                check_not_forgotten(known_index, self._copy.catalog.forgotten_index)
                await self._append(command, epoch)
            return self._copy.catalog.applied_requests[command.request_id]

    async def _log(self, command: Command) -> None:
        async with self._turn:
            await self._append(command, self._epoch())

    async def _log_if(self, command: Command, holds: Callable[[Catalog], bool]) -> None:
        """Log a command in its own turn, if `holds` of the catalog then."""
        async with self._turn:
            if holds(self._copy.catalog):
                await self._propose(command, self._epoch())

    async def _found(self, epoch: LeaderEpoch) -> None:
        """Log the first commands if they are missing: the cluster's id with its feature level, and
        the placement rules."""
        if not self._copy.catalog.cluster_id:
            level = self._copy.feature_levels[1]
            founding = FoundCluster(cluster_id=uuid.uuid4().hex, feature_level=level)
            await self._propose(founding, epoch)
        if self._copy.catalog.placement_rules is None:
            await self._propose(SetPlacementRules(rules=self._rules), epoch)

    async def _append(self, command: Command, epoch: LeaderEpoch) -> None:
        """Log a command, then the leases that follow from it. Returns when this node's catalog has
        them. The assignment follows by itself (`_keep_placed`)."""
        await self._found(epoch)
        await self._propose(command, epoch)
        if grants := grants_due(self._copy.catalog):
            await self._propose(grants, epoch)

    async def _propose(self, command: Command, epoch: LeaderEpoch) -> None:
        """Append a command in the form that every member reads. The only way into the log."""
        formed = feature_levels.at_level(command, self._copy.catalog.feature_level)
        await self._quorum.propose(encode(formed), epoch)

    def _epoch(self) -> LeaderEpoch:
        if self._quorum.leading is None:
            raise ProposalRefused(Error.NOT_LEADER_OR_FOLLOWER, self._quorum.leader)
        return self._quorum.leading

    async def _upgrade(self, call: Call) -> object:
        """Raise the feature level, and log each node's levels for when it does not answer."""
        asked = call.json(UpgradeRequest)
        self._epoch()
        members_then = self._copy.catalog.nodes
        known = await self._probe.levels(self._copy.catalog)
        level = asked.level or self._copy.feature_levels[1]
        async with self._turn:
            epoch, catalog = self._epoch(), self._copy.catalog
            if catalog.nodes != members_then:
                raise BadRequest("the members changed meanwhile: try again")
            feature_levels.check_raise(level, catalog.feature_level, known)
            if level > catalog.feature_level:
                await self._append(SetFeatureLevel(level=level), epoch)
            for node in feature_levels.records_to_update(catalog.nodes.values(), known):
                await self._append(RegisterNode(node=node), epoch)
        return {"log_index": self._copy.catalog.index, "feature_level": level}
