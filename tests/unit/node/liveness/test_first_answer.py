"""A node's own question whether its workers serve, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from standpipe.adapters.http import internal
from standpipe.adapters.http.internal import Call, InternalApp, Reply, json_reply
from standpipe.adapters.sealed.handshake import PEER, PeerIdentity
from standpipe.local.cluster.ports import any_port
from standpipe.model import NodeId
from standpipe.node.configuration import NodeConfig
from standpipe.node.liveness.first_answer import ASK_S, FirstAnswer
from standpipe.node.liveness.wire import PROBE_PATH

SECRET = "swordfish"
ME = NodeId("me")


def config_in(folder: Path) -> NodeConfig:
    (folder / "secret").write_text(SECRET)
    return NodeConfig(
        node_id=ME,
        data_dir=str(folder),
        bootstrap_servers="",
        public="127.0.0.1:1",
        internal="127.0.0.1:2",
        peer=f"0.0.0.0:{any_port()}",
        secret_file=str(folder / "secret"),
    )


@contextlib.asynccontextmanager
async def listening(
    config: NodeConfig, identity: PeerIdentity, asked: list[str]
) -> AsyncIterator[None]:
    """A peer listener on the node's port, of whoever `identity` is."""

    async def probe(call: Call) -> Reply:
        asked.append(call.path)
        return json_reply({})

    stop = asyncio.Event()
    bound = internal.bind_alone(config.peer)
    app = InternalApp({("GET", PROBE_PATH): probe}, body_bytes_max=1 << 10)
    served = asyncio.create_task(internal.serve(bound, app, stop, 0.1, identity=identity))
    try:
        yield
    finally:
        stop.set()
        await served


def test_it_comes_from_the_workers_of_this_node(tmp_path: Path) -> None:
    config, asked = config_in(tmp_path), list[str]()

    async def scenario() -> None:
        answer = FirstAnswer(config)
        running = asyncio.create_task(answer.run())
        async with listening(config, config.identity(PEER), asked):
            await asyncio.wait_for(running, 30)
        assert answer.has_come

    asyncio.run(scenario())
    assert asked == [PROBE_PATH]


@pytest.mark.parametrize(
    "other", [PeerIdentity(SECRET, NodeId("n2"), PEER), PeerIdentity("x", ME, PEER)]
)
def test_another_program_on_the_port_is_no_worker(tmp_path: Path, other: PeerIdentity) -> None:
    config, asked = config_in(tmp_path), list[str]()

    async def scenario() -> None:
        answer = FirstAnswer(config)
        running = asyncio.create_task(answer.run())
        async with listening(config, other, asked):
            await asyncio.sleep(ASK_S * 4)  # several questions
            assert not answer.has_come
            assert not running.done()
        async with listening(config, config.identity(PEER), asked):
            await asyncio.wait_for(running, 30)
        assert answer.has_come

    asyncio.run(scenario())
    assert asked == [PROBE_PATH], "only this node's workers were sent a request"
