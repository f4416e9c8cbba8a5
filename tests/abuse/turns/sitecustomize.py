"""Imported by every Python process that has this folder in PYTHONPATH, before its own code.

In a worker, a fork of its node's parent, it measures how long the event loop stands still: a task
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
    import asyncio
    import json
    import time

    import uvloop

    async def measured(main):
        async def tick() -> None:
            with open(f"{folder}/{os.getpid()}", "a", buffering=1) as file:  # noqa: ASYNC230, PTH123
                wall_s, used_s = time.monotonic(), time.process_time()
                while True:
                    await asyncio.sleep(TICK_S)
                    now_s, now_used_s = time.monotonic(), time.process_time()
                    still_s = min(now_s - wall_s - TICK_S, now_used_s - used_s)
                    if still_s >= NOTED_S:
                        late_ms = 1000 * (now_s - wall_s - TICK_S)
                        line = [time.monotonic(), round(1000 * still_s, 1), round(late_ms, 1)]
                        file.write(json.dumps(line) + "\n")
                    wall_s, used_s = now_s, now_used_s

        ticking = asyncio.create_task(tick())
        try:
            return await main
        finally:
            ticking.cancel()

    run = uvloop.run
    uvloop.run = lambda main, **options: run(measured(main), **options)


if "standpipe.node" in sys.orig_argv and "STANDPIPE_TURNS" in os.environ:
    _measure_worker(os.environ["STANDPIPE_TURNS"])
