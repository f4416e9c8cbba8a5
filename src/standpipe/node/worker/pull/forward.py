"""A read that another node answers: one hop to its peer listener, and what a failed path implies.

A forward carries the client's own statement and bounds, so that the target can judge again with its
own numbers; it is answered there from the local store or refused with a reason, never forwarded
again (KLIP-12; users' pain 6).

A *scan* may take much longer than a lookup, on a path that is sound. Its target sends signs of
work, and only its silence is a failure; the time of scans says nothing about lookups, so it is left
out of the latency that tells which read is slow.

A refused connection, a reset, a time-out or a run of slow reads opens the *breaker* of that path at
once. A path whose breaker is open is a suspect for `control.routing.route`: tried last. A probe
over the same path, with back-off, closes the breaker, so that no client's read pays for the test,
and a node whose control is alive while its workers hang stays out.

Not here: the choice of the replica (`control.routing.route`), connections
(`adapters.http.peer_client`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from standpipe.adapters.http.peer_client import (
    ConnectFailed,
    PathFailed,
    PeerClient,
    Response,
    StillWorking,
)
from standpipe.control.routing.session import SessionVerdict, Stamp
from standpipe.errors import HeavyWorkerEnded, NotComputable, NotReady, TextRefused
from standpipe.freshness import Freshness, parse_headers
from standpipe.model import NodeId, NodeInfo, Record
from standpipe.node.liveness.wire import PROBE_PATH
from standpipe.node.worker.pull.forward_headers import ForwardedRead
from standpipe.node.worker.request.answer import ArrivingRows

PROBE_WAIT_MS_MAX: Final = 10_000
#: Slow reads in a row that open a breaker before the first of them times out, if they are slow for
#: so long: where a p95 is 1 ms, all that wait at once are slow when a peer's garbage is collected.
SILENCES_MAX: Final = 10
SILENT_MS_MIN: Final = 50.0

TOO_SLOW: Final = (
    "The scan did not finish in time: name keys, a range or a LIMIT, or raise "
    "standpipe.query.pull.scan.timeout.ms."
)
STILL_WAITED: Final = (
    "It still waited for rows that are new enough, or read them, when the time was over."
)

_NOBODY: Final[frozenset[NodeId]] = frozenset()
_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class PartitionAnswer(Record, frozen=True, kw_only=True):
    """What one partition contributes to an answer: JSON arrays, and how fresh they are."""

    rows: list[bytes]
    fresh: Freshness
    #: at level `session`, which batch each part of the answer is of
    stamps: tuple[Stamp, ...] = ()


class ForwardRefused(Exception):
    """A replica did not answer. `why` goes into the verdict on it."""

    def __init__(
        self,
        why: str,
        *,
        is_not_ready: bool = False,
        progress: float | None = None,
        is_path_failure: bool = False,
        was_sent: bool = False,
        lag_records: int | None = None,
        owners: Sequence[NodeId] = (),
        assignment_epoch: int = 0,
        is_not_owner: bool = False,
        session: SessionVerdict = SessionVerdict.COVERED,
    ) -> None:
        super().__init__(why)
        self.why = why
        #: no answer came; anything else is an answer
        self.is_path_failure = is_path_failure
        #: the peer may have begun to work on it, and may have failed because of it
        self.was_sent = was_sent
        #: the replica's lag, by its own numbers; None: it did not say
        self.lag_records = lag_records
        #: the wrong node was asked: it does not hold that, or counts partitions differently
        self.is_not_owner = is_not_owner
        #: the holders by the map of the node that refused, and that map's epoch; 0: it did not say
        self.owners = owners
        self.assignment_epoch = assignment_epoch
        #: it holds no whole batch yet; anything else is a refusal or a fault
        self.is_not_ready = is_not_ready
        #: share of the changelog that it has read, 0 to 1
        self.progress = progress
        #: why its rows do not cover what a session has seen; COVERED: it was refused otherwise
        self.session = session


@dataclass
class Breaker:
    """Whether a path may be used. Pure: instants come from the caller's monotonic clock, in ms."""

    open_ms: int
    #: instant from which a probe may try; None: closed
    probe_at_ms: float | None = None
    _wait_ms: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the path failed and no probe has succeeded since."""
        return self.probe_at_ms is not None

    def failed(self, now_ms: float) -> None:
        """The path failed, under a read or under a probe: the next probe waits twice as long.

        Reads that fail before a probe is due change nothing: they were already in flight.
        """
        if self.probe_at_ms is not None and now_ms < self.probe_at_ms:
            return
        is_again = self.probe_at_ms is not None
        longest = max(PROBE_WAIT_MS_MAX, self.open_ms)
        self._wait_ms = min(self._wait_ms * 2, longest) if is_again else float(self.open_ms)
        self.probe_at_ms = now_ms + self._wait_ms

    def succeeded(self) -> None:
        """An answer came, whatever it says: the path works."""
        self.probe_at_ms = None
        self._wait_ms = 0.0


@dataclass
class Forwarder:
    """All paths from this worker to the peer listeners of other nodes."""

    client: PeerClient
    open_ms: int
    probe_timeout_ms: int
    #: called with the ms that each answered forward took
    took: Callable[[float], None] = lambda ms: None
    #: address -> consecutive slow reads on this path, without an answer in between, and since when
    _silences: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    #: address of a peer listener -> its breaker; closed ones are dropped
    _breakers: dict[str, Breaker] = field(default_factory=dict[str, Breaker])
    #: addresses of peer listeners that failed recently; another object when they have changed
    open_paths: frozenset[str] = frozenset()
    _probes: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]])

    def suspects(self, nodes: Mapping[NodeId, NodeInfo]) -> frozenset[NodeId]:
        """Nodes whose path failed recently."""
        if not self._breakers:
            return _NOBODY
        return frozenset(n.node_id for n in nodes.values() if n.peer in self._breakers)

    async def read(
        self, peer: NodeInfo, read: ForwardedRead, arriving: ArrivingRows
    ) -> PartitionAnswer:
        """The peer's answer. Raises ForwardRefused, and opens the breaker of a path that failed;
        and what `arriving` raises."""
        silence_ms = read.silence_ms
        started_ms = _now_ms()
        try:
            response = await self.client.request(
                peer.peer,
                "/query",
                to=peer.node_id,
                body=read.body,
                headers=read.headers(),
                timeout_s=read.timeout_ms / 1000,
                silence_s=None if silence_ms is None else silence_ms / 1000,
                take=arriving.take,
            )
        except StillWorking as slow:
            self._succeeded(peer.peer)
            raise ForwardRefused(STILL_WAITED if read.waits else TOO_SLOW) from slow
        except PathFailed as failure:
            self._failed(peer)
            raise ForwardRefused(
                f"Path failed: {failure}.",
                is_path_failure=True,
                was_sent=not isinstance(failure, ConnectFailed),
            ) from failure
        self.answered(peer.peer, None if silence_ms is not None else _now_ms() - started_ms)
        if response.status != 200:
            raise refusal_of(response)
        return PartitionAnswer(rows=arriving.rows, fresh=parse_headers(response.headers))

    def answered(self, address: str, took_ms: float | None) -> None:
        """A peer has answered over this path, whatever it said. None: how long it took says nothing
        about lookups."""
        if took_ms is not None:
            self.took(took_ms)
        self._succeeded(address)

    def silent(self, peer: NodeInfo) -> None:
        """A read on this path is slow. SILENCES_MAX in a row, over SILENT_MS_MIN or more, are a
        failed path: a stopped peer must not cost every read a hedge, and its time-outs come a
        second too late."""
        now_ms = _now_ms()
        count, since_ms = self._silences.get(peer.peer, (0, now_ms))
        self._silences[peer.peer] = count + 1, since_ms
        is_long = now_ms - since_ms >= SILENT_MS_MIN
        if count + 1 >= SILENCES_MAX and is_long and peer.peer not in self._breakers:
            self._failed(peer)

    async def close(self) -> None:
        """Cancel the probes and close all connections."""
        for probe in self._probes.values():
            probe.cancel()
        self.client.close()

    def _failed(self, peer: NodeInfo) -> None:
        address = peer.peer
        breaker = self._breakers.setdefault(address, Breaker(self.open_ms))
        if not breaker.is_open:
            _log.warning("path failed: skipped until a probe succeeds", peer=address)
        breaker.failed(_now_ms())
        if address not in self.open_paths:
            self.open_paths = frozenset(self._breakers)
        if address not in self._probes:
            self._probes[address] = asyncio.create_task(self._probe(peer))

    def _succeeded(self, address: str) -> None:
        self._silences.pop(address, None)
        if self._breakers and (breaker := self._breakers.pop(address, None)):
            breaker.succeeded()
            self.open_paths = frozenset(self._breakers)
            _log.info("path works again", peer=address)
            probe = self._probes.pop(address, None)
            if probe is not None and probe is not asyncio.current_task():
                probe.cancel()

    async def _probe(self, peer: NodeInfo) -> None:
        address = peer.peer
        while (breaker := self._breakers.get(address)) and breaker.probe_at_ms is not None:
            await asyncio.sleep(max(0.0, breaker.probe_at_ms - _now_ms()) / 1000)
            try:
                await self.client.request(
                    address,
                    PROBE_PATH,
                    to=peer.node_id,
                    timeout_s=self.probe_timeout_ms / 1000,
                )
            except PathFailed:
                breaker.failed(_now_ms())
            else:
                self._succeeded(address)
        self._probes.pop(address, None)


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


class _Said(msgspec.Struct):
    """The part of an error body that `refusal_to_peer` fills."""

    why: str = ""
    progress: float | None = None
    lag_records: int | None = None
    replicas: list[NodeId] = []
    assignment_epoch: int = 0
    session: str = SessionVerdict.COVERED.value


class _ErrorBody(msgspec.Struct):
    error_code: int = 0
    message: str = ""
    standpipe: _Said = msgspec.field(default_factory=_Said)


def refusal_of(response: Response) -> ForwardRefused | NotComputable | TextRefused:
    """What a peer's response without rows says. NotComputable and TextRefused are the statement's
    own fault; anything else refuses it here."""
    try:
        error = msgspec.json.decode(response.body, type=_ErrorBody)
    except msgspec.MsgspecError:
        return ForwardRefused(f"Peer answered {response.status}.")
    if error.error_code == NotComputable.code:
        return NotComputable(error.message)  # the same rows at every replica
    if error.error_code == TextRefused.code:
        return TextRefused(error.message)  # it stopped a worker there, and would elsewhere
    said = error.standpipe
    return ForwardRefused(
        said.why or error.message,
        was_sent=error.error_code == HeavyWorkerEnded.code,  # it may have been this read
        is_not_ready=error.error_code == NotReady.code,
        progress=said.progress,
        lag_records=said.lag_records,
        owners=tuple(said.replicas),
        assignment_epoch=said.assignment_epoch,
        session=session_verdict(said.session),
    )


def session_verdict(text: str) -> SessionVerdict:
    """What a peer says; one that this release does not know refuses, and nothing more."""
    try:
        return SessionVerdict(text)
    except ValueError:
        return SessionVerdict.COVERED
