"""Files and directories that only their owner may read: data, secrets, logs, run directories.

A process of a node calls `keep_private` first, so that all that it and its libraries (LMDB,
librdkafka, a JVM) write later is private. `private_directory` also closes an existing directory.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from standpipe.errors import ConfigError

#: of every process of a node, and of its children
UMASK = 0o077


def keep_private() -> None:
    """From here on this process and its children make files 0600 and directories 0700."""
    os.umask(UMASK)


def private_directory(path: Path) -> None:
    """Make the directory, and take all rights on it from others.

    A directory of another user (a volume whose group is the service's) is left as it is: what lies
    in it is private. Raises OSError.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid == os.geteuid() and found.st_mode & UMASK:
        path.chmod(0o700)


def read_secret(path: Path) -> str:
    """The cluster's secret. Raises ConfigError as `read_private`."""
    return read_private(path, "the cluster's secret", "--secret-file")


def read_private(path: Path, what: str, option: str = "") -> str:
    """The content of a file with a secret, without white space around it. `what` and `option` name
    it in errors. Raises ConfigError if it cannot be read, is empty, or not a secret: others may
    read the file. Of a file of root's, the group may, as PostgreSQL has it for keys."""
    try:
        with path.open() as file:
            found = os.fstat(file.fileno())
            text = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read {what}: {error}",
            next_step=f"give {option} the file that all nodes of the cluster share"
            if option
            else f"let {what} name a file that this process may read",
        ) from error
    allowed = 0o640 if found.st_uid == 0 and os.geteuid() != 0 else 0o600
    if mode := stat.S_IMODE(found.st_mode) & ~allowed & 0o777 & ~0o100:
        raise ConfigError(
            f"{path} holds {what}, and others may use it: its mode is "
            f"{stat.S_IMODE(found.st_mode):04o}, {mode:04o} too much",
            next_step=f"chmod {allowed:04o} {path}; in Kubernetes: defaultMode: 0400",
        )
    if not text:
        raise ConfigError(f"{path} is empty", next_step=f"write {what} into it")
    return text


def write_secret(path: Path, secret: str) -> None:
    """Make the file of a cluster's secret. Raises FileExistsError if there is one."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret)
