"""Where checkpoints are: in a file system of this machine, or in one of Hadoop's.

A path of either kind has the methods of `pathlib.Path` that `HadoopPath` has. What the two do
differently is here, so that the rest need not know.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, TypeAlias

from standpipe.errors import SetupError
from standpipe.pipeline.io.hadoop_path import HadoopPath, hadoop_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CheckpointPath: TypeAlias = Path | HadoopPath

#: in all of them a rename is one step, and fails where the target exists
SCHEMES: Final = ("hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs", "abfs", "abfss")
#: how the name of a file ends that is not whole yet
_DRAFT: Final = ".tmp"


def scheme_of(text: str) -> str:
    """The file system that a path names; empty: one of this machine."""
    scheme, there, _ = text.partition("://")
    return scheme if there and scheme != "file" else ""


def local_path(text: str) -> Path:
    """The path of a text without a scheme, or with that of local files."""
    return Path(text.removeprefix("file://").removeprefix("file:")).absolute()


def check_place(text: str) -> None:
    """Raises SetupError for a file system that cannot have checkpoints."""
    scheme = scheme_of(text)
    if scheme and scheme not in SCHEMES:
        raise SetupError(
            f"checkpoints cannot be in {scheme}://, where a rename is not one step: two drivers"
            " could both believe that a checkpoint is theirs",
            next_step="name a mounted directory, or a file system of "
            + ", ".join(f"{each}://" for each in SCHEMES),
        )


def open_checkpoints(text: str, spark: SparkSession) -> CheckpointPath:
    """The folder of checkpoints that an operator names. Raises SetupError."""
    check_place(text)
    if not scheme_of(text):
        return local_path(text).resolve()
    try:
        found = hadoop_path(text, spark)
        found.mkdir(exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the checkpoints at {text} cannot be reached: {error}",
            next_step="check the address, the login, and Spark's settings of that file system"
            " (spark.hadoop.…)",
        ) from error
    return found


def spark_path(path: CheckpointPath) -> str:
    """A path as Spark is told of it. One of this machine names its file system, whatever the
    default one of a Hadoop configuration is (`fs.defaultFS`, as of YARN)."""
    return f"file://{path}" if isinstance(path, Path) else str(path)


def copy_tree(source: CheckpointPath, target: CheckpointPath) -> None:
    """Make the folder `target` with all files of `source`, which Spark replaces and never modifies:
    in a file system of this machine a hard link is as good as a copy. Raises OSError."""
    if isinstance(target, HadoopPath):
        assert isinstance(source, HadoopPath)
        target.copy_tree(source)
        return
    shutil.copytree(str(source), target, copy_function=_link)


@dataclass
class _Links:
    """What this process has copied on this machine."""

    files: int = 0


_links: Final = _Links()


def _link(source: str, target: str) -> None:
    os.link(source, target)
    _links.files += 1  # of two threads one may be lost: it grows all the same


def copied(checkpoints: CheckpointPath) -> int:
    """How much `copy_tree` has copied so far in this process, below all checkpoints: it grows while
    a copy advances."""
    return checkpoints.copied() if isinstance(checkpoints, HadoopPath) else _links.files


def rename(path: CheckpointPath, target: CheckpointPath) -> None:
    """Give a folder another name in one step: of several that do so, one succeeds. Raises
    OSError."""
    if isinstance(path, HadoopPath):
        assert isinstance(target, HadoopPath)
        path.rename(target)
        return
    path.rename(str(target))


def write_whole(path: CheckpointPath, content: bytes) -> None:
    """Create a file, or replace it, at once and whole. Raises OSError."""
    if isinstance(path, HadoopPath):
        path.write_whole(content)
        return
    draft = path.with_suffix(_DRAFT)
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def draft_names(name: str) -> set[str]:
    """What `write_whole` leaves of a file of that name, in its folder, if it is killed, or cannot
    remove what it began: on this machine, and in Hadoop's file systems (`HadoopFiles.write`)."""
    return {str(PurePath(name).with_suffix(_DRAFT)), f".{name}{_DRAFT}"}


def remove_tree(path: CheckpointPath) -> None:
    """Remove a folder with all that is in it, as far as that is possible."""
    if isinstance(path, Path):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.remove_tree()
    except OSError:
        return


def changed_ms(path: CheckpointPath) -> int:
    """When something in this folder changed, Unix ms, by the store's clock. Of a folder of this
    machine it is the inode's change time: a copy keeps its original's modification time."""
    if isinstance(path, HadoopPath):
        return path.changed_ms()
    return path.stat().st_ctime_ns // 10**6
