"""Do all replicas of a table hold the same rows?  A task of the controller.

    GET /store-digest?table_id=…&generation=…&partition=…   digest of this node's store
    GET /table-digests?name=TABLE                           digests of all replicas, and verdicts
    GET /kept-digests                                       this node's replicas, newest batches
    POST /replica-rebuild                                   rebuild this node's diverged replica

`recompute=true` computes a digest from the rows, all of which are then read. An answer is the state
of one instant at one node; under load replicas are at different batches, and the client asks again
(`standpipe table verify`). Reading a store takes a second per million rows, and waits for other
reads: with `patient=true` a node answers every few seconds that it is still reading
(`node.controller.long_poll`).

Nodes compare by themselves as well: the first holder of a partition compares the digests that its
holders kept of their newest batches. Where these differ, the stores are read. The node of the
diverged replica rebuilds it; where the digests do not show which replica diverged, the log names
both.

Not here: how digests are compared (`data.replica.digest_verdict`), how a replica is rebuilt
(`node.tailer.main`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import msgspec
import structlog

from standpipe.adapters.files.named_paths import folder_below
from standpipe.adapters.http.internal import (
    Call,
    Handler,
    HttpClient,
    PeerSilent,
    PeerUnreachable,
    Reply,
    json_reply,
)
from standpipe.adapters.store import digest
from standpipe.adapters.store.folders import store_path
from standpipe.data.replica.digest_verdict import (
    Agreement,
    DigestVerdict,
    KeptDigests,
    ReplicaDigest,
    StoreDigest,
    answering,
    at_one_batch,
    judge,
    to_rebuild,
)
from standpipe.data.replica.positions import StoreIdentity
from standpipe.errors import NotFound, NotReady
from standpipe.model import NodeId, Placement, Record, ReplicaId
from standpipe.node.configuration import NodeConfig
from standpipe.node.controller.catalog_replica import CatalogReplica
from standpipe.node.controller.long_poll import LongAnswers, ask_patiently

LOCAL: Final = "/store-digest"
WHOLE: Final = "/table-digests"
KEPT: Final = "/kept-digests"
REBUILD: Final = "/replica-rebuild"
#: before differing stores are read again, or a rebuild is requested again: reading is expensive,
#: and with a bug a replica may differ again after each rebuild
AGAIN_S: Final = 600.0
#: after a rebuild request that the node did not take: a busy node may not answer in time
RETRY_S: Final = 30.0
NEXT_STEP: Final = (
    "standpipe table verify NAME --recompute; move one store aside while its node is down"
)

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class StoreDigestRequest(msgspec.Struct):
    """Parameters of GET /store-digest."""

    table_id: str
    generation: int
    partition: int
    recompute: bool = False
    patient: bool = False

    @property
    def replica_id(self) -> ReplicaId:
        """The replica whose store is asked for."""
        return ReplicaId(self.table_id, self.generation, self.partition)


class TableDigestRequest(msgspec.Struct):
    """Parameters of GET /table-digests."""

    name: str
    recompute: bool = False
    patient: bool = False


class RebuildRequest(Record, frozen=True, kw_only=True):
    """Body of POST /replica-rebuild. `why` is for the node's log."""

    identity: StoreIdentity
    why: str


class TableDigests(Record, frozen=True, kw_only=True):
    """Answer of GET /table-digests."""

    table: str
    replicas: tuple[ReplicaDigest, ...]
    verdicts: tuple[DigestVerdict, ...]


