"""Fixtures of the end-to-end tests. Everything here is marked `e2e`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster, start

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """One cluster for the whole session; see cluster.py for what a test may do to it."""
    running = start(tmp_path_factory.mktemp("cluster"))
    try:
        yield running
    finally:
        running.close()
