"""What steps through a simulated thread of the data path."""

from __future__ import annotations

from collections.abc import Iterator

Life = Iterator[float]  # yields: milliseconds until the next step


class Ended(Exception):
    """The query ends here, and is started again."""
