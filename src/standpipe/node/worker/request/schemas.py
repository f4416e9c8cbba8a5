"""Schemas for answers that are made on the event loop, fetched in threads beside it.

Whoever steps such an answer first asks whether the schemas of its next records are there, and tries
again a moment later. So a registry that is slow holds up that answer alone.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from standpipe.adapters.schema_registry import SchemaRegistry
from standpipe.sql.schemas.registry import SchemaRegistryUnavailable, UnknownSchema

#: requests to the registry at a time; others wait for them
THREADS: Final = 2
#: ids that are asked for at a time; a producer may name any number
PENDING_MAX: Final = 50


class SchemaFetcher:
    """Of one worker."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self.registry = registry
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="schemas")
        self._pending: dict[int, Future[bool]] = {}

    def are_known(self, ids: Collection[int]) -> bool:
        """Whether the registry has said of each of these ids what its schema is, or that there is
        none. What is missing is asked for, again and again if it does not answer."""
        self.are_fetched(ids)
        return all(map(self.registry.knows, ids))

    def are_fetched(self, ids: Collection[int]) -> bool:
        """Whether the registry has answered for each of these ids; what it has not is asked for.

        A failure counts as an answer: `registry.by_id` then raises SchemaRegistryUnavailable at
        once, for as long as the registry is not asked again.
        """
        missing = False
        for schema_id in ids:
            if self.registry.knows(schema_id):
                self._pending.pop(schema_id, None)
            elif not self._has_failed(schema_id):
                missing = True
        return not missing

    def _has_failed(self, schema_id: int) -> bool:
        asked = self._pending.get(schema_id)
        if asked is None:
            if len(self._pending) >= PENDING_MAX:  # answers that have ended never ask again
                self._pending = {n: each for n, each in self._pending.items() if not each.done()}
            if len(self._pending) < PENDING_MAX:
                self._pending[schema_id] = self._threads.submit(self._fetch, schema_id)
            return False
        if not asked.done():
            return False
        del self._pending[schema_id]
        return not asked.result()

    def _fetch(self, schema_id: int) -> bool:
        try:
            self.registry.by_id(schema_id)
        except UnknownSchema:
            return True
        except SchemaRegistryUnavailable:
            return False
        return True
