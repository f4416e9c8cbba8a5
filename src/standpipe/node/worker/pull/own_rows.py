"""The rows that this node's own replicas contribute to a pull query.

    LocalRead       the page, then the rows with their meta: may they be read?
    SessionRead     at level `session`: do they cover the token? SessionWaits: until they do
    SnapshotRead    at level `snapshot`: likewise, the batch of the other parts
    LinearRead      at level `linearizable`: likewise, the barrier
    lookup, Scans   the rows
    freshness_of    how old they are

Not here: the other nodes' replicas and their order (`node.worker.pull.slow_path`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from standpipe.adapters.clock import Clock
from standpipe.adapters.store.reader import View
from standpipe.control.routing.session import SessionVerdict
from standpipe.data.query.order import Pair
from standpipe.data.query.partition_keys import NO_KEYS
from standpipe.data.query.pull import (
    TooManyWindows,
    computed,
    is_plain,
    key_ranges,
    lookup,
    lookup_keys,
    stored_pairs,
)
from standpipe.data.query.scan import rows_bytes
from standpipe.data.replica.positions import StoreMeta
from standpipe.errors import BadRequest, NotComputable, NotReady, TooManyRequests
from standpipe.freshness import Freshness
from standpipe.model import NodeId, Offset, ReplicaStatus
from standpipe.node.worker.pull.forward import ForwardRefused, PartitionAnswer
from standpipe.node.worker.pull.forward_checks import check_age, furthest
from standpipe.node.worker.pull.forward_headers import ForwardHeaders
from standpipe.node.worker.pull.hedging import CHEAP_KEYS_MAX
from standpipe.node.worker.pull.local_read import UNFIT_PAGE, Judged, LocalRead, ReadInstant
from standpipe.node.worker.pull.pull_query import PullQuery
from standpipe.node.worker.pull.route_cache import CachedRoute, RouteCache
from standpipe.node.worker.pull.scans import ScanRequest, Scans
from standpipe.node.worker.pull.session_waits import SessionWaits
from standpipe.node.worker.request.answer import freshness_of
from standpipe.node.worker.request.cluster_view import LocalReplica, Replicas
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.wait_limits import WaitLimits

#: A target that waits for a session's token or a barrier ends that so long before its sender's
#: deadline, so that the sender learns why: a share of the time, and at most so many ms.
_REPLY_SHARE: Final = 0.1
_REPLY_MS_MAX: Final = 100

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass
class OwnRows:
    """Reads of this node's replicas at one worker."""

    node_id: NodeId
    replicas: Replicas
    routes: RouteCache
    in_hand: TextsInHand
    scans: Scans
    clock: Clock
    limits: WaitLimits
    waits: SessionWaits = field(init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.waits = SessionWaits(lambda replica_id: self.replicas.get(replica_id).status())

    async def read(
        self,
        query: PullQuery,
        partition: int,
        left_ms: int,
        forward: ForwardHeaders | None = None,
        *,
        waits: bool = False,
    ) -> PartitionAnswer:
        """The rows of a partition. `waits`: until they are as new as the level wants, as long as
        the time allows.

        Raises ForwardRefused, BadRequest, NotComputable, TooManyRequests."""
        until_s = asyncio.get_running_loop().time() + left_ms / 1000
        reply_s = 0 if forward is None else min(_REPLY_MS_MAX, left_ms * _REPLY_SHARE) / 1000
        while True:
            local = self.local(query, partition)
            seen = local.replica.status()
            try:
                return await self._once(query, partition, local, until_s, forward)
            except ForwardRefused as refusal:
                # a page that does not fit the rows is followed by one that does
                may_pass = refusal.session is SessionVerdict.BEHIND or refusal.why == UNFIT_PAGE
                if not waits or not may_pass:
                    raise
                if not await self._has_news(query, partition, seen, until_s - reply_s):
                    raise

    async def _has_news(
        self,
        query: PullQuery,
        partition: int,
        seen: ReplicaStatus | None,
        until_s: float,
    ) -> bool:
        """Wait for a page after `seen` that may end the wait for what the level wants. False: the
        time is over. Raises TooManyRequests."""

        def is_due(page: ReplicaStatus | None) -> bool:
            if query.linear is not None:
                return query.linear.is_due(page)
            if query.snapshot is not None:
                return query.snapshot.is_due(page)
            return query.session is None or query.session.is_due(page, self.clock.boot_ms())

        limit = self.limits.session if query.snapshot is None else self.limits.snapshot
        if query.linear is not None:
            limit = self.limits.linearizable
        with limit.place():
            return await self.waits.until(
                query.replica_id(partition),
                seen,
                is_due,
                query.requester,
                until_s,
                like=_what_is_waited_for(query),
            )

    async def _once(
        self,
        query: PullQuery,
        partition: int,
        local: LocalRead,
        until_s: float,
        forward: ForwardHeaders | None,
    ) -> PartitionAnswer:
        try:
            rows, found = await self._judged_rows(query, partition, local, until_s)
        except (ForwardRefused, BadRequest, NotComputable, TooManyRequests):
            raise
        except NotReady as error:
            raise ForwardRefused(error.message, is_not_ready=True) from error
        except Exception as error:  # a damaged row or file: another replica may be sound
            _log.error("replica cannot be read", exc_info=error)
            raise ForwardRefused(f"Store cannot be read: {_without_place(error)}") from error
        return PartitionAnswer(rows=rows, fresh=self._fresh(query, partition, found, forward))

    async def _judged_rows(
        self, query: PullQuery, partition: int, local: LocalRead, until_s: float
    ) -> tuple[list[bytes], Judged]:
        if query.plan.is_scan:
            return await self._scanned(query, local, until_s)
        try:
            return await self._looked_up(query, local, partition)
        except TooManyWindows:
            ranges = key_ranges(query.plan, partition)
            return await self._scanned(query, local, until_s, ranges)

    async def _scanned(
        self,
        query: PullQuery,
        local: LocalRead,
        until_s: float,
        ranges: Sequence[tuple[bytes, bytes]] | None = None,
    ) -> tuple[list[bytes], Judged]:
        left_s = until_s - asyncio.get_running_loop().time()
        scan = ScanRequest(
            query.plan,
            local.begin_scan,
            query.requester,
            time.monotonic() + left_s,
            query.digest,
            ranges,
        )
        return await self.scans.rows(scan)

    def _fresh(
        self, query: PullQuery, partition: int, found: Judged, forward: ForwardHeaders | None
    ) -> Freshness:
        end = furthest(forward, self.routes.reported_end(query.replica_id(partition)))
        fresh = freshness_of(
            found.status,
            found.rows,
            reported_end=end,
            served_by=self.node_id,
            role=found.verdict.role.lower(),
            boot_ms=found.at.boot_ms,
            unix_ms=found.at.unix_ms,
        )
        if query.is_stamped:
            fresh = replace(fresh, lease_epoch=found.rows.lease_epoch)
        if forward is not None:
            fresh = replace(fresh, committed_end=max(end, found.status.committed_end))
        return fresh

    async def _looked_up(
        self, query: PullQuery, local: LocalRead, partition: int
    ) -> tuple[list[bytes], Judged]:
        """Rows of keys. The loop turns before the next lookup of many keys."""
        rows: list[bytes] = []
        pairs: list[Pair] | None = None  # of rows that may take long: not computed on the loop
        async with self._turn if len(query.plan.keys) > CHEAP_KEYS_MAX else nullcontext():
            page = local.page()
            store = local.replica.store
            instant = None
            try:
                with self.in_hand.on_loop(query.digest), store.begin() as instant:
                    # judged before the rows are read: a refusal is charged for none
                    found = local.judged(page, store.meta_of(instant))
                    if query.plan.has_costly_rows:
                        pairs = list(stored_pairs(query.plan, View(instant), partition))
                    else:
                        rows = self._rows(query, View(instant), partition)
            finally:
                # a refusal, with this frame in its traceback, is kept while the read waits; and as
                # long as the transaction is there, so is its slot, of 512 for the node's workers
                del instant
            if len(query.plan.keys) > CHEAP_KEYS_MAX:
                await asyncio.sleep(0)
        if pairs is not None:
            rows = await self._computed_beside(query, pairs)
        return rows, found

    async def _computed_beside(self, query: PullQuery, pairs: list[Pair]) -> list[bytes]:
        """Raises TooManyRequests if too many reads wait for the thread."""
        with self.limits.costly_rows.place():
            stored_bytes = sum(len(value) for _, value in pairs)
            query.requester.hold(stored_bytes)
            rows = await self.scans.beside.run(partial(self._computed, query, pairs))
        query.requester.hold(rows_bytes(rows) - stored_bytes)
        return rows

    def _computed(self, query: PullQuery, pairs: list[Pair]) -> list[bytes]:
        with self.in_hand.in_thread(query.digest):
            return computed(query.plan, pairs)

    def _rows(self, query: PullQuery, view: View, partition: int) -> list[bytes]:
        def charge(rows: list[bytes]) -> None:
            query.requester.hold(rows_bytes(rows))

        if is_plain(query.plan):
            return lookup_keys(query.plan, view, query.keys.get(partition, NO_KEYS), charge)
        rows = lookup(query.plan, view, partition)
        charge(rows)
        return rows

    def local(self, query: PullQuery, partition: int) -> LocalRead:
        """The replica of a partition on this node."""
        return LocalRead(
            self.replica(query, partition),
            lambda: self.route(query, partition),
            lambda page, rows: self._check(query, page, rows),
        )

    def _check(self, query: PullQuery, page: ReplicaStatus, rows: StoreMeta) -> ReadInstant:
        """When it was judged. Raises ForwardRefused if the rows are too old for the query."""
        now, bounds = ReadInstant(self.clock.boot_ms(), int(time.time() * 1000)), query.bounds
        if bounds.is_time_bounded:
            check_age(page, rows, bounds, boot_ms=now.boot_ms, unix_ms=now.unix_ms)
        if query.session is not None:
            query.session.check(page, rows, now.boot_ms)
        if query.snapshot is not None:
            query.snapshot.check(rows)
        if query.linear is not None:
            query.linear.check(page, rows)
        return now

    def route(self, query: PullQuery, partition: int) -> CachedRoute:
        """The replicas of a partition, in the order of the tries."""
        replica_id, status = query.replica_id(partition), self.replica(query, partition).status()
        return self.routes.of(query.view, replica_id, status, query.bounds)

    def known_end(self, query: PullQuery, partition: int) -> Offset | None:
        """The furthest committed end that this node knows; None: none."""
        status = self.replica(query, partition).status()
        return self.routes.known_end(query.replica_id(partition), status)

    def replica(self, query: PullQuery, partition: int) -> LocalReplica:
        """The store and the page of this node's replica, whether or not there is one."""
        return self.replicas.get(query.replica_id(partition))


def _what_is_waited_for(query: PullQuery) -> Hashable:
    """Of two reads that wait for an equal one, no page is due for the later one alone: all that may
    differ is when they arrived, and a page that came after the later one came after both."""
    if query.linear is not None:
        return query.linear.barrier
    if query.snapshot is not None:
        return query.snapshot
    return None if query.session is None else query.session.waits_for


def _without_place(error: Exception) -> str:
    """What clients are told: an error of the system names the file, and so where the store lies."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
