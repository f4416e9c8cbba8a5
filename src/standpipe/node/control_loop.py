"""control: the node's copy of the metadata log, and what the other processes learn from it.

    POST /execute ─► Holder: judge → log → apply ─┬─► run/snapshot ─► workers, tailer
                       ▲                          └─► topics in Kafka
    on other nodes ────┘ forward      GET /log ─► Follower: log → apply ─► run/snapshot

One node holds the log (`NodeConfig.holder`); every node has a copy on its own disk, answers
`GET /log` from it, and serves on it when the holder is away. `control.ddl`, `control.catalog` and
`control.reconcile` decide, here it is carried out.

Not here: beats and lags (`node.liveness_loop`), the quorum that will replace the single holder.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, Protocol

import msgspec
import structlog

from standpipe import config as settings
from standpipe.adapters import http_client
from standpipe.adapters.http_client import (
    Call,
    Handler,
    HttpClient,
    InternalApp,
    PeerSilent,
    PeerUnreachable,
    Reply,
    json_reply,
    msgpack_reply,
)
from standpipe.adapters.kafka_admin import TopicKeeper, TopicPartitions
from standpipe.adapters.process import die_with_parent
from standpipe.adapters.raft_disk import DiskRecord, DiskThread, Journal, LogFile
from standpipe.adapters.snapshot_file import SnapshotWriter
from standpipe.control import catalog as catalogs
from standpipe.control import ddl, reconcile
from standpipe.control.catalog import Catalog, Command
from standpipe.errors import LogUnavailable, StandpipeError
from standpipe.model import LogEntry, LogIndex, LogPage, NodeInfo, QueryStatus
from standpipe.node import node_config
from standpipe.node.liveness_loop import LivenessLoop
from standpipe.node.node_config import DataIdentity, NodeConfig

PAGE_ENTRIES_MAX: Final = 500
PAGE_BYTES_MAX: Final = 1024 * 1024
POLL_MS: Final = 5_000  # how long a follower's GET /log waits at the holder
WAIT_MS_MAX: Final = 30_000  # how long anybody's may
RETRY_S: Final = 0.2  # after a holder that does not answer
SEEN_S_MAX: Final = 2.0  # how long a forwarded statement waits for this node's copy
TOPICS_S_MAX: Final = 10.0  # how long a statement waits for its topics
TOPICS_RETRY_S: Final = 1.0
TOPICS_CHECK_S: Final = 30.0  # between looks at Kafka when nothing has changed
FORWARD_MS: Final = 20_000  # a statement at the holder: its topics, and then some
PUBLISH_S: Final = 1.0  # a snapshot is never older while control lives
GRACE_S: Final = 1.0

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class LogQuery(msgspec.Struct, rename={"start": "from"}):
    """Parameters of GET /log."""

    start: int = 1
    wait_ms: int = 0


class PipelineStart(msgspec.Struct):
    """Body of POST /pipeline/start."""

    pipeline_id: str


class Copy:
    """The node's copy of the log, applied: the catalog, and the snapshot that shows it."""

    def __init__(self, config: NodeConfig, identity: DataIdentity, journal: Journal) -> None:
        self.config = config
        self.identity = identity
        self.journal = journal
        self.catalog: Catalog = catalogs.EMPTY
        #: query id -> what its pipeline said last; in memory only
        self._statuses: dict[str, QueryStatus] = {}
        self._snapshots = SnapshotWriter(config.paths.snapshot, time.time_ns() // 1_000_000)
        self._is_shown = False

    def replay(self, records: Sequence[DiskRecord]) -> None:
        """Apply what is durable. Raises UnknownCommand, DataDirectoryRefused."""
        for record in records:
            command = catalogs.decode(record.payload)
            self.catalog = catalogs.apply(self.catalog, LogIndex(record.index), command)
        if cluster_id := self.catalog.cluster_id:
            self.identity = node_config.join(self.config, self.identity, cluster_id)

    def check(self, page: LogPage) -> None:
        """Raises DataDirectoryRefused if the page does not continue this copy."""
        node_config.check_same_log(self.config, self.identity, page, self.catalog.index)

    async def append(self, records: Sequence[DiskRecord]) -> None:
        """Make records durable, apply them and publish, before anybody else is woken by them."""
        _ = [catalogs.decode(one.payload) for one in records]  # else it must not be stored
        await self.journal.append(records)
        self.replay(records)
        self.publish()

    def show(self) -> None:
        """Publish from now on. A new node has no map until it has seen all of the log once: half
        a catalog would deny tables that exist."""
        self._is_shown = True
        self.publish()

    def publish(self) -> None:
        """Write `run/snapshot`."""
        if not self._is_shown:
            return
        running = self.catalog.queries
        self._snapshots.publish(
            catalogs.to_snapshot(
                self.catalog,
                node_id=self.config.node_id,
                holder=self.config.holder,
                service_id=self.config.service_id,
                query_statuses=tuple(s for s in self._statuses.values() if s.query_id in running),
                published_boot_ms=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
            )
        )

    async def keep_published(self) -> NoReturn:
        """Readers can tell an old map from a quiet cluster."""
        while True:
            self.publish()
            await asyncio.sleep(PUBLISH_S)

    def take_statuses(self, statuses: Sequence[QueryStatus]) -> None:
        """Keep the newest of each query; a pipeline with an older lease epoch is not heard."""
        for status in statuses:
            known = self._statuses.get(status.query_id)
            if known is None or status.lease_epoch >= known.lease_epoch:
                self._statuses[status.query_id] = status
        self.publish()

    def page(self, start: int) -> LogPage:
        """Entries from `start` on, as many as a page takes."""
        records = self.journal.since(start, count_max=PAGE_ENTRIES_MAX, bytes_max=PAGE_BYTES_MAX)
        return LogPage(
            entries=tuple(
                LogEntry(index=LogIndex(one.index), command=msgspec.Raw(one.payload))
                for one in records
            ),
            last_index=LogIndex(self.journal.last_index),
            holder=self.config.holder,
            cluster_id=self.catalog.cluster_id,
        )


class Writer(Protocol):
    """Where statements, registrations and pipeline starts of this node go."""

    async def write(self, call: Call) -> Reply: ...  # once it can be seen on this node
    async def run(self) -> NoReturn: ...  # what is to be done all the time


class Holder:
    """Writes the log. One command at a time, each judged against all before it."""

    def __init__(self, copy: Copy, topics: TopicKeeper, standby_count: int) -> None:
        self._copy = copy
        self._topics = topics
        self._standby_count = standby_count
        self._turn = asyncio.Lock()
        self._writes: Mapping[str, Callable[[Call], Awaitable[object]]] = {
            "/execute": self._execute,
            "/register": self._register,
            "/pipeline/start": self._start_pipeline,
        }

    async def write(self, call: Call) -> Reply:
        return json_reply(await self._writes[call.path](call))

    async def run(self) -> NoReturn:
        """Found the cluster if it is new, then keep Kafka's topics as the catalog wants them."""
        if not self._copy.catalog.cluster_id:
            node_config.check_new(self._copy.config, self._copy.identity)
            await self._log(catalogs.FoundCluster(cluster_id=uuid.uuid4().hex))
        self._copy.show()
        await asyncio.to_thread(ddl.warm_up)
        while True:
            catalog = self._copy.catalog
            outcome = await self._topics.look_after(catalog)
            for name in outcome.gone:
                await self._log(catalogs.TopicDeleted(name=name))
            pause_s = TOPICS_RETRY_S if outcome.failure else TOPICS_CHECK_S
            await self._copy.journal.wait_for(catalog.index + 1, pause_s)

    async def _execute(self, call: Call) -> object:
        request = call.json(ddl.Request)
        async with self._turn:
            if request.request_id not in self._copy.catalog.applied_requests:
                topics = TopicPartitions(self._topics.admin)
                verdict = await asyncio.to_thread(ddl.judge, request, self._copy.catalog, topics)
                if isinstance(verdict, ddl.Answer):
                    return {"log_index": self._copy.catalog.index, "entities": verdict.entities}
                await self._append(verdict)
            applied = self._copy.catalog.applied_requests[request.request_id]
        failure = await self._topics.followed(applied.index, TOPICS_S_MAX)
        warnings = (f"{ddl.TOPIC_WILL_FOLLOW} ({failure})",) if failure else ()
        return {"log_index": applied.index, "entities": ddl.entities(applied, warnings)}

    async def _register(self, call: Call) -> object:
        node = call.json(NodeInfo)
        async with self._turn:
            if self._copy.catalog.nodes.get(node.node_id) != node:
                await self._append(catalogs.RegisterNode(node=node))
            return {"log_index": self._copy.catalog.index}

    async def _start_pipeline(self, call: Call) -> object:
        start = call.json(PipelineStart)
        catalog = await self._log(catalogs.StartPipeline(pipeline_id=start.pipeline_id))
        return {"lease_epoch": catalog.pipeline_epoch, "log_index": catalog.index}

    async def _log(self, command: Command) -> Catalog:
        async with self._turn:
            await self._append(command)
            return self._copy.catalog

    async def _append(self, command: Command) -> None:
        """Log a command together with the assignment that it asks for, in one sync."""
        last = self._copy.catalog.index
        after = catalogs.apply(self._copy.catalog, LogIndex(last + 1), command)
        due = reconcile.assignment_due(after, self._standby_count)
        commands = [command, due] if due else [command]
        await self._copy.append(
            [DiskRecord(at, catalogs.encode(one)) for at, one in enumerate(commands, last + 1)]
        )


class Follower:
    """Copies the holder's log, and sends it what is to be written."""

    def __init__(self, copy: Copy, client: HttpClient, holder: str) -> None:
        self._copy = copy
        self._client = client
        self._holder = holder  # internal address
        self._trouble = ""  # why the holder could not be followed last time

    async def write(self, call: Call) -> Reply:
        """The holder's answer. Raises LogUnavailable; a retry with the same request id is safe."""
        try:
            reply = await self._client.post(self._holder, call.path, call.body)
        except (PeerUnreachable, PeerSilent) as error:
            raise LogUnavailable(
                f"the holder of the metadata log does not answer: {error.message}",
                holder=self._copy.config.holder,
            ) from error
        if reply.ok:
            await self._copy.journal.wait_for(reply.json()["log_index"], SEEN_S_MAX)
        return reply

    async def run(self) -> NoReturn:
        """Fetch, persist, apply, publish; go on trying while the holder is away."""
        while True:
            try:
                page = await self._fetch()
            except (PeerUnreachable, PeerSilent) as error:
                self._tell(error.message)
                await asyncio.sleep(RETRY_S)
                continue
            self._tell("")
            self._copy.check(page)
            if page.entries:
                entries = [DiskRecord(one.index, bytes(one.command)) for one in page.entries]
                await self._copy.append(entries)
            if self._copy.journal.last_index == page.last_index:
                self._copy.show()

    async def _fetch(self) -> LogPage:
        wanted = {"from": self._copy.journal.last_index + 1, "wait_ms": POLL_MS}
        reply = await self._client.get(self._holder, "/log", timeout_ms=POLL_MS + 2000, **wanted)
        if not reply.ok:
            raise PeerSilent(f"{self._holder} answers {reply.status}: {reply.body[:200]!r}")
        return reply.msgpack(LogPage)

    def _tell(self, trouble: str) -> None:
        """Log a change of the holder's reach, not every failed try."""
        if bool(trouble) != bool(self._trouble):
            _log.warning("holder is away" if trouble else "holder is back", why=trouble)
        self._trouble = trouble


async def register(copy: Copy, writer: Writer) -> None:
    """Make this node a member, under its addresses of now; until the holder has taken it."""
    node = msgspec.json.encode(node_config.member(copy.config, copy.identity))
    while True:
        with contextlib.suppress(LogUnavailable):
            reply = await writer.write(Call("/register", {}, node))
            if reply.ok:
                return
            _log.error("the holder refuses this node", answer=str(reply.body))
        await asyncio.sleep(RETRY_S)


def routes(copy: Copy, writer: Writer) -> dict[tuple[str, str], Handler]:
    """The internal listener's routes (docs/INTERFACES.md)."""

    async def page(call: Call) -> Reply:
        query = call.query(LogQuery)
        await copy.journal.wait_for(query.start, min(query.wait_ms, WAIT_MS_MAX) / 1000)
        return msgpack_reply(copy.page(query.start))

    async def take_statuses(call: Call) -> Reply:
        copy.take_statuses(call.msgpack(list[QueryStatus]))
        return json_reply({"ok": True})

    async def describe(_: Call) -> Reply:
        return json_reply(
            {
                "node_id": copy.config.node_id,
                "holder": copy.config.holder,
                "cluster_id": copy.catalog.cluster_id,
                "last_index": copy.catalog.index,
                "assignment_epoch": copy.catalog.assignment.epoch,
                "nodes": list(copy.catalog.nodes.values()),
            }
        )

    return {
        ("GET", "/log"): page,
        ("GET", "/describe"): describe,
        ("POST", "/query-status"): take_statuses,
        ("POST", "/execute"): writer.write,
        ("POST", "/register"): writer.write,
        ("POST", "/pipeline/start"): writer.write,
    }


async def run(config: NodeConfig) -> None:
    """Serve until SIGTERM. Raises StandpipeError where the process must not go on."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    identity, values, secret = node_config.claim(config), config.settings(), config.secret()
    standbys, bytes_max = values[settings.STANDBYS], values[settings.BODY_MAX]
    opened = LogFile.open(config.paths.log)
    copy = Copy(config, identity, Journal(opened, DiskThread()))
    copy.replay(opened.records)
    if opened.records:
        copy.show()
    client = HttpClient(secret, timeout_ms=FORWARD_MS)
    writer: Writer = (
        Holder(copy, TopicKeeper(config.bootstrap_servers, config.service_id), standbys)
        if config.is_holder
        else Follower(copy, client, config.nodes[config.holder])
    )
    liveness = LivenessLoop(config, identity.incarnation, lambda: copy.catalog)
    app = InternalApp(secret, routes(copy, writer) | liveness.routes(), body_bytes_max=bytes_max)
    bound = http_client.bind_alone(config.internal)
    _log.info("control serves", log_index=copy.catalog.index, torn_bytes_cut=opened.cut_bytes)
    try:
        async with asyncio.TaskGroup() as group:
            works = (writer.run(), register(copy, writer), liveness.run(), copy.journal.fails())
            tasks = [group.create_task(work) for work in (*works, copy.keep_published())]
            await http_client.serve(bound, app, stop, GRACE_S)
            for task in tasks:
                task.cancel()
    except* StandpipeError as failed:
        raise failed.exceptions[0] from None
    finally:
        await copy.journal.close()
        await client.close()


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--node-file", type=Path, required=True)
    given = options.parse_args(arguments)
    die_with_parent()
    node_config.log_json("control")
    try:
        asyncio.run(run(node_config.load(given.node_file)))
    except StandpipeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    os._exit(main())  # a thread that waits for Kafka must not delay the end
