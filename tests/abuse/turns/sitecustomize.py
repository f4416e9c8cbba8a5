"""Imported by every Python process that has this folder in PYTHONPATH, before its own code.

In a worker, a fork of its node's parent, it measures how long the event loop stands still: a timer
wakes every TICK_S, and when it comes late, what the process computed meanwhile is what kept the
loop busy. A loop whose thread waits for a core of a busy machine is not standing still: what the
kernel says of that does not count, nor more than the processor time of all threads. Written to
$STANDPIPE_TURNS/<pid>, one JSON list [when, standstill_ms, late_ms] a line, from NOTED_S on.
"""

import os
import sys

TICK_S = 0.005
NOTED_S = 0.02


def _measure_worker(folder: str) -> None:
    import json
    import time

    import uvloop

    def measure(loop):
        """A timer, not a task: the loop's owner waits for its tasks."""
        # open as long as the process; pathlib would be imported before the worker's own code
        file = open(f"{folder}/{os.getpid()}", "a", buffering=1)  # noqa: PTH123, SIM115
        thread = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

        def without_core_s():
            """How long this thread was ready to run, and had no core."""
            return int(os.pread(thread, 100, 0).split()[1]) / 1e9

        def tick(wall_s: float, used_s: float, waited_s: float) -> None:
            late_s = time.monotonic() - wall_s - TICK_S
            still_s = min(late_s - without_core_s() + waited_s, time.process_time() - used_s)
            if still_s >= NOTED_S:
                line = [time.monotonic(), round(1000 * still_s, 1), round(1000 * late_s, 1)]
                file.write(json.dumps(line) + "\n")
            loop.call_later(TICK_S, tick, *now())

        def now():
            return time.monotonic(), time.process_time(), without_core_s()

        loop.call_soon(tick, *now())

    new_event_loop = uvloop.new_event_loop

    def measured_loop():
        loop = new_event_loop()
        measure(loop)
        return loop

    uvloop.new_event_loop = measured_loop


if "standpipe.node" in sys.orig_argv and "STANDPIPE_TURNS" in os.environ:
    _measure_worker(os.environ["STANDPIPE_TURNS"])
