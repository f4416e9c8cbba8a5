"""The stores that a tailer opens: a small one at once, a large one in a thread beside its loop.

Opening a store checks all of it (`adapters.store.opening`): 2.3 s for a million rows, during which
every other replica of the node would stall, and its rows would age. Large stores open one after the
other: two would share the interpreter's lock, and both be late.

Not here: where a store comes from when there is none (`node.store_transfer.receiver`).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import structlog

from standpipe.adapters.store import folders
from standpipe.adapters.store.environment import DATA_FILE
from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.opening import open_verified
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.commit.expiry import Expiry
from standpipe.data.replica.holdings import Holding
from standpipe.data.replica.positions import StoreIdentity, must_rebuild
from standpipe.errors import NotReady
from standpipe.model import ReplicaId
from standpipe.node.tailer.replica import World

#: checked in less than 0.1 s; the loop can wait for that, and using the thread takes as long
AT_ONCE_BYTES_MAX: Final = 4 * 1024 * 1024

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def open_store(holding: Holding, world: World) -> StoreWriter:
    """A store that is sound and recent enough to be tailed from its position.

    Raises NotReady if it was not, and was moved aside; and what `open_verified` raises.
    """
    path = store_path(world.paths.state, holding.replica_id)
    now, expiry = world.now(), Expiry.of(holding.source.window)
    identity = StoreIdentity.of(holding.replica_id)
    store = open_verified(path, identity, world.map_bytes, now.wall_ms, expiry=expiry)
    clean = store.was_closed_cleanly
    kept_ms = holding.tombstones_ms
    why = must_rebuild(store.meta(), now, closed_cleanly=clean, tombstones_ms=kept_ms)
    if why is None:
        return store
    store.abandon()
    folders.retire(path, now.wall_ms)
    raise NotReady(f"{path} is rebuilt: {why}")


class StoreOpenings:
    """For the tailer's loop; only `open_store` runs in the other thread."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._beside = ThreadPoolExecutor(1, "store-opening")
        self._under_way: dict[ReplicaId, Future[StoreWriter]] = {}
        #: in progress, but no longer assigned here; the directory may be gone by now
        self._unwanted: set[ReplicaId] = set()

    def __len__(self) -> int:
        """How many are in progress, or were not taken yet."""
        return len(self._under_way)

    def __contains__(self, replica_id: ReplicaId) -> bool:
        return replica_id in self._under_way

    def is_over(self, replica_id: ReplicaId) -> bool:
        """Whether its result can be taken."""
        opening = self._under_way.get(replica_id)
        return opening is not None and opening.done() and replica_id not in self._unwanted

    def take(self, holding: Holding) -> StoreWriter | None:
        """The store, which the caller then owns; None: not yet, ask again.

        Raises what `open_store` raises, once; the next call begins again.
        """
        replica_id = holding.replica_id
        if replica_id in self._under_way:
            return self._under_way.pop(replica_id).result() if self.is_over(replica_id) else None
        data = store_path(self._world.paths.state, replica_id) / DATA_FILE
        size_bytes = data.stat().st_size if data.exists() else 0
        if size_bytes <= AT_ONCE_BYTES_MAX:
            return open_store(holding, self._world)
        _log.info("a large store is checked", path=str(data.parent), size_bytes=size_bytes)
        self._under_way[replica_id] = self._beside.submit(open_store, holding, self._world)
        return None

    def keep_only(self, replica_ids: AbstractSet[ReplicaId]) -> None:
        """Close stores that are no longer assigned here, once they are open."""
        self._unwanted |= self._under_way.keys() - replica_ids
        for replica_id in [each for each in self._unwanted if self._under_way[each].done()]:
            self._unwanted.remove(replica_id)
            opening = self._under_way.pop(replica_id)
            if opening.exception() is None:
                opening.result().abandon()

    def close(self) -> None:
        """Waits for the one that is being opened, so that it ends in order."""
        self._beside.shutdown(wait=True, cancel_futures=True)
        for replica_id, opening in self._under_way.items():
            if not opening.cancelled() and opening.exception() is None:
                store = opening.result()
                (store.abandon if replica_id in self._unwanted else store.close)()
        self._under_way.clear()
