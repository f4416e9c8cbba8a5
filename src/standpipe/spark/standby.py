"""A program waits: for the leases of its tables, and for the topic of a table that is new.

Not here: who gets a lease (`control/metadata/isolation.py`), why nobody can (`lease.py`).
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, TypeVar

import structlog

from standpipe.model import Source
from standpipe.pipeline.failures import NotYet
from standpipe.pipeline.run.control_client import Follower, PipelineRefused
from standpipe.pipeline.run.reconcile import PipelineRegistration, external_query
from standpipe.pipeline.run.start.query_run import PipelineContext
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark.errors import ServeEnded
from standpipe.spark.held import HeldLease
from standpipe.spark.lease import busy, standby_message, why_gone

LOOK_S: Final = 0.1
#: how often a program that waits for the lease says so
SAY_EVERY_S: Final = 30.0
#: how long a load waits for the lease: longer than one that is dead keeps it (LEASE_TIMEOUT)
BUSY_S_MAX: Final = 20.0
#: how long it waits for the topic of a table that was just declared
TOPIC_S_MAX: Final = 60.0

_T = TypeVar("_T")

_logger = structlog.get_logger("standpipe.spark")


def await_leases(
    tables: Sequence[Source],
    follower_of: Callable[[Source], Follower],
    busy_s_max: float | None = None,
) -> list[HeldLease]:
    """Register for each of these tables, and wait until all of their leases are ours.
    `follower_of`: a connection to the nodes that has not been started.

    Every program asks in the same order, so that no two wait for each other. If a lease that it has
    is lost meanwhile, or its query is paused, it gives back what it has, and begins again. Raises
    as `await_lease` does; then no lease is kept.
    """
    ordered = sorted(tables, key=lambda each: str(each.query_id))
    while True:
        held: list[HeldLease] = []
        with ExitStack() as undo:
            try:
                for table in ordered:
                    follower = follower_of(table)
                    undo.callback(follower.close)
                    follower.start()
                    registration, wanted = await_lease(follower, table, busy_s_max, held)
                    held.append(HeldLease(follower, registration, wanted))
            except ServeEnded as over:
                if over.reason not in ("FENCED", "PAUSED"):
                    raise
                _logger.warning("standing by again", why=over.message)
                continue
            undo.pop_all()
            return held


def await_lease(
    follower: Follower,
    table: Source,
    busy_s_max: float | None,
    held: Sequence[HeldLease] = (),
) -> tuple[PipelineRegistration, WantedQuery]:
    """Register, and stand by until the lease is ours. `held`: the leases that this program has
    already.

    Raises ServeEnded once the table is gone, or a lease of `held` is over; and ServeRefused if it
    is somebody else's for `busy_s_max`; None: wait for as long as that is so.
    """
    query_id = str(table.query_id)
    pipeline_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        me = follower.register(pipeline_id, is_over=lambda: False)
    except PipelineRefused as refused:
        raise ServeEnded(
            "DROPPED", f"{table.name} cannot be written: {refused.message}"
        ) from refused
    assert me is not None
    began = time.monotonic()
    say_at = began + LOOK_S * 10  # a program that is alone gets it at once
    while True:
        if over := next(filter(None, (each.why_over() for each in held)), None):
            raise over
        catalog = follower.catalog
        if catalog.index >= me.log_index:
            if gone := why_gone(catalog, query_id, table.name):
                raise gone
            if wanted := external_query(catalog, query_id, me):
                return me, wanted
            if busy_s_max is not None and time.monotonic() > began + busy_s_max:
                raise busy(catalog, query_id, table.name)
            if time.monotonic() >= say_at:
                _logger.warning(standby_message(catalog, query_id, table.name) + _beside(held))
                say_at = time.monotonic() + SAY_EVERY_S
        time.sleep(LOOK_S)


def _beside(held: Sequence[HeldLease]) -> str:
    """That nobody writes these tables while their holder waits for another one."""
    if not held:
        return ""
    return f"; meanwhile nobody writes {', '.join(each.wanted.table.name for each in held)}"


def once_topics_are_there(
    wanted: WantedQuery, around: PipelineContext, act: Callable[[], _T]
) -> _T:
    """What `act` returns. Waits for the topic of a table that is new."""
    deadline = time.monotonic() + TOPIC_S_MAX
    while True:
        try:
            return act()
        except NotYet as missing:
            if time.monotonic() >= deadline:
                raise missing.final_failure or missing from None
            around.check_lease(wanted.query_id, wanted.lease_epoch)
            time.sleep(LOOK_S)
