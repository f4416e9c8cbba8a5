"""Entities of a request's statements, encoded as they are made, up to a limit of bytes.

Encoded, an entity takes a fifth of what its dictionaries take, and the limit counts what is kept:
200 times SHOW FUNCTIONS would be 185 MB in a worker that serves lookups meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from standpipe.errors import BadRequest
from standpipe.node.worker.statements.show import Entity

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


class Answers:
    """`encoded`: the entities so far, in the order of their statements."""

    def __init__(self) -> None:
        self.encoded: list[msgspec.Raw] = []
        self._bytes = 0

    def add(self, entities: Sequence[Entity]) -> None:
        """Raises BadRequest when the answers are too long together; this one is left out."""
        for entity in entities:
            raw = msgspec.json.encode(entity)
            if self._bytes + len(raw) > ANSWER_BYTES_MAX:
                raise BadRequest(
                    f"the answers of this request are longer than {ANSWER_BYTES_MAX} bytes: send "
                    "fewer statements at a time"
                )
            self._bytes += len(raw)
            self.encoded.append(msgspec.Raw(raw))
