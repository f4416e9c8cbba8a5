"""Four clients that send costly requests, and what the workers make of it meanwhile."""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.abuse.corpus import Costly

CLIENTS = 4
#: a push query or a long answer is read for so long, then the client goes
READ_S_MAX = 5.0
ANSWER_S_MAX = 60.0
LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class Outcome:
    """What became of one request. `status`: of HTTP; 0 when there was no answer."""

    asked: Costly
    node: str
    began_s: float
    ended_s: float
    status: int
    received_bytes: int
    why: str = ""


def ask(node: str, asked: Costly) -> Outcome:
    """Send it and read the answer, at most for READ_S_MAX."""
    began_s = time.monotonic()
    status = received = 0
    why = ""
    client = http.client.HTTPConnection(node, timeout=ANSWER_S_MAX)
    try:
        headers = {"Content-Type": "application/vnd.ksql.v1+json"}
        client.request("POST", asked.path, asked.body, headers)
        answer = client.getresponse()
        status = answer.status
        if client.sock is not None:
            client.sock.settimeout(READ_S_MAX)
        until_s = time.monotonic() + READ_S_MAX
        while time.monotonic() < until_s and (part := answer.read1(65_536)):
            received += len(part)
            why = why or (part[:300].decode(errors="replace") if status != 200 else "")
    except TimeoutError as error:
        why = "" if status else repr(error)
    except (OSError, http.client.HTTPException) as error:
        why = repr(error)
        status = 0
    finally:
        client.close()
    return Outcome(asked, node, began_s, time.monotonic(), status, received, why)


def send_all(nodes: Sequence[str], requests: Iterable[Costly]) -> list[Outcome]:
    """All requests, from CLIENTS clients at a time, to the nodes in turn."""
    waiting: queue.SimpleQueue[tuple[str, Costly]] = queue.SimpleQueue()
    for number, asked in enumerate(requests):
        waiting.put((nodes[number % len(nodes)], asked))
    outcomes: list[Outcome] = []

    def work() -> None:
        while True:
            try:
                node, asked = waiting.get_nowait()
            except queue.Empty:
                return
            outcomes.append(ask(node, asked))

    clients = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return outcomes


def workers(directory: Path, *, heavy: bool = False) -> set[int]:
    """Process ids of the workers of a cluster's nodes: those with lookups, or the heavy ones."""
    name = "heavy" if heavy else "worker"
    return {int(file.read_text()) for file in directory.glob(f"node-*/run/{name}-*.pid")}


@dataclass
class Watch:
    """The memory of workers, and whether they are still the same ones. A context manager."""

    directory: Path
    heavy: set[int] = field(default_factory=set[int])
    before: dict[int, int] = field(default_factory=dict[int, int])
    growth_bytes: Counter[int] = field(default_factory=Counter[int])
    ended: set[int] = field(default_factory=set[int])
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self.heavy = workers(self.directory, heavy=True)
        lookups = workers(self.directory)
        assert self.heavy, "the heavy workers are found"
        assert lookups, "so are the others"
        self.before = {pid: anonymous_bytes(pid) for pid in self.heavy | lookups}
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            for pid, before in self.before.items():
                try:
                    grown = anonymous_bytes(pid) - before
                except OSError:
                    self.ended.add(pid)
                else:
                    self.growth_bytes[pid] = max(self.growth_bytes[pid], grown)


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that is no file's. Raises OSError when it is gone."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def standstills(folder: Path, processes: set[int]) -> list[tuple[float, float, float]]:
    """(when, standstill in ms, how late in ms) of these; see `turns/sitecustomize.py`."""
    files = [folder / str(pid) for pid in processes]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda line: -line[1])
