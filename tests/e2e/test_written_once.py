"""An executor of a Spark cluster dies after its task has written: both runs' records are counted.

The rest of a batch is not here: what is done with the count (tests/unit/pipeline/commit), and kills
at random (spark_kills.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f
from tests.e2e.spark_cluster import SparkCluster

from standpipe.config import registry
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.local.cluster import jvm
from standpipe.local.cluster.broker import Broker
from standpipe.local.demo.feed import create_topics
from standpipe.model import BatchId, Commit, LeaseEpoch
from standpipe.pipeline.commit.written_once import Grown, NotWrittenOnce, check_once, records_of
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.sink_writer import WriteLimits, may_repeat_tasks, write_fitting
from standpipe.pipeline.run import session

#: of each piece, more than Python keeps back, goes to the sink at once
TOPIC, PARTITIONS, ROWS = "events", 4, 50_000
COMMIT = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(2), attempt=3)


def test_records_of_a_task_that_was_lost_are_counted(tmp_path: Path) -> None:
    marker = str(tmp_path / "died")

    def dying(pieces: Iterator[Any]) -> Iterator[Any]:
        """Kills its executor once, some time after it has handed over most of its rows."""
        import os
        import signal
        import time
        from pathlib import Path

        for number, piece in enumerate(pieces):
            yield piece
            if number < 3 or Path(marker).exists():
                continue
            Path(marker).touch()
            time.sleep(3)  # until Kafka has them
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
            time.sleep(60)  # it ends here

    with Broker(tmp_path / "kafka") as broker, SparkCluster(tmp_path / "spark", 1) as cluster:
        create_topics(broker.bootstrap_servers, [TOPIC])
        log = ProgressLog(broker.bootstrap_servers, "default_")
        spark = session.open_session(
            registry.load(cluster.settings()),
            master=cluster.url,
            jars=jvm.jars("spark"),
            java_home=jvm.find_java().home,
        )
        try:
            assert may_repeat_tasks(spark)
            header = f.struct(
                f.lit(HEADER_COMMIT).alias("key"),
                f.lit(commit_header(COMMIT)).alias("value"),
            )
            numbers = spark.range(0, ROWS, 1, 1).mapInPandas(dying, "id LONG")
            rows = numbers.select(
                f.col("id").cast("string").alias("key"),
                f.lit("{}").alias("value"),
                f.array(header).alias("headers"),
                f.lit(TOPIC).alias("topic"),
            )
            before = log.end_offsets(TOPIC, PARTITIONS)
            written = write_fitting(
                rows,
                kafka=broker.bootstrap_servers,
                limits=WriteLimits(bytes_max=1000, samples_max=1, looks=False, counts=True),
                is_table=False,
                counted=[TOPIC],
            )
        finally:
            spark.stop()
            session.kill_jvm()
        ends = log.end_offsets(TOPIC, PARTITIONS)
        assert Path(marker).exists()
        assert list(written.records) == [ROWS]
        kafka, grown = broker.bootstrap_servers, Grown(TOPIC, before, ends)
        total = sum(ends.values())
        assert total > ROWS, "those of the task that was lost are there, too"
        found = records_of(kafka, grown, COMMIT)
        assert found == total, "under the same commit: readers cannot tell them apart"
        with pytest.raises(NotWrittenOnce, match=f"{total} records in events for {ROWS} of"):
            check_once(kafka, grown, COMMIT, ROWS)
        other = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(2), attempt=4)
        assert records_of(kafka, grown, other) == 0
