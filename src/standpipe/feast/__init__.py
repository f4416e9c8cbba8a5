"""An online store of Feast over tables of Standpipe (docs/client.md).

    online_store:
        type: standpipe.feast.StandpipeOnlineStore
        nodes: node1:8088,node2:8088

Feast is loaded with the first of these names, so that the rest can be used without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standpipe.feast.store import StandpipeOnlineStore, StandpipeOnlineStoreConfig

__all__ = ["StandpipeOnlineStore", "StandpipeOnlineStoreConfig"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from standpipe.feast import store
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "feast":
            raise
        raise ImportError("Feast is missing: pip install 'standpipe[feast]'") from error
    return getattr(store, name)
