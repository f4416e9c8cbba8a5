"""What a process does with the memory that it has freed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: large texts and lists, made and freed by several threads in turn; prints the growth in MB
WORK = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from standpipe.adapters.process import keep_little_freed_memory

def own_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) // 1024

def work(size):
    items = {each: str(each) for each in range(size)}
    return len("".join(items.values()).replace("1", "one").encode())

if sys.argv[1] == "keep little":
    keep_little_freed_memory()
threads = [ThreadPoolExecutor(1) for _ in range(4)]
before = own_mb()
for _ in range(2):
    for thread in threads:
        thread.submit(work, 200_000).result()
print(own_mb() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_little_is_kept_of_what_large_rows_took() -> None:
    def growth_mb(how: str) -> int:
        command = [sys.executable, "-c", WORK, how]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert growth_mb("keep little") < growth_mb("as usual") / 2


MAKES_WAY = """
import os
from pathlib import Path
from standpipe.adapters.process import make_way
make_way(10)
group = Path("/proc/self/autogroup")
words = group.read_text().split() if group.exists() else []
print(os.getpriority(os.PRIO_PROCESS, 0), os.getsid(0) == os.getpid())
print(words[-1] if words else "none")
"""


@pytest.mark.parametrize("leads", [False, True], ids=["a child", "started by hand"])
def test_a_process_that_makes_way(*, leads: bool) -> None:
    """Against its node's other processes, and those of other nodes: by the priority of its group.

    A process that leads its process group already keeps its session. The file is empty for a
    session that Linux does not group, as that of the first process is."""
    run = subprocess.run(
        [sys.executable, "-c", MAKES_WAY],
        capture_output=True,
        check=True,
        text=True,
        process_group=0 if leads else None,
    )
    priority, has_session, of_group = run.stdout.split()
    assert int(priority) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    assert has_session == str(not leads)
    if not leads:
        assert of_group in ("10", "none")
