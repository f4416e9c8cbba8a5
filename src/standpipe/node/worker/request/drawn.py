"""The values that RANDOM(), UUID() and UNIX_TIMESTAMP() have within one statement."""

from __future__ import annotations

import os
import time

from standpipe.node.worker.request.body import Lookup, parse_lookup, with_values
from standpipe.sql.expressions.statement_values import StatementValues, are_in


def statement_values() -> StatementValues:
    """Of a statement that begins now, by the wall clock."""
    return StatementValues(int(time.time() * 1000), os.urandom(16))


def settled(body: bytes, *, is_forwarded: bool) -> tuple[Lookup, bytes]:
    """The pull query in a body, and the body to forward. The node that was asked draws the values.
    Raises BadRequest."""
    asked = parse_lookup(body)
    if is_forwarded or not are_in(asked.text):
        return asked, body
    return with_values(asked, body, statement_values())
