"""A read that no replica answered: which error it is, and why. Pure.

Three outcomes that must not be mixed up (DESIGN section 1, promise 1): a missing key is an answer
without rows and never comes here; a table of which no replica holds a whole batch is *not ready*,
with its progress; everything else is *no replica*, with one verdict per replica.

Source: the article's text; KLIP-12. Not here: the verdicts themselves (`control.routing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from standpipe.control.routing import Verdict
from standpipe.errors import NoReplica, NotReady, StandpipeError
from standpipe.model import ReplicaState, ReplicaStatus, Source
from standpipe.node.forward import Refused


def is_not_ready(status: ReplicaStatus | None) -> bool:
    """Whether a replica has yet to see its first whole batch; others have failed, or lag."""
    return status is None or status.state in (ReplicaState.ABSENT, ReplicaState.BOOTSTRAP)


def progress(status: ReplicaStatus | None) -> float | None:
    """Share of the changelog that a replica has read, 0 to 1; None: its end is unknown."""
    if status is None or status.log_end < 0:
        return None
    return min(1.0, status.position / status.log_end) if status.log_end else 1.0


def judged(verdict: Verdict, refusal: Refused) -> Verdict:
    """The verdict after a try: the refusal's reason, and its lag where the replica said it."""
    lag = verdict.lag_records if refusal.lag_records is None else refusal.lag_records
    return replace(verdict, ok=False, why=refusal.why, lag_records=lag)


def unanswered(
    text: str,
    source: Source,
    partition: int,
    verdicts: Sequence[Verdict],
    refusals: Sequence[Refused],
    *,
    now_boot_ms: int,
) -> StandpipeError:
    """The error of a partition that nobody answered for. `verdicts`: one per replica, as tried.

    Nobody refused where no replica is assigned yet: a table so young is not ready.
    """
    if all(refusal.is_not_ready for refusal in refusals):
        furthest = max((r.progress for r in refusals if r.progress is not None), default=None)
        percent = "unknown" if furthest is None else f"{100 * furthest:.0f} %"
        return NotReady(
            f"{source.name} is not ready: no replica of partition {partition} holds a whole batch "
            f"yet. Progress: {percent}.",
            progress=furthest,
            verdicts=[verdict.describe(now_boot_ms) for verdict in verdicts],
        )
    return no_replica(text, partition, verdicts, now_boot_ms)


def no_replica(
    statement: str, partition: int, verdicts: Iterable[Verdict], now_boot_ms: int
) -> NoReplica:
    """The error of a read that no replica may answer. Source: the article's text and KLIP-12."""
    listed = list(verdicts)
    reasons = "; ".join(str(verdict) for verdict in listed)
    return NoReplica(
        f"Unable to execute pull query {statement}. "
        "All nodes are dead or exceed max allowed lag."
        f" [Partition {partition}: {reasons or 'no replica is assigned'}]",
        partition=partition,
        verdicts=[verdict.describe(now_boot_ms) for verdict in listed],
    )


def refusal_to_peer(refusal: Refused) -> StandpipeError:
    """What the target of a forward answers; `why` becomes the verdict at the node that asked."""
    if refusal.is_not_ready:
        return NotReady(refusal.why, why=refusal.why, progress=refusal.progress)
    if refusal.assignment_epoch:
        return NoReplica(
            refusal.why,
            why=refusal.why,
            replicas=list(refusal.owners),
            assignment_epoch=refusal.assignment_epoch,
        )
    return NoReplica(refusal.why, why=refusal.why, lag_records=refusal.lag_records)
