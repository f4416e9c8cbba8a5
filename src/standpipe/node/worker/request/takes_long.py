"""Which requests a worker leaves to a heavy worker: those that may take long.

| request | why |
|---|---|
| a scan, a pull query on a stream | reads as many rows as there are |
| rows with functions of texts or lists, LIKE, lambdas | one row may take a second |
| a text of more than SHORT_TEXT_CHARS_MAX of unknown shape, but for lists of keys | 30 µs a token |
| statements in a body of more than STATEMENTS_BYTES_MAX | likewise |

A heavy worker answers them with a lower priority of the processor, and no lookup waits for it. In
threads beside the loop of lookups they would take the interpreter from it.

Not here: how a request comes to a heavy worker (`node.worker.heavy_workers`).
"""

from __future__ import annotations

from typing import Final

from standpipe.sql.lookup.list_shapes import ListText
from standpipe.sql.plans import PullPlan

#: Planned in at most 60 ms. Shorter texts, and those that only list many keys, are planned by the
#: worker that has the lookups: it knows their shape from then on.
SHORT_TEXT_CHARS_MAX: Final = 2_000
#: an INSERT of some columns has a tenth of that
STATEMENTS_BYTES_MAX: Final = 2_000


class TakesLong(Exception):
    """The request is one for a heavy worker; nothing was sent for it."""


def refuse_unknown(text: str) -> None:
    """Raises TakesLong for a text of an unknown shape that is not planned here."""
    if len(text) > SHORT_TEXT_CHARS_MAX and ListText.read(text) is None:
        raise TakesLong


def refuse_long(plan: PullPlan) -> None:
    """Raises TakesLong."""
    if plan.is_scan or plan.has_costly_rows or plan.source.kind == "STREAM":
        raise TakesLong
