"""How far every replica has read: a node's reports about its replicas, and those of other nodes.

    Reporter (sender)   lags of its own replicas, each under a version that grows with every change
         │ delta(base)  on each heartbeat: what changed since the version that the receiver has, at
         │              most DELTA_BYTES_MAX; the last part carries a digest of everything
         ▼
    Ledger (receiver)   acknowledges its version; if the digest differs, 0, which asks for all

So lost, duplicate or reordered heartbeats and a restart at either end need no further repair. A
full report (`POST /lag`) is the same without a base.

Three rules keep old reports out: a report counts only under its sender's incarnation in the log;
within that incarnation, older versions are ignored, and older sessions while the newest reports;
and lags are keyed by table id *and* generation. A report that Kafka contradicts is refused
(`control.liveness.end_checks`), until the sender's next one replaces it.

Words: docs/glossary.md. Lag = largest committed end that any node reported - position, >= 0.
Unknown is None, never 0. Where reports are rare, a lag is only an upper bound: no read is refused
by it (`control.routing.route`), and no replica moved (`control.assignment.from_catalog`).

Source: KLIP-12 "Lag reporting", KIP-535 LagInfo; ksql#4833 (a lag has an age),
ksql#4472 (the first report is sent at once). Not here: clocks, and which replica is read
(`control.routing.route`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

import msgspec

from standpipe.control.liveness.end_checks import Credence, EndChecks, RefusedReport
from standpipe.model import NodeId, Offset, Placement, ReplicaId, ReplicaState
from standpipe.model_liveness import KnownLag, LagDelta, ReplicaLag

NO_END: Final = Offset(-1)
#: Encoded lags on one heartbeat: a heartbeat must fit into one packet.
DELTA_BYTES_MAX: Final = 900
#: A lag that was true longer ago is stale: the ends known now include what was written since.
FRESH_MS: Final = 1000
#: Reports of an older session count again once the newest has been silent for so long.
SESSION_SILENT_MS: Final = 3000

_encoder = msgspec.json.Encoder()


def offset_lag(ends: Iterable[Offset], position: Offset) -> int | None:
    """How far a replica trails the furthest committed end that any node reported.

    Unit: records of one partition, >= 0. None if no end is known (-1 is none): an unknown lag is
    never a lag of zero. Source: KLIP-12 "Lag-aware routing".
    """
    end = max((end for end in ends if end >= 0), default=None)
    return None if end is None else max(0, end - position)


def audience(placements: Iterable[Placement], me: NodeId) -> frozenset[NodeId]:
    """Nodes that hold copies of partitions that `me` holds, except `me`."""
    shared = (one.holders for one in placements if me in one.holders)
    return frozenset(node for holders in shared for node in holders) - {me}


def known_lag_ms(known: KnownLag, now_boot_ms: int) -> int | None:
    """Upper bound of a peer's lag in ms, now; None: it was never at its end, or did not say.

    Heartbeats confirm what did not change, but its lag in time grows anyway.
    """
    return _aged(known.lag.replica_lag_ms, known, now_boot_ms)


def known_source_lag_ms(known: KnownLag, now_boot_ms: int) -> int | None:
    """Likewise, of its source lag; None: it is not known, or the peer's release does not say it."""
    return _aged(known.lag.source_lag_ms, known, now_boot_ms)


def _aged(told_ms: int | None, known: KnownLag, now_boot_ms: int) -> int | None:
    return None if told_ms is None else told_ms + max(0, now_boot_ms - known.reported_boot_ms)


def digest_of(lags: Iterable[ReplicaLag]) -> int:
    """Equal for equal lags in any order; the lag in ms, which ages by itself, is left out."""
    digest = 0
    for lag in lags:
        digest ^= _crc(lag)
    return digest


def _crc(lag: ReplicaLag) -> int:
    return crc32(repr(_facts(lag)).encode())


