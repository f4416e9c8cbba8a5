"""A store from a peer: the receiving side, threads of the tailer.

    ready(holding)? ── a store is there, or the changelog was chosen ──► yes: open it
          │ no
          └─► donors known ─► Fetch: POST /store-copy ─► pieces ─► checksum ─► rename

The file grows in `incoming/` beside a note of its donor and offer, so an interrupted fetch
continues after its last byte; if the whole is damaged then, it restarts at the same donor, once.
One rename makes the complete, synced file a store; the tailer verifies its rows when it opens it,
and tails from its position. Throttled (`standpipe.restore.bytes.per.second.max`). If a donor fails
or is silent, the next is asked (making a copy is not silent); after the last, the changelog is
replayed.

Not here: donor choice (`data.replica.store_copy`), the donor's side (`node.store_transfer.donor`).
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.files.fsync import sync
from standpipe.adapters.http.sync_client import open_connection
from standpipe.adapters.sealed.handshake import PeerIdentity
from standpipe.adapters.store.copy import checksum_of
from standpipe.adapters.store.environment import CLEAN, DATA_FILE
from standpipe.adapters.store.folders import store_path
from standpipe.data.replica.holdings import Holding
from standpipe.data.replica.positions import StoreIdentity
from standpipe.data.replica.store_copy import CopyOffer, Meter, RestoreView, donors, may_wait
from standpipe.model import Health, NodeId, NodeInfo, Placement, ReplicaId, Snapshot
from standpipe.model_liveness import KnownLag, KnownLags, Liveness, PeerLiveness
from standpipe.node.configuration import NodePaths
from standpipe.node.liveness.peer_state import VERDICTS_AGE_MS_MAX
from standpipe.node.store_transfer.donor import PATH

AT_ONCE_MAX: Final = 2
#: A round trip, and two lost packets (the kernel first sends again after 1 s).
CONNECT_S_MAX: Final = 4.0
#: Silence of a donor that owes a piece, or an answer about a copy that it makes. A piece is read in
#: well under a second, an answer comes each MAKE_WAIT_MS, and a control that lacks a CPU is late by
#: a second or two. While it waits, this replica does not answer.
SILENCE_S_MAX: Final = 5.0
#: The same, once its heartbeats have stopped too: one late piece is not yet a dead donor.
QUIET_S_MAX: Final = 1.0
#: A donor copies a whole store first. Only for a donor that says that it is copying.
MAKE_S_MAX: Final = 600.0
MAKE_WAIT_MS: Final = 1000
RETRIES: Final = 3  # a donor that restarts has forgotten its copies anyway
_LOOK_MS: Final = 100
_NOTE: Final = "offer.json"

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class FetchFailed(Exception):
    """A donor gave no copy; another may."""


class _Damaged(FetchFailed):
    """What arrived is not what was sent."""

    def __init__(self, *, is_resumed: bool) -> None:
        super().__init__("the checksum differs")
        self.is_resumed = is_resumed  # a part of it was already here


#: faults of a donor
_FAULTS: Final = (OSError, HTTPException, msgspec.MsgspecError, FetchFailed)


class _Note(NamedTuple):
    """What an unfinished file is a part of."""

    donor: str  # internal address
    offer: CopyOffer


@dataclass
class Fetch:
    """One store that is being fetched. `done_bytes` and `is_over` are read by the tailer's loop."""

    replica_id: ReplicaId
    target: Path
    incoming: Path
    peers: Sequence[NodeInfo]
    identity: PeerIdentity
    rate_bytes: int
    #: whether a peer's heartbeats have stopped; called in the fetch's thread
    is_down: Callable[[NodeId], bool] = lambda node: False
    done_bytes: int = 0
    total_bytes: int = 0
    peer: str = ""
    is_over: bool = False
    meter: Meter = field(default_factory=Meter)

    def start(self) -> None:
        """Fetch in a thread; `is_over` says when it has ended, with or without success."""
        threading.Thread(target=self._run, name="fetch", daemon=True).start()

    def view(self, now_ms: int) -> RestoreView:
        """How far it is, at an instant of a clock that is never set."""
        done, total = self.done_bytes, self.total_bytes
        eta_ms = self.meter.eta_ms(now_ms, done, total)
        return RestoreView(
            source="copy", of="bytes", done=done, total=total, peer=self.peer, eta_ms=eta_ms
        )

    def _run(self) -> None:
        log = _log.bind(store=str(self.target))
        try:
            for peer in self._in_order():
                self.peer = peer.node_id
                try:
                    self._take_from(peer)
                except _FAULTS as error:
                    log.warning("no copy from a peer", peer=peer.node_id, why=str(error))
                else:
                    log.info("store copied", peer=peer.node_id, size_bytes=self.total_bytes)
                    return
            log.warning("no peer gave a copy: the changelog is replayed")
            shutil.rmtree(self.incoming, ignore_errors=True)  # the changelog needs the room
        except Exception:
            log.exception("the copy failed: the changelog is replayed")
        finally:
            self.is_over = True

    def _in_order(self) -> list[NodeInfo]:
        """The donor of an unfinished file first."""
        note = self._note()
        return sorted(self.peers, key=lambda p: note is None or p.internal != note.donor)

    def _take_from(self, peer: NodeInfo) -> None:
        """Raises FetchFailed and what a connection raises."""
        try:
            self._copy_from(peer)
        except _Damaged as damaged:
            if not damaged.is_resumed:
                raise
            _log.warning("a part of a copy was damaged: restarting", store=str(self.target))
            self._copy_from(peer)

    def _copy_from(self, peer: NodeInfo) -> None:
        line = open_connection(
            peer.internal,
            connect_s_max=CONNECT_S_MAX,
            answer_s_max=SILENCE_S_MAX,
            identity=self.identity,
            to=peer.node_id,
            awaits=self._await,
        )
        try:
            offer = self._offer(line, peer)
            self.total_bytes, began = offer.size_bytes, self.done_bytes
            self._fill(line, offer)
        finally:
            line.close()
        file = self.incoming / DATA_FILE
        if checksum_of(file) != offer.checksum:
            shutil.rmtree(self.incoming)
            raise _Damaged(is_resumed=began > 0)
        self._install(file)

    def _offer(self, line: HTTPConnection, peer: NodeInfo) -> CopyOffer:
        note = self._note()
        if note is not None and note.donor == peer.internal:
            self.done_bytes = (self.incoming / DATA_FILE).stat().st_size
            if self._ask(line, _piece(note.offer, self.done_bytes)) is not None:
                return note.offer
        shutil.rmtree(self.incoming, ignore_errors=True)
        self.incoming.mkdir(parents=True, mode=0o700)
        self.done_bytes = 0
        offer = self._made(line)
        if shutil.disk_usage(self.incoming).free < offer.size_bytes:
            raise FetchFailed("the disk has no room for the copy")
        (self.incoming / DATA_FILE).touch()
        (self.incoming / _NOTE).write_bytes(msgspec.json.encode((peer.internal, offer)))
        return offer

    def _made(self, line: HTTPConnection) -> CopyOffer:
        """A fresh copy, once the donor has made it."""
        wanted = {**msgspec.to_builtins(StoreIdentity.of(self.replica_id)), "wait_ms": MAKE_WAIT_MS}
        until_s = time.monotonic() + MAKE_S_MAX
        while time.monotonic() < until_s:
            status, answer = self._exchange(line, "POST", PATH, msgspec.json.encode(wanted))
            if status == HTTPStatus.OK:
                return msgspec.json.decode(answer, type=CopyOffer)
            if status != HTTPStatus.ACCEPTED:
                raise FetchFailed("it refused to make a copy")
        raise FetchFailed("it did not finish its copy in time")

    def _note(self) -> _Note | None:
        try:
            note = msgspec.json.decode((self.incoming / _NOTE).read_bytes(), type=_Note)
        except (OSError, msgspec.MsgspecError):
            return None
        return note if (self.incoming / DATA_FILE).exists() else None

    def _fill(self, line: HTTPConnection, offer: CopyOffer) -> None:
        with (self.incoming / DATA_FILE).open("ab") as file:
            began_s, began = time.monotonic(), self.done_bytes
            while self.done_bytes < offer.size_bytes:
                piece = self._ask(line, _piece(offer, self.done_bytes))
                if not piece:
                    raise FetchFailed("the copy is gone")
                file.write(piece)
                self.done_bytes += len(piece)
                early_s = (self.done_bytes - began) / self.rate_bytes
                time.sleep(max(0.0, began_s + early_s - time.monotonic()))
            file.flush()
            os.fsync(file.fileno())

    def _ask(self, line: HTTPConnection, path: str) -> bytes | None:
        """A piece; None: the answer has none. Raises OSError and HTTPException."""
        status, answer = self._exchange(line, "GET", path)
        return answer if status == HTTPStatus.OK else None

    def _exchange(
        self, line: HTTPConnection, verb: str, path: str, body: bytes = b""
    ) -> tuple[int, bytes]:
        """Raises TimeoutError after one silence, other OSErrors and HTTPException after RETRIES."""
        for left in reversed(range(RETRIES)):
            try:
                line.request(verb, path, body or None)
                self._await(line.sock)
                response = line.getresponse()
                return response.status, response.read()
            except TimeoutError:
                raise  # it would be silent again
            except (OSError, HTTPException):
                line.close()  # the next request opens it again
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _await(self, line: socket.socket) -> None:
        """Wait for an answer or a proof. Raises TimeoutError when none is to be expected."""
        began_s, answer = time.monotonic(), select.poll()
        answer.register(line.fileno(), select.POLLIN)
        while not answer.poll(_LOOK_MS):
            silent_s = time.monotonic() - began_s
            if silent_s >= SILENCE_S_MAX:
                raise TimeoutError(f"silent for {SILENCE_S_MAX} s")
            if silent_s >= QUIET_S_MAX and self.is_down(NodeId(self.peer)):
                raise TimeoutError("silent, and it sends no heartbeats")

    def _install(self, file: Path) -> None:
        """Make it a store, with the marker of an orderly close, by one rename."""
        file.with_name(_NOTE).unlink()
        marker = file.with_name(CLEAN)
        marker.touch()
        for path in (marker, self.incoming):
            sync(path)
        self.target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.incoming.rename(self.target)
        sync(self.target.parent)


