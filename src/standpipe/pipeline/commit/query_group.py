"""Which queries share one streaming query of Spark, and its plan: a file in the group's checkpoint.

    <checkpoints>/GROUP_<table ids' hash>-1/group.json, standpipe.json, epoch-N/…

A group begins with all its members and only loses some: one that is paused, dropped, replaced, or
whose lease another pipeline holds leaves it, and keeps a copy of the group's checkpoint, from which
it continues alone with the group's plan. A query never enters a group that has begun.

Not here: which queries may form one (`sql/spark/group_sql.py`, `run/group/wanted_run.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import structlog

from standpipe.adapters.files.named_paths import folder_below
from standpipe.model import LeaseEpoch, Record
from standpipe.pipeline.commit.checkpoint import Checkpoint, Identity
from standpipe.pipeline.io.checkpoint_path import CheckpointPath, write_whole
from standpipe.pipeline.wanted import WantedQuery, digest_of
from standpipe.sql.spark.group_sql import GroupPlan

GROUP_FILE: Final = "group.json"
_PREFIX: Final = "GROUP_"

_logger = structlog.get_logger("query_group")


class GroupMember(Record, frozen=True, kw_only=True):
    """A query in a group. Its plan is that of the table's generation, which never changes."""

    query_id: str
    table_id: str
    generation: int

    @classmethod
    def of(cls, wanted: WantedQuery) -> GroupMember:
        """The member that a query would be."""
        return cls(
            query_id=wanted.query_id,
            table_id=wanted.table.table_id or "",
            generation=wanted.table.generation,
        )


class QueryGroup(Record, frozen=True, kw_only=True):
    """A group. `members`: in the order of the plan's numbers; `together`: the ids of those that
    have not left it."""

    group_id: str
    service_id: str
    plan: GroupPlan
    members: tuple[GroupMember, ...]
    together: tuple[str, ...]

    @classmethod
    def begin(cls, wanted: Sequence[WantedQuery], plan: GroupPlan, service_id: str) -> QueryGroup:
        """A group of all these queries. Ids of tables are never reused, so its id is neither."""
        members = tuple(GroupMember.of(each) for each in wanted)
        named = ",".join(f"{each.table_id}-{each.generation}" for each in members)
        digest = hashlib.sha256(named.encode()).hexdigest()[:16].upper()
        return cls(
            group_id=f"{_PREFIX}{digest}",
            service_id=service_id,
            plan=plan,
            members=members,
            together=tuple(each.query_id for each in members),
        )

    @property
    def identity(self) -> Identity:
        """What marks its checkpoint."""
        return Identity(
            service_id=self.service_id,
            query_id=self.group_id,
            table_id="",
            generation=1,
            plan_sha256=digest_of(self.plan),
        )

    def number_of(self, wanted: WantedQuery) -> int | None:
        """The number of a query in the plan; None: it is no member."""
        member = GroupMember.of(wanted)
        return self.members.index(member) if member in self.members else None

    def root(self, checkpoints: CheckpointPath) -> CheckpointPath:
        """The folder of its checkpoint."""
        return folder_below(checkpoints, f"{self.group_id}-1")


def groups_below(checkpoints: CheckpointPath, service_id: str) -> list[QueryGroup]:
    """The groups of this service. A damaged file is left out, and logged: its members cannot be
    started, as their checkpoints are not where they are looked for.

    Raises OSError if storage does not give a file. Nobody knows then who is in that group, and a
    member that started alone would say CHECKPOINT_LOST for good.
    """
    found: list[QueryGroup] = []
    for path in sorted(checkpoints.glob(f"{_PREFIX}*/{GROUP_FILE}")):
        try:
            group = msgspec.json.decode(path.read_bytes(), type=QueryGroup)
        except FileNotFoundError:
            continue  # removed a moment ago
        except msgspec.MsgspecError as error:
            _logger.error("a group cannot be read", path=str(path), why=str(error))
            continue
        if group.service_id == service_id:
            found.append(group)
    return found


def write_group(group: QueryGroup, checkpoints: CheckpointPath) -> None:
    """Create the group's file, or replace it, at once and whole. Raises OSError."""
    root = group.root(checkpoints)
    if not root.exists():
        Checkpoint(root, LeaseEpoch(0)).claim(group.identity)
    write_whole(root / GROUP_FILE, msgspec.json.format(msgspec.json.encode(group)))


def without(group: QueryGroup, gone: Iterable[str]) -> QueryGroup:
    """The group once these queries have left it. One that is left alone has left it, too."""
    lost = set(gone)
    left = tuple(each for each in group.together if each not in lost)
    return msgspec.structs.replace(group, together=left if len(left) > 1 else ())
