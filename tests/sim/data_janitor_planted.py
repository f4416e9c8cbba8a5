"""Bugs of a janitor that outlives its run (see `data_planted`). The first and the last were in the
pipeline once."""

from __future__ import annotations

from collections.abc import Callable

from .data_janitor import SimJanitor
from .data_pipeline import SimDriver
from .runner import Plant


def begin_while_a_janitor_repairs() -> list[Plant]:
    """The next run of a query begins whatever the janitor of the last one does, and that goes on
    in its repair."""
    return [
        (SimJanitor, "is_in_the_way", lambda janitor: False),
        (SimJanitor, "is_over", lambda janitor: False),
    ]


def begin_before_a_janitor_has_ended() -> list[Plant]:
    """The janitor checks whether its run is over, and commits a little later."""
    return [(SimJanitor, "is_in_the_way", lambda janitor: False)]


def repair_behind_a_batch_without_an_answer() -> list[Plant]:
    """The batch may be committed; its run does not know, and repairs the one before."""
    return [(SimDriver, "stop_after_no_answer", lambda driver: None)]


PLANTS: tuple[Callable[[], list[Plant]], ...] = (
    begin_while_a_janitor_repairs,
    begin_before_a_janitor_has_ended,
    repair_behind_a_batch_without_an_answer,
)
