"""Reads at a steady pace, whatever becomes of them, from a thread with an event loop of its own.

Open loop: read number k is due at start + k / rate; its latency counts from then. Entry points are
those of `entries`, in turn; a read that fails is tried once more on the next one. Every third read
asks for any row, the others for one at most LAG_MAX records behind.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import uvloop
from tests.chaos.judge import Sample

from standpipe.adapters.http.peer_client import PathFailed, PeerClient, Response

READ_S_MAX = 4.0
IN_FLIGHT_MAX = 2_000
LAG_MAX = 40


class Load:
    """`entries` may be changed at any time."""

    def __init__(
        self, keys: Sequence[str], partition: Callable[[str], int], entries: list[str], rate: float
    ) -> None:
        self.keys = list(keys)
        self.entries = entries
        self.samples: list[Sample] = []
        self._partition = {key: partition(key) for key in keys}
        self._rate = rate
        self._stopping = threading.Event()
        self._client = PeerClient({})
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()), daemon=True)
        self._thread.start()

    def stop(self) -> list[Sample]:
        self._stopping.set()
        self._thread.join(30)
        return self.samples

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        start, number = time.monotonic(), 0
        while not self._stopping.is_set():
            due = start + number / self._rate
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            if len(tasks) < IN_FLIGHT_MAX:
                task = loop.create_task(self._read(number, due))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            number += 1
        if tasks:
            await asyncio.wait(tasks, timeout=2 * READ_S_MAX)
        self._client.close()

    async def _read(self, number: int, due: float) -> None:
        key, entries = self.keys[(number * 7) % len(self.keys)], self.entries
        lag_max = None if number % 3 == 0 else LAG_MAX
        first, second = (entries[(number + step) % len(entries)] for step in (0, 1))
        sample = await self._once(key, lag_max, first, due)
        if not sample.is_answered:
            again = await self._once(key, lag_max, second, due)
            self._note(sample, is_lost=not again.is_answered, again=again.why)
            sample = again
            if not sample.is_answered:
                return
            self._note(sample, is_retried=True)
            return
        self._note(sample)

    def _note(self, sample: Sample, **changes: bool | str) -> None:
        self.samples.append(replace(sample, **changes) if changes else sample)

    async def _once(self, key: str, lag_max: int | None, entry: str, due: float) -> Sample:
        bounds: dict[str, str] = {}
        if lag_max is not None:
            bounds["ksql.query.pull.max.allowed.offset.lag"] = str(lag_max)
        text = f"SELECT * FROM LEVELS WHERE ID = '{key}';"
        body = json.dumps({"ksql": text, "streamsProperties": bounds}).encode()
        sent, why, response = time.monotonic(), "", None
        try:
            response = await self._client.request(entry, "/query", body=body, timeout_s=READ_S_MAX)
        except PathFailed as failure:
            why = f"{entry}: {failure}"
        row = None
        if response is not None and response.status == 200:
            row = _row(response)
        elif response is not None:
            why = f"{entry}: {response.status} {response.body[:900].decode(errors='replace')}"
        return Sample(
            key=key,
            partition=self._partition[key],
            due_s=due,
            sent_s=sent,
            ended_s=time.monotonic(),
            entry=entry,
            lag_max=lag_max,
            row=row,
            is_answered=not why,
            why=why,
            served_by=response.headers.get("standpipe-served-by", "") if response else "",
        )


def _row(response: Response) -> tuple[int, int] | None:
    """(N, V) of the one row; None: the answer has no row."""
    for item in json.loads(response.body):
        if "row" in item:
            _, number, newest = item["row"]["columns"]
            return number, newest
    return None
