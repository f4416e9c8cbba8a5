"""The JVM's jars from the network, into an empty cache. `make stories`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from standpipe.local.cluster import jvm


def test_two_processes_may_fetch_the_jars_at_once(tmp_path: Path) -> None:
    """The broker's closure is 45 jars, Spark's connector four; the second asks no network."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "standpipe.local.cluster.jvm"]
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert sum(b"Fetching" in stderr for _, stderr in said) == 1, "one of them fetched"
    cache = tmp_path / "standpipe"
    assert len(jvm.jars("broker", cache, pytest.fail)) == 45
    assert len(jvm.jars("spark", cache, pytest.fail)) == 4
