"""The drivers of isolated queries, which `standpipe up` starts and stops by itself.

Each isolated name that some query has gets a driver (`control/metadata/isolation.py`), as the
nodes' published snapshots say. A driver that ends is restarted by the supervisor like any other
process, with its own back-off; one that is no longer needed is stopped.

Not here: restarts (`supervisor.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from standpipe.adapters.files.published import RecordReader
from standpipe.control.metadata import isolation
from standpipe.local.cluster.process_group import ManagedProcess
from standpipe.model import LogIndex, Snapshot

#: a name that can be part of the name of a log; others get a number
_PLAIN: Final = re.compile(r"[A-Za-z0-9_]{1,100}")


@dataclass
class IsolatedDrivers:
    """One supervised driver for each isolated name."""

    #: of the nodes; the newest counts
    snapshots: Sequence[Path]
    #: (name of the process, isolated name) -> its process, not started yet
    make: Callable[[str, str], ManagedProcess]
    #: isolated name -> its driver; one that is not needed is not `wanted`
    drivers: dict[str, ManagedProcess] = field(default_factory=dict[str, ManagedProcess])
    _readers: list[RecordReader[Snapshot]] = field(init=False)
    #: of the newest snapshot, and the names that it isolates
    _log_index: LogIndex = field(default=LogIndex(-1), init=False)
    _names: Sequence[str] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._readers = [RecordReader(path, Snapshot) for path in self.snapshots]

    def tend(self) -> list[str]:
        """Start and stop drivers as the nodes' newest snapshot says; returns what was done.
        Never waits. Raises OSError; the next call then does what is left."""
        changed = [reader.refresh() for reader in self._readers]
        if any(changed):
            found = [reader.record for reader in self._readers if reader.record is not None]
            newest = max(found, key=lambda each: each.log_index)
            if newest.log_index >= self._log_index:  # a node that starts has not read all yet
                self._log_index = newest.log_index
                self._names = isolation.names_in_use(newest.queries, newest.isolated)
        return self.want(self._names)

    def want(self, names: Sequence[str]) -> list[str]:
        """Start what is missing, stop what is not wanted; returns what was done."""
        done: list[str] = []
        for name in names:
            if name not in self.drivers:
                part = name if _PLAIN.fullmatch(name) else str(len(self.drivers) + 1)
                self.drivers[name] = self.make(f"pipeline-isolated-{part}", name)
                self.drivers[name].wanted = False
            driver = self.drivers[name]
            if not driver.wanted and driver.pid is None:  # else the one before still ends
                driver.wanted = True
                driver.start()
                done.append(f"{driver.name} starts: {name} is isolated (log: {driver.log})")
        for name, driver in self.drivers.items():
            if driver.wanted and name not in names:
                driver.wanted = False
                if driver.process is not None:
                    driver.process.terminate()
                done.append(f"{driver.name} stops: {name} is isolated no longer, or has no query")
        return done
