"""A whole table in few requests: its columns and partitions, and rows that stay undecoded. Pure.

A caller with many processes decodes the rows elsewhere (`standpipe.spark_source`). An answer counts
once it is whole: if its node ends before, another one is asked for all of it, so no row comes
twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from standpipe.client.core.answers import RowLines, lines_of
from standpipe.client.core.attempts import Ask, Attempt, alone
from standpipe.client.core.exchange import LINES, Operation
from standpipe.client.core.map_asks import describe, described, route, routed
from standpipe.client.core.operations import LOOKUP_PATH, Operations
from standpipe.client.core.tables import TableMap
from standpipe.sql.plans import PARTITION_PROPERTY
from standpipe.sql.types.names import folded

#: what is told of a table takes milliseconds: a caller with patience for rows need not wait longer
LAYOUT_S_MAX: Final = 10.0


class WholeTables(Operations):
    """The operations of a client that reads whole tables."""

    def layout(self, table: str) -> Operation[TableMap]:
        """Columns and partitions of a table; of each partition, whom to ask first, if this client
        knows the members. Raises StandpipeError: there is no such table, or it is none that is
        served."""
        deadline_s = self._deadline(min(LAYOUT_S_MAX, self.settings.timeout_s))
        yield from self._members(deadline_s)
        name, patience_s = folded(table), self.settings.patience_s
        shape = described((yield from self._answer(describe(name, patience_s), deadline_s)))
        holders = routed((yield from self._answer(route(name, patience_s), deadline_s)))
        if not self.settings.finds_members:
            holders = tuple(() for _ in holders)
        return TableMap(shape, holders, self.clock())

    def lines(
        self, text: str, partition: int | None = None, holders: Sequence[str] = ()
    ) -> Operation[RowLines]:
        """The rows of a pull query. `partition`: of a scan, the only one that is read; `holders`:
        the addresses to ask first."""
        deadline_s = self._deadline(None)
        yield from self._members(deadline_s)
        # half of what is left for one node, so that a second can answer
        patience_s = max(self.settings.patience_s, (deadline_s - self.clock()) / 2)
        properties = {} if partition is None else {PARTITION_PROPERTY: partition}
        body = self.settings.read_body(text, properties)
        ask = Ask(LOOKUP_PATH, body, LINES, text, patience_s)
        attempt = Attempt(self.nodes, ask, deadline_s, holders)
        yield from alone(attempt, self.clock)
        assert attempt.answer is not None
        return lines_of(attempt.answer, text)
