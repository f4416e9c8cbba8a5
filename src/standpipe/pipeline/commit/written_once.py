"""Whether the records of a batch were written once.

On a Spark cluster a task runs again if its executor is lost, or a shuffle file that it reads. What
it has written before stays in the topic, under the same commit, so readers would see it: in a
stream, an event twice; in a table, older rows behind newer ones, if the first run of the task still
writes on a machine that the driver cannot reach. Spark does not tell the batch.

So a batch counts its records in the plan, where each task counts once, and compares the topics.
They usually grew by that number. Where they did not, others may have written to them, and the
records with this commit are counted. Rows that fail here are written again under another attempt,
whose records alone are visible.

In local mode a batch fails with its first task, and nothing is counted (`WriteLimits.counts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from standpipe.adapters.kafka.connection import Kafka
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.model import Commit, Offset
from standpipe.pipeline.io.topic_reader import read_between


class NotWrittenOnce(Exception):
    """A task of the batch ran more than once, and wrote each time; or Kafka has lost records."""


class Grown(NamedTuple):
    """A topic while a batch was written to it: partition -> where it ended before, and after."""

    topic: str
    before: Mapping[int, int]
    ends: Mapping[int, int]


def check_once(kafka: Kafka, grown: Grown, commit: Commit, counted: int) -> None:
    """Raises NotWrittenOnce if the topic has not got `counted` records with this commit, and
    KafkaUnavailable."""
    if sum(grown.ends.values()) - sum(grown.before.values()) == counted:
        return
    found = records_of(kafka, grown, commit)
    if found != counted:
        raise NotWrittenOnce(f"{found} records in {grown.topic} for {counted} of the batch")


def records_of(kafka: Kafka, grown: Grown, commit: Commit) -> int:
    """How many of the new records have this commit. Raises KafkaUnavailable."""
    header = commit_header(commit)
    return sum(
        dict(record.headers or ()).get(HEADER_COMMIT) == header
        for partition, end in grown.ends.items()
        if end > grown.before[partition]
        for records in read_between(
            kafka, grown.topic, partition, grown.before[partition], Offset(end)
        )
        for record in records
        if record.offset < end
    )
