"""What a seed decides about its world before time begins; printed with every failure."""

import random
from dataclasses import dataclass, replace

from standpipe.control.raft.timeouts import RaftSettings

from .network import NetworkFaults

#: small answers and pieces, so that a short story has many of them
SMALL = RaftSettings(entries_max=8, chunk_bytes_max=256, change_ms=3000)


@dataclass(frozen=True)
class Options:
    voters: int
    observers: int
    safety_ms: int
    network: NetworkFaults
    fault_every_ms: int
    drift: float
    """Clocks run this share too fast or too slow at most."""
    sync_ms_max: float
    snapshot_every: int
    """Entries between snapshots; 0: none."""
    write_every_ms: int
    read_every_ms: int
    changes: bool
    """Whether voters are added, removed, wiped, and leadership is transferred."""
    jitter: float
    """Election time-outs spread over this share of what they may: small makes candidates clash."""
    crash_after_vote: float
    """Chance of dying right after an epoch or a vote became durable."""
    settings: RaftSettings = SMALL
    fetch_ms: tuple[int, ...] = ()
    """Of the first nodes, where their time-outs are not those of `settings`: operators change them
    node by node."""

    def settings_of(self, name: str) -> RaftSettings:
        """Of the node with that number."""
        number = int(name)
        if number > len(self.fetch_ms):
            return self.settings
        scaled = RaftSettings.in_proportion(self.fetch_ms[number - 1])
        limits = ("entries_max", "chunk_bytes_max", "change_ms")
        return replace(scaled, **{limit: getattr(self.settings, limit) for limit in limits})

    @classmethod
    def of(cls, seed: int) -> "Options":
        draw = random.Random(seed * 7919 + 17)
        harsh = draw.random()
        return cls(
            voters=draw.choice([1, 3, 3, 3, 5, 5]),
            observers=draw.choice([0, 0, 1, 1, 2, 3, 5]),
            safety_ms=draw.randint(10_000, 40_000),
            network=NetworkFaults(
                lose=draw.choice([0, 0.01, 0.05, 0.2]) * harsh,
                repeat=draw.choice([0, 0.02, 0.1]),
                delay=draw.choice([0, 0.02, 0.1]) * harsh,
                delay_ms_max=draw.choice([50, 400, 2000]),
                latency_ms_max=draw.choice([1, 5, 20]),
            ),
            fault_every_ms=draw.choice([250, 500, 1000, 2000]),
            drift=draw.choice([0, 0.01, 0.1]),
            sync_ms_max=draw.choice([1, 5, 40]),
            snapshot_every=draw.choice([0, 10, 25, 60]),
            write_every_ms=draw.choice([15, 40, 100]),
            read_every_ms=draw.choice([15, 40, 100]),
            changes=draw.random() < 0.6,
            jitter=draw.choice([1.0, 1.0, 0.05]),
            crash_after_vote=draw.choice([0, 0, 0.1, 0.3]),
            fetch_ms=tuple(draw.choices([300, 600, 1500, 3000], k=draw.choice([0, 0, 2, 3]))),
        )
