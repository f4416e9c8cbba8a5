"""A statement waits for the replicas of its table outside its turn, and is taken back without them.

The planner is a real process, which hangs or ends where a test says so.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.node.in_process import STREAM, TABLE, Control, body_of, configs_of, control, run
from tests.unit.node.worker.statements.test_execute import STREAM as SOURCE
from tests.unit.node.worker.statements.test_execute import TABLE as COUNTED
from tests.unit.node.worker.statements.test_execute import logged

from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import Command, CommitAssignment
from standpipe.control.metadata.feature_levels import NEWEST
from standpipe.model import Assignment, AssignmentEpoch, LogIndex, NodeId, Placement, Source
from standpipe.node.configuration import NodeConfig, Setting
from standpipe.node.controller import leader, planner
from standpipe.node.controller.placements import Placements

OTHER = STREAM.replace("STREAM S", "STREAM S2").replace("'s'", "'s2'")
HANGS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(10**6)"
ENDS = "import sys; sys.stdin.buffer.read(); sys.exit(3)"
REAL = planner.PLANNER


@pytest.fixture(autouse=True)
def _every_plan_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "SMALL_MAX", -1)


def config_of(directory: Path, **settings: Setting) -> NodeConfig:
    (config,) = configs_of(directory, "a")
    return msgspec.structs.replace(
        config, config={k.replace("_", "."): v for k, v in settings.items()}
    )


def plan_with(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> None:
    monkeypatch.setattr(planner, "PLANNER", (sys.executable, "-c", script, *arguments))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def holds_as_before(node: Control) -> bool:
    catalog = node.copy.catalog
    return (list(catalog.sources), dict(catalog.queries), list(catalog.topics)) == (
        ["S"],
        {},
        ["s"],
    )


def test_a_statement_whose_plan_takes_too_long_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "planner.pid"

    async def story() -> None:
        config = config_of(tmp_path, standpipe_placement_timeout_ms=1500)
        async with control(config) as (node,):
            await node.execute(STREAM, "r1")
            plan_with(monkeypatch, HANGS, str(pid))
            refused = await node.execute(TABLE, "r2")
            assert refused.status == 400
            assert "The replicas of T could not be placed" in body_of(refused)["message"]
            assert "standpipe.placement.timeout.ms" in body_of(refused)["message"]
            assert holds_as_before(node)
            await node.until(lambda: is_gone(int(pid.read_text())))  # killed, and soon reaped
            again = await node.execute(TABLE, "r2")
            assert body_of(again) == body_of(refused), "a retry gets the same answer"
            monkeypatch.setattr(planner, "PLANNER", REAL)
            while (await node.execute(TABLE, f"r{os.urandom(4).hex()}")).status != 200:
                pass  # a slow machine: the real planner has the same little time
            assert len(node.copy.catalog.assignment.placements) == 2

    run(story)


def test_a_copy_of_a_statement_that_is_taken_back_is_refused_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy waits for the replicas of a table that the first one takes back meanwhile."""
    pid = tmp_path / "planner.pid"

    async def story() -> None:
        config = config_of(tmp_path, standpipe_placement_timeout_ms=1500)
        async with control(config) as (node,):
            await node.execute(STREAM, "r1")
            plan_with(monkeypatch, HANGS, str(pid))
            first = asyncio.create_task(node.execute(TABLE, "r2"))
            await node.until(pid.exists)
            copy = await node.execute(TABLE, "r2")
            assert holds_as_before(node)
            assert (copy.status, body_of(copy)) == (400, body_of(await first))

    run(story)


