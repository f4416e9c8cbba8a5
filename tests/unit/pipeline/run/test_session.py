"""Whether the JVM has ended: what a driver's death is held against depends on it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from standpipe.pipeline.run import session


@pytest.mark.parametrize(
    ("code", "ends", "why"),
    [
        ("raise SystemExit(3)", True, "it ran out of memory"),
        ("import time; time.sleep(60)", False, "it lives: something else has failed"),
    ],
)
def test_a_jvm_that_ends(monkeypatch: pytest.MonkeyPatch, code: str, ends: bool, why: str) -> None:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        gateway = SimpleNamespace(proc=process)
        monkeypatch.setattr(session.SparkContext, "_gateway", gateway)
        assert session.jvm_ends_within(30.0 if ends else 0.05) is ends, why
        assert session.jvm_is_alive() is not ends
        session.kill_jvm()


def test_a_jvm_that_was_never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.SparkContext, "_gateway", None)
    assert not session.jvm_ends_within(0.0)
