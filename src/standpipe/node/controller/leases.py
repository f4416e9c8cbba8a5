"""The leader's part of leases: who renews, who has ended, what is to be granted.

Renewals are kept by the leader alone and are gone with it; its successor gives every pipeline a
whole timeout to be heard again. Not here: the decisions (`control.metadata.leases`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

import msgspec

from standpipe.control.metadata import feature_levels, leases
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import EndPipelines, GrantLeases

LOOK_MS: Final = 500


class PipelineId(msgspec.Struct):
    """Body of POST /pipeline/renew and POST /pipeline/leave."""

    pipeline_id: str


@dataclass
class Leasing:
    """`timeout_ms`: silence after which a pipeline's queries go to another one."""

    timeout_ms: int
    _renewals: leases.Renewals = field(init=False)

    def __post_init__(self) -> None:
        self._renewals = leases.Renewals(self.timeout_ms, LOOK_MS)

    def begin(self, catalog: Catalog) -> None:
        """From now on this node leads."""
        self._renewals.begin(catalog.pipelines, _now_ms())

    def heard(self, pipeline_id: str) -> None:
        """It has started, or renews."""
        self._renewals.heard(pipeline_id, _now_ms())

    def due(self, catalog: Catalog) -> EndPipelines | GrantLeases | None:
        """To be called every LOOK_MS: whom others must take over from, else who has no holder."""
        silent = self._renewals.silent(catalog.pipelines, _now_ms())
        return EndPipelines(pipeline_ids=silent) if silent else grants_due(catalog)


def grants_due(catalog: Catalog) -> GrantLeases | None:
    """Who is to write what from now on; None: as it is, or the cluster's level has no leases."""
    if catalog.feature_level < feature_levels.LEASES:
        return None
    running = [query.query_id for query in catalog.queries.values() if query.state == "RUNNING"]
    grants = leases.due(running, catalog.pipelines, catalog.leases)
    return GrantLeases(grants=grants) if grants else None


def is_registered(catalog: Catalog, pipeline_id: str) -> bool:
    """Whether a pipeline has to say no more than that it lives."""
    return catalog.feature_level < feature_levels.LEASES or pipeline_id in catalog.pipelines


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
