"""Restarts the embedded broker when it exits by itself, with its data and its port.

A start takes seconds, in which the nodes must be watched too, so it runs in a thread of its own.
Not here: the processes of nodes and pipelines (`supervisor.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from standpipe.errors import StandpipeError
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.process_group import restart_delay_s

STOP_S_MAX = 15.0


class BrokerWatch:
    """For the supervisor's loop: `look` never blocks."""

    def __init__(self, broker: Broker, warn: Callable[[str], None]) -> None:
        self.broker = broker
        self.restarts = 0
        self._warn = warn
        self._retry_at_s: float | None = None
        self._stopping = threading.Event()
        self._restart: threading.Thread | None = None

    def look(self, now_s: float) -> bool:
        """Restart a broker that has ended: at once the first time, later each further time.

        True: it is to be published, as its process id changes.
        """
        if self._restart is not None:
            if self._restart.is_alive():
                return False
            self._restart = None
            return True
        if self.broker.is_alive():
            return False
        if self._retry_at_s is None:
            self._warn(
                "the embedded Kafka ended: restarting it; reads continue, nothing new comes in\n"
                f"  {self.broker.tail_of_log(1)}\n  more in {self.broker.data_dir / 'broker.log'}"
            )
            self._retry_at_s = now_s + restart_delay_s(self.restarts)
        if now_s >= self._retry_at_s:
            self.restarts += 1
            self._retry_at_s = None
            self._restart = threading.Thread(target=self._start_again, name="broker", daemon=True)
            self._restart.start()
        return False

    def stop(self) -> None:
        """Stop the broker, and a restart that is under way."""
        self._stopping.set()
        self.broker.stop()
        if self._restart is not None:
            self._restart.join(STOP_S_MAX)
            self.broker.stop()  # it may have been started meanwhile

    def _start_again(self) -> None:
        try:
            self.broker.stop()  # what is left of it
            if not self._stopping.is_set():
                self.broker.start()
        except StandpipeError as error:
            if not self._stopping.is_set():
                self._warn(str(error))
