"""Records on disk which queries are in a batch, for `blame.py` after a driver's death.

Each driver has a file beside the checkpoints with the queries that are in a batch, and holds a
lock on it while it lives. A file whose lock is free belongs to a dead driver; the pipeline that
starts one of these queries next counts that death. The file is not synced: a write to the page
cache survives the death of a process, and a power loss is not a query's fault. A write takes some
20 µs.

A query is marked from its start to the end of its first batch, and then during each batch: plans
are optimized before a batch's first step that we see, and expressions may already be computed then.
A batch that failed stays marked for LINGER_S: a JVM that runs out of memory first runs its shutdown
hooks, and answers meanwhile.

Rejected: entries in the metadata log (each batch would wait for the quorum, and a pipeline must
continue without it); marks in the progress topic (a write to Kafka per batch).

Not here: what a death means (`blame.py`).
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from standpipe.model import Record
from standpipe.pipeline.commit.blame import Blame, Docket, Turns, after_death, cleared, retried
from standpipe.pipeline.io.checkpoint_path import CheckpointPath

LINGER_S: Final = 10.0
ASK_EVERY_S: Final = 0.2
#: names in the folder of checkpoints. Its other entries are directories of queries, named <id>-<n>
FOLDER: Final = "standpipe-drivers"
_DOCKET, _LOCK, _MARKS = "docket.json", "lock", ".marks"

_logger = structlog.get_logger("batch_marks")


class Marks(Record, frozen=True, kw_only=True):
    """The content of a driver's file."""

    #: {query id: revision}
    in_batch: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    #: its JVM has ended, and the driver is about to
    has_lost_jvm: bool = False


