"""Which feature levels the members know: each is asked, so that a level is raised for all or not.

A node's own word counts, since its record in the log may be from before its newest start; of one
that does not answer the record is taken, and where there is none the level stays. Not here: the
rules (`control.metadata.feature_levels`), who raises (`node.controller.leader`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from standpipe.adapters.http.internal import HttpClient, PeerSilent, PeerUnreachable
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.catalog import Catalog
from standpipe.model import FeatureLevels, NodeId, NodeInfo, Record
from standpipe.node.controller import bootstrap
from standpipe.node.controller.catalog_replica import LogCopy

ASK_MS: Final = 2_000


class LevelWish(msgspec.Struct):
    """Body of POST /quorum/upgrade. `level` 0: the newest that the leader knows."""

    level: int = 0


class NodeLevels(Record, frozen=True, kw_only=True):
    """What one node knows, in `GET /quorum/features`; None: nobody can say."""

    node_id: NodeId
    oldest: int | None
    newest: int | None
    #: it said so itself just now; else the log does
    answers: bool


class FeaturesView(Record, frozen=True, kw_only=True):
    """Answer of `GET /quorum/features`. `newest_of_all`: what the level can be raised to."""

    feature_level: int
    newest_of_all: int | None
    nodes: tuple[NodeLevels, ...]


@dataclass(frozen=True)
class Asker:
    """Asks every member for what it knows."""

    copy: LogCopy
    client: HttpClient
    addresses: Callable[[NodeId], Sequence[str]]

    async def levels(self, catalog: Catalog) -> Mapping[NodeId, FeatureLevels | None]:
        """What each member knows, by its own word or else by the log; None: nobody can say."""
        return _completed(catalog, await self._said(catalog))

    async def view(self) -> FeaturesView:
        """What `standpipe quorum features` shows."""
        catalog = self.copy.catalog
        said = await self._said(catalog)
        known = _completed(catalog, said)
        newest = [levels[1] for levels in known.values() if levels is not None]
        return FeaturesView(
            feature_level=catalog.feature_level,
            newest_of_all=min(newest) if newest and len(newest) == len(known) else None,
            nodes=tuple(
                NodeLevels(
                    node_id=node,
                    oldest=levels[0] if levels else None,
                    newest=levels[1] if levels else None,
                    answers=said[node] is not None,
                )
                for node, levels in sorted(known.items())
            ),
        )

    async def _said(self, catalog: Catalog) -> dict[NodeId, FeatureLevels | None]:
        nodes = list(catalog.nodes)
        answers = await asyncio.gather(*(self._ask(node) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    async def _ask(self, node: NodeId) -> FeatureLevels | None:
        if node == self.copy.config.node_id:
            return self.copy.feature_levels
        for address in self.addresses(node):
            try:
                reply = await self.client.get(address, bootstrap.PATH, timeout_ms=ASK_MS)
            except (PeerUnreachable, PeerSilent):
                continue
            if reply.ok and (told := reply.json_as(bootstrap.Knowledge)).node_id == node:
                return feature_levels.as_heard(told.feature_levels)
        return None


def _completed(
    catalog: Catalog, said: Mapping[NodeId, FeatureLevels | None]
) -> dict[NodeId, FeatureLevels | None]:
    """Who said nothing is known by the log, if it says anything of that node."""
    return {node: said[node] or _recorded(info) for node, info in catalog.nodes.items()}


def _recorded(node: NodeInfo) -> FeatureLevels | None:
    return None if node.feature_levels is msgspec.UNSET else node.feature_levels
