"""Bugs of loads (see `data_planted`): only worlds whose table applications write can catch them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from standpipe.data.commit import takeover

from .data_loads import SimLoad
from .runner import Plant


def replay_over_a_load() -> list[Plant]:
    """A batch that Spark runs again writes its rows over those that were loaded after it."""
    return [(takeover, "is_in_place", lambda newest, batch, *, is_stream: False)]


def take_a_load_for_the_first_by_its_sources() -> list[Plant]:
    """As releases did whose records do not say it: a batch of no topic has no sources either."""

    def streamed(newest: Any) -> Any:
        return None if newest is None or (newest.is_load and not newest.sources) else newest

    return [(takeover, "streamed", streamed)]


def look_for_every_load_in_a_checkpoint() -> list[Plant]:
    """Also for those from before any batch."""
    return [(takeover, "streamed", lambda newest: newest)]


def give_a_load_a_number_of_its_own() -> list[Plant]:
    """No checkpoint has that batch."""

    def batch_after(_: SimLoad, newest: Any) -> int:
        return 0 if newest is None else newest.commit.batch + 1

    return [(SimLoad, "batch_after", batch_after)]


def call_every_load_seen() -> list[Plant]:
    """Also one that another program had fenced before it committed."""
    return [(takeover, "has_counted", lambda records, written: True)]


PLANTS: tuple[Callable[[], list[Plant]], ...] = (
    replay_over_a_load,
    take_a_load_for_the_first_by_its_sources,
    look_for_every_load_in_a_checkpoint,
    give_a_load_a_number_of_its_own,
    call_every_load_seen,
)
