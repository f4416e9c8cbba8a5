"""Direct tables (APPLY='DIRECT'): which statements read what nodes follow without a query."""

from __future__ import annotations

from typing import Final

from standpipe.model import Source
from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.errors import refusal

#: value of APPLY in a WITH clause
DIRECT: Final = "DIRECT"
DIRECT_TABLE: Final = f"A table with APPLY='{DIRECT}'"
#: who cannot read such a table, for `check_readable`
SPARK: Final = "A query in Spark"
PUSH: Final = "EMIT CHANGES"


def check_readable(source: Source, what: str, at: Position | None) -> None:
    """Refuses `what`, which reads committed batches, of a table that has none.

    Raises StatementError that says what to declare instead.
    """
    if source.is_direct:
        raise refusal(
            f"{what} cannot read {source.name}: a table with APPLY='{DIRECT}' answers pull queries"
            f" only. Declare its topic '{source.topic}' once more, with CREATE STREAM or CREATE"
            " TABLE, and read that.",
            at,
        )
