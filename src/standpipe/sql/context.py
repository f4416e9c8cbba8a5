"""What the analyser knows besides the statement and the sources, and the ids that it generates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from standpipe.config.statements import SOURCE_REPLICAS_MAX
from standpipe.sql.schemas.registry import Schemas
from standpipe.topics import TopicRules

#: of the readable part of ids: folders and topics are named after them
ID_CHARS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Context:
    """The context of one statement; the same context gives the same plan.

    `properties`: the session's, on top of the server's. `topics`: Kafka's topics with their
    partition counts, read only if a statement needs them; the mapping may raise
    KafkaUnavailable. `next_index`: the log index that the statement will get; it is part of the
    ids of its query and its table.
    """

    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    topics: Mapping[str, int] = field(default_factory=dict[str, int])
    next_index: int = 1
    #: name of a CREATE TYPE -> its definition, in ksqlDB's spelling
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    #: which topics its clauses may name
    rules: TopicRules = field(default_factory=TopicRules)
    replicas_max: int = SOURCE_REPLICAS_MAX.default
    #: asked only if a statement needs it; None: no schema registry is configured
    schemas: Schemas | None = None

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean property of the session: true for the text "true" in any case."""
        text = self.properties.get(name)
        return default if text is None else str(text).lower() == "true"

    def table_id(self, name: str) -> str:
        """The id of a stream or table that is created now: ORDERS_42. It is never reused."""
        return f"{sanitised(name)}_{self.next_index}"


def sanitised(name: str) -> str:
    """A name that is safe in file names, topics and ids: [A-Z0-9_] only, at most ID_CHARS_MAX."""
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())[:ID_CHARS_MAX]
