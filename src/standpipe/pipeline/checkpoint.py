"""A query's checkpoint directory: whose it is, what its batches cover, and taking one back.

Spark's files lie in it (`offsets/N`, `commits/N`, `state/`), and beside them our `standpipe.json`.
Spark gives a checkpoint no identity: run with another query's, it would silently skip events.

Order of things in a batch: Spark writes offsets/N, we write records and the progress record, Spark
writes commits/N. So the commit log may trail the progress topic by one batch (a crash between the
two; Spark replays N) and is never ahead of it, unless the progress record was void: written by a
pipeline that a newer one had fenced. Those batches are taken back (`surplus`).

Formats: Spark's OffsetSeqLog (first line `v1`, then metadata, then one line per source).
Not here: the progress topic (`progress_log.py`). Paths are local or mounted; other file systems
that Spark knows come with several pipelines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from standpipe.data.takeover import Surplus, is_lost, surplus
from standpipe.model import BatchId, Record, SparkPlan
from standpipe.pipeline.failures import QueryFailed

IDENTITY_FILE = "standpipe.json"


class Identity(Record, frozen=True, kw_only=True):
    """Of which query a checkpoint is. Two are the same query if all fields are equal."""

    service_id: str
    query_id: str
    table_id: str
    generation: int
    plan_sha256: str


@dataclass(frozen=True, kw_only=True)
class BatchOffsets:
    """What Spark decided a batch to be, from its offset log."""

    #: topic -> partition -> offset up to which the batch goes, exclusive
    ends: dict[str, dict[int, int]]
    watermark_ms: int
    #: when Spark chose these offsets (Unix ms, driver's clock)
    started_ms: int


def plan_digest(plan: SparkPlan) -> str:
    """SHA-256 of what a plan says. Fields that are unset do not count, so that a record which
    gains an optional field does not make every checkpoint another query's."""
    said = _without_unset(msgspec.to_builtins(plan))
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _without_unset(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {name: _without_unset(part) for name, part in items if part is not None}
    if isinstance(value, list | tuple):
        return [_without_unset(part) for part in cast("list[Any]", value)]
    return value


def parse_offset_log(text: str) -> BatchOffsets:
    """One file of `offsets/`. Raises ValueError when it is not Spark's version 1, or torn.

    A topic that is read twice has two lines; the smaller offset holds for both.
    """
    version, metadata, *sources = text.splitlines() or [""]
    if version != "v1" or not sources:
        raise ValueError(f"an offset log of version {version!r} with {len(sources)} sources")
    said = cast("dict[str, Any]", json.loads(metadata))
    ends: dict[str, dict[int, int]] = {}
    for line in sources:
        topics = cast("dict[str, dict[str, int]]", {} if line == "-" else json.loads(line))
        for topic, offsets in topics.items():
            known = ends.setdefault(topic, {})
            for partition, offset in offsets.items():
                known[int(partition)] = min(offset, known.get(int(partition), offset))
    return BatchOffsets(
        ends=ends,
        watermark_ms=int(said.get("batchWatermarkMs", 0)),
        started_ms=int(said.get("batchTimestampMs", 0)),
    )


def records_between(
    starts: Mapping[str, Mapping[int, int]], ends: Mapping[str, Mapping[int, int]]
) -> int:
    """Source records of a batch. A partition that is new has begun at 0."""
    return sum(
        offset - starts.get(topic, {}).get(partition, 0)
        for topic, offsets in ends.items()
        for partition, offset in offsets.items()
    )


class Checkpoint:
    """The checkpoint directory of one query."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def claim(self, identity: Identity) -> None:
        """Mark a new checkpoint, or see that it is ours. Raises QueryFailed."""
        path = self.directory / IDENTITY_FILE
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Identity)
        except FileNotFoundError:
            if self._batches("offsets"):
                raise self._mismatch("it has batches, but no standpipe.json") from None
            self.directory.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".tmp")
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(identity)))
            draft.replace(path)
            return
        except msgspec.MsgspecError as error:
            raise self._mismatch(f"its standpipe.json cannot be read: {error}") from error
        wanted, had = msgspec.to_builtins(identity), msgspec.to_builtins(found)
        differing = [name for name in wanted if wanted[name] != had.get(name)]
        if differing:
            what = "; ".join(f"{name} {had[name]!r}, not {wanted[name]!r}" for name in differing)
            raise self._mismatch(f"it belongs to another query: {what}")

    def _mismatch(self, why: str) -> QueryFailed:
        return QueryFailed(
            "CHECKPOINT_MISMATCH",
            f"the checkpoint {self.directory} is not this query's: {why}. Put the right one there, "
            "or DROP the table and create it again.",
        )

    def take_back(self, valid: BatchId) -> Surplus:
        """Make Spark go on after batch `valid`. Returns what was removed.

        Raises QueryFailed when `valid` is neither finished nor begun here: then the checkpoint
        was lost or is an old copy, and Spark would count events twice or begin anew in silence.
        """
        commits, offsets = self._batches("commits"), self._batches("offsets")
        if is_lost(commits, offsets, valid):
            newest = max(commits, default=-1)
            raise QueryFailed(
                "CHECKPOINT_LOST",
                f"readers have seen batch {valid}, but the checkpoint {self.directory} ends at "
                f"batch {newest}. Restore it, or DROP the table and create it again.",
            )
        gone = surplus(commits, offsets, valid)
        for log, batches in (("offsets", gone.offsets), ("commits", gone.commits)):
            for batch in reversed(batches):  # newest first: a crash in between leaves no gap
                (self.directory / log / f".{batch}.crc").unlink(missing_ok=True)
                (self.directory / log / str(batch)).unlink()
        return gone

    def offsets(self, batch: int) -> BatchOffsets:
        """What batch `batch` covers. Raises QueryFailed if Spark's file cannot be read."""
        path = self.directory / "offsets" / str(batch)
        try:
            return parse_offset_log(path.read_text())
        except (OSError, ValueError) as error:
            raise QueryFailed("CHECKPOINT_DAMAGED", f"{path} cannot be read: {error}") from error

    def _batches(self, log: str) -> set[int]:
        try:
            names = [path.name for path in (self.directory / log).iterdir()]
        except FileNotFoundError:
            return set()
        return {int(name) for name in names if name.isdecimal()}
