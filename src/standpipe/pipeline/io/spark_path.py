"""In which file system Spark looks for the files of a checkpoint."""

from __future__ import annotations

from pathlib import Path


def spark_path(directory: Path) -> str:
    """A directory as Spark is told of it: in the local file system, whatever the default one of a
    Hadoop configuration is (`fs.defaultFS`, as of YARN)."""
    return f"file://{directory}"
