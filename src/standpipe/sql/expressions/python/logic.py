"""AND and OR, one operand after the other as in Java; None is SQL's NULL, and a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def connected(operator: str, parts: Sequence[Callable[..., Any]]) -> Callable[..., bool | None]:
    """One condition of several. It calls them with what it is called with, and no further than to
    the first that decides or is NULL, which makes it NULL (`expressions/failing.py`)."""
    deciding = operator == "OR"  # one condition with this value decides the result

    def decide(*given: Any) -> bool | None:
        for part in parts:
            value = part(*given)
            if value is None or value is deciding:
                return value
        return not deciding

    return decide
