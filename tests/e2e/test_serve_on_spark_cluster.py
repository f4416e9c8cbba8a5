"""A user's DataFrame as a served table, on a Spark cluster whose workers die in its batches.

The program of test_serve_dataframe.py, with a stream-static join and a pandas UDF, on the master
and the two workers of spark_cluster.py, whose Python has no standpipe.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.e2e.cluster import start
from tests.e2e.spark_cluster import WORKERS, SparkCluster, event_log, tasks_lost
from tests.e2e.user_programs import Purchases, programs, verify

#: more kills than it takes until one is in the middle of a batch
KILLS_MAX = 12


@pytest.mark.timeout(1500)
def test_every_row_is_right_after_a_worker_died_in_a_batch(tmp_path: Path) -> None:
    events, moments = tmp_path / "events", random.Random(1)
    with SparkCluster(tmp_path / "spark") as spark:
        cluster = start(tmp_path / "cluster", nodes=2, pipelines=0)
        settings = {**spark.settings(), **event_log(events)}
        try:
            cluster.topic("purchases")
            purchases = Purchases(cluster)
            with programs(cluster, tmp_path, spark.url, settings) as started:
                program = started()
                purchases.send()
                program.wait_for("SCORES is served")
                purchases.check()
                for number in range(KILLS_MAX):
                    purchases.send()
                    time.sleep(moments.uniform(0, 1))  # anywhere in its batch
                    spark.kill_worker(number % WORKERS)
                    purchases.send()
                    purchases.check()
                    if number > 0 and tasks_lost(events):
                        break
                assert tasks_lost(events), "a worker died with a task"
                assert program.process.poll() is None, program.said()[-2000:]
                verify(cluster)
        finally:
            cluster.close()
