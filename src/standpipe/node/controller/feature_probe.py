"""Which feature levels the members know: every node is asked before a level is raised.

A node's own answer counts, since its record in the log may be older than its newest start. For a
node that does not answer its record counts; without a record the level cannot be raised.

Not here: the rules (`control.metadata.feature_levels`), raising it (`node.controller.leader`).
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
from standpipe.node.controller.catalog_replica import CatalogReplica

ASK_MS: Final = 2_000


class UpgradeRequest(msgspec.Struct):
    """Body of POST /quorum/upgrade. `level` 0: the newest that the leader knows."""

    level: int = 0


class NodeLevels(Record, frozen=True, kw_only=True):
    """Levels of one node, in `GET /quorum/features`; None: not known."""

    node_id: NodeId
    oldest: int | None
    newest: int | None
    #: the node itself answered; False: its record in the log
    answers: bool


class FeaturesView(Record, frozen=True, kw_only=True):
    """Answer of `GET /quorum/features`. `newest_of_all`: what the level can be raised to."""

    feature_level: int
    newest_of_all: int | None
    nodes: tuple[NodeLevels, ...]


@dataclass(frozen=True)
class FeatureProbe:
    """Asks every member for its feature levels."""

    copy: CatalogReplica
    client: HttpClient
    addresses: Callable[[NodeId], Sequence[str]]

    async def levels(self, catalog: Catalog) -> Mapping[NodeId, FeatureLevels | None]:
        """Each member's levels, by its own answer or else by the log; None: not known."""
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
                reply = await self.client.get(address, bootstrap.PATH, to=node, timeout_ms=ASK_MS)
            except (PeerUnreachable, PeerSilent):
                continue
            if reply.ok and (knowledge := reply.json_as(bootstrap.Knowledge)).node_id == node:
                return feature_levels.from_record(knowledge.feature_levels)
        return None


def _completed(
    catalog: Catalog, said: Mapping[NodeId, FeatureLevels | None]
) -> dict[NodeId, FeatureLevels | None]:
    """The answers, completed by the records in the log."""
    return {node: said[node] or _recorded(info) for node, info in catalog.nodes.items()}


def _recorded(node: NodeInfo) -> FeatureLevels | None:
    return None if node.feature_levels is msgspec.UNSET else node.feature_levels
