"""A read that no replica answered: which error it is, and why. Pure.

Outcomes that must not be mixed up (promise 1): a missing key is an answer
without rows and never comes here; a table of which no replica holds a whole batch is *not ready*,
with its progress; a session token that no answer can cover is *refused*; everything else is *no
replica*, with one verdict per replica.

Source: ksqlDB's error text; KLIP-12. Not here: the verdicts themselves (`control.routing.route`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from traceback import clear_frames
from typing import Final

from standpipe.control.routing.route import Verdict
from standpipe.control.routing.session import IMPOSSIBLE, SessionVerdict
from standpipe.errors import NoReplica, NotReady, StandpipeError, TokenRefused
from standpipe.model import NodeId, ReplicaState, ReplicaStatus, Source
from standpipe.node.worker.pull.forward import TOO_SLOW, ForwardRefused
from standpipe.session_token import FORGED_OR_LOST

#: partitions that a message names; the details name all
NAMED_PARTITIONS_MAX: Final = 8
NOT_DONE: Final = "It was not done in time."


def is_not_ready(status: ReplicaStatus | None) -> bool:
    """Whether a replica has yet to see its first whole batch; others have failed, or lag."""
    return status is None or status.state in (ReplicaState.ABSENT, ReplicaState.BOOTSTRAP)


def readable(status: ReplicaStatus | None, verdict: Verdict) -> ReplicaStatus:
    """The status of the local replica, if it may be read. Raises ForwardRefused if not."""
    if not verdict.ok or status is None:
        raise ForwardRefused(
            verdict.why,
            is_not_ready=is_not_ready(status),
            progress=progress(status),
            lag_records=verdict.lag_records,
        )
    return status


def progress(status: ReplicaStatus | None) -> float | None:
    """Share of the changelog that a replica has read, 0 to 1; None: its end is unknown."""
    if status is None or status.log_end < 0:
        return None
    return min(1.0, status.position / status.log_end) if status.log_end else 1.0


def judged(verdict: Verdict, refusal: ForwardRefused) -> Verdict:
    """The verdict after a try: the refusal's reason, and its lag if the replica gave it."""
    lag = verdict.lag_records if refusal.lag_records is None else refusal.lag_records
    return replace(verdict, ok=False, why=refusal.why, lag_records=lag)


class Unanswered(Exception):
    """No replica answered for some partitions of a table. `note`: sentences that the client gets
    behind the reasons."""

    note = ""

    def __init__(self, source: Source, failures: Sequence[Failure]) -> None:
        super().__init__("no replica answered")
        self.source, self.failures = source, failures

    @property
    def is_final(self) -> bool:
        """Whether no later try can be answered."""
        return any(failure.is_impossible for failure in self.failures)


@dataclass(frozen=True)
class Failure:
    """A partition that no replica answered for. `tried`: its replicas, in routing's order, and what
    each said. Empty if no replica is assigned yet."""

    partition: int
    tried: Sequence[tuple[Verdict, ForwardRefused]]

    @property
    def is_impossible(self) -> bool:
        """Whether every replica says that no answer will ever cover the session's token."""
        return bool(self.tried) and all(one.session in IMPOSSIBLE for _, one in self.tried)

    @property
    def is_not_ready(self) -> bool:
        """True too if no replica is assigned: a table so new is not ready."""
        return all(refusal.is_not_ready for _, refusal in self.tried)

    @property
    def is_too_slow(self) -> bool:
        """Whether a replica worked on it until the time was over: it is no replica's fault."""
        return any(refusal.why.startswith(TOO_SLOW) for _, refusal in self.tried)

    @property
    def progress(self) -> float | None:
        """Progress of the furthest replica, 0 to 1; None: unknown."""
        said = (refusal.progress for _, refusal in self.tried)
        return max((share for share in said if share is not None), default=None)

    def __str__(self) -> str:
        reasons = "; ".join(str(judged(verdict, refusal)) for verdict, refusal in self.tried)
        return f"[Partition {self.partition}: {reasons or 'no replica is assigned'}]"


def fault_of_all(faults: Sequence[BaseException]) -> BaseException:
    """Of a query whose partitions failed: a fault that is no refusal, else what each one said.

    The caller's frame refers to them all, and is in their tracebacks: what these have of rows is
    dropped."""
    for fault in faults:
        clear_frames(fault.__traceback__)
    failed = [fault for fault in faults if isinstance(fault, Unanswered)]
    if len(failed) < len(faults):
        return next(fault for fault in faults if not isinstance(fault, Unanswered))
    return Unanswered(failed[0].source, [one for each in failed for one in each.failures])


