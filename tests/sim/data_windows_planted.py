"""Bugs of windows that expire (see `data_planted`): worlds with plain keys cannot catch them.

Not here, for 75 such worlds do not catch them: a topic's beginning that goes although it is not
called clean, or was written lately. Who reads over such a gap finds it by the gap itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from standpipe.data.commit import expiry
from standpipe.data.commit.expiry import Expiry

from .runner import Plant, replacing


def expire_a_window_too_early() -> list[Plant]:
    """One that has results to come."""

    def make(newest_expired_ms: Any) -> Any:
        def hasty(rule: Any, watermark_ms: int) -> int | None:
            edge_ms = newest_expired_ms(rule, watermark_ms)
            return None if edge_ms is None else edge_ms + rule.grace_ms

        return hasty

    return [replacing(Expiry, "newest_expired_ms", make)]


def keep_windows_for_ever() -> list[Plant]:
    """Nothing expires, nowhere."""
    return [(Expiry, "newest_expired_ms", lambda rule, watermark_ms: None)]


def delete_windows_that_live() -> list[Plant]:
    """The beginning of the topic goes by age alone."""
    return [(expiry, "_is_expired", lambda rule, record, edge_ms: True)]


PLANTS: tuple[Callable[[], list[Plant]], ...] = (
    expire_a_window_too_early,
    keep_windows_for_ever,
    delete_windows_that_live,
)
