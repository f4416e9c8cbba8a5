"""Standpipe serves the tables that Spark streams keep, and keeps serving them while servers die."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standpipe.client import connect, connect_async, token_of_writes

__all__ = ["connect", "connect_async", "token_of_writes"]


def __getattr__(name: str) -> Any:
    """The client, imported when it is first asked for: a node does without it."""
    if name in __all__:
        from standpipe import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
