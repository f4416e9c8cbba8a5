"""Topics that CREATE STREAM, TABLE and SOURCE TABLE read: which are made, and what forbids it.

Not here: whether the topic is there (`sql.ddl.create`), its configuration in Kafka
(`control.metadata.topic_reconciler`).
"""

from __future__ import annotations

from collections.abc import Callable

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.feature_levels import SOURCE_TOPICS
from standpipe.errors import StatementError
from standpipe.model import Source, TopicSpec


def made(source: Source) -> TopicSpec:
    """The topic of a declared source whose statement says PARTITIONS.

    That of a table is compacted, as in ksqlDB (TopicCreateInjector): under the broker's retention,
    rows that nobody changes would vanish.
    """
    return TopicSpec(
        name=source.topic,
        partitions=source.partitions,
        kind="TABLE" if source.kind == "TABLE" else "SOURCE",
        retention_ms=source.retention_ms,
    )


def check_stays(
    source: Source,
    catalog: Catalog,
    refused: Callable[[str], StatementError],
    *,
    is_made: bool,
) -> None:
    """Raises the error that `refused` builds for a topic that is being deleted: what reads it would
    not see the one that comes after it. `is_made`: the statement makes the next one."""
    if not is_made and source.topic in catalog.doomed_topics:
        raise refused(f"Topic {source.topic} is being deleted. Try again, or name PARTITIONS.")


def check_level(source: Source, catalog: Catalog, refused: Callable[[str], StatementError]) -> None:
    """`feature_levels.at_level` would refuse a source table with its topic, too, and not say what
    to do instead."""
    level = catalog.feature_level
    if level < SOURCE_TOPICS:
        raise refused(
            f"CREATE SOURCE TABLE makes its topic from feature level {SOURCE_TOPICS} on, this"
            f" cluster is at {level}: create topic {source.topic} first, or `standpipe quorum"
            " upgrade`, once every node runs the newer release."
        )
