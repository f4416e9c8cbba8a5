"""Other time-outs of the quorum keep their proportion to the fetch time-out."""

from __future__ import annotations

import dataclasses

import pytest

from standpipe.config.keys import FETCH_TIMEOUT
from standpipe.control.raft.timeouts import RaftSettings
from standpipe.node.controller.leader_proxy import FORWARD_MS, WRITE_S_MAX
from standpipe.node.worker.statements.read_index import SECONDS_MAX

OURS = RaftSettings()
LOW, HIGH = int(FETCH_TIMEOUT.low or 0), int(FETCH_TIMEOUT.high or 0)
SCALED = ("election_ms", "wait_ms", "request_ms", "backoff_ms_min", "backoff_ms_max")


def test_the_default_is_ours() -> None:
    assert RaftSettings.in_proportion(FETCH_TIMEOUT.default) == OURS


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("fetch_ms", [LOW, 777, 2000, HIGH])
def test_in_proportion(fetch_ms: int, name: str) -> None:
    found = RaftSettings.in_proportion(fetch_ms)
    assert getattr(found, name) == getattr(OURS, name) * fetch_ms // OURS.fetch_ms


@pytest.mark.parametrize("fetch_ms", [LOW, HIGH])
def test_whoever_asks_waits_longer_than_the_quorum_does(fetch_ms: int) -> None:
    found = RaftSettings.in_proportion(fetch_ms, entry_bytes_max=7)
    assert found.entry_bytes_max == 7
    assert 2 * found.read_ms < SECONDS_MAX * 1000, "the question that is under way, then ours"
    assert found.change_ms < FORWARD_MS
    replaced_ms = found.fetch_ms * 5 // 4 + 2 * found.election_ms
    assert replaced_ms < WRITE_S_MAX * 1000, "a statement finds the leader after a frozen one"
    unchanged = {each.name for each in dataclasses.fields(RaftSettings)}
    unchanged -= {*SCALED, "fetch_ms", "entry_bytes_max"}
    assert all(getattr(found, name) == getattr(OURS, name) for name in unchanged)
