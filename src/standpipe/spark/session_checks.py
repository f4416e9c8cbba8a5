"""What a program's session and DataFrame must be like, checked before anything is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from standpipe.errors import SetupError
from standpipe.pipeline.io.checkpoint_path import CheckpointPath, open_checkpoints
from standpipe.spark.errors import ServeRefused

MODES: Final = ("update", "append", "complete")
_CONNECTOR: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
RUN_INSTEAD: Final = "run the program with spark-submit, or with a master such as local[*]"
READ_INSTEAD: Final = 'read the table with spark.read.format("standpipe"), which works there'


def check_batch(frame: DataFrame) -> None:
    """Raises ServeRefused for what cannot be loaded."""
    if not isinstance(frame, ClassicDataFrame):
        raise _of_connect("this DataFrame")
    if frame.isStreaming:
        raise ServeRefused("this DataFrame is a stream", next_step="use `serve` instead of `load`")
    check_writer(frame.sparkSession)


def check_stream(frame: DataFrame, output_mode: str, retention: str | None = None) -> None:
    """Raises ServeRefused for what cannot be served, or not yet."""
    if not isinstance(frame, ClassicDataFrame):
        raise _of_connect("this DataFrame")
    if not frame.isStreaming:
        raise ServeRefused(
            "this DataFrame is not a stream",
            next_step="use `load` instead of `serve`, or read its source with spark.readStream",
        )
    if output_mode not in MODES:
        raise ServeRefused(
            f"there is no output mode {output_mode!r}", next_step=f"it is {', '.join(MODES)}"
        )
    if output_mode == "complete" and retention is not None:
        raise ServeRefused(
            "in output mode complete the result has all windows, so none can be dropped",
            next_step="use output mode update, or leave out `retention`",
        )
    check_writer(frame.sparkSession)


def check_writer(spark: SparkSession) -> None:
    """Raises ServeRefused for a session that cannot write a table."""
    session: Any = spark
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise ServeRefused(
            "spark.speculation is on: a second copy of a task would write its rows twice",
            next_step="start the session with spark.speculation=false",
        )
    check_connector(spark)


def session_to_read(given: SparkSession | None, instead: str = RUN_INSTEAD) -> SparkSession:
    """The one that was given, or the active one. Raises ServeRefused; `instead`: what it says to do
    where the session is of Spark Connect."""
    session = given or SparkSession.getActiveSession()
    if session is None:
        raise ServeRefused("there is no session of Spark", next_step="give `spark`")
    if not hasattr(session, "_jsparkSession"):
        raise _of_connect("this session", instead)
    check_connector(session)
    return session


def check_connector(spark: SparkSession) -> None:
    """Raises ServeRefused for a session of Spark Connect, or one that cannot reach Kafka."""
    session: Any = spark
    if not hasattr(session, "_jsparkSession"):
        raise _of_connect("this session")
    jvm = session._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(_CONNECTOR, False, loader)
    except Exception as error:
        raise ServeRefused(
            "the session has no connector to Kafka, over which the rows travel",
            next_step=f"start it with --packages {_PACKAGE}:{session.version}",
        ) from error


def _of_connect(what: str, instead: str = RUN_INSTEAD) -> ServeRefused:
    return ServeRefused(f"{what} is of Spark Connect, which cannot be used yet", next_step=instead)


def checkpoint_path(checkpoint: str | Path, spark: SparkSession) -> CheckpointPath:
    """Where the checkpoint is. Raises ServeRefused if Spark cannot keep it there."""
    try:
        return open_checkpoints(str(checkpoint), spark)
    except SetupError as error:
        raise ServeRefused(error.message, next_step=error.next_step) from error
