"""Whether rows have what a session wrote. Pure.

A token says up to which offsets a session has written in which topics, or seen them in push
queries. Rows of a batch have that if the batch covers these offsets, or an older batch under no
newer lease epoch does. A topic that the table does not depend on is of no account.

Not here: what batches cover (`covered_offsets.py`), what else a token wants
(`control/routing/session.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from standpipe.data.commit.covered_offsets import (
    CoveredBatch,
    CoveredBatches,
    ToldEnds,
    TopicOffsets,
)
from standpipe.session_token import TopicKey

#: what a token says: {topic: {partition: offset after the last record that was written}}
Writes = Mapping[TopicKey, Mapping[int, int]]


class Lacking(NamedTuple):
    """Rows lack something that was written. `is_final`: waiting does not help."""

    why: str
    is_final: bool = False


def first_covering(writes: Writes, known: CoveredBatches) -> CoveredBatch | None:
    """The oldest batch that covers the writes; None: none that is known."""
    return next((each for each in known.batches if _missing(writes, each) is None), None)


def lacking(
    writes: Writes, known: CoveredBatches, batch: int, lease_epoch: int, told: ToldEnds | None
) -> Lacking:
    """What rows of this batch lack, which do not cover the writes as far as is known. `told`: where
    topics ended after the read had arrived; None: Kafka has not answered since."""
    if not known.batches:
        return Lacking("it is not known yet what its rows have read.")
    shown = [
        each for each in known.batches if each.batch <= batch and each.lease_epoch <= lease_epoch
    ]
    # of rows that are older than all that is known, the newest tells what the table depends on
    missing = _missing(writes, shown[-1] if shown else known.batches[-1])
    if missing is None:
        wanted = known.batches[-1]
        return Lacking(
            f"wanted batch {wanted.batch} (lease epoch {wanted.lease_epoch}), which has read what "
            f"was written, had batch {batch} (lease epoch {lease_epoch})."
        )
    key, partition = missing
    end = writes[key][partition]
    wanted = _named(key, partition, end)
    ends = None if told is None else told.topics.get(key.topic)
    if ends is not None:
        never = why_never(key, partition, end, ends)
        if never:
            return Lacking(never, is_final=True)
    has = shown[-1].topics[key.topic] if shown else TopicOffsets()
    if not _is_same(key, has):
        return Lacking(f"{wanted}, had read an older topic of that name.")
    return Lacking(f"{wanted}, had {has.offsets.get(partition, 0) if shown else 'less'}.")


def why_never(key: TopicKey, partition: int, end: int, ends: TopicOffsets) -> str:
    """Why nobody will ever read a topic up to an offset; "": it is there. `ends`: where the topic
    ended after the request had arrived."""
    wanted = _named(key, partition, end)
    if not _is_same(key, ends):
        return f"{wanted}. The topic was created again since."
    there = ends.offsets.get(partition, 0)
    if there < end:
        return f"{wanted}. After the read arrived, Kafka's partition ended at {there}."
    return ""


def _named(key: TopicKey, partition: int, end: int) -> str:
    return f"wanted {key.topic}, partition {partition}, up to offset {end}"


def _missing(writes: Writes, has: CoveredBatch) -> tuple[TopicKey, int] | None:
    """The first topic and partition that the batch does not cover."""
    for key, wanted in writes.items():
        covered = has.topics.get(key.topic)
        if covered is None:
            continue
        is_same = _is_same(key, covered)
        for partition, end in wanted.items():
            if not is_same or covered.offsets.get(partition, 0) < end:
                return key, partition
    return None


def _is_same(key: TopicKey, other: TopicOffsets) -> bool:
    """Whether the id, where both are known, is the same."""
    return not key.topic_id or not other.topic_id or key.topic_id == other.topic_id
