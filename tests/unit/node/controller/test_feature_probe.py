"""Two versions in one cluster, in this process: who is asked, who is refused, what is logged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.node.in_process import Control, body_of, configs_of, control, run

from standpipe.adapters.http.internal import HttpClient
from standpipe.control.metadata.commands import LogPage
from standpipe.control.metadata.feature_levels import NEWEST
from standpipe.errors import FeatureLevelRefused
from standpipe.model import NodeId
from standpipe.node.configuration import NodeConfig

LIMIT = "standpipe.feature.level.max"


def older(config: NodeConfig) -> NodeConfig:
    """As the release of feature level 1 would run it."""
    return msgspec.structs.replace(config, config={LIMIT: 1})


async def log_of(node: Control) -> list[dict[str, Any]]:
    page = (await node.get("/log", **{"from": 1, "wait_ms": 0})).msgpack(LogPage)
    return [msgspec.msgpack.decode(bytes(entry.command)) for entry in page.entries]


async def upgrade(node: Control, level: int = 0) -> tuple[int, Any]:
    """Again where a node registered meanwhile, or the leader was just found, as a person would."""
    async with asyncio.timeout(30):
        while True:
            reply = await node.post("/quorum/upgrade", {"level": level})
            answer = body_of(reply)
            if reply.status != 503 and "ask again" not in answer.get("message", ""):
                return reply.status, answer
            await asyncio.sleep(0.05)


async def forms(node: Control, command: str) -> list[tuple[str, int, Any]]:
    return [
        (one["node"]["node_id"], one["version"], one["node"].get("feature_levels"))
        for one in await log_of(node)
        if one["type"] == command
    ]


def test_a_new_cluster_begins_at_the_newest_level(tmp_path: Path) -> None:
    async def story() -> None:
        async with control(*configs_of(tmp_path, "a")) as (node,):
            assert node.copy.catalog.feature_level == NEWEST
            assert await forms(node, "register_node") == [("a", 2, [1, NEWEST])]
            status, answer = await upgrade(node)
            assert (status, answer["feature_level"]) == (200, NEWEST), "nothing is left to do"
            status, answer = await upgrade(node, 1)
            assert (status, "never falls" in answer["message"]) == (400, True)

    run(story)


def levels_of(view: Any) -> Sequence[tuple[Any, ...]]:
    return [(one["node_id"], one["newest"], one["answers"]) for one in view["nodes"]]


def recorded(node: Control, name: str) -> object:
    """The feature levels in the log's newest record of the node `name`; None: no record."""
    info = node.copy.catalog.nodes.get(NodeId(name))
    return info and info.feature_levels


def test_newer_nodes_in_an_older_cluster_speak_its_form_until_it_is_raised(tmp_path: Path) -> None:
    a, b, c = configs_of(tmp_path, "a", "b", "c")

    async def story() -> None:
        async with control(older(a), b, c) as nodes:
            leader = next(node for node in nodes if node.quorum.leading is not None)
            for node in nodes:
                await node.until(lambda node=node: len(node.copy.catalog.nodes) == 3)
            assert {node.copy.catalog.feature_level for node in nodes} == {1}
            found = await forms(leader, "register_node")
            assert {one[1:] for one in found} == {(1, None)}, "an older program's form, to a letter"
            view = body_of(await nodes[2].get("/quorum/features"))
            assert (view["feature_level"], view["newest_of_all"]) == (1, 1)
            assert levels_of(view) == [("a", 1, True), ("b", NEWEST, True), ("c", NEWEST, True)]
            status, answer = await upgrade(nodes[1], 2)
            assert (status, "a knows feature level 1" in answer["message"]) == (400, True)
            assert leader.copy.catalog.feature_level == 1
        async with control(a, b, c) as nodes:  # a runs the newer program now
            status, answer = await upgrade(nodes[0])
            assert (status, answer["feature_level"]) == (200, NEWEST), answer
            index = answer["log_index"]
            for node in nodes:
                await node.until(lambda node=node: node.copy.catalog.index >= index)
                assert node.copy.catalog.feature_level == NEWEST
            assert nodes[0].copy.catalog == nodes[1].copy.catalog == nodes[2].copy.catalog
            raised = (await forms(nodes[1], "register_node"))[-3:]
            assert sorted(raised) == [(name, 2, [1, NEWEST]) for name in ("a", "b", "c")]

    run(story)


def test_an_older_program_is_kept_out_by_name(tmp_path: Path) -> None:
    a, d = configs_of(tmp_path, "a", "d", voters="a")

    async def story() -> None:
        async with control(a) as (node,):
            newcomer = Control(older(d), ())
            try:
                kept_out = rf"level {NEWEST}, .* knows feature level 1"
                with pytest.raises(FeatureLevelRefused, match=kept_out):
                    await newcomer.until(lambda: False)
            finally:
                await newcomer.close()
            joins = {"node_id": "d", "public": "", "internal": "", "peer": "", "incarnation": ""}
            client = HttpClient(d.identity())
            refused = await client.post_json(a.internal, "/register", joins)
            await client.close()
            assert (refused.status, "d knows feature" in refused.body.decode()) == (400, True)
            assert list(node.copy.catalog.nodes) == ["a"]
        with pytest.raises(FeatureLevelRefused):  # nor is a data directory of level 2 opened
            async with control(older(a)):
                pass

    run(story)


def test_a_node_that_is_away_is_judged_by_the_log(tmp_path: Path) -> None:
    """At level 1 the log says nothing of it, so nobody knows; from level 2 on it does."""
    a, d = configs_of(tmp_path, "a", "d", voters="a")

    async def story() -> None:
        async with control(older(a), older(d)):
            pass
        async with control(a) as (node,):
            await node.until(lambda: NodeId("d") in node.copy.catalog.nodes)
            view = body_of(await node.get("/quorum/features"))
            assert (view["newest_of_all"], levels_of(view)[1]) == (None, ("d", None, False))
            status, answer = await upgrade(node)
            assert (status, "d does not answer" in answer["message"]) == (400, True)
        async with control(a, d) as (node, _):
            assert (await upgrade(node))[0] == 200
        async with control(a) as (node,):
            # The log is applied again from its start: d is known before its newest record is.
            await node.until(lambda: recorded(node, "d") == (1, NEWEST))
            view = body_of(await node.get("/quorum/features"))
            assert (view["newest_of_all"], levels_of(view)[1]) == (NEWEST, ("d", NEWEST, False))
            assert (await upgrade(node, NEWEST))[0] == 200
            assert NodeId("d") in node.copy.catalog.nodes

    run(story)


def test_a_leader_that_has_never_heard_of_levels_is_named(tmp_path: Path) -> None:
    a, b = configs_of(tmp_path, "a", "b", voters="a")

    async def story() -> None:
        async with control(older(a), b) as (leader, other):
            del leader.routes["POST", "/quorum/upgrade"]  # as in the release before it
            status, answer = await upgrade(other)
            assert (status, "a, which leads, runs an older" in answer["message"]) == (400, True)

    run(story)
