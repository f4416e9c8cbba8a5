"""Everything that goes wrong in a world, at instants and in kinds that its seed draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from standpipe.control.raft import events as ev
from standpipe.control.raft.majority import ReplicaKey
from standpipe.control.raft.roles import Role

if TYPE_CHECKING:
    from .node import SimNode
    from .world import World


class Nemesis:
    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.is_active = True
        self.faults: list[tuple[str, Callable[[SimNode], bool]]] = [
            ("crashes", self.crash),
            ("crashes", self.crash),
            ("pauses", self.pause),
            ("clock jumps", self.jump),
            ("partitions, whole", self.isolate),
            ("partitions, split", self.split),
            ("partitions, one-way", self.one_way),
            ("partitions, partial", self.partial),
            ("slow disks", self.slow_disk),
            ("all crash", self.all_crash),
            ("zombie leaders", self.zombie),
        ]
        if world.options.changes:
            self.faults += [
                ("voters added", self.add_voter),
                ("voters added", self.add_voter),
                ("voters removed", self.remove_voter),
                ("transfers", self.transfer),
                ("resignations", self.resign),
                ("shutdowns", self.shut_down),
                ("bits flipped", self.flip_bit),
                ("disks wiped", self.wipe),
            ]

    def begin(self) -> None:
        self._plan()

    def end(self) -> None:
        self.is_active = False

    def _plan(self) -> None:
        delay_ms = self.random.expovariate(1 / self.world.options.fault_every_ms)
        self.world.scheduler.after(delay_ms * 1000, self._strike)

    def _strike(self) -> None:
        if not self.is_active:
            return
        name, fault = self.random.choice(self.faults)
        target = self.world.leader() if self.random.random() < 0.5 else None
        node = self.world.nodes[target or self.random.choice(list(self.world.nodes))]
        if fault(node):
            self.world.note(f"*** {name}", node.name)
            self.world.counts[name] += 1
        self._plan()

    def _later(self, ms_min: int, ms_max: int, action: Callable[[], None]) -> None:
        self.world.scheduler.after(self.random.randint(ms_min, ms_max) * 1000, action)

    # -- processes --------------------------------------------------------------------------------

    def crash(self, node: SimNode) -> bool:
        if not node.is_up:
            return False
        node.crash()
        self._later(1, 3000, node.start)
        return True

    def all_crash(self, node: SimNode) -> bool:
        if self.random.random() < 0.7:
            return False
        for each in self.world.nodes.values():
            self.crash(each)
        return True

    def pause(self, node: SimNode) -> bool:
        if not node.is_up or node.is_paused:
            return False
        node.pause()
        self._later(10, 5000, node.resume)
        return True

    def jump(self, node: SimNode) -> bool:
        node.clock.jump(self.random.choice([50, 400, 2000, 60_000]))
        if node.is_up:
            node.tell(ev.TimePassed(0))
        return True

    # -- network ----------------------------------------------------------------------------------

    def _cut(self, links: list[tuple[str, str]]) -> bool:
        self._later(50, 5000, self.world.network.cut(links))
        return True

    def isolate(self, node: SimNode) -> bool:
        others = [name for name in self.world.nodes if name != node.name]
        both = [(node.name, name) for name in others] + [(name, node.name) for name in others]
        return self._cut(both)

    def split(self, node: SimNode) -> bool:
        side = {name for name in self.world.nodes if self.random.random() < 0.5}
        links = [(a, b) for a in self.world.nodes for b in self.world.nodes]
        return self._cut([(a, b) for a, b in links if (a in side) != (b in side)])

    def one_way(self, node: SimNode) -> bool:
        others = [name for name in self.world.nodes if name != node.name]
        if self.random.random() < 0.5:
            return self._cut([(node.name, name) for name in others])
        return self._cut([(name, node.name) for name in others])

    def partial(self, node: SimNode) -> bool:
        links = [(a, b) for a in self.world.nodes for b in self.world.nodes if a < b]
        chosen = [link for link in links if self.random.random() < 0.4]
        return self._cut(chosen + [(b, a) for a, b in chosen])

    def zombie(self, node: SimNode) -> bool:
        """The leader hears its followers late and is not heard, while it is asked to read.

        Fetches that were sent before a read arrive after it: only the echoed round tells.
        """
        world = self.world
        name = world.leader()
        if name is None:
            return False
        others = [other for other in world.nodes if other != name]
        heal = world.network.cut([(name, other) for other in others])
        speed_up = world.network.lag(name, self.random.randint(50, 350))
        world.scheduler.after(1_200_000, heal)
        world.scheduler.after(1_200_000, speed_up)
        for after_ms in range(500, 1200, 20):
            world.scheduler.after(after_ms * 1000, lambda: world.write_at_leader())
            world.scheduler.after(after_ms * 1000 + 10_000, lambda: world.read_at(name))
        return True

    def after_vote(self, node: SimNode) -> None:
        """A vote is durable and its grant is on its way: the instant to die and come back."""
        chance = self.world.options.crash_after_vote
        if self.is_active and chance and self.random.random() < chance and node.is_up:
            self.world.counts["crashes after a vote"] += 1
            node.crash()
            self._later(1, 60, node.start)

    # -- disks ------------------------------------------------------------------------------------

    def slow_disk(self, node: SimNode) -> bool:
        normal = self.world.options.sync_ms_max
        node.disk.sync_ms_max = self.random.choice([100.0, 300.0, 800.0])
        disk = node.disk

        def recover() -> None:
            disk.sync_ms_max = normal

        self._later(200, 3000, recover)
        return True

    def _can_lose(self, key: ReplicaKey) -> bool:
        """Whether every voter set that may be in force keeps a majority without this replica."""
        gone = self.world.dead | {key}
        for node in self.world.nodes.values():
            disk_sets = [node.disk.start.voters] + [
                entry.payload for entry in node.disk.entries if hasattr(entry.payload, "keys")
            ]
            sets = disk_sets + ([node.raft.log.voters] if node.raft else [])
            leadership = node.raft.state.leadership if node.raft else None
            if leadership is not None and (newcomer := leadership.changes.newcomer) is not None:
                sets.append(node.raft.log.voters.adding(newcomer))
            for voters in sets:
                if len(voters) and sum(k not in gone for k in voters.keys) < voters.majority:
                    return False
        return True

    def flip_bit(self, node: SimNode) -> bool:
        if not node.disk.entries or not self._can_lose(node.key):
            return False
        node.crash()
        offset = self.random.randrange(len(node.disk.entries)) + node.disk.start.end_offset
        node.disk.damaged.add(offset)
        self.world.replica_died(node.key)
        self._later(1, 2000, node.start)
        return True

    def wipe(self, node: SimNode) -> bool:
        if not self._can_lose(node.key):
            return False
        node.crash()
        node.wipe()
        self._later(1, 2000, node.start)
        return True

    # -- operators --------------------------------------------------------------------------------

    def _leading(self) -> SimNode | None:
        name = self.world.leader()
        return self.world.nodes[name] if name else None

    def add_voter(self, node: SimNode) -> bool:
        leader = self._leading()
        if leader is None:
            return False
        voters = leader.raft.log.voters
        absent = [
            each
            for each in self.world.nodes.values()
            if each.key not in voters and each.key not in self.world.dead
        ]
        if not absent or len(voters) >= 5:
            return False
        chosen = self.random.choice(absent)
        live = sum(key not in self.world.dead for key in voters.keys) + 1
        if live < (len(voters) + 1) // 2 + 1:
            return False
        leader.tell(ev.VoterAddRequested(0, self.world.number(), chosen.key))
        return True

    def remove_voter(self, node: SimNode) -> bool:
        leader = self._leading()
        if leader is None or len(leader.raft.log.voters) == 1:
            return False
        keys = leader.raft.log.voters.keys
        dead = [key for key in keys if key in self.world.dead]
        chosen = self.random.choice(dead or list(keys))
        rest = [key for key in keys if key != chosen]
        if sum(key not in self.world.dead for key in rest) < len(rest) // 2 + 1:
            return False
        leader.tell(ev.VoterRemoveRequested(0, self.world.number(), chosen))
        return True

    def transfer(self, node: SimNode) -> bool:
        leader = self._leading()
        if leader is None:
            return False
        others = leader.raft.log.voters.others(leader.key)
        if not others:
            return False
        chosen = self.random.choice(others)
        leader.tell(ev.TransferRequested(0, self.world.number(), chosen))
        return True

    def resign(self, node: SimNode) -> bool:
        leader = self._leading()
        if leader is None or leader.is_paused or len(leader.raft.log.voters) == 1:
            return False
        if (
            leader.raft.deadline_ms() <= leader.clock.now_ms()
            or leader.raft.role is not Role.LEADER
        ):
            return False
        leader.tell(ev.ResignRequested(0, leader.raft.epoch))
        return True

    def shut_down(self, node: SimNode) -> bool:
        if not node.is_up or node.is_stopping:
            return False
        node.is_stopping = True
        node.tell(ev.ShutdownRequested(0))
        return True
