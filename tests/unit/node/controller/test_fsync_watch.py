"""The slowest write of the last minute, and a word when one is too slow for the quorum."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from standpipe.node.controller.fsync_watch import SyncWatch


class World:
    """A watch, and the clock that it reads."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.watch = SyncWatch(600, lambda: self.now_ms)

    def write(self, took_ms: int) -> None:
        with self.watch.timed():
            self.now_ms += took_ms


@pytest.fixture
def world() -> World:
    return World()


def test_the_slowest_of_the_last_minute(world: World) -> None:
    assert world.watch.slowest_ms() == 0
    world.write(5)
    world.write(300)
    world.now_ms += 20_000
    world.write(40)
    world.write(7)
    assert world.watch.slowest_ms() == 300
    world.now_ms += 40_000
    assert world.watch.slowest_ms() == 40
    world.now_ms += 60_000
    assert world.watch.slowest_ms() == 0


def test_one_that_hangs_shows_while_it_does(world: World) -> None:
    world.write(30)
    with capture_logs() as logs, world.watch.timed():
        world.now_ms += 10
        assert world.watch.slowest_ms() == 30
        assert logs == []
        world.now_ms += 90_000
        assert world.watch.slowest_ms() == 90_010
        assert [line["took_ms"] for line in logs] == [90_010], "it may never end"
    assert world.watch.slowest_ms() == 90_010


def test_one_that_failed_is_not_under_way(world: World) -> None:
    with pytest.raises(OSError, match="full"), world.watch.timed():
        raise OSError("full")
    world.now_ms += 500
    assert world.watch.slowest_ms() == 0


def test_a_slow_one_is_said_and_what_to_do_not_each_of_them(world: World) -> None:
    with capture_logs() as logs:
        world.write(480)
        assert logs == [], "four fifths of the time-out are not too slow"
        world.write(481)
        world.write(9000)
        assert [line["took_ms"] for line in logs] == [481]
        assert "controller.quorum.fetch.timeout.ms" in logs[0]["next_step"]
        world.now_ms += 30_000
        world.write(700)
        assert [line["took_ms"] for line in logs] == [481, 700]
