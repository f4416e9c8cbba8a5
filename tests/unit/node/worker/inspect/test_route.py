"""EXPLAIN ROUTE and `GET /route`: what a read with a bound in ms would do with each replica."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.node.worker.pull.test_slow_path import ONE, Nodes, run
from tests.unit.node.workers import Worker, page

from standpipe.adapters.clock import Clock
from standpipe.config import lags
from standpipe.control.routing.bounds import AskedBounds
from standpipe.errors import NoReplica
from standpipe.node.worker.inspect.route import Routes
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.request.head import Form

MS_MAX = 20_000
BOUNDS = [
    (lags.REPLICA_LAG_MAX.name, AskedBounds(None, MS_MAX, None), "replica lag"),
    (lags.SOURCE_LAG_MAX.name, AskedBounds(None, None, MS_MAX), "source lag"),
]


def hold(worker: Worker, age_ms: int) -> None:
    """Its replica had all that was committed, and all of its sources, so long ago."""
    at_ms = Clock().boot_ms() - age_ms
    worker.hold(0, replace(page(), confirmed_boot_ms=at_ms, source_boot_ms=at_ms))


def lines(worker: Worker, asked: AskedBounds) -> dict[str, Any]:
    """{node: its line}"""
    routes = Routes(worker.slow_path.map, worker.replicas, worker.routes, worker.clock)
    found: Any = routes.of("USERS", (), asked)
    return {each["node"]: each for each in found["partitions"][0]["route"]}


@pytest.mark.parametrize(("name", "asked", "noun"), BOUNDS)
def test_it_says_what_the_read_does(
    tmp_path: Path, name: str, asked: AskedBounds, noun: str
) -> None:
    body = json.dumps({"ksql": ONE, "streamsProperties": {name: MS_MAX}}).encode()

    async def story(nodes: Nodes) -> None:
        entry = nodes["a"]
        hold(entry, 2 * MS_MAX)
        hold(nodes["b"], 0)
        line = lines(entry, asked)["a"]
        assert (line["usable"], line[f"{noun.replace(' ', '_')}_ms"] >= 2 * MS_MAX) == (False, True)
        assert line["why"].startswith(f"Host excluded because {noun} ")
        answer = await entry.slow_path.answer(RequestFormat(Form.LINES), body)
        assert answer.fresh.served_by == "b", "so did the read"
        hold(nodes["b"], 3 * MS_MAX)
        with pytest.raises(NoReplica) as refused:
            await entry.slow_path.answer(RequestFormat(Form.LINES), body)
        assert f"a (active): Host excluded because {noun} " in refused.value.message
        unbounded = lines(entry, AskedBounds())["a"]
        assert (unbounded["usable"], unbounded["why"]) == (True, "Usable.")

    run(tmp_path, story)


@pytest.mark.parametrize(("name", "asked", "noun"), BOUNDS)
def test_a_peer_decides_by_itself(tmp_path: Path, name: str, asked: AskedBounds, noun: str) -> None:
    """Its report says that it was too old then; it may be newer by now."""

    async def story(nodes: Nodes) -> None:
        entry = nodes["a"]
        hold(entry, 0)
        assert lines(entry, asked)["b"]["why"] == "Usable.", "nothing is known"
        entry.hear(("b", 0, 100, 100), reported_ms_ago=2 * MS_MAX)
        line = lines(entry, asked)["b"]
        assert (line["usable"], line["replica_lag_ms"] >= 2 * MS_MAX + 40) == (True, True)
        why = f"Its host decides. As of its last report: Host excluded because {noun} "
        assert line["why"].startswith(why)
        entry.hear(("b", 0, 100, 100))
        assert lines(entry, asked)["b"]["why"] == "Usable."

    run(tmp_path, story)
