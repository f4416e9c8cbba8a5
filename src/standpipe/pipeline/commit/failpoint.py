"""Places where a test can have the driver killed: `STANDPIPE_FAILPOINT=name@batch`.

Without the variable, and for every other name and batch, `reach` does nothing. With it, the
process sends itself SIGKILL there: no clean-up, as in a crash. With `STANDPIPE_FAILPOINT_SIGNAL` it
is another signal, such as SIGSTOP: paused, and continued later. Names, in the order of execution:
`in-batch` (with a table's name instead of a batch: each of its batches kills the JVM),
`before-sink`, `before-progress` (records written, not committed), `after-a-progress` (with a
table's name: it is committed, others of its group are not), `after-progress` (committed; Spark has
not noted the batch in its commit log).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "STANDPIPE_FAILPOINT"
SIGNAL_VARIABLE = "STANDPIPE_FAILPOINT_SIGNAL"


def reach(name: str, batch: int | str, victim: Callable[[], int] = os.getpid) -> None:
    """Mark this point of this batch; kills the process, or that of `victim`, if the failpoint is
    set."""
    if os.environ.get(VARIABLE) == f"{name}@{batch}":
        os.kill(victim(), signal.Signals[os.environ.get(SIGNAL_VARIABLE) or "SIGKILL"])
