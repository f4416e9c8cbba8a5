"""Names of zones in a text: what Java makes of each, and what a node makes of it."""

from __future__ import annotations

from zoneinfo import available_timezones

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from standpipe.sql.expressions.python.instants import FUNCTIONS
from standpipe.sql.types.zone_abbreviations import ZONES

pytestmark = pytest.mark.e2e

#: years ago, so that no release of the zones' rules differs
DAYS = ("2015-01-15 12:00", "2015-07-15 12:00")
ODD = ("GMT+2", "GMT+02:00", "UTC-03:30", "+01", "+01:30", "Z", "zz", "", "PSTX", "Etc/GMT+5", "UT")


def _known(spark: SparkSession) -> list[str]:
    """Regions of the JVM and of Python, whose releases may differ; and what the JVM lacks."""
    jvm = set(spark._jvm.java.time.ZoneId.getAvailableZoneIds())
    return sorted((available_timezones() & jvm) | {"EST", "MST", "HST", "ROC", "GMT+0", "Factory"})


def _ours(text: str, pattern: str) -> int | None:
    try:
        made = FUNCTIONS["STRINGTOTIMESTAMP"].compute(text, pattern)
    except ValueError:
        return None
    return None if made is None else int(made)


@pytest.mark.parametrize("letters", ["z", "VV"])
def test_every_name_is_read_as_java_reads_it(spark: SparkSession, letters: str) -> None:
    pattern = f"yyyy-MM-dd HH:mm {letters}"
    regions = _known(spark)
    names = [*ZONES, *regions, *(name.lower() for name in regions), *ODD]
    texts = [f"{day} {name}" for day in DAYS for name in names]
    frame = spark.createDataFrame([(text,) for text in texts], "text STRING")
    read = frame.select("text", f.expr(f"unix_millis(to_timestamp(text, '{pattern}')) AS ms"))
    java = {row["text"]: row["ms"] for row in read.collect()}
    assert {text: _ours(text, pattern) for text in texts} == java
    assert sum(ms is not None for ms in java.values()) > 1000, "most are names"
