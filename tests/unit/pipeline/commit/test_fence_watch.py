"""Which fence no lease explains."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import cast

import pytest

from standpipe.data.commit.progress import fence
from standpipe.errors import KafkaUnavailable
from standpipe.model import LeaseEpoch
from standpipe.pipeline.commit import fence_watch
from standpipe.pipeline.commit.fence_watch import (
    Confirmed,
    FenceSeen,
    FenceWatch,
    foreign_fence,
    is_foreign,
)
from standpipe.pipeline.io.progress_log import ProgressLog

OURS = LeaseEpoch(5)


@pytest.mark.parametrize(
    ("seen", "granted", "confirmed", "index", "expected", "why"),
    [
        ((9, 10.0), 5, (10.1, 70), 70, True, "the leader says that the lease is still ours"),
        ((10**6, 10.0), 5, (11.0, 70), 90, True, "the issue's"),
        (None, 5, (10.1, 70), 70, False, "nothing was read"),
        ((5, 10.0), 5, (10.1, 70), 70, False, "our own fence"),
        ((4, 10.0), 5, (10.1, 70), 70, False, "an older one, of whoever had the lease before"),
        ((9, 10.0), None, (10.1, 70), 70, False, "another pipeline has the lease: an ordinary end"),
        ((9, 10.0), 9, (10.1, 70), 70, False, "ours under a newer epoch: it is about to restart"),
        ((9, 10.0), 5, None, 70, False, "the leader was never heard"),
        ((9, 10.0), 5, (10.0, 70), 70, False, "asked before the fence was read"),
        ((9, 10.0), 5, (10.1, 70), 69, False, "our catalog lacks an entry: it may be the grant"),
    ],
)
def test_what_is_foreign(
    seen: tuple[int, float] | None,
    granted: int | None,
    confirmed: tuple[float, int] | None,
    index: int,
    expected: bool,
    why: str,
) -> None:
    found = is_foreign(
        seen and FenceSeen(LeaseEpoch(seen[0]), seen[1]),
        OURS,
        granted if granted is None else LeaseEpoch(granted),
        confirmed=confirmed and Confirmed(*confirmed),
        catalog_index=index,
    )
    assert found is expected, why


def test_the_newest_epoch_and_when_it_was_first_read() -> None:
    now_s = iter((1.0, 2.0, 3.0))
    watch = FenceWatch("b", cast(ProgressLog, None), clock=lambda: next(now_s))
    for epoch in (3, 7, 7, 5):
        watch.take(fence("Q", LeaseEpoch(epoch), nonce=1))
    assert watch.newest("Q") == FenceSeen(LeaseEpoch(7), 2.0)
    assert watch.newest("R") is None


def test_it_says_why_it_no_longer_follows_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no hook for threads ends the process, somebody else has to."""
    denied = KafkaUnavailable("not authorised to Read the topic p")
    closed: list[object] = []
    ended = threading.Event()

    class Denied:
        def poll(self, wait_s: float) -> list[object]:
            raise denied

        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(fence_watch, "TopicReader", lambda *_: Denied())
    monkeypatch.setattr(threading, "excepthook", lambda _: ended.set())
    log = SimpleNamespace(topic="p", reader=lambda: None)
    watch = FenceWatch("b", cast(ProgressLog, log))
    assert watch.failure is None
    watch.start()
    assert ended.wait(10)
    assert watch.failure is denied
    assert len(closed) == 1


def test_the_failure_names_both_epochs_and_the_next_step() -> None:
    failure = foreign_fence(FenceSeen(LeaseEpoch(9), 0.0), OURS, resolution="Then DROP TABLE A;")
    assert failure.reason == "FOREIGN_FENCE"
    assert "lease epoch 9" in failure.message
    assert "ours is 5" in failure.message
    assert failure.message.endswith("stop it first. Then DROP TABLE A;")