def _facts(lag: ReplicaLag) -> tuple[object, ...]:
    return (*lag.replica_id, lag.position, lag.committed_end, int(lag.state), lag.batch)


class Reporter:
    """What a node reports about its own replicas. `session` grows with every start."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.version = 0
        self._digest = 0
        #: in the order of their last change
        self._lags: dict[ReplicaId, tuple[int, ReplicaLag]] = {}

    @property
    def lags(self) -> list[ReplicaLag]:
        """The lags of all replicas, including those that left (state ABSENT)."""
        return [lag for _, lag in self._lags.values()]

    @property
    def digest(self) -> int:
        """Digest of all lags; the receiver compares it with the digest of its own copy."""
        return self._digest

    def observe(self, lags: Iterable[ReplicaLag]) -> bool:
        """Record the state of all replicas of this node. True: something changed."""
        before = self.version
        seen: set[ReplicaId] = set()
        for lag in lags:
            seen.add(lag.replica_id)
            self._put(lag)
        for gone in [known for known in self._lags if known not in seen]:
            self._put(msgspec.structs.replace(self._lags[gone][1], state=ReplicaState.ABSENT))
        return self.version > before

    def delta(self, base: int, bytes_max: int = DELTA_BYTES_MAX) -> LagDelta:
        """What a receiver at version `base` lacks, oldest change first, as much as fits."""
        changes: list[ReplicaLag] = []
        through, room = base, bytes_max
        for version, lag in self._after(base):
            room -= len(_encoder.encode(lag)) + 1
            if room < 0 and changes:
                return self._delta(base, through, None, changes)
            changes.append(lag)
            through = version
        return self._delta(base, self.version, self._digest, changes)

    def full(self) -> LagDelta:
        """Everything at once."""
        return self._delta(0, self.version, self._digest, self.lags)

    def _delta(
        self, base: int, through: int, digest: int | None, changes: Iterable[ReplicaLag]
    ) -> LagDelta:
        return LagDelta(
            session=self.session, base=base, through=through, digest=digest, changes=tuple(changes)
        )

    def _put(self, lag: ReplicaLag) -> None:
        version, known = self._lags.get(lag.replica_id, (0, None))
        if known is not None and _facts(known) == _facts(lag):
            self._lags[lag.replica_id] = (version, lag)  # a newer lag in ms, same position
            return
        self.version += 1
        self._digest ^= _crc(lag) ^ (_crc(known) if known is not None else 0)
        self._lags.pop(lag.replica_id, None)
        self._lags[lag.replica_id] = (self.version, lag)

    def _after(self, base: int) -> list[tuple[int, ReplicaLag]]:
        """Changes of later versions, ascending; searched backwards from the newest."""
        later: list[tuple[int, ReplicaLag]] = []
        for version, lag in reversed(self._lags.values()):
            if version <= base:
                break
            later.append((version, lag))
        return later[::-1]


def _unread(lag: ReplicaLag) -> ReplicaLag:
    """A replica that exists, by a report that is not believed: it has read nothing for certain."""
    return msgspec.structs.replace(
        lag, position=Offset(0), committed_end=NO_END, replica_lag_ms=None
    )


@dataclass
class _Sender:
    """What one peer reported."""

    incarnation: str
    session: int = 0
    #: when that session reported last; None: it did not, or what it reported was refused
    told_ms: int | None = None
    version: int = 0
    digest: int = 0
    #: instant at which all that is kept was true
    complete_ms: int | None = None
    #: replica -> (instant of the report, lag)
    lags: dict[ReplicaId, tuple[int, ReplicaLag]] = field(
        default_factory=dict[ReplicaId, tuple[int, ReplicaLag]]
    )
    #: the same, of the newest report of each that is believed
    believed: dict[ReplicaId, tuple[int, ReplicaLag]] = field(
        default_factory=dict[ReplicaId, tuple[int, ReplicaLag]]
    )
    #: replica -> instant of its report that cannot be true
    refused: dict[ReplicaId, int] = field(default_factory=dict[ReplicaId, int])

    def restart(self, session: int) -> None:
        self.begin(session)
        self.believed.clear()
        self.refused.clear()

    def is_silent(self, now_ms: int) -> bool:
        """Whether another session may take over, an older one too: a forged one must not last."""
        return self.told_ms is None or now_ms - self.told_ms > SESSION_SILENT_MS

    @property
    def is_whole(self) -> bool:
        """Whether everything came, and nothing of it waits for Kafka without a report before it."""
        judged = self.believed.keys() | self.refused.keys()
        return self.complete_ms is not None and self.lags.keys() <= judged

    def begin(self, session: int) -> None:
        """Everything comes again; what was believed counts until it is there."""
        self.session, self.version, self.digest, self.complete_ms = session, 0, 0, None
        self.lags.clear()

    def worth(self, replica: ReplicaId, checks: EndChecks) -> Credence:
        """Judge the newest report of a replica, and keep it if it is believed."""
        at_ms, lag = self.lags[replica]
        credence = checks.judge(lag, at_ms)
        if credence is Credence.BELIEVED:
            self.believed[replica] = self.lags[replica]
            self.refused.pop(replica, None)
        elif credence is Credence.REFUSED and not lag.state.answers:
            self.believed[replica] = at_ms, _unread(lag)  # that it does not answer may well be true
        elif credence is Credence.REFUSED:
            self.believed.pop(replica, None)
        return credence

    def put(self, lag: ReplicaLag, at_ms: int) -> None:
        _, known = self.lags.get(lag.replica_id, (0, None))
        self.digest ^= _crc(lag) ^ (_crc(known) if known is not None else 0)
        self.lags[lag.replica_id] = (at_ms, lag)


class Ledger:
    """What a node keeps of its peers' reports. Instants are of this node's clock."""

    def __init__(self, checks: EndChecks | None = None) -> None:
        self._checks = checks or EndChecks()
        self._senders: dict[NodeId, _Sender] = {}
        #: counts changes of what `known` returns, apart from ages
        self.changes = 0
        #: replicas whose newest reports wait for Kafka's end
        self.unchecked: set[ReplicaId] = set()
        #: reports of single replicas that were refused since the start
        self.refused_count = 0
        #: those that are new, for the log; the reader clears it
        self.refusals: list[RefusedReport] = []

    def members(self, incarnations: Mapping[NodeId, str]) -> None:
        """Which nodes may report, and under which incarnation; other reports are forgotten."""
        for node in list(self._senders):
            if incarnations.get(node) != self._senders[node].incarnation:
                del self._senders[node]
                self.changes += 1
        for node, incarnation in incarnations.items():
            self._senders.setdefault(node, _Sender(incarnation))

    def take(self, node: NodeId, incarnation: str, delta: LagDelta, at_ms: int) -> int | None:
        """Apply a report. Returns the version held now, which is the acknowledgement.

        0: nothing usable, send everything. None: ignored (not a member, a dead incarnation, or
        an old session).
        """
        sender = self._senders.get(node)
        if sender is None or sender.incarnation != incarnation:
            return None
        if delta.session < sender.session and not sender.is_silent(at_ms):
            return None
        if delta.session != sender.session:
            sender.restart(delta.session)
            self.changes += 1
        sender.told_ms = at_ms
        if delta.base > sender.version or delta.through < sender.version:
            return sender.version  # a gap, or a newer one arrived first
        self._apply(node, delta, at_ms)
        return sender.version

    def weigh(self, replicas: Iterable[ReplicaId] | None = None) -> None:
        """Judge what was reported of these replicas again; None: of all. Kafka has answered, or is
        given up."""
        for node, sender in self._senders.items():
            for replica in sender.lags.keys() if replicas is None else replicas:
                if replica in sender.lags:
                    self._weigh(node, sender, replica)
        self.unchecked -= {one for one in self.unchecked if not self._is_unchecked(one)}
        self.changes += 1

    def known(self) -> list[KnownLag]:
        """Every lag that was reported and is believed, with the last instant at which it was
        true."""
        return [
            KnownLag(
                node_id=node,
                lag=told[1],
                at_boot_ms=max(
                    told[0], (told is sender.lags.get(replica) and sender.complete_ms) or 0
                ),
                reported_boot_ms=told[0],
            )
            for node, sender in self._senders.items()
            for replica, told in sender.believed.items()
            if told[1].state is not ReplicaState.ABSENT
        ]

    def whole(self, since_ms: int = 0) -> dict[NodeId, dict[ReplicaId, ReplicaLag]]:
        """Reports of nodes that sent everything: a replica not in its report does not exist.

        `since_ms`: reports that were last complete before this instant are left out.
        """
        return {
            node: {
                replica: sender.believed[replica][1] if replica in sender.believed else _unread(lag)
                for replica, (_, lag) in sender.lags.items()
            }
            for node, sender in self._senders.items()
            if sender.is_whole and (sender.complete_ms or 0) >= since_ms
        }

    def current(self, since_ms: int) -> dict[NodeId, frozenset[ReplicaId]]:
        """Copies that were at their end after `since_ms`.

        By their own reports: a stalled copy has not been at its end since it stalled
        (`replica_lag_ms` grows), whatever other nodes reported, and when.
        """
        return {
            node: frozenset(
                replica
                for replica, (at_ms, lag) in sender.believed.items()
                if lag.replica_lag_ms is not None and at_ms - lag.replica_lag_ms >= since_ms
            )
            for node, sender in self._senders.items()
        }

    def ends(self) -> dict[ReplicaId, Offset]:
        """The furthest committed end in any believed report, however old: ends only grow."""
        found: dict[ReplicaId, Offset] = {}
        for sender in self._senders.values():
            for replica, (_, lag) in sender.believed.items():
                found[replica] = max(lag.committed_end, found.get(replica, NO_END))
        return found

    def session_of(self, node: NodeId) -> int:
        """Session of a peer's last report; 0: it reported nothing."""
        sender = self._senders.get(node)
        return sender.session if sender else 0

    def _weigh(self, node: NodeId, sender: _Sender, replica: ReplicaId) -> None:
        credence = sender.worth(replica, self._checks)
        at_ms, lag = sender.lags[replica]
        if credence is Credence.REFUSED and sender.refused.get(replica) != at_ms:
            sender.told_ms = None
            if replica not in sender.refused:
                self.refusals.append(RefusedReport(node, lag, self._checks.end_of(replica)))
            sender.refused[replica] = at_ms
            self.refused_count += 1
        if credence is Credence.DOUBTED or self._checks.is_unbounded(replica):
            self.unchecked.add(replica)

    def _is_unchecked(self, replica: ReplicaId) -> bool:
        told = (s.lags[replica] for s in self._senders.values() if replica in s.lags)
        return any(
            self._checks.judge(lag, at_ms) is Credence.DOUBTED or self._checks.is_unbounded(replica)
            for at_ms, lag in told
        )

    def _apply(self, node: NodeId, delta: LagDelta, at_ms: int) -> None:
        sender = self._senders[node]
        if delta.base == 0:
            sender.begin(delta.session)  # from the start: replicas that it omits are gone
        for lag in delta.changes:
            sender.put(lag, at_ms)
            self._weigh(node, sender, lag.replica_id)
        for gone in sender.believed.keys() - sender.lags.keys():
            del sender.believed[gone]
        sender.version = delta.through
        self.changes += bool(delta.changes)
        if delta.digest is None:
            return
        if delta.digest == sender.digest:
            sender.complete_ms = at_ms
        else:
            sender.restart(delta.session)
            self.changes += 1
