"""When the leader commits what the planner gives; how a statement waits for its table's replicas.

    catalog ─► planner, outside any statement's turn ─► turn: still fits? ─► CommitAssignment
    statement ─► wait ─┬─► placed
                       └─► too late, or no plan: WithdrawStatement ─► an error

A plan may take seconds; other statements go on meanwhile. Time decides only here: what is logged is
a command, and every node applies the same ones.

Not here: the plan and its process (`node.controller.planner`), what a withdrawal changes
(`control.metadata.apply`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from standpipe.config.statements import PLACEMENT_TIMEOUT
from standpipe.control.assignment import from_catalog
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import Command, WithdrawStatement
from standpipe.control.metadata.feature_levels import TOPIC_IDS
from standpipe.control.metadata.requests import AppliedRequest
from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.node.controller.planner import PlacementFailed, Placing

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: logs a command in a turn of its own if the predicate holds for the newest catalog then
LogIf = Callable[[Command, Callable[[Catalog], bool]], Awaitable[None]]


class Placements:
    """Of one leader. Its methods raise ProposalRefused if this node no longer leads."""

    def __init__(
        self,
        placing: Placing,
        catalog: Callable[[], Catalog],
        log_if: LogIf,
        *,
        timeout_s: float,
    ) -> None:
        """`catalog`: the newest one. `timeout_s`: how long a statement waits for its replicas."""
        self._placing = placing
        self._catalog = catalog
        self._log_if = log_if
        self._timeout_s = timeout_s
        self._planning = asyncio.Lock()  # statements plan one after the other
        self._waiting = 0  # statements
        self._none_waits = asyncio.Event()
        self._none_waits.set()

    async def settle(self) -> None:
        """Log the next step of the assignment, if one is due. Raises PlacementFailed.

        Statements that wait for replicas go first, and take the same steps. A plan that hangs here
        holds none of them up.
        """
        await self._none_waits.wait()
        await self._step()

    async def wait(self, request_id: str, applied: AppliedRequest) -> tuple[str, ...]:
        """Wait until the table that a request made has its replicas, or take the statement back.

        Returns warnings. Raises StatementError once it is taken back; its request is refused then,
        for retries too. If this node loses the lead in between, the next leader places the table.
        """
        query_id = applied.receipt.query_id if applied.receipt else None
        self._waiting += 1
        self._none_waits.clear()
        try:
            why = await self._placed(query_id)
            table = from_catalog.unplaced(self._catalog(), query_id) if why else None
            return await self._withdraw(request_id, table, why) if table else ()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._none_waits.set()

    async def _placed(self, query_id: str | None) -> str:
        """Take steps until a query's table has its replicas; returns why it has none, or ""."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while from_catalog.unplaced(self._catalog(), query_id):
                    async with self._planning:
                        if not await self._step():
                            break  # no node may have replicas now
        except TimeoutError:
            return f"it took more than {self._timeout_s:g} s ({PLACEMENT_TIMEOUT.name})"
        except PlacementFailed as failed:
            return failed.message
        return ""

    async def _step(self) -> bool:
        """Log the next step. Returns False if none is due. If what it depends on has changed
        meanwhile, it is dropped, and the next call computes it again. Raises PlacementFailed."""
        catalog = self._catalog()
        due = await self._placing.due(catalog)
        if due is None:
            return False
        await self._log_if(due, lambda now: from_catalog.still_fits(catalog, now))
        return True

    async def _withdraw(self, request_id: str, table: Source, why: str) -> tuple[str, ...]:
        cause = f"The replicas of {table.name} could not be placed: {why}."
        reason = f"{cause} The statement was taken back. Try again, with fewer PARTITIONS."
        _log.error("a statement is taken back", table=table.name, why=why)
        command = WithdrawStatement(
            of_request=request_id,
            name=table.name,
            table_id=table.table_id or "",
            generation=table.generation,
            reason=reason,
        )

        def is_due(now: Catalog) -> bool:
            """A step of another statement, or of a copy of this one, may have placed it."""
            has_none = from_catalog.unplaced(now, table.query_id) is not None
            return has_none and now.feature_level >= TOPIC_IDS

        await self._log_if(command, is_due)
        catalog = self._catalog()
        if from_catalog.unplaced(catalog, table.query_id):  # read by now, or an old level
            return (f"{cause} The cluster keeps trying.",)
        if table.query_id in catalog.queries:
            return ()
        raise StatementError(reason, statement=table.statement)
