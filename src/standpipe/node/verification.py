"""Do all replicas of a table hold the same rows?  A part of control.

    GET /store-digest?table_id=…&generation=…&partition=…   of this node's store
    GET /table-digests?name=TABLE                           of all replicas, and what follows

`recompute=true`: from the rows themselves, all of which are read then. Each answer is the state of
one instant at one node; under load replicas are at different batches, and who asks asks again
(`standpipe table verify`). Not here: what digests say (`data/agreement.py`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from standpipe.adapters import store_digest
from standpipe.adapters.http_client import (
    Call,
    Handler,
    HttpClient,
    PeerSilent,
    PeerUnreachable,
    Reply,
    json_reply,
)
from standpipe.adapters.lmdb_store import store_path
from standpipe.data.agreement import ReplicaDigest, StoreDigest, Verdict, judge
from standpipe.data.positions import StoreIdentity
from standpipe.errors import NotFound, NotReady
from standpipe.model import NodeId, Placement, Record
from standpipe.node.log_copy import LogCopy

LOCAL: Final = "/store-digest"
WHOLE: Final = "/table-digests"
ANSWER_MS_MAX: Final = 20_000


class WhichStore(msgspec.Struct):
    """Parameters of GET /store-digest."""

    table_id: str
    generation: int
    partition: int
    recompute: bool = False


class WhichTable(msgspec.Struct):
    """Parameters of GET /table-digests."""

    name: str
    recompute: bool = False


class TableDigests(Record, frozen=True, kw_only=True):
    """Answer of GET /table-digests."""

    table: str
    replicas: tuple[ReplicaDigest, ...]
    verdicts: tuple[Verdict, ...]


class Verification:
    """`routes()` for the internal listener."""

    def __init__(self, state: Path, copy: LogCopy, client: HttpClient) -> None:
        self._state, self._copy, self._client = state, copy, client
        self._turn = asyncio.Semaphore(2)  # processes at once: reads of clients come first

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        return {("GET", LOCAL): self._local, ("GET", WHOLE): self._whole}

    async def run(self) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def _local(self, call: Call) -> Reply:
        which = call.query(WhichStore)
        identity = StoreIdentity(
            table_id=which.table_id, generation=which.generation, partition=which.partition
        )
        path = str(store_path(self._state, identity))
        more = [store_digest.RECOMPUTE] if which.recompute else []
        command = [sys.executable, "-m", store_digest.__name__, path, *more]
        async with self._turn:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            output, error = await process.communicate()
        if process.returncode != 0:
            raise NotReady(f"no digest of {path}: {error.decode(errors='replace').strip()}")
        return json_reply(msgspec.json.decode(output, type=StoreDigest))

    async def _whole(self, call: Call) -> Reply:
        which = call.query(WhichTable)
        catalog = self._copy.catalog
        source = catalog.sources.get(which.name)
        if source is None or source.table_id is None or not source.is_materialized:
            raise NotFound(f"there is no table {which.name} that this cluster keeps replicas of")
        asked = [
            self._ask(node_id, placement, recompute=which.recompute)
            for placement in catalog.assignment.placements
            if (placement.table_id, placement.generation) == (source.table_id, source.generation)
            for node_id in placement.holders
        ]
        replicas = tuple(await asyncio.gather(*asked))
        partitions = sorted({one.partition for one in replicas})
        verdicts = [judge(n, [one for one in replicas if one.partition == n]) for n in partitions]
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
            return answer(error="it is no member any more")
        parameters = {
            "table_id": placement.table_id,
            "generation": placement.generation,
            "partition": placement.partition,
            "recompute": str(recompute).lower(),
        }
        try:
            reply = await self._client.get(
                node.internal, LOCAL, timeout_ms=ANSWER_MS_MAX, **parameters
            )
        except (PeerUnreachable, PeerSilent) as error:
            return answer(error=error.message)
        if not reply.ok:
            return answer(error=f"HTTP {reply.status}: {reply.body[:300].decode(errors='replace')}")
        return answer(msgspec.json.decode(reply.body, type=StoreDigest))
