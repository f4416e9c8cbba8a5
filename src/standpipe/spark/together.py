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
    try:
        checkpoint.inherit(*newest.values(), otherwise=_begun_in(checkpoint.root, newest))
    except QueryFailed:
        _check_each(members, newest, checkpoint)
        raise
    begun = _tables_of(checkpoint.directory).begun
    valid = committed_by_all(newest, begun)
    following = checkpoint.next_batch(valid)
    _check_together(members, newest, begun, following)
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
    return min(_positions(newest, begun).values(), default=NO_BATCH)


def _positions(
    newest: Mapping[str, Progress | None], begun: Mapping[str, int]
) -> dict[str, BatchId]:
    """{query id: the newest batch of a table}, of those that have begun."""
    return {
        query_id: BatchId(begun[query_id] - 1) if batch is None else batch.commit.batch
        for query_id, batch in newest.items()
        if batch is not None or query_id in begun
    }


def begun_with(
    newest: Mapping[str, Progress | None], begun: Mapping[str, int], following: int
) -> dict[str, int]:
    """`SharedTables.begun` of these tables: a new one begins with `following`, the next batch. Who
    is no longer among them, and comes back, has committed nothing of what it has missed."""
    return {
        query_id: begun.get(query_id, 0 if batch is not None else following)
        for query_id, batch in newest.items()
    }


def _check_each(
    members: Sequence[WantedQuery], newest: Mapping[str, Progress | None], checkpoint: Checkpoint
) -> None:
    """Called if no directory has the newest batches of all tables. Raises QueryFailed that names
    those which are not in the directory of the others, and ServeEnded if they were left out for so
    long that Spark has removed what their batches covered."""
    known = {each.table.name: newest[each.query_id] for each in members}
    found = {
        name: (batch.commit.batch, checkpoint.epochs_with(batch))
        for name, batch in known.items()
        if batch is not None
    }
    by_batch = sorted(found.values(), key=lambda each: each[0], reverse=True)
    there = next((epochs for _, epochs in by_batch if epochs), set[LeaseEpoch]())
    lost = [name for name, (_, epochs) in found.items() if not epochs & there]
    first = checkpoint.first_batch_kept(max(there)) if there else 0
    names, drops = ", ".join(lost), _drops(lost)
    if lost and all(found[name][0] < first for name in lost):
        raise ServeEnded(
            "APART",
            f"{names}: left out for so long, or written by another program until now, that the"
            f" checkpoint, which begins with batch {first}, does not say what the newest batch"
            f" covered. Leave that out, or begin it again with the next batch: {drops}",
        )
    if lost:  # else each two of them are in one, but not all: `inherit` says it
        raise QueryFailed(
            "CHECKPOINT_LOST",
            f"readers have seen batches of {names} that the checkpoint {checkpoint.root} does not"
            " have as they were committed: it was lost, or is an old copy, or another program has"
            f" written {names} until now. Restore it, or leave that out, or begin it again with"
            f" the next batch: {drops}",
        )


def _check_together(
    members: Sequence[WantedQuery],
    newest: Mapping[str, Progress | None],
    begun: Mapping[str, int],
    following: int,
) -> None:
    """A batch that some tables have is replayed for the others. Raises ServeEnded if it is more
    than one: those after it would be planned again, and the tables that have them miss events."""
    names = [each.table.name for each in members if is_apart(newest[each.query_id], following)]
    if not names:
        return
    at = _positions(newest, begun)
    last, ahead = min(at.values()), max(at.values())
    behind = [
        each.table.name
        for each in members  # a new table is not behind: it begins with the next batch
        if (own := at.get(each.query_id)) is not None and (own == last or own + 2 < ahead)
    ]
    raise ServeEnded(
        "APART",
        f"{', '.join(names)}: several batches ahead of {', '.join(behind)},"
        " which was left out, or whose last program was paused. Leave that out, or begin it again"
        f" with the next batch: {_drops(behind)}",
    )


def _drops(names: Sequence[str]) -> str:
    return " ".join(f"DROP TABLE {name};" for name in names)


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


def _begun_in(root: CheckpointPath, newest: Mapping[str, Progress | None]) -> CheckpointPath | None:
    """The newest directory that says of a table that it has begun after others, if none of these
    has a batch yet; None: there is none. In an empty one, it would begin at the beginning."""
    if any(newest.values()):
        return None
    for _, path in sorted(epochs_below(root).items(), reverse=True):
        begun = _tables_of(path).begun
        if any(begun.get(query_id, 0) > 0 for query_id in newest):
            return path
    return None


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
        raise QueryFailed(
            "CHECKPOINT_DAMAGED",
            f"{path} cannot be read: {error}. Restore it; if each of its tables has rows, it is not"
            " needed, and may be removed",
        ) from error
