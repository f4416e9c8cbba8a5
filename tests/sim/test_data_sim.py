"""Seeds and planted bugs of the data path that fit into a test run; the rest: `make sim-data`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.sim import (
    data_groups_planted,
    data_janitor_planted,
    data_loads_planted,
    data_planted,
    data_recreated_planted,
    data_windows_planted,
    runner,
)
from tests.sim.data import forged_world, recreated_world, run_seed, windowed_world
from tests.sim.data_groups import GroupWorld
from tests.sim.data_loads import LoadedWorld
from tests.sim.data_world import DataWorld


@pytest.mark.parametrize("seed", range(7))
def test_seed(seed: int) -> None:
    failure = run_seed(seed)[1]
    assert failure is None, failure


#: seed -> what it found, as worlds were drawn then; each in a plain world, but for those below
FOUND = {
    126: "a reader slower than pruning met a hole in the topic of progress, and missed a deletion",
    314: "half of the batch that ends a shadow made the one before it whole",
    25: "a zombie that shares our checkpoint chooses what our batches cover",
    218: "a foreign tombstone behind the last batch took a row along and left the log's end",
    125: "an idle table's stores grew old, so no copy of them was taken, and the topic was blind",
    874: "an idle query never said that it is clean by now, and a replica waited permanently",
    1119: "a foreign tombstone took a row along and left the topic, before anybody looked",
    480: "a new store was judged by tombstones from before it had taken anything",
    1003: "a partition was away for longer than tombstones, and a restart in between hid it",
    1632: "a replica that read all progress slowly started again and again",
    338: "a replica stood still while its topic was recreated, and took copies for rows",
    56: "after the last copies were lost, a row may be missing: nobody may answer without it",
}


#: in the other world of the seed
FOUND_ELSEWHERE = {338: recreated_world}


@pytest.mark.parametrize("seed", FOUND)
def test_seed_that_once_failed(seed: int) -> None:
    """In the world that failed: its neighbours are what most of the time of a seed goes to, and
    `make sim-data` runs them."""
    world = FOUND_ELSEWHERE.get(seed, DataWorld)
    failure = runner.outcome_of(world(seed), seed)[1]
    assert failure is None, failure


#: of tables in groups: seed -> what it found, as worlds were drawn then
FOUND_IN_GROUPS = {
    41: "two pipelines formed groups at once, and one ran a query in both of them",
    18: "a batch that readers had seen was planned again, and covered less than before",
}


@pytest.mark.parametrize("seed", FOUND_IN_GROUPS)
def test_seed_of_groups_that_once_failed(seed: int) -> None:
    failure = runner.outcome_of(GroupWorld(seed), seed)[1]
    assert failure is None, failure


@pytest.mark.parametrize("world", ["data_world.DataWorld", "data_groups.GroupWorld"])
def test_a_seed_replays_byte_for_byte(world: str) -> None:
    """Even in another process with other hashes."""
    module, name = world.split(".")
    code = (
        f"import hashlib; from tests.sim.{module} import {name}; w = {name}(6); w.run();"
        "print(hashlib.sha256((w.history() + str(w.counts)).encode()).hexdigest())"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": salt},
        ).stdout
        for salt in ("1", "2")
    }
    assert len(prints) == 1


#: plant -> the world that it is found in, and the first seed there that catches it
CAUGHT = {
    data_planted.accept_another_attempt: (DataWorld, 16),
    data_planted.skip_the_header_check_on_restore: (DataWorld, 2),
    data_planted.bound_rows_between_two_batches: (DataWorld, 81),
    data_planted.ignore_the_epoch_of_a_progress_record: (DataWorld, 0),
    data_planted.no_digest_for_deletes: (DataWorld, 0),
    data_planted.share_one_checkpoint: (DataWorld, 0),
    data_planted.believe_what_is_unsigned_until_the_first_sealed_record: (forged_world, 5),
    data_groups_planted.agree_with_one_member: (GroupWorld, 7),
    data_groups_planted.go_on_behind_the_furthest_member: (GroupWorld, 2),
    data_groups_planted.replay_what_a_member_has_passed: (GroupWorld, 15),
    data_janitor_planted.begin_while_a_janitor_repairs: (DataWorld, 4),
    data_janitor_planted.begin_before_a_janitor_has_ended: (DataWorld, 7),
    data_janitor_planted.repair_behind_a_batch_without_an_answer: (DataWorld, 1),
    data_loads_planted.replay_over_a_load: (LoadedWorld, 3),
    data_loads_planted.take_a_load_for_the_first_by_its_sources: (LoadedWorld, 7),
    data_recreated_planted.trust_the_name: (recreated_world, 20),
    data_windows_planted.expire_a_window_too_early: (windowed_world, 0),
}


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_the_net_catches(plant) -> None:
    """`make sim-data-planted` has all worlds of 300 seeds from the first one on."""
    world, first = CAUGHT[plant]
    seeds = range(first, first + 60)
    seed, by = runner.catch(plant, lambda seed: runner.outcome_of(world(seed), seed), seeds)
    assert seed is not None, by
