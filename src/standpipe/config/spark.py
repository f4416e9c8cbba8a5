"""Settings of Spark that a pipeline passes on to its session, and those that it refuses.

Every `spark.*` setting that is not refused goes to the session as it is. Refused are those that
would break a promise, each with the reason. All of `spark.sql.*` is refused but for a list, since
most of it can change what a query computes. A secret comes from a file only.

Not here: how the session is started with them (`pipeline/run/session.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from standpipe.config.registry import PASSED_ON, key
from standpipe.errors import ConfigError

PREFIX: Final = "spark."
PROPERTIES_FILE = key(
    "spark.properties.file",
    str,
    "",
    source="Spark",
    doc="A file of Spark's settings as spark-submit takes it (`--properties-file`), secrets "
    "included. Only its owner may read it. Settings with `--set` or in the TOML file win over it.",
    is_private=True,
)

#: names of settings and options whose values are printed nowhere; the first four are Spark's
SECRETS: Final = "(?i)secret|password|token|access[.]?key|jaas|ssl[.]keystore"
_SECRET: Final = re.compile(SECRETS)

_STATE: Final = (
    "Spark's checkpoints would get another form, which the driver that takes over cannot continue"
)
_BATCHES: Final = "it is part of how batches are committed, replayed and taken over"
#: a setting, or the beginning of some (with `.` at its end) -> why it is refused. The longest fits
REFUSED: Final[dict[str, str]] = {
    "spark.api.mode": "Spark Connect has no calls into the driver's JVM, which the pipeline needs",
    "spark.remote": "Spark Connect has no calls into the driver's JVM, which the pipeline needs",
    "spark.master": "the option --master names it",
    "spark.submit.deployMode": "the driver is the process of `standpipe pipeline` itself",
    "spark.speculation": "a second copy of a task would write its records twice",
    "spark.scheduler.mode": "queries share the cores by fair pools: none may hold up the others",
    "spark.scheduler.pool": "queries share the cores by fair pools: none may hold up the others",
    "spark.redaction.": "it hides passwords of Kafka in what Spark prints",
    "spark.hadoop.fs.permissions.umask-mode": "checkpoints contain rows, and are private",
    "spark.hadoop.fs.file.impl": "checkpoints are written by a file system of the pipeline's own",
    "spark.sql.": "it can change what a query computes, or has no use in a pipeline",
    "spark.sql.ansi.": "as in ksqlDB, 1/0 and a bad cast are null and do not end the query",
    "spark.sql.caseSensitive": "`a` and `A` are two columns, as in ksqlDB",
    "spark.sql.redaction.": "it hides passwords of Kafka in what Spark prints",
    "spark.sql.session.timeZone": "times of rows are UTC",
    "spark.sql.shuffle.partitions": "standpipe.pipeline.shuffle.partitions sets it for new "
    "queries; a query that has a checkpoint keeps the number of its first start",
    "spark.sql.streaming.": _BATCHES,
    "spark.sql.streaming.checkpointFileManagerClass": _STATE,
    "spark.sql.streaming.stateStore.": _STATE,
}
#: settings of `spark.sql.` that are passed on: they cost or save time and memory, nothing else
ALLOWED_SQL: Final[tuple[str, ...]] = (
    "spark.sql.adaptive.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.codegen.",
    "spark.sql.debug.maxToStringFields",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.maxPlanStringLength",
    "spark.sql.ui.",
    "spark.sql.streaming.metricsEnabled",
    "spark.sql.streaming.pollingDelay",
    "spark.sql.streaming.stopTimeout",
    "spark.sql.streaming.stateStore.maintenanceInterval",
    "spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage",
    "spark.sql.streaming.stateStore.rocksdb.compactOnCommit",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB",
    "spark.sql.streaming.stateStore.rocksdb.maxOpenFiles",
    "spark.sql.streaming.stateStore.rocksdb.maxWriteBufferNumber",
    "spark.sql.streaming.stateStore.rocksdb.writeBufferSizeMB",
)


def refusal(name: str) -> str:
    """Why a pipeline does not pass this setting on to Spark; "": it does."""
    if _longest(name, ALLOWED_SQL):
        return ""
    found = _longest(name, REFUSED)
    return REFUSED[found] if found else ""


def _longest(name: str, entries: Iterable[str]) -> str:
    fits = (e for e in entries if name == e or (e.endswith(".") and name.startswith(e)))
    return max(fits, key=len, default="")


def is_secret(name: str) -> bool:
    """Whether the value of a setting is a secret, by its name, as Spark itself decides it."""
    return bool(_SECRET.search(name))


def check(name: str) -> None:
    """Raises ConfigError for a setting that cannot be passed on."""
    if why := refusal(name):
        raise ConfigError(f"{name} is refused: {why}", next_step=f"remove {name}")


def _check_public(name: str) -> None:
    check(name)
    if is_secret(name):
        raise ConfigError(
            f"{name} is a secret by its name: others could read it in a command line",
            next_step=f"write it into a file that only its owner can read, and name that with "
            f"{PROPERTIES_FILE.name}",
        )


PASSED_ON[PREFIX] = _check_public
