"""From when on a worker takes no more scans and streams."""

from __future__ import annotations

import pytest

from standpipe.adapters.process import own_bytes
from standpipe.errors import TooManyRequests
from standpipe.node.worker.request.own_memory import OwnMemory

MB = 1024 * 1024


@pytest.mark.parametrize(
    ("taken", "is_refused", "why"),
    [
        (749, False, "below three quarters"),
        (750, True, "three quarters"),
        (2000, True, "the parent will end it in a moment"),
        (None, False, "no such number on this system"),
    ],
)
def test_check(taken: int | None, is_refused: bool, why: str) -> None:
    memory = OwnMemory(1000, lambda: taken)
    memory.check()
    memory.weigh()
    if is_refused:
        with pytest.raises(TooManyRequests, match=r"memory\.bytes\.max"):
            memory.check()
    else:
        memory.check()


def test_what_is_free_is_given_back_after_growth() -> None:
    """And not again until it has grown by as much again: it may all be in use."""
    looks = [(100, 0), (115, 0), (116, 10), (121, 0), (122, 0), (137, 0), (40, 0), (56, 16)]
    given_back: list[int] = []
    taken = 0

    def give_back() -> None:
        nonlocal taken
        given_back.append(taken // MB)
        taken -= free

    memory = OwnMemory(1000 * MB, lambda: taken, give_back)
    for taken_mb, free_mb in looks:
        taken, free = taken_mb * MB, free_mb * MB
        memory.weigh()
    assert given_back == [116, 122, 56]


def test_it_is_this_process_that_is_weighed() -> None:
    before = own_bytes()
    assert before is not None
    kept = bytearray(b"x") * 50_000_000
    after = own_bytes()
    assert after is not None
    assert after - before > 40_000_000
    assert len(kept)
