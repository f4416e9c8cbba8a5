"""A query's checkpoint directory: its owner, what its batches cover, and rolling batches back.

It holds Spark's files (`offsets/N`, `commits/N`, `state/`) and our `standpipe.json`.
Spark gives a checkpoint no identity: with another query's checkpoint it would silently skip events.

Order of events in a batch: Spark writes offsets/N, we write records and the progress record, Spark
writes commits/N. So the commit log may trail the progress topic by one batch (after a crash between
the two; Spark replays N). It is ahead only if the progress record was void, because a newer
pipeline had fenced the one that wrote it. Those batches are rolled back (`surplus`).

Formats: Spark's OffsetSeqLog (first line `v1`, then metadata, then one line per source).
Not here: the progress topic (`progress_log.py`), what is different in Hadoop's file systems
(`pipeline/io/checkpoint_path.py`).
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

from standpipe.data.commit.takeover import Logs, Surplus, heir_of, next_batch, surplus
from standpipe.data.commit.topic_identity import differ
from standpipe.model import BatchId, LeaseEpoch, Progress, Record
from standpipe.pipeline.failures import QueryFailed
from standpipe.pipeline.io.checkpoint_path import (
    CheckpointPath,
    copy_tree,
    draft_names,
    remove_tree,
    rename,
    write_whole,
)

IDENTITY_FILE = "standpipe.json"
#: holds the name of the public topic that the table's rows were written to, and Kafka's id of it
PUBLISHED_FILE = "published"
#: Spark's file with the id of the streaming query
_SPARK_ID_FILE = "metadata"
#: name of a lease epoch's directory: this and the number
EPOCH = "epoch-"
#: prefixes of epoch directories that lack what was committed, or that are not complete yet
UNFIT, DRAFT = "unfit-", "new-"
#: prefix of the mark of a draft whose copy may still be under way
COPYING = "copying-"
#: in such a directory: what the batches cover that are planned again, as they were
PLANNED = "planned"


class Identity(Record, frozen=True, kw_only=True):
    """The query that owns a checkpoint. Two are the same query if all fields are equal, except that
    a later revision may have another plan."""

    service_id: str
    query_id: str
    table_id: str
    generation: int
    plan_sha256: str
    revision: int = 1

    def follows(self, other: Identity) -> bool:
        """Whether this is a later revision of the query `other`, replaced in place."""
        same = msgspec.structs.replace(self, plan_sha256=other.plan_sha256, revision=other.revision)
        return same == other and self.revision > other.revision


@dataclass(frozen=True, kw_only=True)
class BatchOffsets:
    """What Spark decided that a batch covers, from its offset log."""

    #: topic -> partition -> offset at which the batch ends, exclusive
    ends: dict[str, dict[int, int]]
    watermark_ms: int
    #: when Spark chose these offsets (Unix ms, driver's clock)
    started_ms: int


def parse_offset_log(text: str) -> BatchOffsets:
    """One file of `offsets/`. Raises ValueError when it is not Spark's version 1, or torn.

    A topic that is read twice has two lines; the smaller offset applies to both. Of what a source
    other than Kafka says, a digest is kept, as the name of a topic that cannot exist.
    """
    version, metadata, *sources = text.splitlines() or [""]
    if version != "v1" or not sources:
        raise ValueError(f"an offset log of version {version!r} with {len(sources)} sources")
    said = cast("dict[str, Any]", json.loads(metadata))
    ends: dict[str, dict[int, int]] = {}
    for number, line in enumerate(sources):
        for topic, offsets in topics_of(line, number).items():
            known = ends.setdefault(topic, {})
            for partition, offset in offsets.items():
                known[int(partition)] = min(offset, known.get(int(partition), offset))
    return BatchOffsets(
        ends=ends,
        watermark_ms=int(said.get("batchWatermarkMs", 0)),
        started_ms=int(said.get("batchTimestampMs", 0)),
    )


def topics_of(line: str, number: int = 0) -> dict[str, dict[str, int]]:
    """The offsets of source `number`, as Spark prints them. Raises ValueError if it is no JSON."""
    said: Any = {} if line == "-" else json.loads(line)
    if isinstance(said, dict):
        topics = cast("dict[str, Any]", said)
        if all(map(_is_of_topic, topics.values())):
            return topics
    return {f"source:{number}:{hashlib.sha256(line.encode()).hexdigest()}": {}}


def _is_of_topic(said: Any) -> bool:
    if not isinstance(said, dict):
        return False
    offsets = cast("dict[str, Any]", said)
    return all(key.isdecimal() and type(offset) is int for key, offset in offsets.items())


def records_between(
    starts: Mapping[str, Mapping[int, int]], ends: Mapping[str, Mapping[int, int]]
) -> int:
    """Number of source records in a batch. A new partition starts at 0."""
    return sum(
        offset - starts.get(topic, {}).get(partition, 0)
        for topic, offsets in ends.items()
        for partition, offset in offsets.items()
    )


class Checkpoint:
    """The checkpoint of one query: `root` holds its identity, and a directory per lease epoch.

    Spark writes to `directory`, which is ours alone. A fenced pipeline continues to write to its
    own: in a shared one it would decide what our batches cover (`data.commit.takeover.heir_of`).
    """

    def __init__(
        self,
        root: CheckpointPath,
        lease_epoch: LeaseEpoch,
        group_root: CheckpointPath | None = None,
        *,
        is_of_group: bool = False,
    ) -> None:
        """`group_root`: the checkpoint of the group that the query was in before it ran alone.
        `is_of_group`: `lease_epoch` is the newest of the members that are here, and one of a member
        that has left may be newer."""
        self.root, self.lease_epoch, self.group_root = root, lease_epoch, group_root
        self.is_of_group = is_of_group
        self.directory = root / f"{EPOCH}{lease_epoch}"

    def claim(self, identity: Identity) -> None:
        """Mark a new checkpoint as ours, or check that it is. Raises QueryFailed if it is not."""
        path = self.root / IDENTITY_FILE
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Identity)
        except FileNotFoundError:
            ignored = draft_names(IDENTITY_FILE)  # of a pipeline that could not finish it
            if self.root.exists() and any(each.name not in ignored for each in self.root.iterdir()):
                raise self._mismatch("it has files, but no standpipe.json") from None
            self.root.mkdir(parents=True, exist_ok=True)
            self._mark(path, identity)
            return
        except msgspec.MsgspecError as error:
            raise self._mismatch(f"its standpipe.json cannot be read: {error}") from error
        if identity.follows(found):
            self._mark(path, identity)
            return
        wanted, had = msgspec.to_builtins(identity), msgspec.to_builtins(found)
        differing = [name for name in wanted if wanted[name] != had.get(name)]
        if differing:
            what = "; ".join(f"{name} {had[name]!r}, not {wanted[name]!r}" for name in differing)
            raise self._mismatch(f"it belongs to another query: {what}")

    @staticmethod
    def _mark(path: CheckpointPath, identity: Identity) -> None:
        write_whole(path, msgspec.json.format(msgspec.json.encode(identity)))

    def is_published(self, topic: str, topic_id: str) -> bool:
        """Whether all rows of the table were once written to this public topic, and it was not
        recreated since. `topic_id`: Kafka's; "": unknown. Older releases recorded none."""
        name, _, known_id = self._published().partition("\n")
        return name == topic and not differ(known_id, topic_id)

    def mark_published(self, topic: str, topic_id: str) -> None:
        """Record that `is_published` holds for the topic."""
        said = f"{topic}\n{topic_id}" if topic_id else topic
        if self._published() != said:
            write_whole(self.root / PUBLISHED_FILE, said.encode())

    def _published(self) -> str:
        try:
            return (self.root / PUBLISHED_FILE).read_text()
        except FileNotFoundError:
            return ""

    def _mismatch(self, why: str) -> QueryFailed:
        return QueryFailed(
            "CHECKPOINT_MISMATCH",
            f"the checkpoint {self.root} is not this query's: {why}. Put the right one there, "
            "or DROP the table and create it again.",
        )

    def epochs_with(self, newest: Progress) -> set[LeaseEpoch]:
        """Those whose directories have this batch as it was committed."""
        paths = self._epochs().items()
        return {epoch for epoch, path in paths if self._heir({epoch: path}, [newest]) is not None}

    def first_batch_kept(self, epoch: LeaseEpoch) -> int:
        """The first batch of which a directory says what it covered: Spark keeps a hundred."""
        return min(_batches(self._epochs()[epoch] / "offsets"), default=0)

    def inherit(self, *newest: Progress | None, otherwise: CheckpointPath | None = None) -> None:
        """Create our directory as a copy of the one that has the newest batch that readers saw; of
        each member, if the checkpoint is that of a group. `otherwise`: the directory to copy if
        there is no such batch; None: ours begins empty.

        Raises QueryFailed when none has it: then the checkpoint was lost or is an old copy, and
        Spark would count events twice, or silently start over.
        """
        batches = {each.commit.batch for each in newest if each is not None}
        heir = self._heir(self._epochs(), newest)
        if heir is None and self.group_root is not None:
            heir = self._heir(epochs_below(self.group_root), newest)
        if heir is None and batches:
            ends = [max(_batches(path / "commits"), default=-1) for path in self._epochs().values()]
            raise QueryFailed(
                "CHECKPOINT_LOST",
                f"readers have seen batch {max(batches)}, and the checkpoint {self.root} does not "
                f"have it as it was committed (it ends at batch {max(ends, default=-1)}). "
                "Restore it, or DROP the table and create it again.",
            )
        heir = heir or otherwise
        if heir is None or heir == self.directory:
            self.directory.mkdir(exist_ok=True)
            return
        if self.directory.exists():
            aside = self.root / f"{UNFIT}{self.directory.name}-{time.time_ns()}"
            rename(self.directory, aside)
        self._copy(heir)
        if heir.parent == self.root:  # else it is of the group: nothing older is here
            for path in self._epochs().values():
                if _epoch_of(path) < _epoch_of(heir) and path != self.directory:
                    remove_tree(path)

    def _heir(
        self, paths: Mapping[LeaseEpoch, CheckpointPath], newest: Sequence[Progress | None]
    ) -> CheckpointPath | None:
        batches = {each.commit.batch for each in newest if each is not None}
        found = {epoch: self._logs(path, batches) for epoch, path in paths.items()}
        heir = heir_of(found, *newest)
        return None if heir is None else paths[heir]

    def _copy(self, heir: CheckpointPath) -> None:
        self._remove_abandoned()
        attempt = f"{self.directory.name}-{uuid.uuid4().hex}"
        draft, mark = self.root / f"{DRAFT}{attempt}", self.root / f"{COPYING}{attempt}"
        write_whole(mark, b"")
        try:
            copy_tree(heir, draft)
            remove_tree(draft / PLANNED)  # `roll_back` makes it again
            if heir.parent != self.root:
                # two queries run from it from now on, and Spark runs one of the same id at a time
                spark_id = json.dumps({"id": str(uuid.uuid4())})
                write_whole(draft / _SPARK_ID_FILE, spark_id.encode())
            mark.unlink()  # if it is gone, a newer lease epoch has removed files of the draft
            rename(draft, self.directory)
        except (OSError, Py4JError):  # the next try makes another one
            with suppress(OSError):
                mark.unlink(missing_ok=True)
            remove_tree(draft)
            raise

    def _remove_abandoned(self) -> None:
        """Remove the drafts of older lease epochs. Each may be gigabytes, and a driver that dies
        while it copies leaves one.

        Their writers are fenced: our fence comes before our copy. A fenced writer that was paused
        may still copy. It would recreate the folders that were removed, end with a draft that lacks
        files, and rename that to its epoch, from which a later take-over could continue. So each
        draft has a mark beside it. The writer unlinks the mark before it renames the draft; another
        process unlinks the mark before it removes the draft. Only one of them succeeds.

        A draft of an older release has no mark, and stays for a week (`checkpoint_cleanup.py`). So
        do those of a group: the holder of an older lease may run some of its queries."""
        if self.is_of_group:
            return
        for mark in self.root.glob(f"{COPYING}{EPOCH}*"):
            epoch = mark.name.removeprefix(f"{COPYING}{EPOCH}").partition("-")[0]
            if epoch.isdecimal() and int(epoch) < self.lease_epoch:
                with suppress(OSError):
                    mark.unlink()
                    remove_tree(self.root / f"{DRAFT}{mark.name.removeprefix(COPYING)}")

    def has_epochs(self) -> bool:
        """Whether the query has ever run from a directory of its own."""
        return bool(epochs_below(self.root))

    def _epochs(self) -> dict[LeaseEpoch, CheckpointPath]:
        """Directories of this lease epoch and older ones; of a group, all."""
        found = epochs_below(self.root)
        if self.is_of_group:
            return found
        return {epoch: path for epoch, path in found.items() if epoch <= self.lease_epoch}

    def _logs(self, directory: CheckpointPath, read: Collection[BatchId]) -> Logs:
        """The logs of a directory. What a batch covers is read for these only."""
        covers: dict[int, dict[str, dict[int, int]]] = {
            n: {} for n in _batches(directory / "offsets")
        }
        for batch in covers.keys() & read:
            path = directory / "offsets" / str(batch)
            try:
                covers[batch] = parse_offset_log(path.read_text()).ends
            except (FileNotFoundError, ValueError):  # not OSError: storage may be away for a while
                del covers[batch]
        return Logs(frozenset(_batches(directory / "commits")), covers)

    def roll_back(self, valid: BatchId) -> Surplus:
        """Make Spark continue after batch `valid`. Returns what was removed. What the batches
        cover that are planned again is kept aside (`put_back`). Raises OSError, after which it can
        be called again: what it had kept until then stays."""
        commits, offsets = (_batches(self.directory / log) for log in ("commits", "offsets"))
        gone = surplus(commits, offsets, valid)
        aside = self.directory / PLANNED
        for batch in _batches(aside):
            if batch <= next_batch(commits, valid):  # it is not planned again
                (aside / str(batch)).unlink()
        if gone.offsets:
            aside.mkdir(exist_ok=True)
        for batch in gone.offsets:
            write_whole(aside / str(batch), (self.directory / "offsets" / str(batch)).read_bytes())
        for log, batches in (("offsets", gone.offsets), ("commits", gone.commits)):
            for batch in reversed(batches):  # newest first: a crash in between leaves no gap
                (self.directory / log / f".{batch}.crc").unlink(missing_ok=True)
                (self.directory / log / str(batch)).unlink()
        return gone

    def put_back(self, batch: int) -> None:
        """Let a batch that was planned again cover what it did before `roll_back`. The query must
        be started again: Spark reads what its last batch covers when it starts."""
        offsets = self.directory / "offsets"
        (offsets / f".{batch}.crc").unlink(missing_ok=True)  # of the file that is replaced
        write_whole(offsets / str(batch), (self.directory / PLANNED / str(batch)).read_bytes())

    def next_batch(self, valid: BatchId) -> int:
        """The batch that Spark will run first once `roll_back(valid)` is done."""
        return next_batch(_batches(self.directory / "commits"), valid)

    def offsets(self, batch: int) -> BatchOffsets:
        """What batch `batch` covers. Raises QueryFailed if Spark's file is not there or is damaged,
        and OSError if its storage cannot be reached."""
        path = self.directory / "offsets" / str(batch)
        try:
            return parse_offset_log(path.read_text())
        except (FileNotFoundError, ValueError) as error:
            raise QueryFailed("CHECKPOINT_DAMAGED", f"{path} cannot be read: {error}") from error


def epochs_below(root: CheckpointPath) -> dict[LeaseEpoch, CheckpointPath]:
    """The directories of lease epochs in a checkpoint."""
    found = root.glob(f"{EPOCH}*")
    return {_epoch_of(path): path for path in found if path.name.removeprefix(EPOCH).isdecimal()}


def _epoch_of(directory: CheckpointPath) -> LeaseEpoch:
    return LeaseEpoch(int(directory.name.removeprefix(EPOCH)))


def _batches(log: CheckpointPath) -> set[int]:
    try:
        names = [path.name for path in log.iterdir()]
    except FileNotFoundError:
        return set()
    return {int(name) for name in names if name.isdecimal()}
