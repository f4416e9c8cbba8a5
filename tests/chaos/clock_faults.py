"""The wall clock of one node jumps, there and back, under all of its processes at once.

Monotonic clocks and the one of the machine's start go on: so it is when somebody sets a clock, or
NTP steps it, or a hypervisor does. Nothing that readers see may come of it, and nobody may be taken
for dead, nor a store for one that slept too long. Every node of a run with such a fault has a wall
clock of its own from its start (`tests.hosts.wall_clock` says how, and why not by libfaketime);
where there is no gcc to build it, these faults are left out, and the run says so.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
from tests.chaos.faults import Fault
from tests.hosts.cluster import HostCluster, HostNode, until
from tests.hosts.wall_clock import WallClock, group

HOUR_MS = 3_600_000
#: How much later than it was written a time may be looked at, on a busy machine.
LOOK_MS_MAX = 30_000
SEEN_S_MAX = 60.0
#: A peer that was down twice within a minute is kept down for the rest of it (`membership`).
HEARD_S_MAX = 150.0


class _ClockJump(Fault):
    quick = False
    readers_hurt = False
    needs_clocks = True
    jump_ms: ClassVar[int]
    #: what no log may say while the clock is wrong and after it; log: how the lines begin
    FORBIDDEN: ClassVar[dict[str, Sequence[str]]] = {
        "control": ("peer is down",),
        "tailer": ("is rebuilt", "restarting: progress was unknown", "store failed", "DATA_LOSS"),
    }

    def __init__(self, cluster: HostCluster, victim: HostNode) -> None:
        super().__init__(cluster, victim)
        assert victim.clock is not None, "Plan.clocks is off"
        self._clock: WallClock = victim.clock
        self._said = {log: log.stat().st_size for log in self._logs()}

    def inject(self) -> None:
        self._clock.shift(self.jump_ms)
        until("all to see the jump", self.is_there, SEEN_S_MAX)

    def is_there(self) -> bool:
        """All processes of the victim go by its clock, and nobody else does; what its worker and
        its tailer write is by that clock, what the others write is not."""
        assert self.victim.child.pid is not None
        ours = all(map(self._clock.is_of, group(self.victim.child.pid)))
        theirs = [pid for node in self.others for pid in group(node.child.pid or 0)]
        if not ours or not theirs or any(map(self._clock.is_of, theirs)):
            return False
        return _goes_by(self.victim, self.jump_ms) and all(_goes_by(n, 0) for n in self.others)

    def heal(self) -> None:
        self._clock.shift(0)

    def outcasts(self) -> Sequence[HostNode]:
        return []  # clients go on asking it

    def harm(self) -> list[str]:
        return [
            f"{log.parent.parent.name}: {line}"
            for log, said in self._said.items()
            for line in _lines_after(log, said)
            if any(words in line for words in self.FORBIDDEN.get(log.stem, ()))
        ]

    def _logs(self) -> Iterable[Path]:
        for node in self.cluster.nodes:
            yield from (node.config.paths.logs / f"{name}.log" for name in self.FORBIDDEN)


class ClockAhead(_ClockJump):
    name = "clock jump: an hour ahead, and back"
    jump_ms = HOUR_MS


class ClockBack(_ClockJump):
    name = "clock jump: an hour back, and ahead"
    jump_ms = -HOUR_MS


class ClockDays(_ClockJump):
    """Control and tailer are killed at both jumps: what they left behind was written by a clock
    that is days off, in either direction. Nearly as long as tombstones stay: beyond that, a store
    would rightly be made anew, for who tells a clock that was set from a machine that slept?"""

    name = "clock jump: six days, and restarts"
    jump_ms = 6 * 24 * HOUR_MS
    FORBIDDEN: ClassVar[dict[str, Sequence[str]]] = {"tailer": ("is rebuilt", "DATA_LOSS")}

    def inject(self) -> None:
        self._kill()
        super().inject()

    def heal(self) -> None:
        self._kill()
        super().heal()

    def harm(self) -> list[str]:
        found = super().harm()
        for node in self.others:
            try:
                until("lags", lambda node=node: self._is_heard_by(node), HEARD_S_MAX)
            except AssertionError:
                found.append(f"{node.node_id} hears no lags of {self.victim.node_id} any more")
        return found

    def _kill(self) -> None:
        """Not before 0.2 s later its parent starts them again: by then the clock has jumped."""
        for name in ("control", "tailer"):
            self.victim.signal_only(name, signal.SIGKILL)

    def _is_heard_by(self, node: HostNode) -> bool:
        page = node.get("/clusterStatus") or {"clusterStatus": {}}
        told = page["clusterStatus"].get(self.victim.public)
        return bool(told and told["hostAlive"] and told["standpipe"]["replicas"])


def _goes_by(node: HostNode, ahead_ms: int) -> bool:
    """Whether its worker and its tailer wrote, not long ago, times that are so much ahead."""
    page = node.get("/clusterStatus")
    tailer = node.config.paths.run / "tailer.json"
    if page is None or not tailer.exists():
        return False
    told = [
        page["clusterStatus"][node.public]["lastStatusUpdateMs"],
        msgspec.json.decode(tailer.read_bytes())["at_ms"],
    ]
    now_ms = time.time_ns() // 1_000_000 + ahead_ms
    return all(0 <= now_ms - at_ms <= LOOK_MS_MAX for at_ms in told)


def _lines_after(log: Path, size: int) -> list[str]:
    """What was added to a log since it was so long."""
    with log.open() as file:
        file.seek(size)
        return file.read().splitlines()