def _piece(offer: CopyOffer, offset: int) -> str:
    return f"{PATH}?copy_id={offer.copy_id}&offset={offset}"


class Restores:
    """The copies that this node is fetching, one per replica that has no store yet."""

    def __init__(
        self, paths: NodePaths, identity: PeerIdentity, clock: Clock, rate_bytes: int
    ) -> None:
        self._paths, self._identity, self._clock = paths, identity, clock
        self._rate_bytes = rate_bytes
        self._fetches: dict[ReplicaId, Fetch] = {}
        self._asked_ms: dict[ReplicaId, int] = {}
        #: how often the topic lacked what a store reads next. From the second time on, the
        #: changelog is chosen: the copy that came was as old
        self.outgrown = Counter[ReplicaId]()
        self._lags = published.RecordReader(paths.lags, KnownLags)
        self._liveness = published.RecordReader(paths.liveness, Liveness)

    def ready(self, holding: Holding, snapshot: Snapshot) -> bool:
        """Whether the store may be opened now; False: ask again, a copy is on its way."""
        replica_id = holding.replica_id
        if (store_path(self._paths.state, replica_id) / DATA_FILE).exists():
            return True
        fetch = self._fetches.get(replica_id)
        if self.outgrown[replica_id] > 1 or fetch is not None:
            return fetch is None or fetch.is_over
        if sum(not fetch.is_over for fetch in self._fetches.values()) >= AT_ONCE_MAX:
            return False
        return not self._begin(replica_id, snapshot)

    def opened(self, replica_id: ReplicaId) -> None:
        """Forget the fetch: a store that is lost later is fetched again. What came of it goes."""
        shutil.rmtree(self._paths.incoming / str(replica_id), ignore_errors=True)
        self._fetches.pop(replica_id, None)
        self._asked_ms.pop(replica_id, None)

    def keep_only(self, replica_ids: Mapping[ReplicaId, Holding]) -> None:
        """Forget ended fetches of replicas that this node no longer holds: one that comes back is
        fetched again."""
        for gone in self._fetches.keys() - replica_ids.keys():
            if self._fetches[gone].is_over:
                self.opened(gone)

    def views(self) -> dict[str, RestoreView]:
        """By `<table id>-<generation>-<partition>`: fetches in progress."""
        now_ms = self._clock.boot_ms()
        return {
            str(replica_id): fetch.view(now_ms)
            for replica_id, fetch in self._fetches.items()
            if not fetch.is_over
        }

    def _begin(self, replica_id: ReplicaId, snapshot: Snapshot) -> bool:
        """Start a fetch, or wait for a donor. False: there is none."""
        placement = _placement(replica_id, snapshot)
        if placement is None or set(placement.replicas) <= {snapshot.node_id}:
            return False
        now_ms = self._clock.boot_ms()
        liveness, known = self._heard(replica_id, now_ms)
        found = _donors(placement, snapshot, known, liveness)
        waited_ms = now_ms - self._asked_ms.setdefault(replica_id, now_ms)
        if not found:
            return may_wait(placement, snapshot.node_id, liveness, known, waited_ms)
        fetch = Fetch(
            replica_id=replica_id,
            target=store_path(self._paths.state, replica_id),
            incoming=self._paths.incoming / str(replica_id),
            peers=found,
            identity=self._identity,
            rate_bytes=self._rate_bytes,
            is_down=self._down(),
        )
        self._fetches[replica_id] = fetch
        fetch.start()
        return True

    def has_donor(self, holding: Holding, snapshot: Snapshot) -> bool:
        """Whether a peer would be asked for a copy if there were no store here."""
        placement = _placement(holding.replica_id, snapshot)
        liveness, known = self._heard(holding.replica_id, self._clock.boot_ms())
        return placement is not None and bool(_donors(placement, snapshot, known, liveness))

    def _down(self) -> Callable[[NodeId], bool]:
        """Whether control says that a peer is down; with a separate reader, for a thread."""
        reader = published.RecordReader(self._paths.liveness, Liveness)

        def is_down(node: NodeId) -> bool:
            reader.refresh()
            told = reader.record
            peers = told.peers if told and _is_new(told, self._clock.boot_ms()) else ()
            return any(p.node_id == node and p.health is Health.DOWN for p in peers)

        return is_down

    def _heard(
        self, replica_id: ReplicaId, now_ms: int
    ) -> tuple[dict[NodeId, PeerLiveness], list[KnownLag]]:
        """What control publishes; nothing, if it is from before the node's start."""
        self._lags.refresh()
        self._liveness.refresh()
        liveness, lags = self._liveness.record, self._lags.record
        peers = liveness.peers if _is_new(liveness, now_ms) and liveness else ()
        known = lags.known if _is_new(lags, now_ms) and lags else ()
        mine = [one for one in known if one.lag.replica_id == replica_id]
        return {peer.node_id: peer for peer in peers}, mine


def _donors(
    placement: Placement,
    snapshot: Snapshot,
    known: Sequence[KnownLag],
    liveness: Mapping[NodeId, PeerLiveness],
) -> list[NodeInfo]:
    nodes = {node.node_id: node for node in snapshot.nodes}
    return donors(placement, snapshot.node_id, nodes, known, liveness)


def _is_new(record: Liveness | KnownLags | None, now_ms: int) -> bool:
    return record is not None and now_ms - record.published_boot_ms <= VERDICTS_AGE_MS_MAX


def _placement(replica_id: ReplicaId, snapshot: Snapshot) -> Placement | None:
    return next((p for p in snapshot.assignment.placements if p.replica_id == replica_id), None)
