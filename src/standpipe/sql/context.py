"""What the analyser knows beside the statement and the sources, and the ids that it makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of one statement; the same context gives the same plan.

    `properties`: the session's, on top of the server's. `topics`: Kafka's topics with their
    partition counts, read only where a statement needs them; the mapping may raise
    KafkaUnavailable. `next_index`: index in the log that the statement will get, part of the ids
    of its query and its table.
    """

    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    topics: Mapping[str, int] = field(default_factory=dict[str, int])
    next_index: int = 1
    #: name of CREATE TYPE -> the type that it stands for, in ksqlDB's spelling
    types: Mapping[str, str] = field(default_factory=dict[str, str])

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean property of the session: true for the text "true" in any case."""
        text = self.properties.get(name)
        return default if text is None else str(text).lower() == "true"

    def table_id(self, name: str) -> str:
        """The id that a stream or table made now gets: ORDERS_42. No later one repeats it."""
        return f"{sanitised(name)}_{self.next_index}"


def sanitised(name: str) -> str:
    """A name as file names, topics and ids may hold it: [A-Z0-9_] only."""
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())
