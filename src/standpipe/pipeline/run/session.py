"""The Spark session: every setting that is not Spark's default, and why.

`local/cluster/jvm.py` finds the four jars of `spark.jars` and Java; the options hold their paths.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from standpipe.config.keys import (
    SHUFFLE_PARTITIONS,
)
from standpipe.config.registry import (
    Config,
)
from standpipe.config.spark import SECRETS
from standpipe.model import PersistentQuery
from standpipe.pipeline.run.spark_settings import SparkSettings, check_found

LOG_CONFIG = Path(__file__).with_name("log4j2-spark.xml")
_LOCAL_FILES = Path(__file__).with_name("PrivateLocalFiles.java")

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

#: Spark's setting for the Python of its executors
_PYTHON = "spark.pyspark.python"
_CHECKPOINT_FILES_KEY = "spark.sql.streaming.checkpointFileManagerClass"
_UMASK_KEY, _UMASK = "fs.permissions.umask-mode", "077"

#: setting -> value, with the reason above each
_SETTINGS: dict[str, str] = {
    # state larger than the heap, and no pause of the whole heap at each snapshot
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    # upload what a batch changed, not the whole state
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # state files get unique names, so that a straggling task cannot replace a newer run's
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # a second copy of a task would write its records twice
    "spark.speculation": "false",
    # Hadoop sets modes itself, whatever the mask of the process: checkpoints are private
    f"spark.hadoop.{_UMASK_KEY}": _UMASK,
    # queries share the cores: each has its own pool (queries set spark.scheduler.pool)
    "spark.scheduler.mode": "FAIR",
    # with one executor there is nothing to wait for
    "spark.locality.wait": "0",
    # ksqlDB: 1/0 and a bad cast are null and do not end the query; CAST(BIGINT AS BINARY) works
    "spark.sql.ansi.enabled": "false",
    # identifiers are upper-cased by our parser; `a` and `A` are two columns
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    # default: no limit; a query that does not stop must not keep the process alive
    "spark.sql.streaming.stopTimeout": "5s",
    # a query that does not sleep (`watch/trigger_clocks.py`), as in a rehearsal, asks Kafka for
    # ends this often while it is idle; at the default of 10 ms, three of them keep a slow machine's
    # Kafka busy. A query that has data does not wait
    "spark.sql.streaming.pollingDelay": "50ms",
    # at the default of 100, three queries compile the same code again in each batch
    "spark.sql.codegen.cache.maxEntries": "1000",
    # each execution describes its plan for the UI, constants of megabytes included
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "4096",
    # each call of PySpark would look up where in our code it stands, for error messages
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # what Spark hides by itself, and the options of Kafka's clients that hold a login or a key: in
    # plans, and in what its connector logs
    "spark.sql.redaction.options.regex": f"{SECRETS}|url",
    "spark.redaction.regex": SECRETS,
    # the UI is not used, and it opens a port
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: Crash reports go to the pipeline's log, not to a file in the working directory. RocksDB's timer
#: sometimes crashes in a JVM that exits because its driver was killed: it outlives what it uses
_CRASHES = "-XX:+ErrorFileToStderr"
#: After any thread ran out of memory, nothing in the JVM can be relied on: Spark ends it in some of
#: these cases, seconds later, and goes on in others. It ends at once, so that the death is held
#: against the queries that are in a batch (`commit/blame.py`)
_OUT_OF_MEMORY = "-XX:+ExitOnOutOfMemoryError"
#: for local masters: the machine's name may not resolve to it, and no other machine connects
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def open_session(
    config: Config,
    *,
    master: str,
    jars: Sequence[Path],
    java_home: Path | None,
    java_options: Sequence[str] = (),
    scratch: Path | None = None,
    is_local: bool = True,
) -> SparkSession:
    """Start the JVM, 2 to 4 s. `java_home` None: from the environment. `java_options`: more options
    of the driver's JVM. `scratch`: where the driver may write temporary files; None: the system's
    temporary directory. `is_local`: checkpoints are in a file system of this machine.

    Raises ConfigError for settings of the operator (`config/spark.py`) that are refused, also where
    Spark itself has read them from a file."""
    theirs = SparkSettings.of(config)
    # Python workers must use the running interpreter, whatever PATH says
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = theirs.public.get(_PYTHON, sys.executable)
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    settings = {
        **_SETTINGS,
        "spark.jars": ",".join(map(str, jars)),
        # state and files per batch grow with it; 200 would cost a second per batch on 2 cores
        "spark.sql.shuffle.partitions": str(config[SHUFFLE_PARTITIONS]),
    }
    if is_local:  # with `_keep_raw_files`: our roll-back finds a file that a crash left incomplete
        settings[_CHECKPOINT_FILES_KEY] = _CHECKPOINT_FILES
    options = [f"-Dlog4j2.configurationFile={LOG_CONFIG}", _CRASHES, _OUT_OF_MEMORY, *java_options]
    if scratch is not None:
        options.append(f"-Djava.io.tmpdir={scratch}")
    settings["spark.driver.extraJavaOptions"] = " ".join(f'"{option}"' for option in options)
    if master.startswith("local"):
        settings |= _LOOPBACK
        if scratch is not None:  # other masters use the executors' disks
            settings["spark.local.dir"] = str(scratch)
    settings = {"spark.app.name": "standpipe", **theirs.over(settings), "spark.master": master}
    _start_jvm(settings)
    builder = SparkSession.builder
    for name, value in {**settings, **theirs.secret}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    _keep_raw_files(spark)
    return spark


def query_session(spark: SparkSession, query: PersistentQuery) -> SparkSession:
    """A separate session, because views and settings belong to one query."""
    session = spark.newSession()
    # In update mode an empty batch only drops expired state, which the next batch does as well;
    # running one after each batch would hold up the events behind it.
    session.conf.set(
        "spark.sql.streaming.noDataMicroBatches.enabled", query.plan.output_mode == "append"
    )
    if query.plan.version > 1:
        # Spark rejects several stateful operators in update mode because a watermark could make
        # one of them drop what another still emits; ours emit nothing late.
        session.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    # of two equal keys in a map ksqlDB keeps the later one; by default Spark would end the query,
    # and take an object with two equal names for none
    session.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    session.conf.set("spark.sql.variant.allowDuplicateKeys", "true")
    return session


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM with settings, before any secret is known: PySpark passes all it knows to the
    JVM in the command line, where other users of the machine read them. Raises ConfigError."""
    context: Any = SparkContext
    if context._gateway is not None:  # of an earlier session of this process
        return
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    context._ensure_initialized(conf=conf)
    found = context._jvm.SparkConf(True).getAll()
    check_found([each._1() for each in found], settings.keys())


