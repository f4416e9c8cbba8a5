"""The Spark session: every setting that is not Spark's default, and why.

The four jars of `spark.jars` and the Java come from `local/cluster/jvm.py`, as paths in the
options.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import SparkSession

from standpipe.config.keys import (
    SHUFFLE_PARTITIONS,
)
from standpipe.config.registry import (
    Config,
)

LOG_CONFIG = Path(__file__).with_name("log4j2-spark.xml")

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

#: setting -> value; why, beside it
_SETTINGS: dict[str, str] = {
    # state larger than the heap, and no pause of the whole heap at each snapshot
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    # upload what a batch changed, not the whole state
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # state files get unique names, so that a straggling task cannot replace a newer run's
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # a second copy of a task would write its records twice
    "spark.speculation": "false",
    # queries share the cores: each has a pool of its own (queries set spark.scheduler.pool)
    "spark.scheduler.mode": "FAIR",
    # with one executor there is nothing to wait for
    "spark.locality.wait": "0",
    # ksqlDB: 1/0 and a bad cast are null, not the end of the query; CAST(BIGINT AS BINARY)
    "spark.sql.ansi.enabled": "false",
    # identifiers are upper-cased by our parser; `a` and `A` are two columns
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    # with `_keep_raw_files`: what a crash leaves of a file is found by our own roll-back
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
    # default: no limit; a query that does not stop must not keep the process alive
    "spark.sql.streaming.stopTimeout": "5s",
    # it is not used, and it opens a port
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: into the pipeline's log, not into a file wherever it was started. RocksDB's timer crashes now and
#: then in a JVM that ends by itself, for its driver was killed: what it used is gone before it is
_CRASHES = "-XX:+ErrorFileToStderr"
#: for local masters: the machine's own name may not resolve to it, and no other machine connects
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def open_session(
    config: Config,
    *,
    master: str,
    jars: Sequence[Path],
    java_home: Path | None,
    scratch: Path | None = None,
) -> SparkSession:
    """Start the JVM, about 4 s. `java_home` None: as the environment has it. `scratch`: where the
    driver may write temporary files; None: the system's temporary directory."""
    # Python workers must be of the running interpreter, whatever PATH says
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    builder = SparkSession.builder.appName("standpipe").master(master)
    settings = {
        **_SETTINGS,
        "spark.jars": ",".join(map(str, jars)),
        # state and files per batch grow with it; 200 would take a second per batch on 2 cores
        "spark.sql.shuffle.partitions": str(config[SHUFFLE_PARTITIONS]),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_CONFIG} {_CRASHES}",
    }
    if scratch is not None:
        settings["spark.driver.extraJavaOptions"] += f" -Djava.io.tmpdir={scratch}"
    if master.startswith("local"):
        settings |= _LOOPBACK
        if scratch is not None:  # elsewhere it is the executors' disks that count
            settings["spark.local.dir"] = str(scratch)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    _keep_raw_files(spark)
    return spark


def _keep_raw_files(spark: SparkSession) -> None:
    """Local checkpoint files through Hadoop's raw file system, in this JVM.

    Hadoop's usual one forks a `chmod` for each file and each .crc: 40 ms a file, six files a batch.
    A setting cannot choose the raw one: uploading a snapshot of RocksDB then asks Hadoop for "the
    local file system" and gets the raw one where only the usual one will do. So the raw one is put
    into Hadoop's cache by hand, and the configuration that it keeps says the usual one.
    """
    jvm: Any = cast(Any, spark)._jvm
    files = jvm.org.apache.hadoop.fs.FileSystem
    root = jvm.java.net.URI("file:///")
    conf = jvm.org.apache.hadoop.conf.Configuration()
    files.get(root, conf).close()  # takes it out of the cache
    conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    files.get(root, conf)
    conf.unset("fs.file.impl")
    conf.set("fs.file.impl.disable.cache", "true")


def _jvm_process() -> Any:
    """The Popen of the JVM; None: not started, or a gateway that this process did not start."""
    gateway: Any = cast(Any, SparkContext)._gateway
    return getattr(gateway, "proc", None)


def jvm_is_alive() -> bool:
    """False once the JVM has ended: the driver must then end as well."""
    process = _jvm_process()
    return process is None or process.poll() is None


def kill_jvm() -> None:
    """End the JVM at once. It would also end by itself when our end of its stdin closes."""
    process = _jvm_process()
    if process is not None and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
