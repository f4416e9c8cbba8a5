"""Pull queries at workers of several nodes: how fresh an answer says it is, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.node.workers import KEYS, Worker, body_of, page, select

from standpipe.node.forward import (
    FORWARDED_HEADER,
    PARTITION_HEADER,
    TABLE_HEADER,
)
from standpipe.node.rest_fresh import END_HEADER

Nodes = dict[str, Worker]
Story = Callable[[Nodes], Coroutine[Any, Any, None]]
ONE = f"SELECT * FROM USERS WHERE ID = '{KEYS[0]}';"
LAG = "standpipe-offset-lag"


@asynccontextmanager
async def cluster(folder: Path, placed: dict[int, list[str]]) -> AsyncIterator[Nodes]:
    nodes: Nodes = {}
    for name in ("a", "b", "c"):
        nodes[name] = Worker(folder, name, nodes)
        nodes[name].publish(["a", "b", "c"], placed)
    try:
        yield nodes
    finally:
        for node in nodes.values():
            await node.close()


def run(folder: Path, story: Story, placed: dict[int, list[str]] | None = None) -> None:
    async def whole() -> None:
        async with cluster(folder, placed or {0: ["a", "b"]}) as nodes, asyncio.timeout(60):
            await story(nodes)

    asyncio.run(whole())


def quick_lag(worker: Worker) -> str | None:
    answer = worker.quickly(ONE)
    assert answer is not None
    head = dict(line.split(": ", 1) for line in answer.decode().split("\r\n") if ": " in line)
    assert END_HEADER not in head, "clients have no use for it"
    return head.get(LAG)


@pytest.mark.parametrize(
    ("own_end", "heard_end", "lag", "why"),
    [
        (100, None, 0, "nobody told more"),
        (100, 5000, 4900, "a peer told of a batch that this node's tailer has not heard of"),
        (300, 200, 200, "it knows best itself"),
        (-1, 5000, 4900, "only the peer knows"),
        (-1, None, None, "nobody knows: no header, never 0"),
    ],
)
def test_the_header_tells_the_lag_against_the_largest_end(
    tmp_path: Path, own_end: int, heard_end: int | None, lag: int | None, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page(100, own_end))
        if heard_end is not None:
            nodes["a"].hear(("b", 0, heard_end, heard_end))
        assert (await nodes["a"].answer(ONE)).fresh.offset_lag == lag, why
        assert quick_lag(nodes["a"]) == (None if lag is None else str(lag)), why

    run(tmp_path, story)


def test_the_quick_header_follows_what_is_told(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        assert quick_lag(nodes["a"]) == "0"
        nodes["a"].hear(("b", 0, 150, 150))
        assert quick_lag(nodes["a"]) == "50"

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("lag_max", "sends_end", "why"),
    [
        (None, False, "its head is the same for each batch"),
        (10_000, True, "the target is to judge"),
    ],
)
def test_a_forwards_lag_counts_against_what_the_entry_knows(
    tmp_path: Path, lag_max: int | None, sends_end: bool, why: str
) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        nodes["c"].hear(("b", 0, 5000, 5000))
        answer = await nodes["c"].answer(ONE, lag_max)
        assert (answer.fresh.served_by, answer.fresh.offset_lag) == ("a", 4900)
        (sent,) = nodes["c"].wires.sent["a"]
        assert (END_HEADER in sent) is sends_end, why

    run(tmp_path, story)


def test_the_target_tells_what_its_lag_counts_against(tmp_path: Path) -> None:
    """By both ways of the peer lane."""

    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        for sent, told in ((None, "100"), ("50", "100"), ("700", "700")):
            headers = {FORWARDED_HEADER: "1", PARTITION_HEADER: "0", TABLE_HEADER: "T1-1"}
            headers |= {} if sent is None else {END_HEADER: sent}
            headers |= {"accept": "application/vnd.ksqlapi.delimited.v1"}
            response = await nodes["a"].peer_lane(body_of(ONE), headers)
            assert response.headers[END_HEADER] == told
            assert response.headers[LAG] == str(int(told) - 100)
            quick = nodes["a"].quick_peer_lane(body_of(ONE), headers)
            assert f"\r\n{END_HEADER}: {told}\r\n" in quick
            assert f"\r\n{LAG}: {int(told) - 100}\r\n" in quick

    run(tmp_path, story)


def test_a_gathered_answer_says_no_end(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        nodes["a"].hold(0, page())
        nodes["b"].hold(1, page(90, 100))
        fresh = (await nodes["c"].answer(select(0, 1))).fresh
        assert (fresh.offset_lag, fresh.committed_end) == (10, None)

    run(tmp_path, story, {0: ["a"], 1: ["b"]})