def _keep_raw_files(spark: SparkSession) -> None:
    """Write local checkpoint files through Hadoop's raw file system, in this JVM.

    Hadoop's default forks a `chmod` for each file and each .crc: 40 ms a file, six files a batch;
    the raw one forks one for each file. Ours (`PrivateLocalFiles.java`) forks none.
    A setting cannot choose the raw one: uploading a RocksDB snapshot then asks Hadoop for "the
    local file system" and gets the raw one where only the default works. So we put the raw one into
    Hadoop's cache directly, and the configuration that it keeps names the default.
    """
    jvm: Any = cast(Any, spark)._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_LOCAL_FILES.read_text())
    files = jvm.org.apache.hadoop.fs.FileSystem
    root = jvm.java.net.URI("file:///")
    conf = jvm.org.apache.hadoop.conf.Configuration()
    files.get(root, conf).close()  # removes it from the cache
    conf.setClassLoader(compiler.getClassLoader())
    conf.set("fs.file.impl", f"standpipe.{_LOCAL_FILES.stem}")
    conf.set(_UMASK_KEY, _UMASK)
    files.get(root, conf)
    conf.unset("fs.file.impl")
    conf.set("fs.file.impl.disable.cache", "true")


def _jvm_process() -> Any:
    """The Popen of the JVM; None: not started, or this process did not start its gateway."""
    gateway: Any = cast(Any, SparkContext)._gateway
    return getattr(gateway, "proc", None)


def jvm_is_alive() -> bool:
    """False once the JVM has ended: then the driver must end too."""
    process = _jvm_process()
    return process is None or process.poll() is None


def java_context(spark: SparkSession) -> Any:
    """The JVM's own SparkContext, for `is_stopped`."""
    return cast(Any, spark).sparkContext._jsc.sc()


def is_stopped(context: Any) -> bool:
    """Whether Spark has given up, while its JVM lives on: the master of a cluster has removed the
    application. No query can run any more. One call into the JVM."""
    try:
        return bool(context.isStopped())
    except Py4JError:  # its JVM is about to end, which `jvm_is_alive` will say
        return False


def jvm_ends_within(wait_s: float) -> bool:
    """Wait until the JVM has ended by itself. False: it lives, or was never started."""
    process = _jvm_process()
    if process is None:
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
    return process.poll() is not None


def exit_jvm(wait_s: float) -> bool:
    """Let the JVM exit in order, which runs its shutdown hooks. False: it has not, after `wait_s`,
    or it failed."""
    process = _jvm_process()
    if process is None or process.stdin is None:
        return False
    process.stdin.close()
    return jvm_ends_within(wait_s) and process.returncode == 0


def kill_jvm() -> None:
    """End the JVM at once. It would also end by itself when our end of its stdin closes."""
    process = _jvm_process()
    if process is not None and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
