"""AND and OR in three-valued logic; None is SQL's NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def connected(operator: str, parts: Sequence[Callable[..., Any]]) -> Callable[..., bool | None]:
    """One condition of several. It calls them with what it is called with."""
    deciding = operator == "OR"  # one condition with this value decides the result

    def decide(*given: Any) -> bool | None:
        result: bool | None = not deciding
        for part in parts:
            value = part(*given)
            if value is deciding:
                return deciding
            if value is None:
                result = None
        return result

    return decide
