"""Stories that need hosts of their own (`tests.hosts`), each a program with an exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.hosts.network import is_possible

ROOT = Path(__file__).resolve().parents[2]
RUN_S_MAX = 900  # generous: a busy machine is no failure


def run_story(program: str, why: str) -> None:
    command = [sys.executable, "-m", f"tests.hosts.{program}"]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    print(ran.stdout)
    assert ran.returncode == 0, why + "\n" + ran.stdout + ran.stderr[-5000:]


@pytest.mark.skipif(not is_possible(), reason="network namespaces are not permitted here")
@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("rolling", "a rolling restart of all nodes under load loses no read"),
        ("restore", "stores are copied from peers, and replayed only without any"),
    ],
)
def test_story(program: str, why: str) -> None:
    run_story(program, why)
