"""Whether the records of a batch were written once.

On a Spark cluster a task runs again if its executor is lost, or a shuffle file that it reads. What
it has written before stays in the topic, under the same commit, so readers would see it: in a
stream, an event twice; in a table, older rows behind newer ones, if the first run of the task still
writes on a machine that the driver cannot reach. Spark does not tell the batch.

So a batch counts its records in the plan, where only the last run of each task counts, and compares
the topics. They usually grew by that number. Where they did not, others may have written to them,
and the records with this commit are counted. A batch that fails here is computed again under
another attempt, whose records alone are visible.

In local mode a batch fails with its first task, and nothing is counted (`WriteLimits.counts`).
"""

from __future__ import annotations

from collections.abc import Mapping

from standpipe.adapters.kafka.connection import Kafka
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.model import Commit, Offset
from standpipe.pipeline.io.topic_reader import read_between


class NotWrittenOnce(Exception):
    """A task of the batch ran more than once, and wrote each time; or Kafka has lost records."""


def grown_by(before: Mapping[int, int], ends: Mapping[int, int]) -> int:
    """How many offsets a topic has more."""
    return sum(ends.values()) - sum(before.values())


def records_of(
    kafka: Kafka, topic: str, commit: Commit, before: Mapping[int, int], ends: Mapping[int, int]
) -> int:
    """How many records between these offsets have this commit. Raises KafkaUnavailable."""
    header = commit_header(commit)
    return sum(
        dict(record.headers or ()).get(HEADER_COMMIT) == header
        for partition, end in ends.items()
        if end > before[partition]
        for records in read_between(kafka, topic, partition, before[partition], Offset(end))
        for record in records
        if record.offset < end
    )
