"""Imported by every Python process that has this folder in PYTHONPATH, before its own code.

In a worker, a fork of its node's parent, it measures how long the event loop stands still: a timer
wakes every TICK_S, and when it comes late, what the process computed meanwhile is what kept the
loop busy. Processor time, since a loop that waits for a core of a busy machine is not standing
still. Written to $STANDPIPE_TURNS/<pid>, one JSON list [when, standstill_ms, late_ms] a line, from
NOTED_S on.
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

        def tick(wall_s: float, used_s: float) -> None:
            now_s, now_used_s = time.monotonic(), time.process_time()
            still_s = min(now_s - wall_s - TICK_S, now_used_s - used_s)
            if still_s >= NOTED_S:
                late_ms = 1000 * (now_s - wall_s - TICK_S)
                line = [now_s, round(1000 * still_s, 1), round(late_ms, 1)]
                file.write(json.dumps(line) + "\n")
            loop.call_later(TICK_S, tick, time.monotonic(), time.process_time())

        loop.call_soon(tick, time.monotonic(), time.process_time())

    new_event_loop = uvloop.new_event_loop

    def measured_loop():
        loop = new_event_loop()
        measure(loop)
        return loop

    uvloop.new_event_loop = measured_loop


if "standpipe.node" in sys.orig_argv and "STANDPIPE_TURNS" in os.environ:
    _measure_worker(os.environ["STANDPIPE_TURNS"])
