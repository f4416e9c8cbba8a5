"""Who counts as alive, heard by oneself or by hearsay; and nobody suffers where the way changes."""

from __future__ import annotations

import pytest

from standpipe.control.liveness.failure_detector import SWITCH_NODES, Verdicts
from standpipe.control.liveness.gossip import FANOUT, SPREAD, Note, Rumour
from standpipe.control.liveness.heartbeats import CheckVoid, HeartbeatSettings, Mark, Order
from standpipe.model import Health, NodeId

RULES = HeartbeatSettings()
DRAWS = [7, 13, 29]


def names(count: int) -> list[NodeId]:
    return [NodeId(f"n{number:03}") for number in range(count)]


class Cluster:
    """Every node's verdicts, beats that arrive at once. Time goes in steps of a beat."""

    def __init__(self, count: int, *, may_gossip: bool = True) -> None:
        self.now_ms, self.may_gossip = 0.0, may_gossip
        self.orders: dict[NodeId, list[Order]] = {}
        self.nodes: dict[NodeId, Verdicts] = {}
        self.silent: set[NodeId] = set()
        self.island: set[NodeId] = set()  # cut off from the rest
        self.log: dict[NodeId, list[NodeId]] = {}  # members as each node knows them
        for name in names(count):
            self.join(name, names(count))

    def join(self, name: NodeId, members: list[NodeId]) -> None:
        self.nodes[name] = Verdicts(name, RULES)
        self.orders[name] = []
        self.hears_log(name, members)

    def hears_log(self, name: NodeId, members: list[NodeId]) -> None:
        self.log[name] = members
        peers = frozenset(members) - {name}
        node = self.nodes[name]
        self.orders[name] += node.members(peers, self.now_ms, may_gossip=self.may_gossip)

    def run(self, ms: int) -> None:
        for _ in range(ms // RULES.send_ms):
            self.now_ms += RULES.send_ms
            for name, node in self.nodes.items():
                if name not in self.silent:
                    self._beat(name, node)
            if self.now_ms % RULES.check_ms == 0:
                for name, node in self.nodes.items():
                    self.orders[name] += node.check(self.now_ms)

    def _beat(self, name: NodeId, node: Verdicts) -> None:
        draws = [draw + int(self.now_ms) for draw in DRAWS]
        receivers = dict.fromkeys(node.gossip_targets(draws), False)
        receivers |= dict.fromkeys(node.receivers(self.now_ms), True)
        told, digest = node.round(), node.digest
        for receiver, is_beat in receivers.items():
            other = self.nodes.get(receiver)
            if other is None or name not in self.log[receiver] or receiver in self.silent:
                continue
            if (name in self.island) != (receiver in self.island):
                continue
            other.heard(name, self.now_ms, is_beat=is_beat)
            self.orders[receiver] += other.hear(told, self.now_ms)
            if lacking := other.lacking(digest):
                self.orders[name] += node.hear(lacking, self.now_ms)
                back = node.lacking(other.digest, is_asked=True)
                self.orders[receiver] += other.hear(back, self.now_ms)

    def found_down(self) -> set[NodeId]:
        """By anybody who is there, ever."""
        return {
            order.node
            for name in self.nodes.keys() - self.silent
            for order in self.orders[name]
            if isinstance(order, Mark) and order.health is Health.DOWN
        }


@pytest.mark.parametrize(
    ("count", "may_gossip", "is_mesh", "why"),
    [
        (3, True, True, "everybody hears everybody"),
        (SWITCH_NODES, True, True, "up to the switch"),
        (SWITCH_NODES + 1, True, False, "above it"),
        (SWITCH_NODES + 1, False, True, "a member's program knows no rumours"),
    ],
)
def test_the_way_goes_by_the_count(count: int, may_gossip: bool, is_mesh: bool, why: str) -> None:
    cluster = Cluster(count, may_gossip=may_gossip)
    for node in cluster.nodes.values():
        assert node.is_mesh is is_mesh, why
        assert len(node.receivers(0.0)) == (count - 1 if is_mesh else FANOUT)
        assert len(node.gossip_targets(DRAWS)) == (0 if is_mesh else SPREAD)
        assert (node.round(), node.digest is None) == ([], is_mesh)


@pytest.mark.parametrize("count", [5, SWITCH_NODES + 5])
def test_new_nodes_are_unknown_then_alive(count: int) -> None:
    cluster = Cluster(count)
    assert all(set(n.health.values()) == {Health.UNKNOWN} for n in cluster.nodes.values())
    cluster.run(RULES.window_ms + 400)
    assert all(set(n.health.values()) == {Health.ALIVE} for n in cluster.nodes.values())
    assert not cluster.found_down()


@pytest.mark.parametrize("count", [5, SWITCH_NODES + 5])
def test_who_is_silent_is_down_for_everybody_and_comes_back(count: int) -> None:
    cluster = Cluster(count)
    cluster.run(3000)
    lost = names(count)[3]
    cluster.silent.add(lost)
    cluster.run(1500)
    others = [node for name, node in cluster.nodes.items() if name != lost]
    assert all(node.health[lost] is Health.DOWN for node in others)
    assert cluster.found_down() == {lost}, "and nobody else"
    assert all(cluster.now_ms - 1600 < node.silent_since_ms(lost) for node in others)
    cluster.silent.clear()
    cluster.run(1500)
    assert all(node.health[lost] is Health.ALIVE for node in others)


@pytest.mark.parametrize("island", [3, 12])
def test_a_cluster_that_was_cut_in_two_finds_together(island: int) -> None:
    """All were down for all, and nobody beat to the dead."""
    cluster = Cluster(24)
    cluster.run(3000)
    cluster.island = {*names(24)[:island]}
    cluster.run(20_000)
    assert cluster.found_down(), "the cut was there"
    cluster.island.clear()
    cluster.run(5000)
    for node in cluster.nodes.values():
        assert set(node.health.values()) == {Health.ALIVE}


def test_voices_of_dead_watchers_hold_nobody_down() -> None:
    cluster = Cluster(30)
    cluster.run(3000)
    subject = names(30)[0]
    watchers = cluster.nodes[subject].receivers(cluster.now_ms)
    cluster.silent.add(subject)
    cluster.run(2000)
    cluster.silent |= {*watchers[:3]}
    cluster.run(6000)
    cluster.silent.discard(subject)
    cluster.run(3000)
    for name in cluster.nodes.keys() - cluster.silent - {subject}:
        assert cluster.nodes[name].health[subject] is Health.ALIVE
        assert all(cluster.nodes[name].health[dead] is Health.DOWN for dead in watchers[:3])


def test_a_dead_node_stays_dead_while_its_watchers_die_and_return() -> None:
    cluster = Cluster(30)
    cluster.run(3000)
    subject = names(30)[0]
    watchers = cluster.nodes[subject].receivers(cluster.now_ms)
    cluster.silent |= {subject, *watchers}
    cluster.run(8000)
    live = [cluster.nodes[name] for name in cluster.nodes.keys() - cluster.silent]
    since_ms = [node.silent_since_ms(subject) for node in live]
    for name in watchers:  # as new processes
        cluster.silent.discard(name)
        cluster.join(name, names(30))
    for _ in range(60):
        cluster.run(100)
        assert {node.health[subject] for node in live} == {Health.DOWN}
    assert [node.silent_since_ms(subject) for node in live] == since_ms


def test_a_dead_node_stays_dead_and_old_while_the_cluster_becomes_large_and_small() -> None:
    cluster = Cluster(SWITCH_NODES)
    cluster.run(3000)
    lost, more = names(SWITCH_NODES)[3], names(SWITCH_NODES + 1)
    cluster.silent.add(lost)
    cluster.run(5000)
    live = {name: cluster.nodes[name] for name in names(SWITCH_NODES) if name != lost}
    since_ms = {name: node.silent_since_ms(lost) for name, node in live.items()}
    cluster.join(more[-1], more)
    for members in (more, names(SWITCH_NODES)):
        for name in live:
            cluster.hears_log(name, members)
        for _ in range(60):
            cluster.run(100)
            assert {node.health[lost] for node in live.values()} == {Health.DOWN}
        assert {name: node.silent_since_ms(lost) for name, node in live.items()} == since_ms
        for node in live.values():
            alive = {h for name, h in node.health.items() if name not in (lost, more[-1])}
            assert alive == {Health.ALIVE}


def test_who_joins_a_large_cluster_is_judged_by_all() -> None:
    cluster = Cluster(30)
    cluster.run(3000)
    cluster.join(names(31)[-1], names(31))
    for name in names(30):
        cluster.hears_log(name, names(31))
        assert cluster.nodes[name].health[names(31)[-1]] is Health.UNKNOWN
    cluster.run(3000)
    assert {node.health.get(names(31)[-1]) for node in cluster.nodes.values()} <= {
        Health.ALIVE,
        None,  # its own
    }


def test_one_watcher_that_is_sick_condemns_nobody_for_others() -> None:
    cluster = Cluster(30)
    cluster.run(3000)
    subject = names(30)[0]
    watchers = cluster.nodes[subject].receivers(cluster.now_ms)
    watcher, stranger = watchers[0], next(n for n in names(30)[1:] if n not in watchers)
    said = Rumour(watcher=watcher, subject=subject, health=Health.DOWN, version=1)
    node = cluster.nodes[stranger]
    node.hear([said], cluster.now_ms)
    assert node.health[subject] is Health.ALIVE
    second = Rumour(watcher=watchers[1], subject=subject, health=Health.DOWN, version=1)
    (mark,) = node.hear([second], cluster.now_ms)
    assert isinstance(mark, Mark)
    assert (mark.node, mark.health) == (subject, Health.DOWN)
    own = cluster.nodes[watchers[2]]
    own.hear([said, second], cluster.now_ms)
    assert own.health[subject] is Health.ALIVE, "a watcher believes its own ears"


@pytest.mark.parametrize("lateness_ms", [0, 500, RULES.window_ms - RULES.check_ms])
def test_nobody_is_condemned_when_the_cluster_becomes_large_or_small(lateness_ms: int) -> None:
    """Half of the nodes read the log later than the others."""
    cluster = Cluster(SWITCH_NODES)
    cluster.run(3000)
    larger = names(SWITCH_NODES + 1)
    for members in (larger, names(SWITCH_NODES)):
        early, late = names(SWITCH_NODES)[::2], names(SWITCH_NODES)[1::2]
        if members is larger:
            cluster.join(larger[-1], members)
        for name in early:
            cluster.hears_log(name, members)
        cluster.run(lateness_ms // 100 * 100)
        for name in late:
            cluster.hears_log(name, members)
        if members is not larger:
            del cluster.nodes[larger[-1]]
        cluster.run(4000)
        assert cluster.found_down() <= {larger[-1]}
        for name in names(SWITCH_NODES):
            assert set(cluster.nodes[name].health.values()) == {Health.ALIVE}
            marks = [order for order in cluster.orders[name] if isinstance(order, Mark)]
            assert all(mark.health is not Health.DOWN for mark in marks)


def test_nobody_is_condemned_when_the_ring_moves() -> None:
    cluster = Cluster(40)
    cluster.run(3000)
    for count in (41, 42, 39):
        members = names(count)
        for name in members:
            if name not in cluster.nodes:
                cluster.join(name, members)
        for gone in set(cluster.nodes) - set(members):
            del cluster.nodes[gone]
        for number, name in enumerate(members):
            cluster.hears_log(name, members)
            if number % 10 == 0:
                cluster.run(100)
        cluster.run(4000)
        assert not cluster.found_down()


def test_a_node_that_did_not_listen_condemns_nobody() -> None:
    cluster = Cluster(30)
    cluster.run(3000)
    node = cluster.nodes[names(30)[0]]
    (void,) = node.check(cluster.now_ms + 10_000)
    assert isinstance(void, CheckVoid)
    assert set(node.health.values()) == {Health.ALIVE}


def test_who_missed_all_rumours_is_told_everything() -> None:
    cluster = Cluster(30)
    cluster.run(3000)
    lost, deaf = names(30)[3], names(30)[9]
    cluster.silent |= {lost, deaf}
    cluster.run(8000)  # no rumour is hot any more
    cluster.silent.discard(deaf)
    cluster.nodes[deaf] = Verdicts(deaf, RULES)
    cluster.hears_log(deaf, names(30))
    cluster.run(3000)
    assert cluster.nodes[deaf].health[lost] is Health.DOWN


def test_notes_come_by_hearsay_where_beats_do_not() -> None:
    small, large = Cluster(5), Cluster(30)
    for cluster in (small, large):
        cluster.run(3000)
        first = cluster.nodes[names(5)[0]]
        first.noted(Note.WORKERS_SICK)
        cluster.run(1500)
    told = {node.note_of(names(5)[0]) for node in large.nodes.values()}
    assert told == {Note.WORKERS_SICK}
    assert small.nodes[names(5)[1]].note_of(names(5)[0]) is None, "its own beats say it"
