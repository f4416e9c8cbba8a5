"""Fixtures of the end-to-end tests. Everything here is marked `e2e`."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.e2e.cluster import TestCluster, start
from tests.e2e.machine_report import broker_report, machine_report

from standpipe.local.cluster import jvm
from standpipe.pipeline.run.start import session_functions

HERE = Path(__file__).parent
#: A JVM that lives for seconds is quicker without its second compiler, which takes processor from
#: the first batches and pays off after minutes.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
    # once it runs, it takes a sixth of the processor or more until the session ends
    items.sort(key=_has_cluster_of_the_session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report says what the machine and the broker did: a test that waits in vain
    seldom shows why."""
    report = yield
    if report.failed and isinstance(item, pytest.Function) and HERE in item.path.parents:
        clusters = [one for one in item.funcargs.values() if isinstance(one, TestCluster)]
        said = [machine_report(HERE), *(broker_report(one.local) for one in clusters)]
        report.sections.append(("The machine when the test failed", "\n".join(said)))
    return report


def _has_cluster_of_the_session(item: pytest.Item) -> bool:
    """Whether a test uses the fixture of this file, and not its module's of the same name."""
    named = isinstance(item, pytest.Function) and "cluster" in item.fixturenames
    return named and HERE in item.path.parents and not hasattr(item.module, "cluster")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """One cluster for the whole session; see cluster.py for what a test may do to it."""
    running = start(tmp_path_factory.mktemp("cluster"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def nodes_alone(tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster of a test's own without a pipeline: a user's programs write its tables
    (user_programs.py)."""
    running = start(tmp_path / "cluster", nodes=2, pipelines=0)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session of this process, set as the driver's where expressions depend on it, with our
    functions."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # it has pyarrow
    options = jvm.archive_options("spark", jvm.find_java())
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.extraJavaOptions", " ".join(options))
        .config("spark.jars", ",".join(map(str, jvm.jars("spark"))))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.maxPlanStringLength", "4096")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.ansi.enabled", "false")
        .config("spark.sql.caseSensitive", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
        .config("spark.sql.variant.allowDuplicateKeys", "true")
        .getOrCreate()
    )
    session_functions.register(session)
    yield session
    session.stop()
