"""What `make abuse` measures of an event loop (tests/abuse/turns)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: a loop beside a thread; prints the thread's processor time, ms
CHILD = """
import asyncio, hashlib, time, uvloop

def compute():
    began_s = time.thread_time()
    {call}
    return 1000 * (time.thread_time() - began_s)

async def main():
    await asyncio.sleep(0.05)
    print(await asyncio.to_thread(compute))
    await asyncio.sleep(0.05)

uvloop.new_event_loop().run_until_complete(main())
"""
KEEPS, RELEASES = "sum(range(8_000_000))", "hashlib.pbkdf2_hmac('sha256', b'a', b'b', 300_000)"


@pytest.mark.parametrize(("call", "is_still"), [(KEEPS, True), (RELEASES, False)])
def test_a_thread_that_keeps_the_interpreter(tmp_path: Path, call: str, is_still: bool) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CHILD.format(call=call), "standpipe.node"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "tests" / "abuse" / "turns"),
            "STANDPIPE_TURNS": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    (file,) = tmp_path.iterdir()
    found = [json.loads(line)[1] for line in file.read_text().splitlines()]
    # half of it: the two read different clocks, and not at the same moments
    assert (max(found, default=0) > float(ran.stdout) / 2) == is_still, (found, ran.stdout)