def client_error(text: str, unanswered: Unanswered, *, now_boot_ms: int) -> StandpipeError:
    """The error of a query for which some partitions have no answer.

    It does not depend on the order of the failures. If one of them is not ready, so is the query:
    no other bound and no other node helps before that replica has a whole batch, so a client should
    wait. Otherwise the error is *no replica*. The details name every partition that failed, with
    one verdict per replica; the message names the first ones.
    """
    listed = sorted(unanswered.failures, key=lambda failure: failure.partition)
    details: dict[str, object] = {
        "partition": listed[0].partition,
        "partitions": [failure.partition for failure in listed],
        "verdicts": [
            {"partition": failure.partition, **judged(verdict, refusal).describe(now_boot_ms)}
            for failure in listed
            for verdict, refusal in failure.tried
        ],
    }
    impossible = next((failure for failure in listed if failure.is_impossible), None)
    if impossible is not None:
        return TokenRefused(
            f"{FORGED_OR_LOST} {impossible}",
            **details,
        )
    young = [failure for failure in listed if failure.is_not_ready]
    others = [failure for failure in listed if not failure.is_not_ready]
    reasons = " ".join(str(failure) for failure in others[:NAMED_PARTITIONS_MAX])
    if len(others) > NAMED_PARTITIONS_MAX:
        reasons += f" and {len(others) - NAMED_PARTITIONS_MAX} more partitions"
    if not young:
        is_too_slow = any(failure.is_too_slow for failure in listed)
        why = NOT_DONE if is_too_slow else "All nodes are dead or exceed max allowed lag."
        said = f"{why} {reasons} {unanswered.note}".rstrip()
        return NoReplica(f"Unable to execute pull query {text}. {said}", **details)
    shares = [failure.progress for failure in young]
    known = [share for share in shares if share is not None]
    least = min(known) if len(known) == len(shares) else None
    percent = "unknown" if least is None else f"{100 * least:.0f} %"
    names = ", ".join(str(failure.partition) for failure in young[:NAMED_PARTITIONS_MAX])
    names += ", …" if len(young) > NAMED_PARTITIONS_MAX else ""
    return NotReady(
        f"{unanswered.source.name} is not ready: no replica of partition{'s'[: len(young) > 1]} "
        f"{names} holds a whole batch yet. Progress: {percent}."
        f"{' Besides: ' if reasons else ''}{reasons}",
        progress=least,
        **details,
    )


def with_map(
    refusal: ForwardRefused, sent_epoch: int | None, epoch: int, owners: Sequence[NodeId]
) -> ForwardRefused:
    """The refusal of a forward, with this node's map if the sender can use it.

    A node that was wrongly asked names the owners instead. And a sender with an older map learns
    the newer one from any refusal: it may name replicas that the sender does not know. An epoch
    alone never causes a refusal. The store says which rows a replica has (table id, generation,
    position), not the map: a holder answers, whatever the two maps say.

    `sent_epoch`: of the sender's map; None: it does not say. `owners`: of what was asked for.
    """
    is_behind = sent_epoch is not None and sent_epoch < epoch
    if not (refusal.is_not_owner or is_behind):
        return refusal
    if refusal.is_not_owner and sent_epoch is not None and sent_epoch > epoch:
        refusal.why += f" This host's map is older: assignment epoch {epoch}, not {sent_epoch}."
    refusal.owners, refusal.assignment_epoch = tuple(owners), epoch
    return refusal


def refusal_to_peer(refusal: ForwardRefused) -> StandpipeError:
    """What the target of a forward answers; `why` becomes the verdict at the node that asked."""
    said: dict[str, object] = {"why": refusal.why}
    if refusal.progress is not None:
        said["progress"] = refusal.progress
    if refusal.lag_records is not None:
        said["lag_records"] = refusal.lag_records
    if refusal.session is not SessionVerdict.COVERED:
        said["session"] = refusal.session.value
    if refusal.assignment_epoch:
        said["replicas"] = list(refusal.owners)
        said["assignment_epoch"] = refusal.assignment_epoch
    error = NotReady if refusal.is_not_ready else NoReplica
    return error(refusal.why, **said)
