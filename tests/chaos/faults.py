"""The faults of the chaos suite, one small class each: do it, prove it, undo it.

`inject` and `heal` return when the fault is there, or gone. `is_there` looks at the world itself
(process states, files, frames that do not arrive): a fault that was not injected proves nothing.
`outcasts` are nodes that no client would enter the cluster through while it lasts. A fault that
takes nothing away from readers says so with `readers_hurt = False`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tests.chaos.judge import KNOWN_S
from tests.hosts.cluster import HostCluster, HostNode, until
from tests.hosts.network import Link
from tests.hosts.relay import slow

from standpipe.adapters.process import Life, life_of


class Fault:
    """Base of all. `victim` is the node that it happens to; Kafka's and Spark's have none."""

    name: ClassVar[str]
    #: how long it lasts: in a whole run, and in a quick one
    hold_s: ClassVar[tuple[float, float]] = (10.0, 6.0)
    quick: ClassVar[bool] = True
    readers_hurt: ClassVar[bool] = True
    #: the nodes need wall clocks of their own (`Plan.clocks`)
    needs_clocks: ClassVar[bool] = False
    #: by then an end has got from Kafka to every node that a read may enter through
    known_s: ClassVar[float] = KNOWN_S

    def __init__(self, cluster: HostCluster, victim: HostNode) -> None:
        self.cluster = cluster
        self.victim = victim

    def inject(self) -> None:
        raise NotImplementedError

    def is_there(self) -> bool:
        raise NotImplementedError

    def heal(self) -> None:
        raise NotImplementedError

    def outcasts(self) -> Sequence[HostNode]:
        return [self.victim]

    def silent(self) -> Sequence[HostNode]:
        """Nodes that cannot know how far behind their rows are while it lasts: where no other one
        has a partition, reads with a bound are refused."""
        return []

    def harm(self) -> list[str]:
        """What it led to, beside what readers saw, that it must not; asked when all is calm."""
        return []

    @property
    def others(self) -> list[HostNode]:
        return [node for node in self.cluster.nodes if node is not self.victim]


# ------------------------------------------------------------------------------- processes


class Killed(Fault):
    name = "SIGKILL of a node"

    def inject(self) -> None:
        self.victim.kill()

    def is_there(self) -> bool:
        return self.victim.child.pid is None and not self.victim.answers()

    def heal(self) -> None:
        self.victim.start()


class _Stopped(Fault):
    """SIGSTOP of some of its processes, SIGCONT later: they do not know that they were away."""

    #: how their pid files begin
    which: ClassVar[str] = ""

    def inject(self) -> None:
        self.pids = self.victim.pids(self.which)
        self.stop()
        until("they stand still", self.is_there)  # the kernel stops a process when it next runs

    def stop(self) -> None:
        self.victim.signal_only(self.which, signal.SIGSTOP)

    def is_there(self) -> bool:
        return bool(self.pids) and all(life_of(pid) is Life.STOPPED for pid in self.pids)

    def heal(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(
                ProcessLookupError
            ):  # the parent replaced a worker that did not turn
                os.kill(pid, signal.SIGCONT)


class Stopped(_Stopped):
    name = "SIGSTOP of a node"

    def stop(self) -> None:
        self.victim.signal(signal.SIGSTOP)

    def heal(self) -> None:
        self.victim.signal(signal.SIGCONT)


class WorkersHung(_Stopped):
    name = "workers hung, control lives"
    which = "worker"


class ControlStopped(_Stopped):
    name = "control stopped, workers live"
    which = "control"

    def outcasts(self) -> Sequence[HostNode]:
        return []  # its workers serve on, by an ageing map


class TailerStopped(_Stopped):
    name = "tailer stopped"
    which = "tailer"

    def outcasts(self) -> Sequence[HostNode]:
        return []


# --------------------------------------------------------------------------------- network


class _Cut(Fault):
    """Links of which no frame arrives."""

    def links(self) -> list[Link]:
        raise NotImplementedError

    def inject(self) -> None:
        self.cluster.network.cut(self.links())

    def is_there(self) -> bool:
        ends = (self.links()[0], self.links()[-1])
        return not any(self.cluster.network.reaches(*link) for link in ends)

    def heal(self) -> None:
        self.cluster.network.join(self.links())


class Partitioned(_Cut):
    name = "partition: a node from all"

    def links(self) -> list[Link]:
        return self.cluster.network.around(self.victim.host)


class OneWay(_Cut):
    name = "one-way: heard by nobody, hears all"

    def links(self) -> list[Link]:
        return [(self.victim.host, other.host) for other in self.others]


class Partial(_Cut):
    name = "partial: a node from one peer"

    def links(self) -> list[Link]:
        return self.cluster.network.between([self.victim.host], [self.others[0].host])

    def outcasts(self) -> Sequence[HostNode]:
        return []  # both are reached by clients


class Flapping(Fault):
    name = "flapping: 400 ms cut, 400 ms not"
    HALF_S = 0.4

    def inject(self) -> None:
        self._links = self.cluster.network.around(self.victim.host)
        self._cuts = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._flap, daemon=True)
        self._thread.start()
        time.sleep(3 * self.HALF_S)  # three half periods: it has gone and come back at least once

    def _flap(self) -> None:
        network = self.cluster.network
        while not self._stopping.is_set():
            network.cut(self._links)
            self._cuts += 1
            self._stopping.wait(self.HALF_S)
            network.join(self._links)
            self._stopping.wait(self.HALF_S)

    def is_there(self) -> bool:
        return self._cuts > 1

    def heal(self) -> None:
        self._stopping.set()
        self._thread.join()


class _BadCable(Fault):
    """Its frames pass through a relay."""

    delay_ms: ClassVar[int] = 0
    loss: ClassVar[float] = 0.0

    def inject(self) -> None:
        self._relay = slow(self.victim.host, delay_ms=self.delay_ms, loss=self.loss)

    def is_there(self) -> bool:
        return self._relay.is_there

    def heal(self) -> None:
        self._relay.stop()


class Slow(_BadCable):
    name = "slow: what a node sends, 200 ms later"
    quick = False
    delay_ms = 200

    def is_there(self) -> bool:
        began_s = time.monotonic()
        return super().is_there() and self.victim.answers() and time.monotonic() - began_s >= 0.2


class Lossy(_BadCable):
    name = "lossy: 30 % of a node's frames vanish"
    quick = False
    loss = 0.3

    def is_there(self) -> bool:
        """One of 30 datagrams at the latest is lost: all arrive once in 44,000 times."""
        to_victim = (self.cluster.network.hub, self.victim.host)
        return any(not self.cluster.network.reaches(*to_victim, 0.3) for _ in range(30))


# ------------------------------------------------------------------------------------ disks


def fill(file: Path) -> None:
    """Write it until its disk takes no more. Without a buffer: what is left in one is written, and
    refused, once more when it closes."""
    with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(1 << 16))


class DiskFull(Fault):
    """Its data directory is a small disk of its own (`small_disks`)."""

    name = "disk full"
    quick = False

    def inject(self) -> None:
        self._filler = Path(self.victim.config.data_dir) / "filler"
        fill(self._filler)

    def is_there(self) -> bool:
        return shutil.disk_usage(self._filler.parent).free < 1 << 16

    def heal(self) -> None:
        self._filler.unlink()


class StoreDamaged(Fault):
    """While the node is down, every second page of its stores becomes zeros."""

    name = "stores damaged while stopped"
    quick = False
    PAGE = 4096

    def inject(self) -> None:
        self._log = self.victim.config.paths.logs / "tailer.log"
        self._said = self._log.stat().st_size
        self.victim.kill()
        stores = [*self.victim.config.paths.state.glob("*/*/data.mdb")]
        assert stores, "there is nothing to damage"
        for store in stores:
            with store.open("r+b") as file:
                for page in range(3, store.stat().st_size // self.PAGE, 2):
                    file.seek(page * self.PAGE)
                    file.write(bytes(self.PAGE))
        self.victim.start()
        until("the damage to be known", self.is_there)

    def is_there(self) -> bool:
        with self._log.open() as file:
            file.seek(self._said)
            return "is rebuilt" in file.read()

    def heal(self) -> None:
        """Nobody has to do anything."""


def small_disks(folders: Sequence[Path], size: str = "768m") -> None:
    """A disk of its own for each; they go with this process's namespace."""
    for folder in folders:
        folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "d", str(folder)], check=True)


