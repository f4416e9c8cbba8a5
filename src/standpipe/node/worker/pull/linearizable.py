"""Reads at level `linearizable`: the barriers of a worker, and who waits for them.

    Barriers.begun    of one read: the barrier that was appended after it arrived, or that came with
                      its forward; this worker's map has all that was decided before
    BarrierCounts     what metrics say of the barriers
    LinearRead.check  this node's rows, with the page that was read before them
    first_caught_up   the first answer of the replicas of a partition that wait for the barrier

One barrier is in flight per worker, for all reads that arrived before it was sent, and a worker
sends EVERY_S apart, so that clients cannot fill the progress topic.

Not here: what a barrier is and what reaches it (`data.replica.barrier`), waiting for a page
(`node.worker.pull.session_waits`), how many may wait (`node.worker.request.wait_limits`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from standpipe.adapters.kafka.producer import RowProducer
from standpipe.adapters.metrics import Metrics
from standpipe.control.metadata.feature_levels import LINEARIZABLE_READS
from standpipe.control.routing.route import Verdict
from standpipe.control.routing.session import SessionVerdict
from standpipe.data.commit.topic_identity import differ
from standpipe.data.replica.barrier import BARRIER_KEY, Barrier
from standpipe.data.replica.positions import StoreMeta
from standpipe.errors import (
    BadRequest,
    KafkaUnavailable,
    LogUnavailable,
    NoReplica,
    OutcomeUnknown,
    StandpipeError,
)
from standpipe.model import ReplicaStatus
from standpipe.node.batched import Shared
from standpipe.node.worker.pull.forward import ForwardRefused, PartitionAnswer
from standpipe.node.worker.pull.forward_headers import ForwardHeaders
from standpipe.node.worker.pull.session_waits import first_covered
from standpipe.node.worker.request.cluster_view import Map
from standpipe.node.worker.request.scan_requester import ScanRequester

#: between two barriers of a worker
EVERY_S: Final = 0.05
#: how long the replica that is asked first may wait alone: a few pages of its tailer
ALONE_MS_MAX: Final = 250
_LOOK_S: Final = 0.005
#: how long an appended barrier waits for the topic's id while none was told: Kafka may have none
_ID_S: Final = 0.1
#: barriers whose time is still counted; of more, the oldest are not
_UNSEEN_MAX: Final = 256

#: One try at a replica, which waits as many ms at most. Raises ForwardRefused.
Attempt = Callable[[Verdict, int], Awaitable[PartitionAnswer]]


@dataclass(frozen=True)
class LinearRead:
    """One read. `arrived_s`: on the loop's clock, when it came to this node. `seen`: called when
    rows of this node have reached the barrier."""

    barrier: Barrier
    arrived_s: float
    seen: Callable[[Barrier], None] = lambda _: None

    def check(self, page: ReplicaStatus, rows: StoreMeta) -> None:
        """Raises ForwardRefused if the rows may lack something; `page` was read before them."""
        lack = self.barrier.lack(page, rows)
        if lack is not None:
            if self.barrier.is_of_other_topic(page):
                raise ForwardRefused(lack)  # to wait would not help
            raise ForwardRefused(lack, session=SessionVerdict.BEHIND)
        self.seen(self.barrier)

    def is_due(self, page: ReplicaStatus | None) -> bool:
        """Whether rows that are read now would end the wait, one way or the other."""
        if page is None or not page.state.answers:
            return True  # for the reader to say why
        return self.barrier.is_reached(page) or self.barrier.is_of_other_topic(page)

    def left_ms(self, limit_ms: int) -> int:
        """Of a limit on the whole read, at least 1."""
        return max(1, limit_ms - int(1000 * (asyncio.get_running_loop().time() - self.arrived_s)))


async def no_kafka() -> Barrier:
    """The barrier of a worker without Kafka. Raises KafkaUnavailable."""
    raise KafkaUnavailable("this node was started without Kafka (bootstrap servers)")


class BarrierCounts:
    """Counts and times the barriers of one worker. `append`: a new one, after the call."""

    def __init__(self, append: Callable[[], Awaitable[Barrier]], metrics: Metrics) -> None:
        self._append, self._metrics = append, metrics
        #: when they were acknowledged, by `time.monotonic`: those that no rows here have reached
        self._unseen = OrderedDict[Barrier, float]()
        self._in_flight = 0
        self._add(0)

    async def append(self) -> Barrier:
        """One more. Raises what it raises."""
        sent_s = time.monotonic()
        self._metrics.count("standpipe_barriers_sent")
        self._add(1)
        try:
            barrier = await self._append()
        except BaseException:
            self._metrics.count("standpipe_barriers_failed")
            raise
        finally:
            self._add(-1)
        now_s = time.monotonic()
        self._metrics.took("standpipe_barrier_append_seconds", now_s - sent_s)
        self._unseen[barrier] = now_s
        if len(self._unseen) > _UNSEEN_MAX:
            self._unseen.popitem(last=False)
        return barrier

    def seen(self, barrier: Barrier) -> None:
        """Rows of this node have reached it; counted once. Others than this worker's are not."""
        since_s = self._unseen.pop(barrier, None)
        if since_s is not None:
            self._metrics.took("standpipe_barrier_seen_seconds", time.monotonic() - since_s)

    def _add(self, change: int) -> None:
        self._in_flight += change
        self._metrics.gauge("standpipe_unacknowledged_barriers", "", self._in_flight)


