"""Beats, rumours and reports of a large cluster over real connections, all in one process.

Small clusters are met as real processes (tests/e2e/test_liveness.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from tests.e2e.test_serve import status

from standpipe.adapters.http import internal
from standpipe.adapters.http.internal import InternalApp
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.control.liveness.failure_detector import SWITCH_NODES
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.feature_levels import GOSSIP
from standpipe.local.cluster.ports import any_port
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    Health,
    NodeId,
    NodeInfo,
    Placement,
    ReplicaId,
)
from standpipe.model_liveness import KnownLags, Liveness, PeerLiveness
from standpipe.node.configuration import NodeConfig
from standpipe.node.leaving import Leaving
from standpipe.node.liveness.loop import LivenessLoop

SECRET = "swordfish"
COUNT = SWITCH_NODES + 1
#: slower than by default: all nodes share one process
PACE = {
    "ksql.heartbeat.send.interval.ms": 1000,
    "ksql.heartbeat.check.interval.ms": 1000,
    "ksql.heartbeat.window.ms": 6000,
    "ksql.heartbeat.missed.threshold.ms": 5,
    "ksql.lag.reporting.send.interval.ms": 60_000,
}
WAIT_S_MAX = 120.0  # generous: a busy machine is no failure
NAMES = [NodeId(f"n{number:02}") for number in range(COUNT)]
HOLDERS = (NAMES[2], NAMES[7])
LEADER = NAMES[11]


class Member:
    """One node's loop and its internal listener. `end` takes both away."""

    def __init__(self, folder: Path, name: NodeId, cluster: Cluster) -> None:
        self.config = NodeConfig(
            node_id=name,
            data_dir=str(folder / name),
            bootstrap_servers="",
            public=f"{name}:1",
            internal=f"127.0.0.1:{any_port()}",
            peer=f"{name}:3",
            secret_file=str(folder / "secret"),
            config=PACE,  # pyright: ignore[reportArgumentType]
        )
        self.config.paths.make()
        self.leaving = Leaving(self.config.paths.leaving)
        self._cluster = cluster
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        def catalog() -> Catalog:
            return self._cluster.catalog

        self._stop.clear()
        name = self.config.node_id
        loop = LivenessLoop(self.config, f"of {name}", catalog, leader=lambda: LEADER)
        app = InternalApp(loop.routes(), body_bytes_max=1 << 20)
        bound = internal.bind_alone(self.config.internal)
        me = self.config.identity()
        self._tasks = [
            asyncio.create_task(internal.serve(bound, app, self._stop, 0.1, identity=me)),
            asyncio.create_task(loop.run()),
        ]

    async def end(self) -> None:
        self._stop.set()
        for task in self._tasks[1:]:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def told(self) -> dict[NodeId, PeerLiveness]:
        """What its workers would read."""
        try:
            page = self.config.paths.liveness.read_bytes()
        except FileNotFoundError:
            return {}
        return {one.node_id: one for one in msgspec.msgpack.decode(page, type=Liveness).peers}

    def lags_of(self) -> tuple[set[NodeId], int]:
        """Whose lags it knows, and for how long they are believed."""
        try:
            page = self.config.paths.lags.read_bytes()
        except FileNotFoundError:
            return set(), 0
        known = msgspec.msgpack.decode(page, type=KnownLags)
        return {one.node_id for one in known.known}, known.age_ms_max


class Cluster:
    def __init__(self, folder: Path) -> None:
        (folder / "secret").write_text(SECRET)
        self.members = {name: Member(folder, name, self) for name in NAMES}
        placed = Placement(table_id="t", generation=1, partition=0, replicas=HOLDERS)
        self.catalog = msgspec.structs.replace(
            EMPTY,
            feature_level=GOSSIP,
            nodes={name: self._info(name) for name in NAMES},
            assignment=Assignment(epoch=AssignmentEpoch(1), placements=(placed,)),
        )
        for name in HOLDERS:
            run = self.members[name].config.paths.run
            StatusWriter(page_path(run, ReplicaId("t", 1, 0))).write(status())

    def _info(self, name: NodeId) -> NodeInfo:
        config = self.members[name].config
        return NodeInfo(
            node_id=name,
            public=config.public,
            internal=config.internal,
            peer=config.peer,
            incarnation=f"of {name}",
        )

    async def until(
        self, condition: Callable[[NodeId, dict[NodeId, PeerLiveness]], bool], *, but: NodeId
    ) -> None:
        """Until it holds for what every node but one tells its workers."""
        for name in NAMES:
            if name != but:
                member = self.members[name]
                await eventually(lambda m=member, n=name: condition(n, m.told()))


async def eventually(condition: Callable[[], bool]) -> None:
    """Until it holds. What is looked at is in files."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():  # noqa: ASYNC110 -- nobody tells when a file changes
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(folder)
    for member in cluster.members.values():
        member.begin()
    try:
        yield cluster
    finally:
        for member in cluster.members.values():
            await member.end()


def test_a_large_cluster_knows_who_lives_leaves_and_lags(tmp_path: Path) -> None:
    """One story, for its start takes the window: all alive, lags where they are wanted, one leaves,
    it stops, it comes back."""
    lost = NAMES[5]

    async def story() -> None:
        async with running(tmp_path) as cluster:
            await cluster.until(
                lambda name, told: (
                    told.keys() == {*NAMES} - {name}
                    and all(one.health is Health.ALIVE for one in told.values())
                ),
                but=lost,
            )
            first, second = (cluster.members[name] for name in HOLDERS)
            await eventually(lambda: first.lags_of()[0] == {HOLDERS[1]})
            await eventually(lambda: second.lags_of()[0] == {HOLDERS[0]})
            await eventually(lambda: cluster.members[LEADER].lags_of()[0] == {*HOLDERS})
            knows, age_ms_max = cluster.members[NAMES[0]].lags_of()
            assert (knows, age_ms_max) == (set(), 3 * 60_000), "a stranger is told no lags"

            cluster.members[lost].leaving.begin()
            await cluster.until(lambda _, told: told[lost].is_leaving, but=lost)
            await cluster.members[lost].end()
            await cluster.until(lambda _, told: told[lost].health is Health.DOWN, but=lost)
            cluster.members[lost].leaving.end()
            cluster.members[lost].begin()
            await cluster.until(
                lambda _, told: told[lost].health is Health.ALIVE and not told[lost].is_leaving,
                but=lost,
            )

    asyncio.run(story())
