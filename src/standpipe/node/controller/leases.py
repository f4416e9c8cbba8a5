"""The leader's side of leases: renewals, pipelines that have ended, grants that are due.

Renewals are kept in the leader's memory alone; its successor gives every pipeline a whole time-out
to renew. Not here: the decisions (`control.metadata.leases`).
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Final

import msgspec

from standpipe.control.metadata import feature_levels, isolation, leases
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import (
    EndPipelines,
    GrantLeases,
    IsolateQuery,
    StartPipeline,
)

LOOK_MS: Final = 500


class PipelineStart(msgspec.Struct):
    """Body of POST /pipeline/start. `isolates`: an isolated name; empty: a shared pipeline.
    `is_external`: an application of a user, for the external query that `isolates` names."""

    pipeline_id: str
    request_id: str = ""
    isolates: str = ""
    is_external: bool = False

    def command(self, catalog: Catalog) -> StartPipeline:
        """What to log, under a request id of its own if the request has none. Raises BadRequest for
        a pipeline that could not run what it asks for."""
        check = isolation.check_external if self.is_external else isolation.check_internal
        check(self.isolates, catalog)
        return StartPipeline(
            pipeline_id=self.pipeline_id,
            request_id=self.request_id or uuid.uuid4().hex,
            isolates=self.isolates or msgspec.UNSET,
        )


class IsolationRequest(msgspec.Struct):
    """Body of POST /queries/isolate. `name`: of a stream or table, or the id of a query."""

    name: str
    undo: bool = False

    def decide(self, catalog: Catalog) -> tuple[str, IsolateQuery | None]:
        """The name that is meant, and what to log; None: it is isolated. Raises BadRequest."""
        name = isolation.resolved(self.name, catalog)
        isolation.check_internal(name, catalog)
        if self.undo:
            isolation.check_isolated(name, catalog)
        elif name in catalog.isolated:
            return name, None
        return name, IsolateQuery(name=name, is_isolated=not self.undo)


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
        """Called when this node becomes the leader."""
        self._renewals.begin(catalog.pipelines, _now_ms())

    def heard(self, pipeline_id: str) -> None:
        """The pipeline started or renewed."""
        self._renewals.heard(pipeline_id, _now_ms())

    def due(self, catalog: Catalog) -> EndPipelines | GrantLeases | None:
        """What to log now, checked every LOOK_MS: pipelines to end, else grants; None: nothing."""
        silent = self._renewals.silent(catalog.pipelines, _now_ms())
        return EndPipelines(pipeline_ids=silent) if silent else grants_due(catalog)


def grants_due(catalog: Catalog) -> GrantLeases | None:
    """Grants that are due; None: none are, or the cluster's feature level has no leases."""
    if catalog.feature_level < feature_levels.LEASES:
        return None
    grants = isolation.grants_due(catalog)
    return GrantLeases(grants=grants) if grants else None


def is_registered(catalog: Catalog, pipeline_id: str) -> bool:
    """Whether a pipeline need only renew; False: it must register first."""
    return catalog.feature_level < feature_levels.LEASES or pipeline_id in catalog.pipelines


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
