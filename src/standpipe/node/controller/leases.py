"""The leader's side of leases: renewals, pipelines that have ended, grants that are due.

Pipelines renew their registration, and workers the transient queries of their clients, each for
itself: a worker, a node or a client that is gone renews nothing, whatever has happened to it.
Renewals are kept in the leader's memory alone; its successor gives each of them a whole time-out to
renew. Not here: the decisions (`control.metadata.leases`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from standpipe.adapters.http.internal import Call
from standpipe.control.metadata import feature_levels, isolation, leases
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import (
    Command,
    EndPipelines,
    GrantLeases,
    IsolateQuery,
    StartPipeline,
    TerminateQuery,
)
from standpipe.control.metadata.requests import AppliedRequest
from standpipe.errors import BadRequest
from standpipe.model import LogIndex

LOOK_MS: Final = 500
#: Silence after which a transient query ends. Its worker renews every fifth of that.
PUSH_TIMEOUT_MS: Final = 10_000


class PipelineStart(msgspec.Struct):
    """Body of POST /pipeline/start. `isolates`: an isolated name; empty: a shared pipeline.
    `is_external`: an application of a user, for the external query that `isolates` names.
    `known_index`: the sender's index of the log before it made the request id."""

    pipeline_id: str
    request_id: str = ""
    known_index: LogIndex | None = None
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


class PushRenewal(msgspec.Struct):
    """Body of POST /pushes/renew: the transient queries that a worker still serves."""

    query_ids: tuple[str, ...]


@dataclass
class Leasing:
    """`timeout_ms`: silence after which a pipeline's queries go to another one."""

    timeout_ms: int
    _renewals: leases.Renewals = field(init=False)
    _pushes: leases.Renewals = field(init=False)

    def __post_init__(self) -> None:
        self._renewals = leases.Renewals(self.timeout_ms, LOOK_MS)
        self._pushes = leases.Renewals(PUSH_TIMEOUT_MS, LOOK_MS)

    def begin(self, catalog: Catalog) -> None:
        """Called when this node becomes the leader."""
        self._renewals.begin(catalog.pipelines, _now_ms())
        self._pushes.begin(catalog.transients, _now_ms())

    def served(self, query_ids: Iterable[str]) -> None:
        """A worker still serves the clients of these transient queries."""
        for query_id in query_ids:
            self._pushes.heard(query_id, _now_ms())

    def heard(self, pipeline_id: str) -> None:
        """The pipeline started or renewed."""
        self._renewals.heard(pipeline_id, _now_ms())

    def due(self, catalog: Catalog) -> EndPipelines | TerminateQuery | GrantLeases | None:
        """What to log now, checked every LOOK_MS: pipelines to end, else transient queries to end,
        else grants; None: nothing."""
        silent = self._renewals.silent(catalog.pipelines, _now_ms())
        left = self._pushes.overdue(catalog.transients, _now_ms())
        if silent:
            return EndPipelines(pipeline_ids=silent)
        return TerminateQuery(query_ids=left) if left else grants_due(catalog)


class LeaseWrites:
    """Writes of pipelines, of operators who isolate queries, and of workers with push queries.

    Each raises ProposalRefused, from `epoch`, if this node does not lead.
    """

    def __init__(
        self,
        leasing: Leasing,
        catalog: Callable[[], Catalog],
        epoch: Callable[[], object],
        *,
        log: Callable[[Command], Awaitable[None]],
        once: Callable[[Command, LogIndex | None], Awaitable[AppliedRequest]],
    ) -> None:
        """`log` logs a command; `once` does, unless its request was applied before."""
        self._leasing, self._catalog, self._epoch = leasing, catalog, epoch
        self._log, self._once = log, once
        self.by_path: Mapping[str, Callable[[Call], Awaitable[object]]] = {
            "/pipeline/start": self._start,
            "/pipeline/renew": self._renew,
            "/pipeline/leave": self._leave,
            "/queries/isolate": self._isolate,
            "/pushes/renew": self._renew_pushes,
        }

    async def _start(self, call: Call) -> object:
        start = call.json(PipelineStart)
        self._epoch()
        self._leasing.heard(start.pipeline_id)
        applied = await self._once(start.command(self._catalog()), start.known_index)
        if applied.refusal:
            raise BadRequest(applied.refusal)
        return {"lease_epoch": applied.lease_epoch, "log_index": applied.index}

    async def _isolate(self, call: Call) -> object:
        asked = call.json(IsolationRequest)
        self._epoch()
        name, command = asked.decide(self._catalog())
        if command is not None:
            await self._log(command)
        return isolation.described(name, self._catalog())

    async def _renew(self, call: Call) -> object:
        pipeline_id = call.json(PipelineId).pipeline_id
        self._epoch()
        catalog = self._catalog()
        if known := is_registered(catalog, pipeline_id):
            self._leasing.heard(pipeline_id)
        return {"log_index": catalog.index, "is_registered": known}

    async def _renew_pushes(self, call: Call) -> object:
        self._epoch()
        self._leasing.served(call.json(PushRenewal).query_ids)
        return {"log_index": self._catalog().index}

    async def _leave(self, call: Call) -> object:
        pipeline_id = call.json(PipelineId).pipeline_id
        self._epoch()
        if pipeline_id in self._catalog().pipelines:
            await self._log(EndPipelines(pipeline_ids=(pipeline_id,)))
        return {"log_index": self._catalog().index}


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
