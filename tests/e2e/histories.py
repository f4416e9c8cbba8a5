"""Histories of a counter in the metadata log, and their first judge.

The counter is `pipeline_epoch`: POST /pipeline/start adds one and answers the new value (a ticket),
a linearizable GET /catalog reads it. One call is retried with one request id until somebody
answers, so an operation whose answer never came may have been done once or not at all.

The judge compares every pair of which one ended before the other began. tools/porcupine is the
second one: it searches for an order of all operations.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Literal

import httpx2
import msgspec
from tests.sealed_http import sealed_client

from standpipe.control.metadata.catalog import from_bytes
from standpipe.errors import OutcomeUnknown

Kind = Literal["add", "read"]
OUTCOME_UNKNOWN = f'"error_code":{OutcomeUnknown.code}'


@dataclass
class Operation:
    """One call. Times are of one monotonic clock, ns; `value` None: nobody knows its outcome."""

    client: int
    kind: Kind
    start_ns: int
    end_ns: int = 0
    value: int | None = None


@dataclass(frozen=True)
class Served:
    """One request that a node answered well; a call may have been tried elsewhere before."""

    address: str
    kind: Kind
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Client:
    """Which node it asks first (None: any) and what it does (None: either)."""

    home: str | None = None
    kind: Kind | None = None


def one_of_each(addresses: Sequence[str]) -> tuple[Client, ...]:
    """A writer and a reader at home at every node."""
    return tuple(Client(at, kind) for at in addresses for kind in ("add", "read"))


@dataclass
class Load:
    """Clients that add and read through these addresses, until `stop`."""

    addresses: Sequence[str]
    secret: str
    clients: Sequence[Client] = (Client(),) * 6
    seed: int = 1
    pause_s: float = 0.0  # after each call: a long run needs no more of a history than this
    first_number: int = 0  # of its clients; histories that are joined need different ones
    history: list[Operation] = field(default_factory=list[Operation])
    served: list[Served] = field(default_factory=list[Served])

    def __post_init__(self) -> None:
        self._is_over = threading.Event()
        self._known_index = 0
        self._added = [0] * len(self.clients)
        self._threads = [
            threading.Thread(target=self._run, args=(number, client), daemon=True)
            for number, client in enumerate(self.clients)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[Operation]:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
        return self.history

    def acknowledged(self) -> int:
        return sum(self._added)

    def resumed(self, address: str, kind: Kind, since_ns: int, since: int) -> int | None:
        """When a node first answered a request that began after an instant; None: not yet.

        `since`: how many were served before that instant.
        """
        ends = (
            one.end_ns
            for one in self.served[since:]
            if (one.address, one.kind) == (address, kind) and one.start_ns >= since_ns
        )
        return min(ends, default=None)

    def _run(self, number: int, me: Client) -> None:
        draw = random.Random(self.seed * 1000 + number)
        with sealed_client(self.secret, timeout_s=5) as http:
            while not self._is_over.is_set():
                kind: Kind = me.kind or draw.choice(("add", "read"))
                operation = Operation(self.first_number + number, kind, time.monotonic_ns())
                self.history.append(operation)
                operation.value = self._call(http, kind, self._ways(me.home, draw))
                operation.end_ns = time.monotonic_ns()
                self._added[number] += kind == "add" and operation.value is not None
                self._is_over.wait(self.pause_s)

    def _ways(self, home: str | None, draw: random.Random) -> Iterator[str]:
        """Addresses to try, one after the other."""
        while True:
            if home is not None:
                yield home
            yield draw.choice(self.addresses)

    def _call(self, http: httpx2.Client, kind: Kind, ways: Iterator[str]) -> int | None:
        """The value, tried at one node after the other; None when the load ends before, or if the
        write came too late for anyone to know its outcome."""
        request: dict[str, object] = {"pipeline_id": "p", "request_id": uuid.uuid4().hex}
        if self._known_index:
            request["known_index"] = self._known_index
        body = msgspec.json.encode(request)
        while not self._is_over.is_set():
            address, began_ns = next(ways), time.monotonic_ns()
            try:
                answer = self._ask(http, address, kind, body)
            except httpx2.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code == OutcomeUnknown.status and OUTCOME_UNKNOWN in answer.text:
                return None
            if answer.status_code == 200:
                self.served.append(Served(address, kind, began_ns, time.monotonic_ns()))
                return self._value(kind, answer)
            time.sleep(0.02)
        return None

    def _ask(self, http: httpx2.Client, at: str, kind: Kind, body: bytes) -> httpx2.Response:
        if kind == "add":
            return http.post(f"http://{at}/pipeline/start", content=body)
        return http.get(f"http://{at}/catalog?consistency=linearizable")

    def _value(self, kind: Kind, answer: httpx2.Response) -> int:
        if kind == "add":
            given = answer.json()
            self._known_index = max(self._known_index, given["log_index"])
            return int(given["lease_epoch"])
        return int(from_bytes(answer.content).pipeline_epoch)


def violations(history: Sequence[Operation]) -> list[str]:
    """What no order of the operations can explain; empty: nothing was found."""
    known = [one for one in history if one.value is not None]
    adds = [one for one in known if one.kind == "add"]
    found: list[str] = []
    if len({one.value for one in adds}) < len(adds):
        found.append("two writes were given the same ticket")
    ended = sorted(known, key=lambda one: one.end_ns)
    ends = [one.end_ns for one in ended]
    highest = list(accumulate((one.value or 0 for one in ended), max))
    begins = sorted(one.start_ns for one in history if one.kind == "add")
    for later in known:
        assert later.value is not None
        before = bisect_left(ends, later.start_ns)  # of those that had ended when it began
        if before and later.value < highest[before - 1] + (later.kind == "add"):
            found.append(f"{later} began after {highest[before - 1]} had been answered")
        begun = bisect_left(begins, later.end_ns)
        if later.value > begun:
            found.append(f"{later} saw more writes than had begun ({begun})")
    return found


def lines(history: Sequence[Operation]) -> list[bytes]:
    """The history for tools/porcupine."""
    return [msgspec.json.encode(asdict(one)) for one in history]
