"""When the process is asked to stop, and how long that may take: it then ends, whatever hangs.

Not here: what is stopped, and in which order (`driver.py`).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Final

from standpipe.pipeline.run import session

#: after this the JVM is killed and the process ends, even if something still hangs
STOP_S_MAX: Final = 9.0
EXIT_FAILED: Final = 1


def stop_on_signals() -> threading.Event:
    """Set once a signal asks the process to stop. The process ends within STOP_S_MAX of that, also
    if nobody looks at the event: the loop that does may hang in a call of storage."""
    asked = threading.Event()

    def stop(_signal: int, _frame: object) -> None:
        asked.set()

    def limit() -> None:
        asked.wait()
        time.sleep(STOP_S_MAX)
        _give_up()

    # now, as a handler may have interrupted what starts a thread, whose locks it would need
    threading.Thread(target=limit, name="stop limit", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return asked


def stop_limit() -> threading.Timer:
    """Ends the process STOP_S_MAX from now, unless it is cancelled before."""
    timer = threading.Timer(STOP_S_MAX, _give_up)
    timer.daemon = True
    timer.start()
    return timer


def _give_up() -> None:
    session.kill_jvm()
    os._exit(EXIT_FAILED)
