"""The five faults of bench/failover.py: who is hit, how, how it is undone, and what must hold."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.hosts.cluster import HostCluster, HostNode, Plan


@dataclass(frozen=True)
class Blow:
    """One fault, aimed. `keys`: those whose active is a victim while a survivor has a copy."""

    cluster: HostCluster
    victims: list[HostNode]
    survivors: list[HostNode]
    keys: list[str]


@dataclass(frozen=True, kw_only=True)
class Goals:
    """Our goals: the largest that any run may show, and the share of all runs."""

    avoided_ms: float
    first_good_ms: float
    failed_share: float


#: cluster, number of the run -> who is hit
Choice = Callable[[HostCluster, int], list[HostNode]]
Act = Callable[[Blow], None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    title: str
    plan: Plan
    choose: Choice
    strike: Act
    heal: Act
    goals: Goals

    def aim(self, cluster: HostCluster, number: int, keys: Sequence[str]) -> Blow:
        """The victims of a run, and the keys that it reads."""
        victims = self.choose(cluster, number)
        placed = cluster.placements()
        hit = {p for p, holders in placed.items() if holders[0] in victims}
        saved = {p for p, holders in placed.items() if any(h not in victims for h in holders)}
        mine = [key for key in keys if cluster.partition(key) in hit & saved]
        assert mine, f"nothing is active on {[node.node_id for node in victims]}"
        survivors = [node for node in cluster.nodes if node not in victims]
        return Blow(cluster, victims, survivors, mine)


def one_active(cluster: HostCluster, number: int) -> list[HostNode]:
    """Each node that is active for something, in turn."""
    actives = {holders[0].node_id for holders in cluster.placements().values()}
    able = [node for node in cluster.nodes if node.node_id in actives]
    return [able[number % len(able)]]


def one_rack(cluster: HostCluster, number: int) -> list[HostNode]:
    racks = sorted({node.config.tags["rack"] for node in cluster.nodes})
    lost = racks[number % len(racks)]
    for holders in cluster.placements().values():
        assert len({node.config.tags["rack"] for node in holders}) == len(racks), "racks not spread"
    return [node for node in cluster.nodes if node.config.tags["rack"] == lost]


def two_replicas(cluster: HostCluster, number: int) -> list[HostNode]:
    """The active and the first standby of a partition."""
    placed = list(cluster.placements().values())
    return placed[number % len(placed)][:2]


def kill(blow: Blow) -> None:
    for node in blow.victims:
        node.kill()


def start_again(blow: Blow) -> None:
    for node in blow.victims:
        node.start()


def stop(blow: Blow) -> None:
    for node in blow.victims:
        node.signal(signal.SIGSTOP)


def go_on(blow: Blow) -> None:
    for node in blow.victims:
        node.signal(signal.SIGCONT)


def cut_from_peers(blow: Blow) -> None:
    network = blow.cluster.network
    victims, others = ([n.host for n in each] for each in (blow.victims, blow.survivors))
    network.cut(network.between(victims, others))


def cut_from_all(blow: Blow) -> None:
    """Silence on every cable at once, as when a rack loses power: no reset, no refusal."""
    blow.cluster.network.cut(blow.cluster.network.around(*(n.host for n in blow.victims)))


def join_all(blow: Blow) -> None:
    network = blow.cluster.network
    network.join(network.around(*(node.host for node in blow.victims)))


THREE = Plan(nodes=3, spark=False)
RACKS = Plan(nodes=4, spark=False, racks=("a", "b"))
TWO_STANDBYS = Plan(nodes=4, spark=False, config={"num.standby.replicas": "2"})
SILENT = Goals(avoided_ms=800, first_good_ms=1000, failed_share=0.01)

FAULTS = (
    Fault(
        name="kill",
        title="SIGKILL of the active",
        plan=THREE,
        choose=one_active,
        strike=kill,
        heal=start_again,
        goals=Goals(avoided_ms=500, first_good_ms=300, failed_share=0.001),
    ),
    Fault(
        name="stop",
        title="SIGSTOP of the active",
        plan=THREE,
        choose=one_active,
        strike=stop,
        heal=go_on,
        goals=SILENT,
    ),
    Fault(
        name="partition",
        title="active cut off from its peers",
        plan=THREE,
        choose=one_active,
        strike=cut_from_peers,
        heal=join_all,
        goals=SILENT,
    ),
    Fault(
        name="rack",
        title="one of two racks lost",
        plan=RACKS,
        choose=one_rack,
        strike=cut_from_all,
        heal=join_all,
        goals=SILENT,
    ),
    Fault(
        name="two",
        title="two of three replicas lost",
        plan=TWO_STANDBYS,
        choose=two_replicas,
        strike=cut_from_all,
        heal=join_all,
        goals=SILENT,
    ),
)