class Verification:
    """`routes()` for the internal listener."""

    def __init__(
        self, config: NodeConfig, copy: CatalogReplica, client: HttpClient, *, every_ms: int
    ) -> None:
        """`every_ms`: between comparisons of the partitions that this node holds first; 0: none."""
        self._node_id, self._paths = config.node_id, config.paths
        self._copy, self._client, self._every_ms = copy, client, every_ms
        self._long = LongAnswers()
        self._turn = asyncio.Semaphore(2)  # processes at once: clients' reads come first
        self._due_s: dict[object, float] = {}  # action -> it is not done again before this instant

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        """The four routes above."""
        return {
            ("GET", LOCAL): self._local,
            ("GET", WHOLE): self._whole,
            ("GET", KEPT): self._kept,
            ("POST", REBUILD): self._rebuild,
        }

    async def run(self) -> NoReturn:
        """Compare the partitions that this node holds first, every `every_ms`."""
        if not self._every_ms:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self._every_ms / 1000)
            await self._compare()

    # ------------------------------------------------------------------- by the nodes themselves

    async def _compare(self) -> None:
        mine = [
            placement
            for placement in self._copy.catalog.assignment.placements
            if placement.holders[:1] == (self._node_id,) and len(placement.holders) > 1
        ]
        nodes = {node_id for placement in mine for node_id in placement.holders}
        replies = await asyncio.gather(*(self._kept_of(node_id) for node_id in nodes))
        said = {
            (node_id, kept.identity.replica_id): kept.recent
            for node_id, all_kept in zip(nodes, replies, strict=True)
            for kept in all_kept
        }
        for placement in mine:
            recent = {n: said.get((n, placement.replica_id), ()) for n in placement.holders}
            shared = at_one_batch(placement.partition, recent)
            is_different = judge(placement.partition, shared).agreement is Agreement.DIFFERENT
            if is_different and self._is_due(placement.replica_id):
                await self._look_closer(placement, shared)

    async def _look_closer(self, placement: Placement, shared: Sequence[ReplicaDigest]) -> None:
        """At one batch the rows differ: read the stores to find the damaged one."""
        asked = [self._ask(node_id, placement, recompute=True) for node_id in placement.holders]
        read = await asyncio.gather(*asked)
        verdict = judge(placement.partition, read)
        if not verdict.odd:
            verdict = judge(placement.partition, shared)
        await self._alarm(placement, shared, verdict, answering(read))

    async def _alarm(
        self,
        placement: Placement,
        said: Sequence[ReplicaDigest],
        verdict: DigestVerdict,
        who_answers: Sequence[NodeId],
    ) -> None:
        digests = {one.node_id: msgspec.to_builtins(one.of) for one in said}
        # a warm-up is not read, so it could not answer in their place
        readable = [node_id for node_id in who_answers if node_id in placement.replicas]
        odd = to_rebuild(verdict, readable)
        _log.error(
            "REPLICAS_DIFFER",
            replica=str(placement.replica_id),
            said=digests,
            odd=verdict.odd,
            next_step="the diverged replica is rebuilt" if odd else NEXT_STEP,
        )
        for node_id in odd:
            await self._ask_to_rebuild(node_id, placement, f"others have other rows: {digests}")

    async def _ask_to_rebuild(self, node_id: NodeId, placement: Placement, why: str) -> None:
        node = self._copy.catalog.nodes.get(node_id)
        if node is None or not self._is_due((node_id, placement.replica_id)):
            return
        rebuild = RebuildRequest(identity=StoreIdentity.of(placement.replica_id), why=why)
        try:
            reply = await self._client.post_json(node.internal, REBUILD, rebuild, to=node_id)
        except (PeerUnreachable, PeerSilent) as error:
            _log.warning("rebuild request failed", node=node_id, error=error.message)
        else:
            if reply.ok:
                return
            _log.warning("rebuild request failed", node=node_id, status=reply.status)
        for what in (placement.replica_id, (node_id, placement.replica_id)):
            self._due_s[what] = time.monotonic() + RETRY_S

    def _is_due(self, what: object) -> bool:
        """Whether the action may be done now; if so, it is not due again for AGAIN_S."""
        now_s = time.monotonic()
        if now_s < self._due_s.get(what, now_s):
            return False
        self._due_s[what] = now_s + AGAIN_S
        return True

    async def _kept_of(self, node_id: NodeId) -> Sequence[KeptDigests]:
        node = self._copy.catalog.nodes.get(node_id)
        if node is None:
            return ()
        try:
            reply = await self._client.get(node.internal, KEPT, to=node_id)
            return reply.json_as(tuple[KeptDigests, ...]) if reply.ok else ()
        except (PeerUnreachable, PeerSilent):
            return ()  # compared once the node is back, and its tailer has written them

    # ---------------------------------------------------------------------------------- answers

    async def _kept(self, _: Call) -> Reply:
        try:
            data = self._paths.digests.read_bytes()
        except FileNotFoundError as error:
            raise NotReady("the tailer has not written its digests yet") from error
        return json_reply(msgspec.Raw(data))

    async def _rebuild(self, call: Call) -> Reply:
        asked = call.json(RebuildRequest)
        replica_id = asked.identity.replica_id
        placements = self._copy.catalog.assignment.placements
        if replica_id not in (placement.replica_id for placement in placements):
            raise NotFound(f"no replica {replica_id} is placed anywhere")
        self._paths.rebuilds.mkdir(exist_ok=True)
        folder_below(self._paths.rebuilds, str(replica_id)).write_text(asked.why)
        return json_reply({})

    async def _local(self, call: Call) -> Reply:
        which = call.query(StoreDigestRequest)
        what = (which.replica_id, which.recompute)
        return await self._long.reply(what, lambda: self._read(which), is_patient=which.patient)

    async def _read(self, which: StoreDigestRequest) -> Reply:
        path = str(store_path(self._paths.state, which.replica_id))
        more = [digest.RECOMPUTE] if which.recompute else []
        command = [sys.executable, "-m", digest.__name__, path, *more]
        async with self._turn:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            output, error = await process.communicate()
        if process.returncode != 0:
            raise NotReady(f"no digest of {path}: {error.decode(errors='replace').strip()}")
        return json_reply(msgspec.json.decode(output, type=StoreDigest))

    async def _whole(self, call: Call) -> Reply:
        which = call.query(TableDigestRequest)
        what = (which.name, which.recompute)
        return await self._long.reply(what, lambda: self._read_all(which), is_patient=which.patient)

    async def _read_all(self, which: TableDigestRequest) -> Reply:
        catalog = self._copy.catalog
        source = catalog.sources.get(which.name)
        if source is None or source.table_id is None or not source.is_materialized:
            raise NotFound(f"there is no table {which.name} that this cluster keeps replicas of")
        placements = {
            placement.partition: placement
            for placement in catalog.assignment.placements
            if (placement.table_id, placement.generation) == (source.table_id, source.generation)
        }
        asked = [
            self._ask(node_id, placement, recompute=which.recompute)
            for placement in placements.values()
            for node_id in placement.holders
        ]
        replicas = tuple(await asyncio.gather(*asked))
        verdicts: list[DigestVerdict] = []
        for partition, placement in sorted(placements.items()):
            said = [one for one in replicas if one.partition == partition]
            verdicts.append(judge(partition, said))
            if verdicts[-1].agreement is Agreement.DIFFERENT:
                await self._alarm(placement, said, verdicts[-1], answering(said))
        return json_reply(
            TableDigests(table=source.name, replicas=replicas, verdicts=tuple(verdicts))
        )

    async def _ask(
        self, node_id: NodeId, placement: Placement, *, recompute: bool
    ) -> ReplicaDigest:
        def answer(of: StoreDigest | None = None, error: str = "") -> ReplicaDigest:
            return ReplicaDigest(node_id=node_id, partition=placement.partition, of=of, error=error)

        node = self._copy.catalog.nodes.get(node_id)
        if node is None:
            return answer(error="it is no longer a member")
        parameters = {
            "table_id": placement.table_id,
            "generation": placement.generation,
            "partition": placement.partition,
            "recompute": str(recompute).lower(),
        }
        try:
            reply = await ask_patiently(self._client, node, LOCAL, **parameters)
            if reply.ok:
                return answer(reply.json_as(StoreDigest))
        except (PeerUnreachable, PeerSilent) as error:
            return answer(error=error.message)
        return answer(error=f"HTTP {reply.status}: {reply.body[:300].decode(errors='replace')}")
