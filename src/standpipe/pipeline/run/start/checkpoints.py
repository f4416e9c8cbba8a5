"""The checkpoint that a run starts from: a query's own, or that of its group.

Without Spark: the simulation of the data path (`tests/sim/data_groups.py`) calls these functions,
and is killed between and inside them. Not here: the files (`commit/checkpoint.py`), who is in a
group (`run/group/groups.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from standpipe.adapters.files.named_paths import folder_below
from standpipe.data.commit.takeover import furthest_behind, is_apart, standing
from standpipe.model import Progress
from standpipe.pipeline.commit.checkpoint import Checkpoint, Identity
from standpipe.pipeline.failures import NotYet, QueryFailed
from standpipe.pipeline.io.checkpoint_path import CheckpointPath
from standpipe.pipeline.run.group.groups import Groups
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.wanted import WantedQuery, plan_digest


def claimed(wanted: WantedQuery, checkpoints: CheckpointPath, service_id: str) -> Checkpoint:
    """The checkpoint of a query, marked as its own. Raises QueryFailed if it is another's."""
    query, table = wanted.query, wanted.table
    root = folder_below(checkpoints, f"{query.query_id}-{table.generation}")
    checkpoint = Checkpoint(root, wanted.lease_epoch)
    checkpoint.claim(
        Identity(
            service_id=service_id,
            query_id=query.query_id,
            table_id=table.table_id or "",
            generation=table.generation,
            plan_sha256=plan_digest(query.plan),
            revision=query.revision,
        )
    )
    return checkpoint


def checkpoint_of(
    run: WantedRun, own: Sequence[Checkpoint], checkpoints: CheckpointPath
) -> Checkpoint:
    """The checkpoint that a run uses. `own`: those of its queries. Raises QueryFailed."""
    group = run.group
    if group is None:
        return own[0]
    root = group.root(checkpoints)
    if len(run.members) == 1:
        return Checkpoint(own[0].root, own[0].lease_epoch, group_root=root)
    # named by a lease of our own, as no two pipelines may ever share a directory
    newest = max(each.lease_epoch for each in run.members)
    checkpoint = Checkpoint(root, newest, is_of_group=True)
    checkpoint.claim(group.identity)
    return checkpoint


def let_leave(
    run: WantedRun,
    own: Sequence[Checkpoint],
    groups: Groups,
    checkpoints: CheckpointPath,
    records: Callable[[], Iterable[Progress]],
) -> None:
    """Give each member that no longer runs with the others its copy of the checkpoint, before the
    others go on: Spark keeps the state of the last hundred batches only.

    `records`: the progress topic from its beginning, read when it is called. Raises NotYet if a
    query has run alone meanwhile: it has left.
    """
    group = run.group
    if group is None or len(run.members) == 1:
        return
    alone = [each.query_id for each, its in zip(run.members, own, strict=True) if its.has_epochs()]
    if alone:
        groups.let_leave(group.group_id, alone)
        raise NotYet("GROUP_CHANGED", f"{', '.join(alone)} left the group: it ran alone")
    here = {each.query_id for each in run.members}
    together = set(groups.current(group.group_id).together)  # not as it was when the run was wanted
    gone = [each for each in group.members if each.query_id in together - here]
    if not gone:
        return
    read = list(records())
    for each in gone:
        # whatever its lease is now: what readers saw before its next fence is in these records
        newest = standing(read, each.query_id, run.members[0].lease_epoch).newest
        root = folder_below(checkpoints, f"{each.query_id}-{each.generation}")
        if newest is None or not root.exists():
            continue  # it was dropped, or has committed nothing
        copy = Checkpoint(root, newest.commit.lease_epoch, group_root=group.root(checkpoints))
        with contextlib.suppress(QueryFailed):  # also when another pipeline has copied it already
            copy.inherit(newest)
    groups.let_leave(group.group_id, [each.query_id for each in gone])


def let_apart_leave(
    run: WantedRun,
    own: Sequence[Checkpoint],
    newest: Sequence[Progress | None],
    checkpoint: Checkpoint,
    groups: Groups,
) -> None:
    """Let members leave that are too far ahead of the group's next batch, each with its copy of the
    checkpoint (`takeover.is_apart`). `newest`: of each member; `checkpoint`: of the run, before
    it is rolled back.

    Raises NotYet if there is one: the others start again without it. Raises QueryFailed if no
    directory has its newest batch.
    """
    if run.group is None or len(run.members) == 1:
        return
    following = checkpoint.next_batch(furthest_behind(newest))
    apart: list[str] = []
    for wanted, its, batch in zip(run.members, own, newest, strict=True):
        if batch is not None and is_apart(batch, following):
            copy = Checkpoint(its.root, batch.commit.lease_epoch, group_root=checkpoint.root)
            copy.inherit(batch)
            apart.append(wanted.query_id)
    if apart:
        groups.let_leave(run.group.group_id, apart)
        ids = ", ".join(apart)
        raise NotYet("GROUP_CHANGED", f"{ids} left the group: it was ahead of the others")
