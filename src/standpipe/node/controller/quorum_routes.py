"""The quorum's routes that read, on the internal listener: its replicas, voters and catalog.

    GET  /quorum           as its leader sees it; any node asks the leader
    GET  /quorum/features  which feature levels each node knows, asked now
    GET  /catalog?consistency=linearizable|local         this node's catalog, msgpack
    GET  /read-index       the log index that a linearizable read here must have

A linearizable read costs one round of fetches at the leader (KIP-650, `control.raft.reads`); all
reads that wait here share one request, and all that wait there share one round. Not here: writes,
such as changes of voters (`node.controller.leader_proxy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from standpipe.adapters.http.internal import MSGPACK, Call, Handler, Reply, json_reply
from standpipe.control.raft.followers import QuorumDescription, ReplicaDescription
from standpipe.errors import LogUnavailable
from standpipe.model import NodeId, Record
from standpipe.node.batched import Shared
from standpipe.node.controller.catalog_replica import CatalogReplica
from standpipe.node.controller.feature_probe import FeatureProbe
from standpipe.node.controller.leader_reads import LeaderReads
from standpipe.node.controller.raft_driver import ProposalRefused, Quorum

DESCRIBE_MS: Final = 2_000


class ReplicaLine(Record, frozen=True, kw_only=True):
    """One replica in `GET /quorum`. None: not known (it has not fetched in this epoch)."""

    node_id: NodeId
    incarnation: str
    votes: bool
    end_offset: int | None
    lag_records: int | None
    fetched_ms_ago: int | None
    caught_up_ms_ago: int | None


class QuorumView(Record, frozen=True, kw_only=True):
    """Answer of `GET /quorum`."""

    cluster_id: str
    leader: NodeId
    epoch: int
    high_watermark: int
    replicas: tuple[ReplicaLine, ...]


class ReadParameters(msgspec.Struct):
    """Parameters of GET /catalog. `local`: what this node knows now, as old as it may be."""

    consistency: Literal["linearizable", "local"] = "local"


def view_of(description: QuorumDescription, cluster_id: str, now_ms: int) -> QuorumView:
    """The leader's knowledge with ages in place of instants of its boot clock."""
    ends = [line.end_offset for line in description.replicas]
    return QuorumView(
        cluster_id=cluster_id,
        leader=description.leader,
        epoch=description.epoch,
        high_watermark=description.high_watermark,
        replicas=tuple(_line(one, max(ends), now_ms) for one in description.replicas),
    )


def _line(replica: ReplicaDescription, end_offset: int, now_ms: int) -> ReplicaLine:
    is_known = replica.end_offset >= 0
    return ReplicaLine(
        node_id=replica.key.node,
        incarnation=replica.key.incarnation,
        votes=replica.votes,
        end_offset=replica.end_offset if is_known else None,
        lag_records=end_offset - replica.end_offset if is_known else None,
        fetched_ms_ago=_age(replica.fetched_ms, now_ms),
        caught_up_ms_ago=_age(replica.caught_up_ms, now_ms),
    )


def _age(at_ms: int | None, now_ms: int) -> int | None:
    return None if at_ms is None else max(0, now_ms - at_ms)


def routes_of(
    copy: CatalogReplica, quorum: Quorum, leader: LeaderReads, probe: FeatureProbe
) -> Mapping[tuple[str, str], Handler]:
    """The routes of this module, for the internal listener."""
    reads = Shared(quorum.read)

    async def describe(call: Call) -> Reply:
        description, now_ms = quorum.describe()
        if description is not None:
            return json_reply(view_of(description, copy.catalog.cluster_id, now_ms))
        return await leader.ask(call, DESCRIBE_MS)

    async def feature_levels(_: Call) -> Reply:
        return json_reply(await probe.view())

    async def catalog(call: Call) -> Reply:
        if call.query(ReadParameters).consistency == "linearizable":
            await _settle()
        return Reply(200, {"content-type": MSGPACK}, copy.state())

    async def read_index(_: Call) -> Reply:
        await _settle()
        return json_reply({"log_index": copy.catalog.index})

    async def _settle() -> None:
        """Returns when this copy has all that was acknowledged before. Raises LogUnavailable."""
        try:
            await reads.answer()
        except ProposalRefused as refused:
            raise LogUnavailable(
                "a linearizable read needs a leader with a majority, and none answered in time: "
                f"{refused}; consistency = local reads what this node knows"
            ) from refused

    return {
        ("GET", "/quorum"): describe,
        ("GET", "/quorum/features"): feature_levels,
        ("GET", "/catalog"): catalog,
        ("GET", "/read-index"): read_index,
    }
