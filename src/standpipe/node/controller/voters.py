"""Changes of the quorum's voters at the leader: POST /quorum/add-voter, remove-voter, transfer.

Not here: how Raft changes its voter set (`control.raft`), the other writes
(`node.controller.leader`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from standpipe.adapters.http.internal import Call
from standpipe.control.raft.majority import Incarnation, LeaderEpoch, ReplicaKey
from standpipe.control.raft.messages import Error
from standpipe.errors import BadRequest, LogUnavailable
from standpipe.model import NodeId
from standpipe.node.controller.catalog_replica import CatalogReplica
from standpipe.node.controller.raft_driver import ProposalRefused, Quorum


class VoterName(msgspec.Struct):
    """Body of POST /quorum/add-voter, remove-voter and transfer."""

    node_id: NodeId
    incarnation: Incarnation = Incarnation("")  # empty: the one that is registered


class VoterRoutes:
    """The handlers. `epoch` returns this leader's epoch; elsewhere it raises ProposalRefused."""

    def __init__(
        self, copy: CatalogReplica, quorum: Quorum, epoch: Callable[[], LeaderEpoch]
    ) -> None:
        self._copy = copy
        self._quorum = quorum
        self._epoch = epoch

    async def add(self, call: Call) -> object:
        """Add a voter; succeeds if it votes already. Raises BadRequest, LogUnavailable."""
        asked = call.json(VoterName)
        self._epoch()
        voter = ReplicaKey(asked.node_id, asked.incarnation or self._registered(asked.node_id))
        if voter not in self._quorum.voters:
            await self._settled(self._quorum.add_voter(voter))
        return self._changed()

    async def remove(self, call: Call) -> object:
        """Remove a voter, but not the last one. Raises BadRequest, LogUnavailable."""
        asked = call.json(VoterName)
        self._epoch()
        if len(self._quorum.voters) == 1:
            raise BadRequest(
                "the last voter cannot be removed: no command could be logged any more"
            )
        await self._settled(self._quorum.remove_voter(self._voter(asked.node_id)))
        return self._changed()

    async def transfer(self, call: Call) -> object:
        """Hand the leadership over to a voter. Raises BadRequest, LogUnavailable."""
        asked = call.json(VoterName)
        self._epoch()
        voter = self._voter(asked.node_id)
        if voter != self._quorum.me:
            await self._settled(self._quorum.transfer(voter))
        return self._changed()

    def _changed(self) -> object:
        voters = [key.node for key in self._quorum.voters.keys]
        return {"log_index": self._copy.catalog.index, "voters": voters}

    def _voter(self, node_id: NodeId) -> ReplicaKey:
        if (key := self._quorum.voters.key_of(node_id)) is None:
            raise BadRequest(f"{node_id} does not vote; voters are {self._names()}")
        return key

    def _registered(self, node_id: NodeId) -> Incarnation:
        node = self._copy.catalog.nodes.get(node_id)
        if node is None:
            raise BadRequest(f"{node_id} is not a node of this cluster")
        return Incarnation(node.incarnation)

    async def _settled(self, change: Awaitable[None]) -> None:
        try:
            await change
        except ProposalRefused as refused:
            if refused.error is Error.DUPLICATE_VOTER:
                raise BadRequest(
                    f"a voter of that name exists already, with another disk: {self._names()}; "
                    "remove it first"
                ) from refused
            if refused.error is Error.REQUEST_TIMED_OUT:
                raise LogUnavailable(
                    "the change was not committed in time: another one is under way, or the node "
                    "does not follow; it may still be committed, see `standpipe quorum describe`"
                ) from refused
            raise

    def _names(self) -> str:
        return ", ".join(key.node for key in self._quorum.voters.keys)
