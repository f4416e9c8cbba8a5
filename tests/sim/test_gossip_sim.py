"""Beats and gossip of many simulated nodes: cost, detection, and no false alarm."""

from __future__ import annotations

from math import log2
from typing import Any

import pytest
from tests.sim.gossip import simulate


def run(count: int, seconds: float, losses: int = 1, seed: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = simulate(count, seconds, seed, losses)
    del found["simulated_in_s"]
    return found


def test_a_seed_says_everything() -> None:
    assert run(40, 1.0, seed=3) == run(40, 1.0, seed=3)


@pytest.mark.parametrize(
    ("count", "losses", "known_ms_max", "why"),
    [
        (3, 1, 510, "send x missed + check, and a beat's way"),
        (20, 1, 510, "everybody hears it"),
        (21, 1, 1000, "two watchers must agree, and tell"),
        (200, 1, 1000, "and the rumour comes round"),
        (60, 30, 9000, "half of all: where watchers are lost too, each row costs a window more"),
    ],
)
def test_a_lost_node_is_known_everywhere(
    count: int, losses: int, known_ms_max: int, why: str
) -> None:
    for seed in range(3 if count < 100 else 1):
        found = run(count, 12.0 if losses > 1 else 2.0, losses, seed)
        assert found["known_ms"] is not None, why
        assert found["known_ms"] <= known_ms_max, why
        assert found["false_alarms"] == 0


def test_cost_grows_no_faster_than_the_logarithm_above_the_switch() -> None:
    first, bytes_before = run(21, 0.1), run(20, 0.1)["bytes_per_node_and_s"]
    for count in (50, 250):
        found = run(count, 0.1)
        growth = found["messages_per_node_and_s"] / first["messages_per_node_and_s"]
        assert growth <= log2(count) / log2(21)
        assert found["bytes_per_node_and_s"] <= bytes_before, "with reports to co-holders"
