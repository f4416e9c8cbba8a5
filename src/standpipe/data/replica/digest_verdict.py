"""Do the replicas of a table partition hold the same rows?  What their digests say of it.

Replicas at one batch must have one digest. Digests of different batches say nothing about each
other: then they are to be asked for again. A digest that was computed again from the rows and is
not the one that was kept beside them names the diverged replica; else, of three or more, the one
that differs from most.

Not here: asking the nodes (`node/controller/digest_check.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from standpipe.data.replica.positions import StoreIdentity
from standpipe.model import BatchId, NodeId, Offset, Record

#: batches that a replica remembers the digests of: replicas are seldom seen at one batch
RECENT_BATCHES: Final = 8


class StoreDigest(Record, frozen=True, kw_only=True):
    """What one store says of its rows, in one transaction."""

    position: Offset
    batch: BatchId
    digest: int | None  # kept with each transaction; None: of a store made before there was one
    #: computed from the rows now; None: not asked for, or a row is damaged
    recomputed: int | None = None
    #: "": every row is what its checksum says, as far as it was looked at
    damage: str = ""


class KeptDigests(Record, frozen=True, kw_only=True):
    """The newest batches of one replica as the tailer kept them: a row of `run/digests.json`."""

    identity: StoreIdentity
    recent: tuple[StoreDigest, ...]  # oldest first, at most RECENT_BATCHES


class ReplicaDigest(Record, frozen=True, kw_only=True):
    """A replica's answer. `error`: why there is none."""

    node_id: NodeId
    partition: int
    of: StoreDigest | None = None
    error: str = ""


class Agreement(Enum):
    """Of the replicas of one partition."""

    EQUAL = "equal"
    DIFFERENT = "different"  # at one batch, and not the same rows: an alarm
    APART = "apart"  # at different batches, as under load: ask again
    ALONE = "alone"  # fewer than two replicas have said a digest: nothing to compare


class DigestVerdict(Record, frozen=True, kw_only=True):
    """What is known of one partition. `odd`: diverged replicas, where they can be told."""

    partition: int
    agreement: Agreement
    odd: tuple[NodeId, ...] = ()


def at_one_batch(
    partition: int, recent: Mapping[NodeId, Sequence[StoreDigest]]
) -> list[ReplicaDigest]:
    """What replicas said of the batch that most of them remember, of those the newest."""
    labels = Counter((of.position, of.batch) for said in recent.values() for of in set(said))
    if not labels:
        return []
    label = max(labels, key=lambda each: (labels[each], each))
    return [
        ReplicaDigest(node_id=node_id, partition=partition, of=of)
        for node_id, said in recent.items()
        for of in said
        if (of.position, of.batch) == label
    ]


def judge(partition: int, replicas: Sequence[ReplicaDigest]) -> DigestVerdict:
    """`replicas`: all that were asked, of one partition."""
    said = [
        (one.node_id, one.of)
        for one in replicas
        if one.of is not None and (one.of.digest is not None or one.of.damage)
    ]
    odd = [
        node_id
        for node_id, of in said
        if of.damage or (of.recomputed is not None and of.recomputed != of.digest)
    ]
    if odd:
        return DigestVerdict(partition=partition, agreement=Agreement.DIFFERENT, odd=tuple(odd))
    if len(said) < 2:
        return DigestVerdict(partition=partition, agreement=Agreement.ALONE)
    if len({(of.position, of.batch) for _, of in said}) > 1:
        return DigestVerdict(partition=partition, agreement=Agreement.APART)
    votes = Counter(of.digest for _, of in said)
    if len(votes) == 1:
        return DigestVerdict(partition=partition, agreement=Agreement.EQUAL)
    (most, count), *_ = votes.most_common(1)
    if 2 * count > len(said):
        odd = [node_id for node_id, of in said if of.digest != most]
    return DigestVerdict(partition=partition, agreement=Agreement.DIFFERENT, odd=tuple(odd))


def answering(replicas: Sequence[ReplicaDigest]) -> tuple[NodeId, ...]:
    """Those whose stores can be read now."""
    return tuple(one.node_id for one in replicas if one.of is not None)


def to_rebuild(verdict: DigestVerdict, who_answers: Sequence[NodeId]) -> tuple[NodeId, ...]:
    """The diverged replicas, but never all of those that answer.

    At least one has to answer reads meanwhile and to be copied from, and what all have in common
    may be a fault of ours. A holder that is down does not count: it may never come back.
    """
    return verdict.odd if set(who_answers) - set(verdict.odd) else ()
