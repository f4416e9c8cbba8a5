"""The pipeline's connection to the nodes: it follows their log, registers, renews and reports.

One thread with its own event loop. Reports go to every node, because each shows them in its own
snapshot. A pipeline that was suspended until others got its leases learns so from its next renewal,
and registers again. Routes: docs/INTERFACES.md, "Metadata log".

Not here: which node is asked for the log (`log_follower.py`); which queries to run
(`reconcile.py`); HTTP (`adapters/http/internal.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import msgspec
import structlog

from standpipe.adapters.http.internal import (
    MSGPACK,
    HttpClient,
    PeerSilent,
    PeerUnreachable,
    Reply,
)
from standpipe.adapters.sealed.handshake import PeerIdentity
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog, from_bytes
from standpipe.control.metadata.commands import LogPage, decode
from standpipe.control.metadata.isolation import SHARED
from standpipe.errors import BadRequest, SetupError
from standpipe.model import LeaseEpoch, LogIndex, NodeId, QueryStatus, Record
from standpipe.model_liveness import OwnLags, ReplicaLag
from standpipe.pipeline.commit.fence_watch import Confirmed
from standpipe.pipeline.commit.replica_wait import ReplicaWait
from standpipe.pipeline.run.log_follower import CALL_MS_MAX, KnownNodes, LogFollower
from standpipe.pipeline.run.reconcile import PipelineRegistration

RETRY_S = 0.5
REPORT_EVERY_S = 1.0
#: registering makes two writes to the log, each as slow as the quorum tolerates
#: (`config.keys.FETCH_TIMEOUT`)
START_MS_MAX = 6000
RENEW_EVERY_S = 1.0
#: A process whose loop has stood still for so long renews no lease, so that another one takes over.
#: Longer than its storage may be away: HDFS needs a minute for a failover, and NFS 90 s after a
#: restart of its server. A needless take-over costs seconds, and may divide a group for good
STILL_S_MAX = 120.0
REPLICAS_EVERY_S = 0.25
REPLICAS_MS_MAX = 800
RENEW_MS_MAX = 1500

_log = structlog.get_logger("follow")


class PipelineStarted(Record, frozen=True, kw_only=True):
    """Answer of `POST /pipeline/start`."""

    lease_epoch: LeaseEpoch
    log_index: LogIndex


class PipelineRenewed(Record, frozen=True, kw_only=True):
    """Answer of `POST /pipeline/renew`. Not registered: its leases are granted to others."""

    log_index: LogIndex
    is_registered: bool


class PipelineRefused(SetupError):
    """The nodes refuse the pipeline, whatever it tries; the message is theirs."""

    name = "E-PIPELINE-001"


class Follower:
    """The newest catalog that this process knows, and its reports to the nodes.

    `statuses` is called once a second from the follower's thread.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        secret: str,
        statuses: Callable[[], list[QueryStatus]],
        isolates: str = SHARED,
        *,
        is_external: bool = False,
        replicas: ReplicaWait | None = None,
    ) -> None:
        """`isolates`: the isolated name whose queries the pipeline runs. `is_external`: it is an
        application of a user, and the name is the id of an external query. `replicas`: told how far
        each node's replicas are, four times a second and when it asks; None: nobody asks."""
        #: first the one whose log is followed, and the one that takes requests
        self._following, self._accepting = KnownNodes(nodes), KnownNodes(nodes)
        self._secret = secret
        self._statuses = statuses
        self._replicas = replicas
        #: the nodes are to be asked now
        self._is_asked = asyncio.Event()
        self._start = {"isolates": isolates, "is_external": is_external} if isolates else {}
        self._isolates = isolates
        self._catalog = EMPTY
        #: what ended this thread although it was not closed
        self._failure: BaseException | None = None
        #: when the process's own loop last ran (monotonic seconds); None: it has none
        self._beat_s: float | None = None
        #: the newest renewal that succeeded
        self.confirmed: Confirmed | None = None
        #: queries that were dropped or not RUNNING in a catalog since `take_ended`, and its index
        self._ended = deque[tuple[str, int]]()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)
        self._is_over = asyncio.Event()
        self._pipeline_id = ""  # empty: not registered yet
        #: as which it has asked to be registered, whether or not a node has answered
        self._asked_id = ""
        self._registering: Future[PipelineRegistration | None] | None = None

    @property
    def catalog(self) -> Catalog:
        """An immutable value. Raises the error that ended the follower's thread, so that the
        process ends too: it would know of no statement and renew no lease."""
        self._check()
        return self._catalog

    def take_ended(self) -> dict[str, int]:
        """Queries that were paused, terminated or dropped since the previous call, however short
        that was, and in which entry of the log last. The first call has all that the log names."""
        return dict(self._ended.popleft() for _ in range(len(self._ended)))

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def beat(self) -> None:
        """Note that the loop of this process runs. After the first call, leases are renewed only
        for STILL_S_MAX after each: if the loop hangs, queries are not started, watched or stopped,
        and this thread would renew their leases forever."""
        self._beat_s = time.monotonic()

    def _stands_still(self) -> bool:
        return self._beat_s is not None and time.monotonic() - self._beat_s > STILL_S_MAX

    def start(self) -> None:
        """Start following and reporting."""
        self._thread.start()

    def begin_to_close(self) -> None:
        """As `close`, without waiting for the end."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # its loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._is_over.set)

    def close(self) -> None:
        """Report once more, release all leases, then end the thread."""
        self.begin_to_close()
        if self._thread.is_alive():
            self._thread.join(timeout=3)

    def register(
        self, pipeline_id: str, *, is_over: Callable[[], bool]
    ) -> PipelineRegistration | None:
        """Register for queries, and renew the registration until `close`.

        Retries until a node has logged it; None if `is_over` becomes true first. Raises
        PipelineRefused, and as `catalog` does.
        """
        self._check()
        answer = asyncio.run_coroutine_threadsafe(self._register(pipeline_id), self._loop)
        self._registering = answer
        while not is_over():
            self._check()
            try:
                return answer.result(timeout=0.2)
            except TimeoutError:
                continue
        return None

    # ------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except Exception as error:  # a thread dies silently, so the process must end
            self._fail(error)
        finally:
            self._loop.close()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            _log.error("the connection to the nodes has failed", exc_info=error)
            self._failure = error

    async def _main(self) -> None:
        self._client = HttpClient(PeerIdentity(self._secret), timeout_ms=CALL_MS_MAX)
        try:
            await self._work()
            await self._report()
            await self._leave()
        finally:
            await self._client.close()

    async def _work(self) -> None:
        works = [self._follow(), self._keep_reporting(), self._keep_renewing()]
        if self._replicas is not None:
            self._replicas.ask = self._ask_now
            works.append(self._keep_asking(self._replicas.take))
        tasks = [asyncio.create_task(work) for work in works]
        over = asyncio.create_task(self._is_over.wait())
        ended, _ = await asyncio.wait([over, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in ended:  # no chore ends by itself: it has failed
            if error := task.exception():
                self._fail(error)
        for task in (over, *tasks):
            task.cancel()
        await asyncio.gather(over, *tasks, return_exceptions=True)

    async def _follow(self) -> None:
        await LogFollower(self._client, self._following, self).follow()

    def next_index(self) -> int:
        """The entry to read next."""
        return self._catalog.index + 1

    def confirmed_index(self) -> int:
        """The newest entry that the leader has told of with a renewal; 0: it has not."""
        return self.confirmed.log_index if self.confirmed else 0

    def take(self, page: LogPage) -> None:
        """The next entries of the log."""
        catalog = self._catalog
        if page.catalog:  # the log no longer reaches back to our index
            catalog = from_bytes(page.catalog)
        for entry in page.entries:
            if entry.index > catalog.index:
                command = decode(bytes(entry.command))
                before, catalog = catalog, apply(catalog, entry.index, command)
                gone = before.queries.keys() - catalog.queries.keys()
                paused = {
                    query.query_id
                    for query in catalog.queries.values()
                    if query.state != "RUNNING" and before.queries.get(query.query_id) != query
                }
                self._ended.extend((query_id, entry.index) for query_id in gone | paused)
        feature_levels.check(catalog.feature_level, feature_levels.known_to_program())
        if catalog.nodes is not self._catalog.nodes:
            for known in (self._following, self._accepting):
                known.learn(node.internal for node in catalog.nodes.values())
        self._catalog = catalog

    async def _register(self, pipeline_id: str) -> PipelineRegistration | None:
        self._asked_id = pipeline_id
        while not self._is_over.is_set():
            if body := await self._post_to_one("start", pipeline_id, START_MS_MAX):
                started = msgspec.json.decode(body, type=PipelineStarted)
                self._pipeline_id = pipeline_id
                return PipelineRegistration(
                    pipeline_id=pipeline_id,
                    lease_epoch=started.lease_epoch,
                    log_index=started.log_index,
                    isolates=self._isolates,
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), RETRY_S)
        return None

    async def _keep_renewing(self) -> None:
        stands_still = False
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            stood_still, stands_still = stands_still, self._stands_still()
            if stands_still and not stood_still:
                _log.error("leases are not renewed: this process stands still", for_s=STILL_S_MAX)
            if stands_still or not self._pipeline_id:
                continue
            asked_s = time.monotonic()
            body = await self._post_to_one("renew", self._pipeline_id, RENEW_MS_MAX)
            if not body:
                continue
            renewed = msgspec.json.decode(body, type=PipelineRenewed)
            if renewed.is_registered:
                self.confirmed = Confirmed(asked_s, renewed.log_index)
            else:
                _log.warning("this pipeline is no longer registered; registering again")
                try:
                    await self._post_to_one("start", self._pipeline_id, START_MS_MAX)
                except PipelineRefused as refused:  # the driver ends once its catalog says so, too
                    _log.warning("the pipeline is not registered again", why=refused.message)

    async def _leave(self) -> None:
        """Release the leases at once. Otherwise others take over only after the lease timeout.

        A node may be logging the registration just now, or its answer was lost: then it would come
        into effect later, and the leader would grant leases to a pipeline that has gone."""
        if self._registering is not None:
            with contextlib.suppress(Exception):  # `register` raises it
                answer = asyncio.wrap_future(self._registering)
                await asyncio.wait_for(answer, RENEW_MS_MAX / 1000)
        if self._asked_id:
            await self._post_to_one("leave", self._asked_id, RENEW_MS_MAX)

    async def _post_to_one(self, verb: str, pipeline_id: str, timeout_ms: int) -> bytes:
        """The answer of the first node that accepts, starting with the last one used; empty: none
        accepted. Raises PipelineRefused."""
        body = {"pipeline_id": pipeline_id, **(self._start if verb == "start" else {})}
        for node in self._accepting.in_order():
            try:
                reply = await self._client.post_json(
                    node, f"/pipeline/{verb}", body, timeout_ms=timeout_ms
                )
            except (PeerUnreachable, PeerSilent) as error:
                _log.info("node rejected the request", node=node, request=verb, why=error.message)
            else:
                if reply.ok:
                    return reply.body
                if reply.status == BadRequest.status:
                    raise _refused(reply)
                why = reply.body[:200].decode(errors="replace")
                _log.info("node rejected the request", node=node, request=verb, why=why)
            self._accepting.put_last(node)
        return b""

    async def _keep_reporting(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            await self._report()

    async def _keep_asking(self, told: Callable[[NodeId, Sequence[ReplicaLag]], None]) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_asked.wait(), REPLICAS_EVERY_S)
            self._is_asked.clear()
            members = {node.internal for node in self._catalog.nodes.values()}
            await asyncio.gather(*(self._ask_lags(node, told) for node in members))

    def _ask_now(self) -> None:
        """Called by a batch that waits."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._is_asked.set)

    async def _ask_lags(
        self, node: str, told: Callable[[NodeId, Sequence[ReplicaLag]], None]
    ) -> None:
        """A node that does not answer, or is of a release without this route, is not waited for."""
        with contextlib.suppress(PeerUnreachable, PeerSilent):
            reply = await self._client.get(node, "/replica-lags", timeout_ms=REPLICAS_MS_MAX)
            if reply.ok:
                own = reply.msgpack(OwnLags)
                told(own.node_id, own.lags)

    async def _report(self) -> None:
        """Report to every node. A node that does not answer gets the next report in a second."""
        try:
            body = msgspec.msgpack.encode(self._statuses())
        except Exception:  # the JVM may answer anything; the next report may succeed
            _log.exception("reporting the queries failed")
            return
        members = {node.internal for node in self._catalog.nodes.values()}
        posts = [
            self._client.post(node, "/query-status", body, content_type=MSGPACK, timeout_ms=800)
            for node in members or self._following.in_order()
        ]
        await asyncio.gather(*posts, return_exceptions=True)


def _refused(reply: Reply) -> PipelineRefused:
    try:
        message = str(reply.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {reply.status} {reply.body[:200].decode(errors='replace')}"
    return PipelineRefused(
        message, next_step="`standpipe query isolate NAME` first, or start it without --isolate"
    )
