"""Writes at any node go to the leader: statements, registrations, drains, changes of voters.

If the leader is lost meanwhile, the write is retried with the same request id, which the catalog
applies once. When the time for that is over, the answer says whether a try may have been logged: a
client that repeats its statement does so under another id. Not here: what the leader does with a
write (`node.controller.leader`).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from standpipe.adapters.http.internal import (
    Call,
    Handler,
    HttpClient,
    PeerSilent,
    PeerUnreachable,
    Reply,
)
from standpipe.control.ddl.propose import Request
from standpipe.control.raft.messages import Error
from standpipe.errors import (
    BadRequest,
    BodyTooLarge,
    LogUnavailable,
    NotFound,
    OutcomeUnknown,
    StandpipeError,
)
from standpipe.model import NodeId
from standpipe.node.controller.catalog_replica import CatalogReplica
from standpipe.node.controller.leader import RETRY_S, Leading
from standpipe.node.controller.leader_reads import FORWARDED
from standpipe.node.controller.leases import PipelineStart
from standpipe.node.controller.member_checks import NodeRegistration
from standpipe.node.controller.raft_driver import ProposalRefused, Quorum

WRITE_S_MAX: Final = 10.0  # for finding a leader that accepts the write
FORWARD_MS: Final = 20_000  # twice the time that a statement waits for its topics
#: requests that are applied once
NUMBERED: Final = {"/execute": Request, "/pipeline/start": PipelineStart}
REFUSED_RETRY_S: Final = 0.2  # between two tries of `Writer.until_accepted`
SEEN_S_MAX: Final = 2.0  # how long a forwarded write waits for this node's catalog
#: in the answer to a forward: the leader does not know what became of it
MAY_BE_LOGGED: Final = "may_be_logged"

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Writer:
    """Forwards writes to the leader, whichever node that is."""

    def __init__(
        self,
        copy: CatalogReplica,
        quorum: Quorum,
        leading: Leading,
        client: HttpClient,
        addresses: Callable[[NodeId], Sequence[str]],
    ) -> None:
        self._copy = copy
        self._quorum = quorum
        self._leading = leading
        self._client = client
        self._addresses = addresses
        self._misses = 0  # forwards without an answer; each moves on to the leader's next address

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        """All routes that write, for the internal listener."""
        return {("POST", path): self.write for path in self._leading.write_paths}

    async def write(self, call: Call) -> Reply:
        """The leader's answer, once this node's catalog has what was written.

        Retries while leaders change, under one request id. Raises LogUnavailable if no leader
        accepts it in time, OutcomeUnknown for a statement that may be logged all the same,
        BodyTooLarge, BadRequest, and Unauthorized if a node registers another.
        """
        if call.path == "/register":  # here, since it is sent on in the name of this node
            call.must_come_from(call.json(NodeRegistration).node_id)
        if FORWARDED not in call.params:
            call = self._numbered(call)
        deadline = time.monotonic() + WRITE_S_MAX
        may_be_logged = False
        while True:
            try:
                return await self._try(call)
            except (ProposalRefused, PeerUnreachable, PeerSilent, _TryAgain) as error:
                if isinstance(error, ProposalRefused) and error.error is Error.RECORD_TOO_LARGE:
                    raise BodyTooLarge("its plan is larger than one entry of the log") from error
                may_be_logged |= _may_be_logged(error)
                if FORWARDED in call.params or time.monotonic() > deadline:
                    raise self._refusal(call, str(error), may_be_logged) from error
            await asyncio.sleep(RETRY_S)

    async def until_accepted(self, call: Call) -> None:
        """Write until the leader accepts it; its refusals are logged, each once.

        A leader's refusal of its own write is raised, where another node's is an answer. Both wait
        for the operator: a leader that ended would be followed by the next one that is refused.
        """
        logged = ""
        while True:
            refusal = await self._refusal_of(call)
            if refusal is None:
                return
            if refusal and refusal != logged:
                logged = refusal
                _log.error("the leader refuses this node", path=call.path, answer=refusal)
            await asyncio.sleep(REFUSED_RETRY_S)

    async def _refusal_of(self, call: Call) -> str | None:
        """None: it was accepted; empty: no leader has judged it."""
        try:
            reply = await self.write(call)
        except LogUnavailable:
            return ""
        except StandpipeError as error:
            return str(error)
        return None if reply.ok else reply.body.decode(errors="replace")

    def _refusal(self, call: Call, why: str, may_be_logged: bool) -> StandpipeError:
        """What to answer when the time is over. A try of a statement may have been logged; other
        writes may be repeated in any case."""
        refused = f"no leader of the metadata quorum accepted it: {why}"
        if call.path != "/execute":
            return LogUnavailable(refused)
        request_id = call.json(Request).request_id
        if not may_be_logged and request_id not in self._copy.catalog.applied_requests:
            return LogUnavailable(refused)
        if FORWARDED in call.params:  # the node that sent it on tries again, under its id
            return LogUnavailable(refused, **{MAY_BE_LOGGED: True})
        return OutcomeUnknown(
            f"no leader of the metadata quorum said what became of it ({why}): the statement may be"
            " carried out. Look whether it was (SHOW, DESCRIBE); if not, send it again"
        )

    def _numbered(self, call: Call) -> Call:
        """The request with an id, if it has none, and with the index of the log that this node
        knows, if its sender gave none: a forward may arrive late (`control.metadata.requests`)."""
        if call.path not in NUMBERED:
            return call
        request = call.json(NUMBERED[call.path])
        if request.known_index is not None:
            return call
        named = msgspec.structs.replace(
            request,
            request_id=request.request_id or uuid.uuid4().hex,
            known_index=self._copy.catalog.index,
        )
        return replace(call, body=msgspec.json.encode(named))

    async def _try(self, call: Call) -> Reply:
        if self._quorum.leading is not None:
            return await self._leading.write(call)
        leader = self._quorum.leader
        if leader is None or leader == self._quorum.me.node or FORWARDED in call.params:
            raise _TryAgain(
                f"{self._quorum.me.node} does not lead; the leader is {leader or 'not known'}"
            )
        reply = await self._forward(call, leader)
        if reply.status == LogUnavailable.status and LogUnavailable.code == _code(reply):
            said = reply.json()
            extras: Mapping[str, object] = said.get("standpipe") or {}
            may_be_logged = bool(extras.get(MAY_BE_LOGGED))
            raise _TryAgain(said.get("message", ""), may_be_logged=may_be_logged)
        if reply.status == NotFound.status:
            raise BadRequest(
                f"{leader}, which leads, runs an older release that does not know {call.path}: "
                f"upgrade it first, or let a newer node lead (`standpipe quorum transfer`)"
            )
        if reply.ok:
            await self._copy.wait_for(reply.json()["log_index"], SEEN_S_MAX)
        return reply

    async def _forward(self, call: Call, leader: NodeId) -> Reply:
        """The leader's answer. Raises _TryAgain as soon as another node leads, because a stopped
        leader would never answer."""
        addresses = self._addresses(leader)
        if not addresses:
            raise _TryAgain(f"no address of {leader} is known")
        target = f"{call.path}?{FORWARDED}=1"
        address = addresses[self._misses % len(addresses)]
        post = self._client.post(address, target, call.body, to=leader, timeout_ms=FORWARD_MS)
        asked = asyncio.ensure_future(post)
        moved = asyncio.ensure_future(self._quorum.changed())
        try:
            await asyncio.wait({asked, moved}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            raise _TryAgain(f"{leader} lost the lead", may_be_logged=True)
        except (PeerUnreachable, PeerSilent):
            self._misses += 1
            raise
        finally:
            asked.cancel()
            moved.cancel()


class _TryAgain(Exception):
    """The write was not accepted this time; `str` is the reason. `may_be_logged`: a leader may have
    appended it all the same."""

    def __init__(self, why: str, *, may_be_logged: bool = False) -> None:
        super().__init__(why)
        self.may_be_logged = may_be_logged


def _may_be_logged(error: Exception) -> bool:
    match error:
        case ProposalRefused(offset=offset):
            return offset is not None
        case _TryAgain(may_be_logged=may_be_logged):
            return may_be_logged
        case _:
            return isinstance(error, PeerSilent)


def _code(reply: Reply) -> object:
    return reply.json().get("error_code")
