"""What a node is asked about a table, and what its answers say. Pure.

    describe ─► described   its columns
    route    ─► routed      who holds each partition

When this is asked, and for how long an answer is kept: `client/core/operations.py` for lookups,
`client/core/whole_tables.py` for whole tables.
"""

from __future__ import annotations

from typing import Any

import msgspec

from standpipe.client.core.answers import entities_of, no_answer
from standpipe.client.core.attempts import Ask
from standpipe.client.core.exchange import HttpAnswer
from standpipe.client.core.tables import SourceShape, holders_of_route
from standpipe.sql.types.names import name_literal


def describe(name: str, patience_s: float) -> Ask:
    """Asks for the columns of a table or stream, by its folded name."""
    text = f"DESCRIBE {name_literal(name)};"
    body = msgspec.json.encode({"ksql": text})
    return Ask("/ksql", body, statement=text, patience_s=patience_s)


def described(answer: HttpAnswer) -> SourceShape:
    """Raises StandpipeError: there is no such source."""
    (entity, *_) = [*entities_of(answer), {}]
    return SourceShape.read(entity.get("sourceDescription", {}))


def route(name: str, patience_s: float) -> Ask:
    """Asks who holds the partitions of a table, by its folded name."""
    in_url = "".join(f"%{byte:02X}" for byte in name.encode())
    return Ask(f"/route?table={in_url}", patience_s=patience_s)


def routed(answer: HttpAnswer) -> tuple[tuple[str, ...], ...]:
    """The addresses for each partition, best first. Raises StandpipeError: it is none that is
    served."""
    return holders_of_route(json_of(answer))


def json_of(answer: HttpAnswer) -> dict[str, Any]:
    """The body of an answer that is an object. Raises ServerRefused."""
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise no_answer(answer.body) from error
