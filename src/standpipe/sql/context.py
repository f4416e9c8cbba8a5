"""What the analyser knows beside the statement and the sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Context:
    """`properties`: the session's, on top of the server's. `topics`: partitions of each topic of
    Kafka, looked into only where a statement needs it. `next_index`: log index that the statement
    will get, part of the ids of its query and its table."""

    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    topics: Mapping[str, int] = field(default_factory=dict[str, int])
    next_index: int = 1
    #: name of CREATE TYPE -> what it stands for
    types: Mapping[str, str] = field(default_factory=dict[str, str])

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.properties.get(name)
        return default if text is None else str(text).lower() == "true"
