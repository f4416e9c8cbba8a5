"""Finds the ACL that a query lacks in Spark's error about a failed batch.

A missing ACL does not fail a query: the pipeline retries it until an operator has added the ACL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.refusals import denied
from standpipe.pipeline.wanted import WantedQuery

REASON: Final = "ACCESS_DENIED"
#: Java's clients name what they may not use, but not for which operation
_TOPICS: Final = re.compile(r"Not authorized to access topics: \[([^\]]+)\]")
_GROUP: Final = re.compile(r"Not authorized to access group: (\S+)")


def missing_acl(message: str, queries: Sequence[WantedQuery], kafka: Callable[[], Kafka]) -> str:
    """What to grant; "": the message is not about rights."""
    if found := _TOPICS.search(message):
        topic = str(found.group(1)).split(",")[0].strip()
        sinks = {name for each in queries for name in (each.table.topic, each.published_topic)}
        operation = "Write" if topic in sinks else "Read"
        return denied(connection_of(kafka()), operation, "topic", topic).message
    if found := _GROUP.search(message):
        return denied(connection_of(kafka()), "Read", "group", str(found.group(1))).message
    return ""
