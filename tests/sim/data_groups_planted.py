"""Bugs of tables that share a streaming query (see `data_planted`): others cannot catch them.

One that is not caught soon enough to be here: who leaves a group gets no copy of its checkpoint.
The group keeps what it needs for another hundred batches.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from standpipe.data.commit import takeover
from standpipe.model import NO_BATCH, LeaseEpoch
from standpipe.pipeline.commit import checkpoint as checkpoint_files
from standpipe.pipeline.commit.checkpoint import Checkpoint
from standpipe.pipeline.run.group.groups import Groups
from standpipe.pipeline.run.start import checkpoints

from .data_groups_driver import SimMember
from .runner import Plant, replacing


def go_on_behind_the_furthest_member() -> list[Plant]:
    """A driver died between two tables of a batch: for the others, the next one skips it."""

    def furthest_ahead(newest: Any) -> Any:
        return max(NO_BATCH if each is None else each.commit.batch for each in newest)

    return [(takeover, "furthest_behind", furthest_ahead)]


def inherit_what_is_furthest() -> list[Plant]:
    """The heir is the checkpoint with the most batches, whoever wrote them."""

    def heir_of(found: Any, *newest: Any) -> Any:
        if not any(newest):
            return None
        return max(found, key=lambda epoch: max(found[epoch].offsets, default=-1), default=None)

    return [(checkpoint_files, "heir_of", heir_of)]


def agree_with_one_member() -> list[Plant]:
    """The heir must have the newest batch of the first member; nobody asks for the others."""

    def make(heir_of: Any) -> Any:
        return lambda found, *newest: heir_of(found, *newest[:1])

    return [replacing(checkpoint_files, "heir_of", make)]


def fence_the_first_member_alone() -> list[Plant]:
    """One lease of the group is checked and fenced. The others are taken for its own, too."""

    def make(take_over: Any) -> Any:
        def lax(member: Any) -> Any:
            if member.of_run.wanted.query_ids[0] == member.world.query_id:
                return (yield from take_over(member))
            records = member.world.read_progress(member.world.progress.end)
            yield 1
            for record in records:
                member.janitor.book.take(record)
            stand = takeover.standing(records, member.world.query_id, member.lease_epoch)
            return takeover.Standing(newest=stand.newest, fenced_by=None)

        return lax

    return [
        replacing(SimMember, "take_over", make),
        (SimMember, "check_lease", lambda member: None),
    ]


def share_the_directory_of_a_group() -> list[Plant]:
    """All that ever run a group, or a part of it, write to one directory."""

    def make(checkpoint_of: Any) -> Any:
        def shared(run: Any, own: Any, root: Path) -> Any:
            found = checkpoint_of(run, own, root)
            return Checkpoint(found.root, LeaseEpoch(1)) if len(run.members) > 1 else found

        return shared

    return [replacing(checkpoints, "checkpoint_of", make)]


def return_to_the_group() -> list[Plant]:
    """A member that has run alone meanwhile comes back, and the group goes on where it was."""
    return [
        (Checkpoint, "has_epochs", lambda checkpoint: False),
        (checkpoints.Groups, "let_leave", lambda groups, group_id, query_ids: None),
    ]


def replay_what_a_member_has_passed() -> list[Plant]:
    """An older batch, which is replayed for the others, is written over a member's newer rows."""
    return [(takeover, "takes_part", lambda newest, batch: True)]


def plan_again_what_readers_saw() -> list[Plant]:
    """A batch that one member has committed is planned again for all, and may cover less."""
    return [(takeover, "is_planned_otherwise", lambda newest, batch, ends: False)]


def form_a_group_of_what_another_pipeline_has_taken() -> list[Plant]:
    """Two pipelines form groups at once, and a query is in both."""
    return [(Groups, "_is_taken", lambda groups, query: True)]


PLANTS: tuple[Callable[[], list[Plant]], ...] = (
    go_on_behind_the_furthest_member,
    inherit_what_is_furthest,
    agree_with_one_member,
    fence_the_first_member_alone,
    share_the_directory_of_a_group,
    return_to_the_group,
    replay_what_a_member_has_passed,
    plan_again_what_readers_saw,
    form_a_group_of_what_another_pipeline_has_taken,
)
