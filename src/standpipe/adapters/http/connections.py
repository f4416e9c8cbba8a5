"""Which connections of a listener are accepted, and which are cut. Pure.

A client that has not authenticated yet can open connections at no cost, and each one takes a file
descriptor of the process. So a listener counts connections, by address and in all, and applies
deadlines that a single byte does not extend: for a head, for the rate of a body, for idleness.

    arrive ─► accepted | refused: the address, or the listener, has as many as it may
              a full listener first gives up the oldest *fresh* connection, one without a request,
              and if there is none, the one that is idle for longest: a client that sends its
              request at once is served, however many idle ones another client opens
    sweep  ─► cut: what has made no progress for too long

Nothing here is called for a request. `sweep` looks at each connection about once a second
(`ConnectionProgress`) and compares with what it saw before, so a deadline is late by up to two
sweeps.

Not here: sockets and timers (`adapters.http.acceptor`); limits of a request
(`adapters.http.server`, `adapters.http.http2_server`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable, Iterator, Sized
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, NamedTuple, Self, TypeVar

from standpipe.config.listeners import (
    BODY_RATE_MIN,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    HEAD_TIMEOUT,
)
from standpipe.config.registry import Config

#: A connection without a request for this long is closed. nginx's default.
IDLE_MS_MAX: Final = 75_000
#: Connections that a sweep looks at before others of the loop have a turn: half a millisecond.
SWEPT_AT_ONCE: Final = 250
#: Sweeps of one deadline; it is late by up to two of them.
SWEEPS_PER_DEADLINE: Final = 10

K = TypeVar("K", bound=Hashable)


class CutReason(Enum):
    """Why a connection was not accepted, or cut. The values are labels of metrics."""

    ADDRESS = "address"  # refused: its address has as many as it may
    ALL = "all"  # refused: so has the listener
    DESCRIPTORS = "descriptors"  # refused: the process has no file descriptor left
    ROOM = "room"  # cut: it was fresh or idle, and another needed its place
    HEAD = "head"  # cut: no whole head in time
    BODY = "body"  # cut: a body that comes too slowly
    IDLE = "idle"  # cut: no request for long


#: Those were never accepted.
REFUSALS: Final = frozenset({CutReason.ADDRESS, CutReason.ALL, CutReason.DESCRIPTORS})


class WaitingFor(Enum):
    """What a connection is waited for."""

    HEAD = "head"  # the client: a head, or its first byte
    BODY = "body"  # the client: a body
    IDLE = "idle"  # the client: the next request
    BUSY = "busy"  # this process


class ConnectionProgress(NamedTuple):
    """How far a connection has come; two of them tell whether it moves.

    `steps` changes whenever the client has completed something (a head, a frame), `received` are
    bytes of bodies. `is_fresh`: it has sent no whole head yet.
    """

    stage: WaitingFor
    steps: int = 0
    received: int = 0
    is_fresh: bool = False


#: Of a connection that has sent nothing yet.
FRESH: Final = ConnectionProgress(WaitingFor.HEAD, is_fresh=True)


@dataclass(frozen=True, kw_only=True)
class PortLimits:
    """The limits of one listener in one process."""

    connections_max: int = CONNECTIONS_MAX.default
    per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX.default
    head_ms_max: int = HEAD_TIMEOUT.default
    body_bytes_per_s_min: int = BODY_RATE_MIN.default
    idle_ms_max: int = IDLE_MS_MAX

    @classmethod
    def of(cls, settings: Config) -> Self:
        """What `standpipe.listener.*` say."""
        return cls(
            connections_max=settings[CONNECTIONS_MAX],
            per_address_max=settings[CONNECTIONS_PER_ADDRESS_MAX],
            head_ms_max=settings[HEAD_TIMEOUT],
            body_bytes_per_s_min=settings[BODY_RATE_MIN],
        )

    def within(self, descriptors: int) -> PortLimits:
        """The same limits for a listener that may take so many file descriptors."""
        every = max(1, min(self.connections_max, descriptors))
        return PortLimits(
            connections_max=every,
            per_address_max=max(1, min(self.per_address_max, every * 3 // 4)),
            head_ms_max=self.head_ms_max,
            body_bytes_per_s_min=self.body_bytes_per_s_min,
            idle_ms_max=self.idle_ms_max,
        )

    @property
    def sweep_ms(self) -> int:
        """How often `Connections.sweep` is to be called."""
        return max(20, min(self.head_ms_max, self.idle_ms_max) // SWEEPS_PER_DEADLINE)


class Room:
    """What the connections of several listeners may take together. Of an equal share each listener
    has a half for itself, however many the others have; the rest is for who comes first. So the
    public port of a node takes most of what the port for its peers does not use, and never all."""

    def __init__(self, descriptors: int, listeners: int) -> None:
        self._descriptors = descriptors
        self._kept = descriptors // listeners // 2
        #: that a listener may have, where the others have no more than is kept for them
        self.most = descriptors - self._kept * (listeners - 1)
        self._members: list[Sized] = []

    def join(self, member: Sized) -> None:
        """The connections of one more listener count."""
        self._members.append(member)

    def has_place(self, member: Sized) -> bool:
        """Whether a member may have one more."""
        taken = sum(
            len(each) if each is member else max(len(each), self._kept) for each in self._members
        )
        return taken < self._descriptors


@dataclass(slots=True)
class Pace:
    """How long a connection, or a stream of it, has been waited for."""

    since_ms: int
    seen: ConnectionProgress = FRESH

    def is_late(self, now: ConnectionProgress, now_ms: int, limits: PortLimits) -> CutReason | None:
        """Compare with what was seen before; a reason if the client has had its time."""
        seen = self.seen
        if now.stage is WaitingFor.BUSY or (now.stage, now.steps) != (seen.stage, seen.steps):
            self.seen, self.since_ms = now, now_ms
            return None
        waited_ms = now_ms - self.since_ms
        if now.stage is WaitingFor.HEAD:
            return CutReason.HEAD if waited_ms >= limits.head_ms_max else None
        if now.stage is WaitingFor.IDLE:
            return CutReason.IDLE if waited_ms >= limits.idle_ms_max else None
        earned_ms = (now.received - seen.received) * 1000 // limits.body_bytes_per_s_min
        return CutReason.BODY if waited_ms >= limits.head_ms_max + earned_ms else None


@dataclass(slots=True)
class _Group(Generic[K]):
    """How many connections an address has, or all have, and which of them may be given up: those
    that were fresh when last seen, and those that were idle; each oldest first."""

    every: int = 0
    fresh: dict[K, None] = field(default_factory=dict[K, None])
    idle: dict[K, None] = field(default_factory=dict[K, None])

    def forget(self, key: K) -> None:
        self.fresh.pop(key, None)
        self.idle.pop(key, None)


@dataclass(slots=True)
class _Known:
    network: str
    pace: Pace


class Connections(Generic[K]):
    """The connections of one listener. `look` tells how far one has come; `room` is shared with
    other listeners. Instants in ms, of any one clock."""

    def __init__(
        self,
        limits: PortLimits,
        look: Callable[[K], ConnectionProgress],
        room: Room | None = None,
    ) -> None:
        self.limits = limits
        self._look = look
        self._room = room
        if room is not None:
            room.join(self)
        self._known: dict[K, _Known] = {}
        self._addresses: dict[str, _Group[K]] = {}
        self._all: _Group[K] = _Group()
        self._swept_ms: int | None = None

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[K]:
        return iter(self._known)

    def arrive(self, key: K, address: str, now_ms: int) -> CutReason | K | None:
        """A connection was made. None: accepted; a key: accepted in place of that one, which is to
        be cut; a reason: refused."""
        network = network_of(address)
        of_address = self._addresses.setdefault(network, _Group())
        given_up: K | None = None
        if of_address.every >= self.limits.per_address_max:
            given_up = self._spare(of_address)
            if given_up is None:
                return CutReason.ADDRESS
        elif self._is_full():
            given_up = self._spare(self._all)
            if given_up is None:
                self._forget_if_empty(network)
                return CutReason.ALL
        if given_up is not None:
            self.leave(given_up)
            of_address = self._addresses.setdefault(network, _Group())
        of_address.every += 1
        of_address.fresh[key] = self._all.fresh[key] = None
        self._known[key] = _Known(network, Pace(now_ms))
        return given_up

    def _is_full(self) -> bool:
        is_full = len(self._known) >= self.limits.connections_max
        return is_full or (self._room is not None and not self._room.has_place(self))

    def leave(self, key: K) -> None:
        """A connection has ended, or is being cut. Unknown ones are ignored."""
        known = self._known.pop(key, None)
        if known is None:
            return
        of_address = self._addresses[known.network]
        for group in (self._all, of_address):
            group.forget(key)
        of_address.every -= 1
        self._forget_if_empty(known.network)

    def begin(self, now_ms: int) -> None:
        """From now on, `sweep` is called each `sweep_ms`."""
        self._swept_ms = now_ms

    def sweep(
        self, now_ms: int, at_once: int = SWEPT_AT_ONCE
    ) -> Iterator[list[tuple[K, CutReason]]]:
        """Connections to be cut now, and why; after each `at_once` that were looked at, those among
        them. They are known until `leave`."""
        stood_still_ms = self._stood_still_ms(now_ms)
        keys = list(self._known)
        for start in range(0, len(keys), at_once):
            yield list(self._late(keys[start : start + at_once], now_ms, stood_still_ms))

    def _late(
        self, keys: list[K], now_ms: int, stood_still_ms: int
    ) -> Iterator[tuple[K, CutReason]]:
        for key in keys:
            known = self._known.get(key)
            if known is None:  # it has left since
                continue
            known.pace.since_ms += stood_still_ms
            now = self._look(key)
            reason = known.pace.is_late(now, now_ms, self.limits)
            if reason is not None:
                yield key, reason
            elif now.stage is WaitingFor.IDLE and known.pace.since_ms == now_ms:
                self._note_idle(key, known)

    def _stood_still_ms(self, now_ms: int) -> int:
        """How long this process did not run: what the clients sent meanwhile is still to be read,
        so that time is not theirs. A process that gets too little processor time stands still for
        a part of each sweep."""
        before_ms, self._swept_ms = self._swept_ms, now_ms
        gap_ms = 0 if before_ms is None else now_ms - before_ms
        return max(0, gap_ms - self.limits.sweep_ms)

    def _note_idle(self, key: K, known: _Known) -> None:
        """It is idle since now: the last one to be given up."""
        for group in (self._all, self._addresses[known.network]):
            group.forget(key)
            group.idle[key] = None

    def _spare(self, group: _Group[K]) -> K | None:
        """The one to be given up first; what is neither fresh nor idle any more is forgotten."""
        for waiting in (group.fresh, group.idle):
            while waiting:
                key = next(iter(waiting))
                known, now = self._known[key], self._look(key)
                if now.is_fresh or (
                    now.stage is WaitingFor.IDLE and now.steps == known.pace.seen.steps
                ):
                    return key
                for each in (self._all, self._addresses[known.network]):
                    each.forget(key)
        return None

    def _forget_if_empty(self, network: str) -> None:
        if not self._addresses[network].every:
            del self._addresses[network]


def network_of(address: str) -> str:
    """Whose connections are counted together: an IPv4 address, or an IPv6 network of 64 bits,
    which one host may have whole."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return parsed.exploded[:19]