# ------------------------------------------------------------------------- what is around


class Starved(Fault):
    """Other programs want all cores, several times over.

    Readers are on machines of their own, as a user's are: this process goes before what it
    measures. Else its one loop is what starves, and answers that are there lie unread.
    """

    name = "processor starved"
    quick = False
    EACH = 4
    #: how far readers go before everything else
    AHEAD = 10

    def inject(self) -> None:
        command = [sys.executable, "-c", "while True: pass"]
        count = self.EACH * (os.cpu_count() or 1)
        self._hogs = [subprocess.Popen(command) for _ in range(count)]
        self._niceness = os.nice(0)
        try:
            _set_niceness(self._niceness - self.AHEAD)
        except PermissionError:
            print("    readers starve, too: only root may go before others", flush=True)

    def is_there(self) -> bool:
        return all(hog.poll() is None for hog in self._hogs) and os.getloadavg()[0] > 1

    def heal(self) -> None:
        for hog in self._hogs:
            hog.kill()
            hog.wait()
        with contextlib.suppress(PermissionError):
            _set_niceness(self._niceness)

    def outcasts(self) -> Sequence[HostNode]:
        return []


def _set_niceness(niceness: int) -> None:
    """Of each thread of this process, and of no other process."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)


class KafkaDown(Fault):
    name = "Kafka down"
    hold_s = (30.0, 8.0)
    readers_hurt = False

    def inject(self) -> None:
        pid = self.cluster.broker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.cluster.broker.stop()

    def is_there(self) -> bool:
        with socket.socket() as probe:
            host, _, port = self.cluster.broker.bootstrap_servers.rpartition(":")
            return probe.connect_ex((host, int(port))) != 0

    def heal(self) -> None:
        self.cluster.broker.start()

    def outcasts(self) -> Sequence[HostNode]:
        return []


class SparkDown(Fault):
    name = "Spark down"
    hold_s = (30.0, 8.0)
    readers_hurt = False

    def inject(self) -> None:
        self.cluster.kill_pipeline()

    def is_there(self) -> bool:
        return self.cluster.pipeline is not None and self.cluster.pipeline.pid is None

    def heal(self) -> None:
        self.cluster.start_pipeline()

    def outcasts(self) -> Sequence[HostNode]:
        return []
