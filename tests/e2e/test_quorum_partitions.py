"""The quorum of five real processes on five hosts whose network is cut. Judged by both judges.

The clients reach every host all the time, so a node that is cut off gets reads and writes, and
would be caught with an old answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.control_cluster import (
    ELECTED_S_MAX,
    PATIENT_QUORUM,
    ControlCluster,
    running,
    until,
)
from tests.e2e.histories import Load
from tests.e2e.netns import Hosts, NotPermitted, hosts
from tests.e2e.quorum_faults import check, homes, load_on, lost, more

FIVE = ("node-1", "node-2", "node-3", "node-4", "node-5")


@dataclass
class Story:
    """One cluster under load for one cut."""

    cluster: ControlCluster
    hosts: Hosts
    load: Load
    leader: str
    others: list[str]

    def epoch(self, at: str) -> int:
        return int(until("an epoch", lambda: self.cluster.quorum(at))["epoch"])

    def successor(self, among: list[str]) -> str:
        """Who leads after the old leader, as one of these says."""

        def named() -> str | None:
            told = [(self.cluster.quorum(name) or {}).get("leader") for name in among]
            return next((name for name in told if name in among and name != self.leader), None)

        return str(until("another leader", named))

    def heal(self) -> None:
        self.hosts.heal()
        self.cluster.until_voters(*FIVE)
        more(self.load, 20)


@pytest.fixture
def story(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Story]:
    """Afterwards nothing may be lost and the whole history must have an order. A parameter, if
    there is one, holds keys of each node."""
    settings: dict[str, int] = getattr(request, "param", {})
    try:
        with hosts(FIVE) as five:
            for cluster in running(tmp_path, FIVE, five, settings):
                load = load_on(cluster, homes(cluster), pause_s=0.01)
                load.start()
                more(load, 20)
                leader = cluster.leader()
                yield Story(cluster, five, load, leader, [n for n in FIVE if n != leader])
                history = load.stop()
                print(check(history, tmp_path))
                assert lost(cluster, history) == 0
    except NotPermitted as why:
        pytest.skip(str(why))


def test_a_leader_in_the_minority_is_replaced(story: Story) -> None:
    minority, majority = [story.leader, story.others[0]], story.others[1:]
    story.hosts.split(minority, majority)
    assert not story.hosts.reaches(story.leader, majority[0])
    story.successor(majority)
    more(story.load, 50)
    until("it steps down", lambda: story.cluster.quorum(story.leader) is None)
    url = f"http://{story.cluster.configs[story.leader].internal}/catalog?consistency=linearizable"
    assert story.cluster.client.get(url).status_code == 503, "no majority, so no answer"
    story.heal()


def test_a_leader_that_nobody_hears_is_replaced(story: Story) -> None:
    """It hears all fetches and none of its answers arrives: acks and rounds must not count."""
    story.hosts.cut([story.leader], story.others)
    story.successor(story.others)
    more(story.load, 50)
    story.heal()


def test_a_leader_that_hears_nobody_is_replaced(story: Story) -> None:
    story.hosts.cut(story.others, [story.leader])
    story.successor(story.others)
    more(story.load, 50)
    story.heal()


nobody_is_deposed_by_load = pytest.mark.parametrize("story", [PATIENT_QUORUM], indirect=True)


@nobody_is_deposed_by_load
def test_a_follower_without_its_leader_deposes_nobody(story: Story) -> None:
    """It reaches three voters that hear the leader: pre-votes are refused, no epoch moves."""
    alone, epoch = story.others[0], story.epoch(story.leader)
    story.hosts.split([alone], [story.leader])
    more(story.load, 20)
    time.sleep(ELECTED_S_MAX)
    assert story.epoch(story.leader) == epoch
    story.heal()
    assert story.epoch(alone) == epoch, "nor does its return"


@nobody_is_deposed_by_load
def test_a_follower_that_is_cut_off_deposes_nobody_when_it_returns(story: Story) -> None:
    alone, epoch = story.others[0], story.epoch(story.leader)
    story.hosts.split([alone], [story.leader, *story.others[1:]])
    more(story.load, 20)
    time.sleep(ELECTED_S_MAX)
    story.heal()
    time.sleep(ELECTED_S_MAX)
    assert story.epoch(alone) == epoch
