"""Other time-outs of the quorum keep their proportion to the fetch time-out."""

from __future__ import annotations

import pytest

from standpipe.config import FETCH_TIMEOUT
from standpipe.control.raft_settings import RaftSettings


def test_the_default_is_ours() -> None:
    assert RaftSettings.in_proportion(FETCH_TIMEOUT.default) == RaftSettings()


@pytest.mark.parametrize("fetch_ms", [FETCH_TIMEOUT.low, 777, 2000, FETCH_TIMEOUT.high])
def test_in_proportion(fetch_ms: float) -> None:
    ours, found = RaftSettings(), RaftSettings.in_proportion(int(fetch_ms))
    assert found.fetch_ms == fetch_ms
    for name in ("election_ms", "wait_ms", "request_ms", "backoff_ms_min", "backoff_ms_max"):
        scaled = getattr(ours, name) * fetch_ms / ours.fetch_ms
        assert getattr(found, name) == pytest.approx(scaled, abs=1), name
    assert found.check_ms > found.fetch_ms * 5 // 4, "a leader waits longer than its followers"
    assert found.read_ms >= max(ours.read_ms, 3 * found.check_ms - 1)
    assert found.change_ms >= ours.change_ms
    assert found.entries_max == ours.entries_max, "a limit is no time"
