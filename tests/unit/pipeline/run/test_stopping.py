"""A process that is asked to stop ends, also if its loop does not hear of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from standpipe.pipeline.run import stopping


@pytest.fixture
def gave_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    gave_up = threading.Event()
    monkeypatch.setattr(stopping, "STOP_S_MAX", 0.1)
    monkeypatch.setattr(stopping, "_give_up", gave_up.set)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield gave_up
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_process_that_does_not_look_ends_in_time(gave_up: threading.Event) -> None:
    """Its loop hangs in a call of storage. The limit began only once the loop had ended."""
    asked = stopping.stop_on_signals()
    assert not gave_up.wait(0.3), "nobody has asked it to stop"
    signal.raise_signal(signal.SIGTERM)
    assert asked.is_set()
    assert gave_up.wait(30)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_stop_without_a_signal_is_limited_too(
    gave_up: threading.Event, *, is_cancelled: bool
) -> None:
    limit = stopping.stop_limit()
    if is_cancelled:
        limit.cancel()
    limit.join(30)
    assert gave_up.is_set() is not is_cancelled
