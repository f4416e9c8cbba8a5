"""Direct tables (APPLY='DIRECT'): what the catalog forbids.

Not here: what their statement cannot have (`sql.ddl.direct_table`).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET
from msgspec.structs import replace

from standpipe.control.metadata.catalog import Catalog, topics_of
from standpipe.control.metadata.commands import Command, CreateSource
from standpipe.control.metadata.feature_levels import DIRECT
from standpipe.errors import StatementError
from standpipe.model import Source


def check(source: Source, catalog: Catalog, refused: Callable[[str], StatementError]) -> None:
    """Raises the error that `refused` builds, if the table cannot be there in this catalog.

    A topic that a query of ours writes has records that are not committed, which only the query's
    own table hides. A tailer reads each partition once.
    """
    if not source.is_direct:
        return
    if catalog.feature_level < DIRECT:
        raise refused(
            f"APPLY='DIRECT' needs feature level {DIRECT}, this cluster is at"
            f" {catalog.feature_level}: `standpipe quorum upgrade`, once every node runs the newer"
            " release."
        )
    for other in catalog.generations:
        if other.name == source.name or source.topic not in topics_of(other):
            continue
        if other.query_id is not None:
            raise refused(
                f"Topic {source.topic} is written by query {other.query_id}, so a table with"
                f" APPLY='DIRECT' would show what is not committed. Read {other.name} instead."
            )
        if other.takes_inserts:
            raise refused(
                f"Topic {source.topic} is written by INSERT INTO {other.name}, so a table with"
                f" APPLY='DIRECT' would show what is not committed. Read {other.name} instead."
            )
        if other.is_direct:
            raise refused(
                f"Topic {source.topic} is followed by table {other.name} already, and two tables"
                f" with APPLY='DIRECT' cannot follow one topic. Read {other.name} instead."
            )


def check_not_followed(
    topic: str, catalog: Catalog, refused: Callable[[str], StatementError]
) -> None:
    """Raises the error that `refused` builds, if a query must not write this topic, since a direct
    table would show what it has not committed."""
    for other in catalog.generations:
        if other.is_direct and other.topic == topic:
            raise refused(
                f"Topic {topic} is followed by table {other.name} (APPLY='DIRECT'), which would"
                " show what a query has not committed. Name another KAFKA_TOPIC."
            )


def of_one_topic(command: Command, topic_id_of: Callable[[str], str]) -> Command:
    """The command; if it makes a direct table, the table names Kafka's id of its topic (KIP-516).

    Otherwise a replica that begins after the topic was made again would follow the new topic, while
    the others report DATA_LOSS. `topic_id_of`: a topic's name to its id; "": Kafka gives none.
    """
    if not isinstance(command, CreateSource) or not command.source.is_direct:
        return command
    topic_id = topic_id_of(command.source.topic)
    return replace(command, source=replace(command.source, topic_id=topic_id or UNSET))
