"""How many records of its source topics a table lacks, as far as is known. Pure.

    backlog = where Kafka said that the topics end - what the newest committed batch covers

Both are of the topics at the beginning of the chain that leads to the table. Markers of Kafka's
transactions and records that compaction removed count as records: nobody can tell before they are
read, so the backlog may be too large, and never too small.

Not here: what a batch covers (`covered_offsets.py`), how old an answer of Kafka may be
(`node/worker/statements/lags.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from standpipe.data.commit.covered_offsets import CoveredBatches, ToldEnds, TopicOffsets


class UnreadPartition(NamedTuple):
    """One partition of a source topic. `covered`: the newest committed batch has all before it."""

    topic: str
    partition: int
    end: int
    covered: int

    @property
    def records(self) -> int:
        """Those that no committed batch covers; the batch may be newer than the answer of Kafka."""
        return max(0, self.end - self.covered)


class SourceBacklog(NamedTuple):
    """`records` None: unknown, `why` says why. `partitions`: those of which it is known."""

    records: int | None
    why: str
    partitions: tuple[UnreadPartition, ...] = ()


def source_backlog(covered: CoveredBatches, told: ToldEnds) -> SourceBacklog:
    """The backlog of a table. `covered`: what its batches cover; `told`: where topics ended."""
    if not covered.batches:
        return SourceBacklog(None, "Nothing is committed, or it is not known yet what was read.")
    topics = covered.batches[-1].topics
    if not topics:
        return SourceBacklog(None, "It is not known which topics the table is made of.")
    found: list[UnreadPartition] = []
    why = ""
    for topic, read in sorted(topics.items()):
        ends = told.topics.get(topic)
        if ends is None:
            why = why or f"Kafka has not said where {topic} ends."
        elif _is_another(read, ends):
            why = why or f"{topic} was created again: what was read is of the older one."
        else:
            found += [
                UnreadPartition(topic, partition, end, read.offsets.get(partition, 0))
                for partition, end in sorted(ends.offsets.items())
            ]
    records = None if why else sum(each.records for each in found)
    return SourceBacklog(records, why, tuple(found))


def _is_another(read: TopicOffsets, ends: TopicOffsets) -> bool:
    """Whether both ids are known, and differ."""
    return bool(read.topic_id and ends.topic_id) and read.topic_id != ends.topic_id