class Barriers:
    """The barriers of one worker. `append`: a new one, after the call."""

    def __init__(
        self,
        append: Callable[[], Awaitable[Barrier]] = no_kafka,
        metrics: Metrics | None = None,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        counts = None if metrics is None else BarrierCounts(append, metrics)
        self._shared = Shared(append if counts is None else counts.append, every_s)
        self._counts = counts
        #: when the map may be looked at again, on the loop's clock: once for all that wait
        self._look_s = 0.0

    @classmethod
    def in_topic(
        cls,
        producer: RowProducer,
        topic: str,
        read_index: Callable[[], Awaitable[int]],
        metrics: Metrics,
    ) -> Barriers:
        """In a progress topic. `read_index`: of the metadata log, asked for after the call."""
        ids = _TopicId(producer, topic)
        return cls(partial(_append, producer, ids, read_index), metrics)

    async def begun(
        self,
        known: Map,
        forward: ForwardHeaders | None,
        limit_ms: int,
        requester: ScanRequester,
    ) -> LinearRead:
        """A read that arrives now. `known`: this worker's map; when this returns, it has all that
        was decided before. `limit_ms`: of a client's read; a forward says what its sender has left.

        Raises BadRequest in a cluster whose nodes may not know the level; NoReplica that says what
        was wanted and what this node had.
        """
        arrived_s = asyncio.get_running_loop().time()
        if forward is None:
            _check_level(known.view.snapshot.feature_level)
        elif forward.barrier is None:
            raise BadRequest("read level linearizable: the forward names no barrier")
        elif forward.timeout_ms is not None:
            limit_ms = forward.timeout_ms
        named = None if forward is None else forward.barrier
        barrier = named or await self._appended(limit_ms)
        until_s = arrived_s + limit_ms / 1000
        await self._caught_up(known, barrier.log_index, until_s, requester)
        if self._counts is None:
            return LinearRead(barrier, arrived_s)
        return LinearRead(barrier, arrived_s, self._counts.seen)

    async def _appended(self, limit_ms: int) -> Barrier:
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self._shared.answer()
        except TimeoutError:
            had = f"had none after {limit_ms} ms: Kafka or the quorum does not answer in time"
            raise NoReplica(f"{_WANTED}, {had}.") from None
        except (KafkaUnavailable, LogUnavailable) as error:
            raise NoReplica(f"{_WANTED}, had none: {error.message}") from error

    async def _caught_up(
        self, known: Map, log_index: int, until_s: float, requester: ScanRequester
    ) -> None:
        """Wait until the map has a log index. Raises NoReplica, or BadRequest when the requester is
        gone."""
        loop = asyncio.get_running_loop()
        while (had := known.view.snapshot.log_index) < log_index:
            requester.look()
            if loop.time() >= until_s:
                raise NoReplica(
                    f"Level linearizable: wanted a map with log index {log_index}, "
                    f"this node had {had}."
                )
            await asyncio.sleep(_LOOK_S)
            if loop.time() >= self._look_s:
                self._look_s = loop.time() + _LOOK_S
                known.refresh()


_WANTED: Final = (
    "Level linearizable: wanted a barrier in the progress topic and the newest catalog, asked for "
    "after the read arrived"
)


def _check_level(level: int) -> None:
    if level < LINEARIZABLE_READS:
        raise BadRequest(
            f"read level linearizable needs feature level {LINEARIZABLE_READS}, this cluster is at "
            f"{level}: `standpipe quorum upgrade`, once every node runs the newer release"
        )


class _TopicId:
    """Kafka's id of a topic. Each barrier asks for it once it is acknowledged, and so learns
    whether the topic is still that of the barrier before. An earlier answer may be of a topic that
    was deleted since: the producer tries again until there is another one."""

    def __init__(self, producer: RowProducer, topic: str) -> None:
        self.topic = topic
        self._producer = producer
        #: as it was told last; "": it was not
        self.known = ""

    async def ask(self) -> str:
        """Of the topic that has just acknowledged a record; "": it was never told.

        Raises KafkaUnavailable if it is another one than before, or Kafka does not say.
        """
        ids: dict[str, str] = {}
        with contextlib.suppress(StandpipeError, TimeoutError):
            async with asyncio.timeout(None if self.known else _ID_S):
                ids = await self._producer.topic_ids([self.topic])
        before, self.known = self.known, ids.get(self.topic) or self.known
        if differ(before, self.known):
            raise KafkaUnavailable(f"topic {self.topic} was deleted and created again")
        if before and self.topic not in ids:
            raise KafkaUnavailable(
                f"Kafka did not say whether topic {self.topic} is still the same"
            )
        return self.known


async def _append(
    producer: RowProducer, ids: _TopicId, read_index: Callable[[], Awaitable[int]]
) -> Barrier:
    """Record and read index at once; both have ended when it returns or fails."""
    of, index = await asyncio.gather(_in_topic(producer, ids), read_index(), return_exceptions=True)
    if isinstance(of, BaseException):
        raise of
    if isinstance(index, BaseException):
        raise index
    progress_end, topic_id = of
    return Barrier(progress_end, index, topic_id)


async def _in_topic(producer: RowProducer, ids: _TopicId) -> tuple[int, str]:
    """The offset behind a new record, then the topic's id. Progress is in partition 0, also if
    somebody gave the topic others: an offset of those would say nothing."""
    at_ms = int(time.time() * 1000)
    try:
        row = await producer.send(ids.topic, BARRIER_KEY, None, at_ms, partition=0)
    except (BadRequest, OutcomeUnknown) as error:  # of the barrier's record, not of the read
        raise KafkaUnavailable(error.message) from error
    if row.offset < 0:
        raise KafkaUnavailable(f"Kafka did not say at which offset of {ids.topic} the barrier is")
    return row.offset + 1, await ids.ask()


async def first_caught_up(
    candidates: Sequence[Verdict], attempt: Attempt, left_ms: int, requester: ScanRequester
) -> PartitionAnswer:
    """The first answer at the barrier. One replica is asked first, this node's if there is one, and
    the others beside it when it has refused, or after a moment. Raises AllRefused,
    TooManyRequests."""
    until_s = asyncio.get_running_loop().time() + left_ms / 1000
    here = next((one for one in candidates if one.is_local and one.ok), None)
    first = here or next(iter(candidates), None)
    has_refused = asyncio.Event()

    async def one_try(verdict: Verdict) -> PartitionAnswer:
        if verdict is first:
            try:
                return await attempt(verdict, left_ms)
            finally:
                has_refused.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ALONE_MS_MAX / 1000):
                await has_refused.wait()
        left_s = until_s - asyncio.get_running_loop().time()
        return await attempt(verdict, max(1, int(1000 * left_s)))

    return await first_covered([(one, one_try(one)) for one in candidates], requester)
