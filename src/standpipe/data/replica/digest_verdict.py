"""Do the replicas of a table partition hold the same rows?  What their digests say about it.

Replicas at the same batch must have the same digest. Digests of different batches cannot be
compared: ask for them again. A replica whose digest, recomputed from its rows, differs from the
stored one has diverged; otherwise, among three or more, it is the one that differs from most.

Not here: asking the nodes (`node/controller/digest_check.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from standpipe.data.replica.positions import StoreIdentity
from standpipe.model import BatchId, NodeId, Offset, Record

#: batches whose digests a replica remembers: replicas are seldom seen at the same batch
RECENT_BATCHES: Final = 8


class StoreDigest(Record, frozen=True, kw_only=True):
    """A store's digest of its rows, read in one transaction."""

    position: Offset
    batch: BatchId
    digest: int | None  # stored with each transaction; None: the store predates digests
    #: computed from the rows now; None: not requested, or a row is damaged
    recomputed: int | None = None
    #: "": every row that was checked matches its checksum
    damage: str = ""


class KeptDigests(Record, frozen=True, kw_only=True):
    """The newest batches of one replica, kept by the tailer: a row of `run/digests.json`."""

    identity: StoreIdentity
    recent: tuple[StoreDigest, ...]  # oldest first, at most RECENT_BATCHES


class ReplicaDigest(Record, frozen=True, kw_only=True):
    """A replica's answer. `error`: why there is none."""

    node_id: NodeId
    partition: int
    of: StoreDigest | None = None
    error: str = ""


class Agreement(Enum):
    """Whether the replicas of one partition agree."""

    EQUAL = "equal"
    DIFFERENT = "different"  # at the same batch with different rows: an alarm
    APART = "apart"  # at different batches, as under load: ask again
    ALONE = "alone"  # fewer than two replicas have reported a digest: nothing to compare


class DigestVerdict(Record, frozen=True, kw_only=True):
    """The verdict on one partition. `odd`: diverged replicas, if they can be identified."""

    partition: int
    agreement: Agreement
    odd: tuple[NodeId, ...] = ()


def at_one_batch(
    partition: int, recent: Mapping[NodeId, Sequence[StoreDigest]]
) -> list[ReplicaDigest]:
    """Reports on the batch that most replicas remember; if there are several, on the newest."""
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
    """`replicas`: answers of all replicas of one partition that were asked."""
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
    """Nodes whose stores can be read now."""
    return tuple(one.node_id for one in replicas if one.of is not None)


def to_rebuild(verdict: DigestVerdict, who_answers: Sequence[NodeId]) -> tuple[NodeId, ...]:
    """The diverged replicas, but never all of those that answer.

    At least one must keep answering reads and serve as a source for copies, and a fault common to
    all may be ours. A holder that is down does not count: it may never come back.
    """
    return verdict.odd if set(who_answers) - set(verdict.odd) else ()
