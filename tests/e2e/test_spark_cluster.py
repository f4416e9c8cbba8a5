"""Queries on a Spark cluster whose parts die: a join, a windowed aggregation, a session window.

Master and workers are processes of their own, without standpipe. Longer, at random:
tests/e2e/spark_kills.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import psutil
import pytest
from tests.e2e.processes import command_line, descendants
from tests.e2e.spark_kills import CANARY, SparkKills, running


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkKills]:
    with running(tmp_path_factory.mktemp("spark"), seed=1) as made:
        made.orders.start()
        yield made


def test_the_executors_have_no_standpipe(story: SparkKills) -> None:
    command = [story.spark.python, "-c", "import pandas, pyarrow; print(1); import standpipe"]
    # with an environment as executors have it
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/", env={"LANG": "C.UTF-8"}
    )
    assert (ran.stdout, "No module named 'standpipe'" in ran.stderr) == ("1\n", True), ran.stderr


def test_every_row_is_right_after_kills_of_every_part(story: SparkKills) -> None:
    story.await_commits(1)
    executors = {each.pid for each in story.spark.executors()}
    for kind in (SparkKills.an_executor, SparkKills.the_master, SparkKills.a_worker):
        story.one_more(kind)
    story.orders.stop()
    story.check()
    assert story.kinds.total() == 3
    assert executors - {each.pid for each in story.spark.executors()}, "they died"
    assert story.rows_compared > 3 * 4, "several windows and sessions of each key"


def test_settings_arrived_and_no_secret_is_shown(story: SparkKills) -> None:
    """After the kills, which restarted no driver: there is one event log."""
    (log,) = story.events.iterdir()
    text = log.read_text()
    assert '"spark.executor.memory":"512m"' in text
    assert '"spark.hadoop.fs.s3a.secret.key":"*********(redacted)"' in text
    for path in story.cluster.local.options.directory.rglob("*.log"):
        text += path.read_text(errors="replace")
    for process in (psutil.Process(), *descendants(os.getpid())):
        text += command_line(process)
    assert CANARY not in text
