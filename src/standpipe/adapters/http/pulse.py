"""Detects that the event loop was just blocked, so that the data read next may be old.

Not here: how a listener reacts (`adapters.http.server`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

#: How often the loop beats, which gap is a stall, and how long after one connections are checked:
#: many wait then, and are read over several iterations.
PULSE_S = 0.05
STILL_S = 0.2
DOUBT_S = 1.0


@dataclass
class Pulse:
    """Whether the loop was stalled just now. Instants are on the loop's clock, in s."""

    at_s: float = 0.0
    doubt_until_s: float = 0.0

    def beat(self, now_s: float) -> None:
        """Record a beat; after a long gap, what is read is doubtful for a while."""
        if now_s - self.at_s > STILL_S:
            self.doubt_until_s = now_s + DOUBT_S
        self.at_s = now_s

    def is_doubtful(self, now_s: float) -> bool:
        """Whether what is read now may have been waiting for long."""
        return now_s < self.doubt_until_s or now_s - self.at_s > STILL_S


async def beat(pulses: Sequence[Pulse]) -> None:
    """Beat them all, without end."""
    loop = asyncio.get_running_loop()
    while True:  # ends by cancellation
        for pulse in pulses:
            pulse.beat(loop.time())
        await asyncio.sleep(PULSE_S)
