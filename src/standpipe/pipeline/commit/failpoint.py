"""Places where a test can have the driver killed: `STANDPIPE_FAILPOINT=name@batch`.

Without the variable, and for every other name and batch, `reach` does nothing. With it, the
process sends itself SIGKILL there: no clean-up, as in a crash. Names, in the order of a batch:
`before-sink`, `before-progress` (records written, not committed), `after-progress` (committed;
Spark has not noted the batch in its commit log).
"""

from __future__ import annotations

import os
import signal

VARIABLE = "STANDPIPE_FAILPOINT"


def reach(name: str, batch: int) -> None:
    """Say that the driver is at this place of this batch."""
    if os.environ.get(VARIABLE) == f"{name}@{batch}":
        os.kill(os.getpid(), signal.SIGKILL)
