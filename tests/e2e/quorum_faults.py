"""What is done to a cluster under load, and what is measured meanwhile. Tests and reports share it.

Times are ms from the fault. A kind of operation has *resumed* at a node with the first answer to a
request that began after the fault; each surviving node counts, so one slow follower shows.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import porcupine
from tests.e2e import histories
from tests.e2e.control_cluster import SECRET, ControlCluster, until, until_led
from tests.e2e.histories import Client, Kind, Load, Operation, one_of_each


def check(history: Sequence[Operation], directory: Path) -> str:
    """Both judges; what the second one says. Without Go only the first one."""
    violations = histories.violations(history)
    assert not violations, violations[:5]
    if porcupine.judge() is None:
        return "not asked: there is no Go"
    verdict, said = porcupine.verdict("counter", histories.lines(history), directory)
    assert verdict == "linearizable", said
    return said


def load_on(
    cluster: ControlCluster, clients: Sequence[Client] = (Client(),) * 6, pause_s: float = 0.0
) -> Load:
    addresses = [address_of(cluster, name) for name in cluster.names]
    return Load(addresses, SECRET, clients, pause_s=pause_s)


def address_of(cluster: ControlCluster, name: str) -> str:
    return cluster.configs[name].internal


def more(load: Load, count: int) -> None:
    """Wait for so many more acknowledged writes."""
    goal = load.acknowledged() + count
    until(f"{count} more writes", lambda: load.acknowledged() >= goal)


def lost(cluster: ControlCluster, history: Sequence[Operation]) -> int:
    """Acknowledged writes that are not in the counter any more: tickets twice or beyond it."""
    tickets = [one.value for one in history if one.kind == "add" and one.value is not None]
    one_more = {"pipeline_id": "last", "request_id": uuid.uuid4().hex}
    answer = until_led(lambda: cluster.post(cluster.leader(), "/pipeline/start", one_more))
    last = int(answer.json()["lease_epoch"])
    return len(tickets) - len({ticket for ticket in tickets if ticket < last})


# ---------------------------------------------------------------------------------------- kills


@dataclass
class Resumption:
    """Over all kills and all survivors, ms. Reads are linearizable ones at followers."""

    writes: list[float] = field(default_factory=list[float])
    reads: list[float] = field(default_factory=list[float])


def kill_leaders(cluster: ControlCluster, load: Load, kills: int) -> Resumption:
    """SIGKILL the leader under load, wait until every survivor serves, start it again; repeat.

    The load must have a writer and a reader at home at each node (`one_of_each`).
    """
    found = Resumption()
    for _ in range(kills):
        more(load, 20)
        leader = cluster.leader()
        since, at_ns = len(load.served), time.monotonic_ns()
        cluster.kill(leader)
        survivors = [name for name in cluster.names if name != leader]
        new = cluster.leader(*survivors)
        for name in survivors:
            found.writes.append(_resumed(cluster, load, name, "add", at_ns, since))
            if name != new:
                found.reads.append(_resumed(cluster, load, name, "read", at_ns, since))
        cluster.start(leader)
        until(f"{leader} follows", lambda name=leader: _is_close(cluster, name))
    return found


def _resumed(
    cluster: ControlCluster, load: Load, name: str, kind: Kind, at_ns: int, since: int
) -> float:
    address = address_of(cluster, name)
    end_ns = until(f"{kind} at {name}", lambda: load.resumed(address, kind, at_ns, since))
    return (end_ns - at_ns) / 1e6


def _is_close(cluster: ControlCluster, name: str) -> bool:
    """It answers and lags little; else the next kill would take two voters away."""
    view = cluster.quorum(name)
    lines = view["replicas"] if view else []
    lags = [line["lag_records"] for line in lines if line["node_id"] == name]
    return bool(lags) and lags[0] is not None and lags[0] < 50


# --------------------------------------------------------------------------------------- pauses


@dataclass(frozen=True)
class Pause:
    """A leader that was stopped and went on. Times in ms."""

    stopped_s: float
    #: from SIGCONT until it does not call itself the leader any more
    stepped_down_ms: float
    #: from SIGCONT until it names the new leader
    followed_ms: float
    epoch_before_return: int
    epoch_after_return: int
    #: answered to a write that had waited at the stopped process, None: refused
    late_write: int | None
    writes_before_return: int


def pause_leader(cluster: ControlCluster, load: Load, stopped_s: float, watch_s: float) -> Pause:
    """SIGSTOP the leader under load, SIGCONT it later, watch what it does.

    Just before it goes on, a write and a read are put into its socket: it must serve neither
    from what it knew when it was stopped.
    """
    old = cluster.leader()
    left = [name for name in cluster.names if name != old]
    began = time.monotonic()
    cluster.signal(old, signal.SIGSTOP)
    more(load, 20)
    new = cluster.leader(*left)
    time.sleep(max(0.0, stopped_s - (time.monotonic() - began)))
    more(load, 1)
    before, epoch = load.acknowledged(), _epoch(cluster, new)
    both = (Client(kind="add"), Client(kind="read"))
    late = Load([address_of(cluster, old)], SECRET, both, first_number=len(load.clients))
    late.start()
    time.sleep(0.1)  # both requests are in its socket
    cluster.signal(old, signal.SIGCONT)
    at = time.monotonic()
    until("it steps down", lambda: (cluster.describe(old) or {"leader": old})["leader"] != old)
    stepped_down_ms = (time.monotonic() - at) * 1000
    until("it follows", lambda: (cluster.describe(old) or {}).get("leader") == new)
    followed_ms = (time.monotonic() - at) * 1000
    more(late, 1)
    first = next(one for one in late.stop() if one.kind == "add")
    load.history += late.history
    time.sleep(watch_s)
    more(load, 20)
    return Pause(
        stopped_s=stopped_s,
        stepped_down_ms=round(stepped_down_ms, 1),
        followed_ms=round(followed_ms, 1),
        epoch_before_return=epoch,
        epoch_after_return=_epoch(cluster, new),
        late_write=first.value,
        writes_before_return=before,
    )


def _epoch(cluster: ControlCluster, name: str) -> int:
    return int(until("the epoch", lambda: cluster.quorum(name))["epoch"])


def homes(cluster: ControlCluster) -> tuple[Client, ...]:
    return one_of_each([address_of(cluster, name) for name in cluster.names])
