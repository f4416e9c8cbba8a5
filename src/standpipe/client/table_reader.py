"""Whole tables over blocking sockets, for programs that decode rows in other processes.

Not here: what is asked, and of whom (`client/core/whole_tables.py`).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from standpipe.client.blocking import Driver
from standpipe.client.core.answers import RowLines
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.settings import Settings
from standpipe.client.core.tables import TableMap
from standpipe.client.core.whole_tables import WholeTables
from standpipe.client.prepared import prepared


class TableReader:
    """Reads whole tables. Use it in `with`. Its calls raise StandpipeError as `Client`'s do."""

    def __init__(
        self, nodes: tuple[str, ...], settings: Settings, tls: ssl.SSLContext | None
    ) -> None:
        self._operations = WholeTables(Nodes(nodes), time.monotonic, settings)
        self._driver = Driver(tls)

    @classmethod
    def of(cls, nodes: str, settings: Settings, ca: str | Path | None) -> Self:
        """For addresses as `connect` takes them, and raising what it raises."""
        return cls(*prepared(nodes, settings, ca))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.close()

    def layout(self, table: str) -> TableMap:
        """Columns and partitions of a table."""
        return self._driver.run(self._operations.layout(table))

    def lines(
        self, text: str, partition: int | None = None, holders: Sequence[str] = ()
    ) -> RowLines:
        """The rows of a pull query, not decoded. `partition`: of a scan, the only one that is
        read; `holders`: the addresses to ask first."""
        return self._driver.run(self._operations.lines(text, partition, holders))
