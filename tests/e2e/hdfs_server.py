"""A real HDFS for tests: a NameNode and a DataNode in one process, on loopback.

Starting takes about five seconds of processor. Tests look at its files through WebHDFS, which needs
no Spark.
"""

from __future__ import annotations

import getpass
import json
import os
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tests.e2e.fetched_archive import Archive

from standpipe.local.cluster import jvm
from standpipe.local.cluster.dependent_child import DependentChild
from standpipe.local.cluster.ports import any_port

HERE: Final = Path(__file__).parent / "hdfs"
JAR: Final = "hadoop-client-minicluster-3.5.0.jar"
#: the jar with its servers, 55 MB
SERVERS: Final = Archive(
    name="hdfs",
    ivy=HERE / "ivy.xml",
    file=JAR,
    sha_256="06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
)
READY_S_MAX: Final = 120.0
STOP_S: Final = 5.0


@dataclass(frozen=True)
class HdfsServer:
    """A running HDFS."""

    port: int
    http_port: int
    process: DependentChild

    @property
    def url(self) -> str:
        """Its root, as Spark is told of it."""
        return f"hdfs://127.0.0.1:{self.port}"

    def folder(self, place: str) -> HdfsFile:
        """A folder in it."""
        return HdfsFile(self.http_port, PurePosixPath(place))


@dataclass(frozen=True, order=True)
class HdfsFile:
    """A file or folder, read and removed over WebHDFS; with the names of `pathlib.Path`."""

    http_port: int
    place: PurePosixPath

    @property
    def name(self) -> str:
        """The last component."""
        return self.place.name

    def __truediv__(self, name: str) -> HdfsFile:
        return HdfsFile(self.http_port, self.place / name)

    def _ask(self, operation: str, method: str = "GET") -> bytes:
        place = urllib.parse.quote(str(self.place))
        asked = urllib.parse.urlencode({"op": operation, "user.name": getpass.getuser()})
        url = f"http://127.0.0.1:{self.http_port}/webhdfs/v1{place}?{asked}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method)) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise FileNotFoundError(str(self.place)) from error
            raise

    def iterdir(self) -> Iterator[HdfsFile]:
        """What is in it; nothing if it is not there."""
        try:
            said: Any = json.loads(self._ask("LISTSTATUS"))
        except FileNotFoundError:
            return iter(())
        names = [each["pathSuffix"] for each in said["FileStatuses"]["FileStatus"]]
        return (self / name for name in names if name)  # a file lists itself, without a name

    def glob(self, pattern: str) -> Iterator[HdfsFile]:
        """What matches a pattern of names and `*`."""
        found = [self]
        for part in pattern.split("/"):
            below = [each for folder in found for each in folder.iterdir()]
            found = [each for each in below if PurePosixPath(each.name).match(part)]
        return iter(found)

    def read_bytes(self) -> bytes:
        """The content."""
        return self._ask("OPEN")

    def unlink(self) -> None:
        """Remove it."""
        assert json.loads(self._ask("DELETE", "DELETE"))["boolean"], self.place


class Hdfs:
    """An HDFS that may be killed and started again, with its files and at its addresses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, http_port = any_port(), any_port()
        self.server = HdfsServer(port, http_port, _started(folder, port, http_port))

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.server.process.end(STOP_S)

    def start(self) -> None:
        """As it was."""
        port, http_port = self.server.port, self.server.http_port
        self.server = HdfsServer(port, http_port, _started(self._folder, port, http_port))


@contextmanager
def restartable(folder: Path) -> Iterator[Hdfs]:
    """An HDFS that ends with the body."""
    hdfs = Hdfs(folder)
    try:
        yield hdfs
    finally:
        hdfs.server.process.end(STOP_S)


def _started(folder: Path, port: int, http_port: int) -> DependentChild:
    java = jvm.find_java().executable
    classes = f"{SERVERS.folder() / JAR}:{jvm.pyspark_jars()}/*"
    command = [str(java), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", classes, str(HERE / "HdfsServer.java"), str(folder / "data")]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"hdfs-{time.time_ns()}.log"
    process = DependentChild([*command, str(port), str(http_port)], output=log)
    try:
        _await(process, log)
    except BaseException:
        process.end(STOP_S)
        raise
    return process


def _await(process: DependentChild, log: Path) -> None:
    deadline = time.monotonic() + READY_S_MAX
    while "ready" not in log.read_text().splitlines():
        is_late = time.monotonic() > deadline
        assert process.is_alive(), log.read_text()[-3000:]
        assert not is_late, log.read_text()[-3000:]
        time.sleep(0.1)  # a JVM starts: nothing announces it
