"""Control of one or more nodes in this process: real disks and sockets, no Kafka."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec

from standpipe.adapters.files.published import read_snapshot
from standpipe.adapters.http import internal as http_client
from standpipe.adapters.http.internal import HttpClient, InternalApp, Reply
from standpipe.adapters.raft import wire
from standpipe.local.cluster.ports import any_port
from standpipe.model import NodeId, Snapshot
from standpipe.node.configuration import NodeConfig
from standpipe.node.controller.main import ControllerBase, ControllerTask, InternalRoutes, live

SECRET = "swordfish"
STREAM = (
    "CREATE STREAM S (ID STRING KEY, V INTEGER) "
    "WITH (KAFKA_TOPIC='s', PARTITIONS=2, VALUE_FORMAT='JSON');"
)
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID EMIT CHANGES;"


def configs_of(directory: Path, *names: str, voters: Sequence[str] = ()) -> list[NodeConfig]:
    """Config of each node; all of them vote unless `voters` says otherwise."""
    (directory / "secret").write_text(SECRET)
    internal = {NodeId(name): f"127.0.0.1:{any_port()}" for name in names}
    return [
        NodeConfig(
            node_id=NodeId(name),
            data_dir=str(directory / name),
            bootstrap_servers="",
            public=f"{name}:1",
            internal=internal[NodeId(name)],
            peer=f"{name}:3",
            voters=tuple(NodeId(voter) for voter in voters or names),
            nodes={node: address for node, address in internal.items() if node != name},
            secret_file=str(directory / "secret"),
        )
        for name in names
    ]


class Control:
    """One node's control, running as a task."""

    def __init__(
        self, config: NodeConfig, tasks: Sequence[Callable[[ControllerBase], ControllerTask]]
    ) -> None:
        self.config = config
        self.base: ControllerBase | None = None
        self.client = HttpClient(config.identity(), timeout_ms=20_000)
        self._internal_routes = InternalRoutes()
        self.routes = self._internal_routes.routes
        self._stop = asyncio.Event()
        self._bound = http_client.bind_alone(config.internal)
        otherwise = self._internal_routes.fallback
        app = InternalApp(self.routes, body_bytes_max=1024, otherwise=otherwise)
        other = (wire.MAGIC, self._internal_routes.accept)
        self.app = app
        self._serving = asyncio.create_task(
            http_client.serve(
                self._bound, app, self._stop, 0.1, identity=config.identity(), other=other
            )
        )
        self.living = asyncio.create_task(
            live(config, self._internal_routes, self.client, (self._note, *tasks))
        )

    def _note(self, base: ControllerBase) -> ControllerTask:
        self.base = base
        return Nothing()

    @property
    def copy(self) -> Any:
        assert self.base is not None
        return self.base.copy

    @property
    def quorum(self) -> Any:
        assert self.base is not None
        return self.base.quorum

    async def get(self, path: str, **params: str | int) -> Reply:
        return await self.client.get(self.config.internal, path, **params)

    async def post(self, path: str, body: object) -> Reply:
        return await self.client.post_json(self.config.internal, path, body)

    async def execute(self, sql: str, request_id: str) -> Reply:
        body = {"ksql": sql, "streamsProperties": {}, "request_id": request_id}
        return await self.post("/execute", body)

    def shown(self) -> Snapshot:
        snapshot = read_snapshot(self.config.paths.snapshot)
        assert snapshot is not None
        return snapshot

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait for it; an error of the node ends the waiting."""
        async with asyncio.timeout(30):
            while self.base is None or not condition():
                if self.living.done():
                    self.living.result()
                await asyncio.sleep(0.01)

    async def until_ready(self) -> None:
        """Until it is a member, votes if it should, and shows its map."""
        name = self.config.node_id
        await self.until(lambda: name in self.copy.catalog.nodes)
        await self.until(self.config.paths.snapshot.exists)
        if name in self.config.founders:
            await self.until(lambda: self.copy.identity.has_voted)

    async def close(self) -> None:
        self.living.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self.living
        self._stop.set()
        await self._serving
        await self.client.close()


class Nothing:
    """A part that does nothing."""

    def routes(self) -> dict[tuple[str, str], Any]:
        return {}

    async def run(self) -> Any:
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def control(
    *configs: NodeConfig, tasks: Sequence[Callable[[ControllerBase], ControllerTask]] = ()
) -> AsyncIterator[list[Control]]:
    """These nodes, running."""
    nodes = [Control(config, tasks) for config in configs]
    try:
        for node in nodes:
            await node.until_ready()
        yield nodes
    finally:
        for node in nodes:
            await node.close()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


def body_of(reply: Reply) -> Any:
    return msgspec.json.decode(reply.body)
