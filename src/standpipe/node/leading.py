"""Writing the metadata log: the leader judges and proposes, every other node asks it.

    POST /execute on any node ─► Writer ─┬─► leading here: judge → propose → applied ─► answer
                                         └─► POST to the leader ─► wait for this node's copy

One command at a time is judged, against a catalog that has everything before it, and appended in
the leader epoch in which it was judged or not at all. A leader that is lost on the way costs a
retry with the same request id, which the catalog applies once.

Not here: what a statement means (`control.ddl`), who leads (`control.raft`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NoReturn

import msgspec
import structlog

from standpipe.adapters.http_client import (
    Call,
    HttpClient,
    PeerSilent,
    PeerUnreachable,
    Reply,
    json_reply,
)
from standpipe.adapters.kafka_admin import TopicKeeper, TopicPartitions
from standpipe.control import catalog as catalogs
from standpipe.control import ddl, reconcile
from standpipe.control.catalog import AppliedRequest, Catalog, Command
from standpipe.control.quorum import Incarnation, LeaderEpoch, ReplicaKey
from standpipe.control.raft_messages import Error
from standpipe.errors import BadRequest, BodyTooLarge, LogUnavailable
from standpipe.model import LogIndex, NodeId, NodeInfo
from standpipe.node.log_copy import LogCopy
from standpipe.node.quorum_loop import Quorum, Refused

WRITE_S_MAX: Final = 10.0  # for finding a leader that takes it
RETRY_S: Final = 0.05
FORWARD_MS: Final = 20_000  # a statement at the leader: its topics, and then some
SEEN_S_MAX: Final = 2.0  # how long a forwarded statement waits for this node's copy
TOPICS_S_MAX: Final = 10.0  # how long a statement waits for its topics
TOPICS_RETRY_S: Final = 1.0
TOPICS_CHECK_S: Final = 30.0  # between looks at Kafka when nothing has changed
FORWARDED: Final = "forwarded"

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class PipelineStart(msgspec.Struct):
    """Body of POST /pipeline/start."""

    pipeline_id: str
    request_id: str = ""


class VoterName(msgspec.Struct):
    """Body of POST /quorum/add-voter, remove-voter and transfer."""

    node_id: NodeId
    incarnation: Incarnation = Incarnation("")  # empty: the one that is registered


class Leading:
    """What only the leader does. Each write raises Refused where this node does not lead."""

    def __init__(
        self, copy: LogCopy, quorum: Quorum, topics: Callable[[], TopicKeeper], standby_count: int
    ) -> None:
        """`topics` is called once, when this node leads first."""
        self._copy = copy
        self._quorum = quorum
        self._make_topics = topics
        self._topics: TopicKeeper | None = None
        self._standby_count = standby_count
        self._turn = asyncio.Lock()
        self._writes: Mapping[str, Callable[[Call], Awaitable[object]]] = {
            "/execute": self._execute,
            "/register": self._register,
            "/pipeline/start": self._start_pipeline,
            "/quorum/add-voter": self._add_voter,
            "/quorum/remove-voter": self._remove_voter,
            "/quorum/transfer": self._transfer,
        }

    async def write(self, call: Call) -> Reply:
        return json_reply(await self._writes[call.path](call))

    async def run(self) -> NoReturn:
        """While this node leads: found the cluster if it is new, then let the world follow."""
        await asyncio.to_thread(ddl.warm_up)
        while True:
            if self._quorum.leading is None:
                await self._quorum.changed()
                continue
            with contextlib.suppress(Refused):
                await self._lead()
            await asyncio.sleep(RETRY_S)  # the lead is lost, or about to be handed over

    async def _lead(self) -> None:
        async with self._turn:
            await self._found(self._epoch())
        while self._quorum.leading is not None:
            await self._settle_assignment()
            catalog = self._copy.catalog
            outcome = await self._keeper.look_after(catalog)
            for name in outcome.gone:
                await self._log(catalogs.TopicDeleted(name=name))
            pause_s = TOPICS_RETRY_S if outcome.failure else TOPICS_CHECK_S
            await self._wait_for_news(catalog, pause_s)

    async def _wait_for_news(self, catalog: Catalog, pause_s: float) -> None:
        """Until there is another command, another leader, or the time is over."""
        news = [self._copy.wait_for(catalog.index + 1, pause_s), self._quorum.changed()]
        tasks = [asyncio.ensure_future(one) for one in news]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    @property
    def _keeper(self) -> TopicKeeper:
        if self._topics is None:
            self._topics = self._make_topics()
        return self._topics

    # -- statements, nodes, pipelines -------------------------------------------------------------

    async def _execute(self, call: Call) -> object:
        request = call.json(ddl.Request)
        async with self._turn:
            epoch = self._epoch()
            if request.request_id not in self._copy.catalog.applied_requests:
                topics = TopicPartitions(self._keeper.admin)
                verdict = await asyncio.to_thread(ddl.judge, request, self._copy.catalog, topics)
                if isinstance(verdict, ddl.Answer):
                    return {"log_index": self._copy.catalog.index, "entities": verdict.entities}
                await self._append(verdict, epoch)
            applied = self._copy.catalog.applied_requests[request.request_id]
        failure = await self._keeper.followed(applied.index, TOPICS_S_MAX)
        warnings = (f"{ddl.TOPIC_WILL_FOLLOW} ({failure})",) if failure else ()
        return {"log_index": applied.index, "entities": ddl.entities(applied, warnings)}

    async def _register(self, call: Call) -> object:
        node = call.json(NodeInfo)
        async with self._turn:
            epoch = self._epoch()
            if self._copy.catalog.nodes.get(node.node_id) != node:
                await self._append(catalogs.RegisterNode(node=node), epoch)
            return {"log_index": self._copy.catalog.index}

    async def _start_pipeline(self, call: Call) -> object:
        start = call.json(PipelineStart)
        command = catalogs.StartPipeline(
            pipeline_id=start.pipeline_id, request_id=start.request_id or uuid.uuid4().hex
        )
        applied = await self._once(command)
        return {"lease_epoch": applied.lease_epoch, "log_index": applied.index}

    async def _once(self, command: Command) -> AppliedRequest:
        """What became of a command with a request id, logged now or before."""
        async with self._turn:
            epoch = self._epoch()
            if command.request_id not in self._copy.catalog.applied_requests:
                await self._append(command, epoch)
            return self._copy.catalog.applied_requests[command.request_id]

    async def _log(self, command: Command) -> None:
        async with self._turn:
            await self._append(command, self._epoch())

    async def _settle_assignment(self) -> None:
        """An assignment that an earlier leader left undone."""
        async with self._turn:
            epoch, catalog = self._epoch(), self._copy.catalog
            due = await self._assignment_due(catalog)
            if due is not None:
                await self._quorum.propose(catalogs.encode(due), epoch)

    async def _found(self, epoch: LeaderEpoch) -> None:
        """The first command of all names the cluster."""
        if not self._copy.catalog.cluster_id:
            command = catalogs.FoundCluster(cluster_id=uuid.uuid4().hex)
            await self._quorum.propose(catalogs.encode(command), epoch)

    async def _append(self, command: Command, epoch: LeaderEpoch) -> None:
        """Log a command together with the assignment that it asks for, in one go."""
        await self._found(epoch)
        catalog = self._copy.catalog
        index = LogIndex(max(self._quorum.end, catalog.index + 1))
        due = await self._assignment_due(catalogs.apply(catalog, index, command))
        commands = [command, due] if due else [command]
        await asyncio.gather(
            *(self._quorum.propose(catalogs.encode(one), epoch) for one in commands)
        )

    async def _assignment_due(self, catalog: Catalog) -> catalogs.CommitAssignment | None:
        return await asyncio.to_thread(reconcile.assignment_due, catalog, self._standby_count)

    def _epoch(self) -> LeaderEpoch:
        if self._quorum.leading is None:
            raise Refused(Error.NOT_LEADER_OR_FOLLOWER, self._quorum.leader)
        return self._quorum.leading

    # -- voters -----------------------------------------------------------------------------------

    async def _add_voter(self, call: Call) -> object:
        asked = call.json(VoterName)
        self._epoch()
        voter = ReplicaKey(asked.node_id, asked.incarnation or self._registered(asked.node_id))
        if voter not in self._quorum.voters:
            await self._settled(self._quorum.add_voter(voter))
        return self._changed()

    async def _remove_voter(self, call: Call) -> object:
        asked = call.json(VoterName)
        self._epoch()
        if len(self._quorum.voters) == 1:
            raise BadRequest("the last voter cannot be removed: nobody could write any more")
        await self._settled(self._quorum.remove_voter(self._voter(asked.node_id)))
        return self._changed()

    async def _transfer(self, call: Call) -> object:
        asked = call.json(VoterName)
        self._epoch()
        voter = self._voter(asked.node_id)
        if voter != self._quorum.me:
            await self._settled(self._quorum.transfer(voter))
        return self._changed()

    def _changed(self) -> object:
        voters = [key.node for key in self._quorum.voters.keys]
        return {"log_index": self._copy.catalog.index, "voters": voters}

    def _voter(self, node_id: NodeId) -> ReplicaKey:
        if (key := self._quorum.voters.key_of(node_id)) is None:
            raise BadRequest(f"{node_id} does not vote; voters are {self._names()}")
        return key

    def _registered(self, node_id: NodeId) -> Incarnation:
        node = self._copy.catalog.nodes.get(node_id)
        if node is None:
            raise BadRequest(f"{node_id} is no node of this cluster")
        return Incarnation(node.incarnation)

    async def _settled(self, change: Awaitable[None]) -> None:
        try:
            await change
        except Refused as refused:
            if refused.error is Error.DUPLICATE_VOTER:
                raise BadRequest(
                    f"a voter of that name is there already, with another disk: {self._names()}; "
                    "remove it first"
                ) from refused
            if refused.error is Error.REQUEST_TIMED_OUT:
                raise LogUnavailable(
                    "the change did not come through in time: another one is under way, or the "
                    "node does not follow; it may still come true, see `standpipe quorum describe`"
                ) from refused
            raise

    def _names(self) -> str:
        return ", ".join(key.node for key in self._quorum.voters.keys)


class Writer:
    """Where statements, registrations and the rest that writes go, on any node."""

    def __init__(
        self,
        copy: LogCopy,
        quorum: Quorum,
        leading: Leading,
        client: HttpClient,
        addresses: Callable[[NodeId], Sequence[str]],
    ) -> None:
        self._copy = copy
        self._quorum = quorum
        self._leading = leading
        self._client = client
        self._addresses = addresses
        self._misses = 0  # forwards without an answer: the next address of the leader is tried

    async def write(self, call: Call) -> Reply:
        """The leader's answer, once this node's copy has what was written.

        Asks again while leaders change; all that asks has one request id. Raises LogUnavailable.
        """
        if call.path == "/pipeline/start" and not call.json(PipelineStart).request_id:
            start = PipelineStart(call.json(PipelineStart).pipeline_id, uuid.uuid4().hex)
            call = Call(call.path, call.params, msgspec.json.encode(start))
        deadline = time.monotonic() + WRITE_S_MAX
        while True:
            try:
                return await self._try(call)
            except (Refused, PeerUnreachable, PeerSilent, _TryAgain) as error:
                if isinstance(error, Refused) and error.error is Error.RECORD_TOO_LARGE:
                    raise BodyTooLarge("its plan is larger than one entry of the log") from error
                if FORWARDED in call.params or time.monotonic() > deadline:
                    raise LogUnavailable(
                        f"no leader of the metadata quorum took it: {error}"
                    ) from error
            await asyncio.sleep(RETRY_S)

    async def _try(self, call: Call) -> Reply:
        if self._quorum.leading is not None:
            return await self._leading.write(call)
        leader = self._quorum.leader
        if leader is None or leader == self._quorum.me.node or FORWARDED in call.params:
            raise _TryAgain(f"{self._quorum.me.node} does not lead; {leader or 'nobody'} does")
        reply = await self._forward(call, leader)
        if reply.status == LogUnavailable.status and LogUnavailable.code == _code(reply):
            raise _TryAgain(reply.json().get("message", ""))
        if reply.ok:
            await self._copy.wait_for(reply.json()["log_index"], SEEN_S_MAX)
        return reply

    async def _forward(self, call: Call, leader: NodeId) -> Reply:
        """Its answer; or _TryAgain as soon as another one leads, which a stopped one never says."""
        addresses = self._addresses(leader)
        if not addresses:
            raise _TryAgain(f"no address of {leader} is known")
        target = f"{call.path}?{FORWARDED}=1"
        address = addresses[self._misses % len(addresses)]
        post = self._client.post(address, target, call.body, timeout_ms=FORWARD_MS)
        asked = asyncio.ensure_future(post)
        moved = asyncio.ensure_future(self._quorum.changed())
        try:
            await asyncio.wait({asked, moved}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            raise _TryAgain(f"{leader} lost the lead")
        except (PeerUnreachable, PeerSilent):
            self._misses += 1
            raise
        finally:
            asked.cancel()
            moved.cancel()


class _TryAgain(Exception):
    """Nobody took it this time; `str` says why."""


def _code(reply: Reply) -> object:
    return reply.json().get("error_code")
