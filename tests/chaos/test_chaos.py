"""The quick chaos run, as CI runs it: `make chaos QUICK=1`. What it says is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.hosts.network import is_possible

ROOT = Path(__file__).resolve().parents[2]
RUN_S_MAX = 1500  # generous: a busy machine is no failure


@pytest.mark.e2e
@pytest.mark.skipif(not is_possible(), reason="network namespaces are not permitted here")
def test_quick_chaos() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--quick"]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-5000:]