def test_a_table_that_is_placed_at_the_last_moment_is_not_taken_back() -> None:
    """Its own plan is late. While it waits for its turn to say so, a step of another one places it:
    a copy of the statement may have been told so."""
    catalog = logged(SOURCE, COUNTED, level=NEWEST)
    (table,) = [each for each in catalog.generations if each.is_materialized]

    class Late:
        async def due(self, _catalog: Catalog) -> Command | None:
            await asyncio.sleep(60)
            return None

    async def log_if(command: Command, holds: Callable[[Catalog], bool]) -> None:
        nonlocal catalog
        placed = placements_of(table, "a")
        step = CommitAssignment(assignment=Assignment(epoch=AssignmentEpoch(1), placements=placed))
        catalog = apply(catalog, LogIndex(catalog.index + 1), step)
        if holds(catalog):
            catalog = apply(catalog, LogIndex(catalog.index + 1), command)

    late: Any = Late()
    waiting = Placements(late, lambda: catalog, log_if, timeout_s=0.01)
    told = asyncio.run(waiting.wait(COUNTED, catalog.applied_requests[COUNTED]))
    assert told == ()
    assert table.name in catalog.sources


def placements_of(table: Source, node: str) -> tuple[Placement, ...]:
    return tuple(
        Placement(
            table_id=table.table_id or "",
            generation=table.generation,
            partition=number,
            replicas=(NodeId(node),),
        )
        for number in range(table.partitions)
    )


def test_other_statements_go_on_while_a_plan_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "planner.pid"

    async def story() -> None:
        config = config_of(tmp_path, standpipe_placement_timeout_ms=20_000)
        async with control(config) as (node,):
            await node.execute(STREAM, "r1")
            plan_with(monkeypatch, HANGS, str(pid))
            waiting = asyncio.create_task(node.execute(TABLE, "r2"))
            await node.until(pid.exists)
            assert (await node.execute(OTHER, "r3")).status == 200
            assert (await node.execute("DROP STREAM S2;", "r4")).status == 200
            assert not waiting.done()
            assert "T" in node.copy.catalog.sources
            await node.until(lambda: pid.read_text())
            monkeypatch.setattr(planner, "PLANNER", (sys.executable, "-c", ENDS))
            os.kill(int(pid.read_text()), 9)
            await waiting
            await node.until(lambda: holds_as_before(node))

    run(story)


@pytest.mark.parametrize("settings", [{}, {"standpipe_placement_timeout_ms": 60_000}])
def test_a_planner_that_ends_places_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Setting]
) -> None:
    async def story() -> None:
        async with control(config_of(tmp_path, **settings)) as (node,):
            await node.execute(STREAM, "r1")
            plan_with(monkeypatch, ENDS)
            refused = await node.execute(TABLE, "r2")
            assert refused.status == 400
            assert "the planner's process ended with status 3" in body_of(refused)["message"]
            assert holds_as_before(node)

    run(story)


def test_a_planner_that_cannot_be_started_places_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader ended, and so did the next one, on a machine without another process to give."""

    async def story() -> None:
        async with control(config_of(tmp_path)) as (node,):
            await node.execute(STREAM, "r1")
            monkeypatch.setattr(planner, "SMALL_MAX", -1)
            monkeypatch.setattr(planner, "PLANNER", (str(tmp_path / "no-program"),))
            refused = await node.execute(TABLE, "r2")
            assert refused.status == 400
            assert "the planner failed: [Errno 2]" in body_of(refused)["message"]
            assert holds_as_before(node)

    run(story)


def test_below_its_level_a_table_stays_and_the_answer_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "REVIEW_S", 0.5)  # when the cluster tries again

    async def story() -> None:
        async with control(config_of(tmp_path, standpipe_feature_level_max=5)) as (node,):
            await node.execute(STREAM, "r1")
            plan_with(monkeypatch, ENDS)
            answer = body_of(await node.execute(TABLE, "r2"))
            warnings = [each["message"] for each in answer["entities"][0]["warnings"]]
            assert any("The cluster keeps trying" in text for text in warnings)
            assert "T" in node.copy.catalog.sources
            monkeypatch.setattr(planner, "PLANNER", REAL)
            await node.execute(OTHER, "r3")
            await node.until(lambda: len(node.copy.catalog.assignment.placements) == 2)

    run(story)
