"""What a session token says of a push query from the beginning. Pure.

Such a query may go on where no other may (`data/query/push_start.py`): it needs what compaction has
left, not each change. So its token says that its positions are those of a scan. Tokens are merged
by the maximum of each number, and other positions are not the scan's: their sum tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_HOUR_BITS: Final = 20
_OFFSETS_MAX: Final = 2**43 - 1


class PushScan(NamedTuple):
    """A push query from the beginning is at certain positions. `offsets`: their sum. `hour`: when
    it began, in hours of Unix time, rounded down."""

    offsets: int
    hour: int

    @staticmethod
    def of(positions: Mapping[int, int], hour: int) -> PushScan | None:
        """None: the numbers are too large to be told."""
        offsets = sum(positions.values())
        is_small = offsets <= _OFFSETS_MAX and 0 <= hour < 1 << _HOUR_BITS
        return PushScan(offsets, hour) if is_small else None

    @staticmethod
    def from_wire(number: int) -> PushScan:
        """The scan of a number that `wire` made."""
        return PushScan(*divmod(number, 1 << _HOUR_BITS))

    @property
    def wire(self) -> int:
        """As one number, of which the greatest is the furthest."""
        return self.offsets << _HOUR_BITS | self.hour

    def at(self, positions: Mapping[int, int]) -> PushScan | None:
        """Itself if it is at these positions; else None."""
        return self if positions and sum(positions.values()) == self.offsets else None
