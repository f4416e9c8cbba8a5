"""The checkpoint that several tables of one query share, and which of them have begun in it.

    <checkpoint>/SERVED_TABLES-1/standpipe.json, epoch-N/tables.json, epoch-N/offsets/, …

A table begins with the batch that is next when the program first serves it: what came before is not
in it, unless it is loaded. `tables.json` says which batch that was. Without it, a table that has
committed nothing could not be told from one whose program was killed before it committed its first
batch. Each lease epoch has its own, as it has its own logs of Spark, so that a program which has
lost its leases decides nothing.

Not here: the decisions that groups of queries in a pipeline share with this
(`data/commit/takeover.py`), the files of Spark (`pipeline/commit/checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from standpipe.adapters.files.named_paths import folder_below
from standpipe.data.commit.takeover import is_apart, streamed
from standpipe.model import NO_BATCH, BatchId, LeaseEpoch, Progress, Record
from standpipe.pipeline.commit.checkpoint import Checkpoint, Identity, epochs_below
from standpipe.pipeline.commit.topic_check import TopicCheck
from standpipe.pipeline.failures import QueryFailed
from standpipe.pipeline.io.checkpoint_path import CheckpointPath, write_whole
from standpipe.pipeline.run.start.query_run import PipelineContext, TakenOver, take_over
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark.errors import ServeEnded

ID: Final = "SERVED_TABLES"
MEMBERS_FILE: Final = "tables.json"

_logger = structlog.get_logger("standpipe.spark")


class SharedTables(Record, frozen=True, kw_only=True):
    """The tables of a checkpoint. `begun`: {query id: the first batch that the table has}."""

    begun: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])


def resume_together(
    members: Sequence[WantedQuery], around: PipelineContext, is_there: Callable[[str], bool]
) -> tuple[list[TakenOver], Checkpoint]:
    """Take the queries of all these tables over: the checkpoint then continues after the batch that
    all of them have. `is_there`: whether the catalog has a query.

    Raises NotYet, Fenced, QueryFailed, KafkaUnavailable, and ServeEnded if a table is too far ahead
    of the others.
    """
    checks = [TopicCheck(each, around.log) for each in members]
    seen = [each.need(around.service_id) for each in checks]
    checkpoint = _claimed(members, around, is_there)
    taken = [
        take_over(wanted, topics, there, around)
        for wanted, topics, there in zip(members, checks, seen, strict=True)
    ]
    newest = {each.wanted.query_id: streamed(each.newest) for each in taken}
    checkpoint.inherit(*newest.values())
    begun = _tables_of(checkpoint.directory).begun
    valid = committed_by_all(newest, begun)
    following = checkpoint.next_batch(valid)
    _check_together(members, newest, following)
    gone = checkpoint.roll_back(valid)
    if gone.commits or gone.offsets:
        _logger.warning("batches rolled back", checkpoint=str(checkpoint.root), after=valid)
    after = SharedTables(begun=begun_with(newest, begun, following))
    write_whole(checkpoint.directory / MEMBERS_FILE, msgspec.json.encode(after))
    return taken, checkpoint


def committed_by_all(newest: Mapping[str, Progress | None], begun: Mapping[str, int]) -> BatchId:
    """The newest batch that all tables have, of those that have begun; NO_BATCH: there is none.

    `newest`: {query id: the newest batch of a stream}; `begun`: as in `SharedTables`.
    """
    found = [
        begun[query_id] - 1 if batch is None else batch.commit.batch
        for query_id, batch in newest.items()
        if batch is not None or query_id in begun
    ]
    return BatchId(min(found, default=NO_BATCH))


def begun_with(
    newest: Mapping[str, Progress | None], begun: Mapping[str, int], following: int
) -> dict[str, int]:
    """`SharedTables.begun` of these tables: a new one begins with `following`, the next batch. Who
    is no longer among them, and comes back, has committed nothing of what it has missed."""
    return {
        query_id: begun.get(query_id, 0 if batch is not None else following)
        for query_id, batch in newest.items()
    }


def _check_together(
    members: Sequence[WantedQuery], newest: Mapping[str, Progress | None], following: int
) -> None:
    """A batch that some tables have is replayed for the others. Raises ServeEnded if it is more
    than one: those after it would be planned again, and the tables that have them miss events."""
    names = [each.table.name for each in members if is_apart(newest[each.query_id], following)]
    if not names:
        return
    behind = [each for each in members if _is_behind(newest[each.query_id], following)]
    drops = " ".join(f"DROP TABLE {each.table.name};" for each in behind)
    raise ServeEnded(
        "APART",
        f"{', '.join(names)}: several batches ahead of {', '.join(e.table.name for e in behind)},"
        " which was left out, or whose last program was paused. Leave that out, or begin it again"
        f" with the next batch: {drops}",
    )


def _is_behind(newest: Progress | None, following: int) -> bool:
    return newest is None or newest.commit.batch <= following


def _claimed(
    members: Sequence[WantedQuery], around: PipelineContext, is_there: Callable[[str], bool]
) -> Checkpoint:
    """The checkpoint, marked as ours. Raises QueryFailed if it is that of other tables."""
    root = folder_below(around.checkpoints, f"{ID}-1")
    # named by a lease of our own, as no two programs may ever share a directory
    newest = max(each.lease_epoch for each in members)
    checkpoint = Checkpoint(root, newest, is_of_group=True)
    checkpoint.claim(
        Identity(
            service_id=around.service_id, query_id=ID, table_id="", generation=1, plan_sha256=""
        )
    )
    others = _tables_of(_newest_directory(root)).begun.keys() if epochs_below(root) else set[str]()
    still = sorted(query_id for query_id in others if is_there(query_id))
    if still and others.isdisjoint(each.query_id for each in members):
        raise QueryFailed(
            "CHECKPOINT_MISMATCH",
            f"the checkpoint {root} is that of other tables, which {', '.join(still)} write: give"
            " each `serve_many` a directory of its own",
        )
    return checkpoint


def _newest_directory(root: CheckpointPath) -> CheckpointPath:
    found: Mapping[LeaseEpoch, CheckpointPath] = epochs_below(root)
    return found[max(found)]


def _tables_of(directory: CheckpointPath) -> SharedTables:
    """Raises QueryFailed if the file is damaged."""
    path = directory / MEMBERS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SharedTables)
    except FileNotFoundError:
        return SharedTables()
    except msgspec.MsgspecError as error:
        raise QueryFailed("CHECKPOINT_DAMAGED", f"{path} cannot be read: {error}") from error
