"""Which node holds which replica, why, and what would move: `GET /assignment[?what_if=…]`.

The leader answers, by the lags that were reported to it, since it moves replicas; if no leader
answers, this node does, by those reported to it. `what_if` is a hypothetical change, such as
"remove node-3". Not here: writes (`node.controller.leader_proxy`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

import msgspec

from standpipe.adapters.http.internal import Call, Handler, Reply, json_reply
from standpipe.control.assignment import explain
from standpipe.errors import BadRequest, LogUnavailable
from standpipe.node.controller.catalog_replica import CatalogReplica
from standpipe.node.controller.leader_reads import LeaderReads
from standpipe.node.controller.planner import SMALL_MAX, Placing, solve
from standpipe.node.controller.raft_driver import Quorum

#: a large cluster takes the leader seconds; as much time is left for this node to do it itself
VIEW_MS: Final = 8_000


class ViewParameters(msgspec.Struct):
    """Parameters of GET /assignment."""

    what_if: str = ""


def routes_of(
    copy: CatalogReplica, quorum: Quorum, placing: Placing, leader: LeaderReads
) -> Mapping[tuple[str, str], Handler]:
    """The routes of this module, for the internal listener."""

    async def view(call: Call) -> Reply:
        if quorum.leading is None:
            with contextlib.suppress(LogUnavailable):
                return await leader.ask(call, VIEW_MS)
        what_if = call.query(ViewParameters).what_if
        problem = placing.problem(copy.catalog)
        try:
            supposed = explain.suppose(problem, what_if)
        except ValueError as error:
            raise BadRequest(str(error)) from None
        step = await solve(supposed, VIEW_MS / 1000)
        goal = None  # not computed for a large cluster: it costs seconds of a core
        if supposed.size <= SMALL_MAX:
            goal = await asyncio.to_thread(explain.destination, supposed)
        seen = explain.view(copy.catalog, supposed, step, goal)
        return json_reply({"seenBy": quorum.me.node, **seen})

    return {
        ("GET", "/assignment"): view,
    }
