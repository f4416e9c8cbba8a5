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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx2
import msgspec

from standpipe.adapters.http_client import SECRET_HEADER
from standpipe.control import catalog as catalogs


@dataclass
class Operation:
    """One call. Times are of one monotonic clock, ns; `value` None: nobody knows its outcome."""

    client: int
    kind: str  # "add" or "read"
    start_ns: int
    end_ns: int = 0
    value: int | None = None


@dataclass
class Load:
    """Clients that add and read through any of these addresses, until `stop`."""

    addresses: Sequence[str]
    secret: str
    clients: int = 6
    seed: int = 1
    history: list[Operation] = field(default_factory=list[Operation])

    def __post_init__(self) -> None:
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(self.clients)
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
        return sum(one.kind == "add" and one.value is not None for one in list(self.history))

    def _run(self, number: int) -> None:
        draw = random.Random(self.seed * 1000 + number)
        headers = {SECRET_HEADER: self.secret}
        with httpx2.Client(headers=headers, timeout=5) as client:
            while not self._is_over.is_set():
                operation = Operation(number, draw.choice(["add", "read"]), time.monotonic_ns())
                self.history.append(operation)
                operation.value = self._call(client, operation.kind, draw)
                operation.end_ns = time.monotonic_ns()

    def _call(self, client: httpx2.Client, kind: str, draw: random.Random) -> int | None:
        """The value, tried at one node after the other; None when the load ends before."""
        body = msgspec.json.encode({"pipeline_id": "p", "request_id": uuid.uuid4().hex})
        while not self._is_over.is_set():
            url = f"http://{draw.choice(self.addresses)}"
            try:
                if kind == "add":
                    answer = client.post(f"{url}/pipeline/start", content=body)
                else:
                    answer = client.get(f"{url}/catalog?consistency=linearizable")
            except httpx2.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code == 200:
                if kind == "add":
                    return int(answer.json()["lease_epoch"])
                return catalogs.from_bytes(answer.content).pipeline_epoch
            time.sleep(0.02)
        return None


def violations(history: Sequence[Operation]) -> list[str]:
    """What no order of the operations can explain; empty: nothing was found."""
    known = [one for one in history if one.value is not None]
    adds = [one for one in known if one.kind == "add"]
    found: list[str] = []
    if len({one.value for one in adds}) < len(adds):
        found.append("two writes were given the same ticket")
    for later in known:
        for earlier in known:
            if earlier.end_ns >= later.start_ns:
                continue
            assert earlier.value is not None
            assert later.value is not None
            least = earlier.value + (later.kind == "add")
            if later.value < least:
                found.append(f"{later} began after {earlier} had ended")
        begun = sum(one.kind == "add" and one.start_ns < later.end_ns for one in history)
        if later.value is not None and later.value > begun:
            found.append(f"{later} saw more writes than had begun ({begun})")
    return found


def save(history: Sequence[Operation], path: Path) -> None:
    """JSON lines for tools/porcupine."""
    lines = [msgspec.json.encode(asdict(one)) for one in history]
    path.write_bytes(b"\n".join(lines) + b"\n")
