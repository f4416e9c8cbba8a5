"""A wall clock that jumps under real processes: the clock itself, and a tailer that hears nothing.

What readers see of a jump: `make chaos CHAOS="--faults jump"`. There events come in all the time,
and every record ends the waits that this is about. No Kafka: to hear nothing is the point.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hosts.wall_clock import WallClock, build, why_not

from standpipe.local.cluster.node_files import StandaloneNode, write_standalone
from standpipe.local.cluster.ports import any_port
from standpipe.local.cluster.process_group import ManagedProcess

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(why_not()), reason=why_not())]

HOUR_MS = 3_600_000
WAIT_S_MAX = 60.0  # generous: a busy machine is no failure
NOWHERE = "127.0.0.1:1"

#: Says what its clocks say, how it waits now, and in the end for how long it waited in each way,
#: each time it is asked.
LOOKER = f"""
import json, sys, threading, time
from confluent_kafka import Consumer, TopicPartition
silent = Consumer({{"bootstrap.servers": "{NOWHERE}", "group.id": "g", "log_level": 0,
                   "error_cb": lambda error: None}})
silent.assign([TopicPartition("t", 0, 0)])
waits = {{"sleep": time.sleep, "condition": threading.Event().wait,
         "kafka": lambda s: silent.consume(1, s)}}
def lasted(name, wait, wait_s):
    print(json.dumps(name), flush=True)
    began_s = time.monotonic()
    wait(wait_s)
    return time.monotonic() - began_s
for line in sys.stdin:
    clocks = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
    print(json.dumps([time.clock_gettime(clock) for clock in clocks]), flush=True)
    wait_s = float(line)
    waited = {{name: lasted(name, wait, wait_s) for name, wait in waits.items()}}
    print(json.dumps(waited), flush=True)
"""


class Looker:
    """A process that goes by a clock of its own."""

    def __init__(self, clock: WallClock) -> None:
        self.process = subprocess.Popen(
            clock.command([sys.executable, "-c", LOOKER]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, wait_s: float) -> list[float]:
        """By how many ms its clocks differ from ours. Then it begins to wait, `wait_s` each."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{wait_s}\n")
        self.process.stdin.flush()
        told = self._line()
        clocks = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
        return [1000 * (at - time.clock_gettime(c)) for at, c in zip(told, clocks, strict=True)]

    def until_it_waits(self, name: str) -> None:
        while self._line() != name:
            pass

    def waited(self) -> dict[str, float]:
        while not isinstance(told := self._line(), dict):
            pass
        return told

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path / "shift", build(tmp_path))


@pytest.fixture
def looker(clock: WallClock) -> Iterator[Looker]:
    made = Looker(clock)
    yield made
    made.process.communicate()


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS])
def test_only_the_wall_clock_jumps(clock: WallClock, looker: Looker, ms: int) -> None:
    assert looker.ask(0.1) == pytest.approx([0, 0, 0], abs=2000)
    looker.waited()
    clock.shift(ms)
    assert looker.ask(0.1) == pytest.approx([ms, 0, 0], abs=2000)
    # an hour would show; a busy machine does not
    assert looker.waited() == pytest.approx({"sleep": 0.1, "condition": 0.1, "kafka": 0.1}, abs=60)


def test_who_waits_by_the_wall_clock_waits_on_when_it_is_set_back(
    clock: WallClock, looker: Looker
) -> None:
    """As under a real clock (librdkafka's issue 2145): else the next test would prove nothing."""
    waited_s: list[float] = []
    for shift_ms in (-10_000, -20_000, -30_000):
        looker.ask(3)
        looker.until_it_waits("kafka")
        time.sleep(1)  # it says so just before it reckons until when it waits
        clock.shift(shift_ms)
        waited_s.append(looker.waited()["kafka"])
        if waited_s[-1] > 6:  # if not, it was set back before or after the wait: a busy machine
            return
    pytest.fail(f"never longer than it was told to: {waited_s}")


@pytest.fixture
def node(tmp_path: Path, clock: WallClock) -> Iterator[Callable[[], float]]:
    """A node without Kafka: how many s ago its tailer wrote what it does (it does so once a s)."""
    (tmp_path / "secret").write_text("a secret")
    address = f"127.0.0.1:{any_port()}"
    file = write_standalone(
        StandaloneNode(
            node_id="node-1",
            data_directory=tmp_path / "node-1",
            bootstrap_servers=NOWHERE,
            listen=address,
            advertise=address,
            others={},
            secret_file=tmp_path / "secret",
            workers=1,
        )
    )
    command = clock.command([sys.executable, "-m", "standpipe.node", "--node-file", str(file)])
    child = ManagedProcess("node-1", command, tmp_path / "node.log")
    child.start()
    wrote = tmp_path / "node-1" / "run" / "tailer.json"
    yield lambda: time.time() - wrote.stat().st_mtime if wrote.exists() else WAIT_S_MAX
    child.signal_group(signal.SIGKILL)
    child.wait(10)


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S_MAX
    while not (is_met := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return is_met


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS])
def test_a_tailer_that_hears_nothing_goes_on_after_a_jump(
    clock: WallClock, node: Callable[[], float], ms: int
) -> None:
    assert until(lambda: node() < 2)
    clock.shift(ms)
    time.sleep(5)  # what it wrote before the jump is no longer new
    assert until(lambda: node() < 2), f"it stands still: it wrote {node():.0f} s ago"
