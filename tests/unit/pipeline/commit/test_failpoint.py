import os
import signal

import pytest

from standpipe.pipeline.commit import failpoint


@pytest.mark.parametrize(
    ("set_to", "dies", "why"),
    [
        (None, False, "not set"),
        ("before-progress@3", True, "name and batch fit"),
        ("before-progress@2", False, "another batch"),
        ("before-sink@3", False, "another place"),
    ],
)
def test_reach(monkeypatch: pytest.MonkeyPatch, set_to: str | None, dies: bool, why: str) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    monkeypatch.delenv(failpoint.VARIABLE, raising=False)
    if set_to:
        monkeypatch.setenv(failpoint.VARIABLE, set_to)
    failpoint.reach("before-progress", 3)
    assert killed == ([(os.getpid(), signal.SIGKILL)] if dies else []), why


def test_a_process_can_be_paused_there(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _pid, number: sent.append(number))
    monkeypatch.setenv(failpoint.VARIABLE, "before-sink@0")
    monkeypatch.setenv(failpoint.SIGNAL_VARIABLE, "SIGSTOP")
    failpoint.reach("before-sink", 0)
    assert sent == [signal.SIGSTOP]


@pytest.mark.parametrize(("table", "dies"), [("POISON", True), ("GOOD", False)])
def test_a_table_whose_every_batch_kills(
    monkeypatch: pytest.MonkeyPatch, table: str, dies: bool
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _pid, number: killed.append(number))
    monkeypatch.setenv(failpoint.VARIABLE, "in-batch@POISON")
    failpoint.reach("in-batch", table)
    assert killed == [signal.SIGKILL] * dies