class BatchMarks:
    """The marks of this driver, and the docket that all drivers share. For several threads.

    Without `start` it is in memory only. If the folder cannot be used, the pipeline works without:
    then no query is failed for a driver's death, which is logged.
    """

    def __init__(self) -> None:
        self.docket = Docket()
        self._turns = Turns()
        #: queries whose batch has reached its first step
        self._begun: set[str] = set()
        self._changed = threading.Condition()
        self._has_lost_jvm = False
        #: whether the newest change of the docket is in its file
        self._has_noted_all = False
        self._folder: Path | None = None
        self._path = Path()
        self._file = -1

    def start(self, checkpoints: CheckpointPath, service_id: str, driver_id: str) -> None:
        """Create this driver's file, and count the deaths of others."""
        if not isinstance(checkpoints, Path):
            why = "no directory of this machine is named with --notes; the checkpoints are in none"
            _logger.warning("deaths of this driver are held against no query", why=why)
            return
        folder = checkpoints / FOLDER / service_id
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._path = folder / f"{driver_id}{_MARKS}"
            draft = folder / f"{driver_id}.new"  # it gets its name once it is locked
            self._file = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            draft.rename(self._path)
        except OSError as error:
            _logger.error("deaths of this driver are held against no query", why=str(error))
            return
        self._folder = folder
        self.count_deaths()

    def close(self) -> None:
        """Remove the file: this driver ends in order, and what is in a batch is not to blame."""
        with self._changed:
            folder, self._folder = self._folder, None
            if folder is not None:
                self._path.unlink(missing_ok=True)
                os.close(self._file)

    def lost_jvm(self) -> None:
        """The JVM has ended by itself: what is in a batch now is to blame."""
        with self._changed:
            self._has_lost_jvm = True
            self._write()

    # ------------------------------------------------------------------------------ the docket

    def count_deaths(self) -> None:
        """Include the marks of drivers that have died since the last time."""
        dead: dict[Path, Marks] = {}
        with self._docket() as change:
            dead = self._dead_drivers()
            found = self.docket
            for path, left in dead.items():
                if path.name not in found.drivers:
                    found = after_death(found, left.in_batch, is_of_jvm=left.has_lost_jvm)
                    _logger.error(
                        "a driver has died",
                        driver=path.stem,
                        in_batch=sorted(left.in_batch),
                        is_of_jvm=left.has_lost_jvm,
                    )
            change(msgspec.structs.replace(found, drivers=tuple(path.name for path in dead)))
        if self._has_noted_all:  # a docket that could not be written must be written from them
            for path in dead:
                path.unlink(missing_ok=True)

    def clear(self, query_ids: Iterable[str]) -> None:
        """Hold nothing against these queries."""
        named = [query_id for query_id in query_ids if query_id in self.docket.charges]
        if named:
            with self._docket() as change:
                change(cleared(self.docket, named))
            _logger.info("nothing is held against these queries any more", query_ids=named)

    def retry(self, ended: Mapping[str, int], newest: int) -> None:
        """Hold nothing against these queries, which a user has paused, replaced or dropped in
        these entries of the log; it was read up to `newest`."""
        with self._docket() as change:
            change(retried(self.docket, ended, newest))

    def blame(self, query_id: str, revision: int) -> Blame:
        """What is known of a query."""
        return self.docket.blame(query_id, revision)

    @contextmanager
    def _docket(self) -> Generator[Callable[[Docket], None]]:
        """Reads the docket under its lock; the function that this yields replaces it."""
        with self._changed:
            folder = self._folder
            self._has_noted_all = False
            if folder is None:
                yield self._set
                return
            try:
                with (folder / _LOCK).open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    before = self.docket = _read(folder / _DOCKET)
                    yield self._set
                    if self.docket != before:
                        draft = folder / f"{_DOCKET}.tmp"
                        draft.write_bytes(msgspec.json.encode(self.docket))
                        draft.replace(folder / _DOCKET)
                    self._has_noted_all = True
            except OSError as error:
                _logger.warning("deaths of drivers cannot be read or noted", why=str(error))

    def _set(self, docket: Docket) -> None:
        self.docket = docket

    def _dead_drivers(self) -> dict[Path, Marks]:
        """Files without a lock, and their content."""
        found: dict[Path, Marks] = {}
        if self._folder is None:
            return found
        for path in sorted(self._folder.glob(f"*{_MARKS}")):
            with suppress(OSError), path.open("rb") as marks:
                fcntl.flock(marks, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found[path] = _marks_of(marks.read())
        return found

    # -------------------------------------------------------------------------- turns, and marks

    def try_begin(self, query_id: str, revision: int) -> bool:
        """Mark a query as in a batch, unless it must wait for its turn."""
        with self._changed:
            is_suspect = self.blame(query_id, revision) is not Blame.CLEAR
            if not self._turns.may_begin(query_id, is_suspect=is_suspect):
                return False
            if query_id not in self._turns.in_batch:
                self._turns.begin(query_id, revision)
                self._write()
            return True

    def begin(self, query_id: str, revision: int, is_over: Callable[[], bool]) -> bool:
        """Wait for the query's turn and mark it. False: it is over, and was not marked."""
        with self._changed:
            while not is_over():
                if self.try_begin(query_id, revision):
                    self._begun.add(query_id)
                    return True
                self._changed.wait(ASK_EVERY_S)
        self.end(query_id)
        return False

    def finished(self, query_id: str) -> None:
        """It finished a batch, or has nothing to do: it is in no batch, and nothing is held
        against it."""
        self.end(query_id)
        self.clear([query_id])

    def idle(self, query_id: str) -> None:
        """Spark says that it has nothing to do; that may be older than the batch that runs now."""
        with self._changed:
            if query_id not in self._begun:
                self.finished(query_id)

    def end(self, query_id: str) -> None:
        """It is in no batch any more, without having finished one."""
        with self._changed:
            self._begun.discard(query_id)
            was = query_id in self._turns.in_batch
            self._turns.end(query_id)
            if was:
                self._write()
            self._changed.notify_all()

    def alone(self) -> str | None:
        """The suspect that has its turn, or has asked for it."""
        return self._turns.alone

    def _write(self) -> None:
        """One write per change: a reader after our death sees the text before it or after it."""
        if self._folder is None:
            return
        marks = Marks(in_batch=self._turns.in_batch, has_lost_jvm=self._has_lost_jvm)
        text = msgspec.json.encode(marks)
        try:
            os.pwrite(self._file, text.ljust(os.fstat(self._file).st_size), 0)
        except OSError as error:  # a full disk: the batch has worse problems
            _logger.warning("cannot note which queries are in a batch", why=str(error))


def _read(path: Path) -> Docket:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Docket)
    except FileNotFoundError:
        return Docket()
    except msgspec.MsgspecError as error:
        _logger.error("the docket cannot be read, and starts empty", why=str(error))
        return Docket()


def _marks_of(content: bytes) -> Marks:
    try:
        return msgspec.json.decode(content.strip() or b"{}", type=Marks)
    except msgspec.MsgspecError:
        return Marks()
