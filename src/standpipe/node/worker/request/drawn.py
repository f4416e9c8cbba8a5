"""The values that RANDOM(), UUID() and UNIX_TIMESTAMP() have: of one statement, and of one row."""

from __future__ import annotations

import os
import random
import time
import uuid

from standpipe.node.worker.request.body import Lookup, parse_lookup, with_values
from standpipe.sql.expressions.statement_values import DAY_MS, StatementValues, are_in


def statement_values() -> StatementValues:
    """Of a statement that begins now, by the wall clock."""
    return StatementValues(int(time.time() * 1000), os.urandom(16))


def drawn(name: str) -> object:
    """The value of a call in a row that is pushed now (`statement_values.Draw`)."""
    match name:
        case "UUID":
            return str(uuid.uuid4())
        case "RANDOM":
            return random.random()  # noqa: S311 - SQL's RANDOM() keeps no secret
        case "UNIX_TIMESTAMP":
            return int(time.time() * 1000)
        case _:
            return int(time.time() * 1000) // DAY_MS


def settled(body: bytes, *, is_forwarded: bool) -> tuple[Lookup, bytes]:
    """The query in a body, and the body to forward. The node that was asked draws the values of a
    pull query; a push query's come row by row. Raises BadRequest."""
    asked = parse_lookup(body)
    if is_forwarded or not are_in(asked.text):
        return asked, body
    return with_values(asked, body, statement_values())
