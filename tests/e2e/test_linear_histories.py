"""porcupine beside our own judge of linearizable reads: of sound worlds, and of planted bugs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import porcupine
from tests.sim.linear_histories import linear_violations, register_lines
from tests.sim.linear_planted import LINEAR_PLANTS
from tests.sim.linear_world import LinearWorld
from tests.sim.runner import Plant, planted

#: Go is not among what the project needs; our own judge runs in tests/sim without it
pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="porcupine needs Go")

#: seeds of a planted bug, until porcupine sees it
SEEDS = range(30)


def judged(seed: int, folder: Path) -> tuple[bool, str, str]:
    """A world to its end: whether our own judge finds nothing, and what porcupine says."""
    world = LinearWorld(seed)
    try:
        world.run()
    except AssertionError:
        assert linear_violations(world.writes, world.committed, world.answers)
    is_sound = not linear_violations(world.writes, world.committed, world.answers)
    lines = register_lines(world.writes, world.begun, world.committed, world.answers)
    assert len(lines) > 500
    return is_sound, *porcupine.verdict("registers", lines, folder)


@pytest.mark.parametrize("seed", range(4))
def test_it_finds_an_order_for_sound_worlds(seed: int, tmp_path: Path) -> None:
    is_sound, verdict, said = judged(seed, tmp_path)
    assert is_sound
    assert verdict == "linearizable", said


@pytest.mark.parametrize("plant", LINEAR_PLANTS, ids=lambda plant: plant.__name__)
def test_it_finds_none_where_a_bug_was_planted(
    plant: Callable[[], list[Plant]], tmp_path: Path
) -> None:
    """Where our own judge finds nothing, neither does it: ours sees more, as it knows batches."""
    with planted(plant):
        for seed in SEEDS:
            is_sound, verdict, said = judged(seed, tmp_path)
            if verdict == "not linearizable":
                assert not is_sound
                return
            assert verdict == "linearizable", said
    pytest.fail("it found an order for each of them")
