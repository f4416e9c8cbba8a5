"""The demo's client, as a separate process: `python -m standpipe.local.demo.reader PLAN`.

Open loop: read number k is due at start + k / rate whether or not earlier ones were answered, and
its latency counts from then. Reads rotate over all nodes; a failed read is retried once, on the
next node. It does not remember dead nodes, because a simple client would not.

Probes arrive on stdin, one JSON line each: the aircraft is looked up every 20 ms (later every 5 %
of the time waited) until it shows the event. Results go to stdout, a JSON line (ReaderReport) every
0.2 s. When stdin is closed, the process ends after the reads in flight.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from standpipe.adapters.http.peer_client import PathFailed, PeerClient
from standpipe.local.demo.questions import (
    AnswerChecker,
    Picker,
    Probe,
    ProbeSample,
    ReaderPlan,
    ReaderReport,
    ReadSample,
    aircraft_sql,
)

REPORT_EVERY_S = 0.2
PROBE_EVERY_S = 0.02
PROBE_STEP_SHARE = 0.05  # lookups get rarer, or many late probes would add load
TRY_S_MAX = 2.0
PROBE_S_MAX = 30.0
IN_FLIGHT_MAX = 5_000  # reads in flight; beyond this a read fails at once
LINES = "application/vnd.ksqlapi.delimited.v1"


class ReadFailed(Exception):
    """An attempt that got no rows: refused, reset, timed out, or answered with an error."""


class Reader:
    """Reads until it is stopped. Uses the event loop's only thread."""

    def __init__(self, plan: ReaderPlan, http: PeerClient) -> None:
        self.plan = plan
        self.http = http
        self.picker = Picker([question.table for question in plan.questions], plan.seed)
        self.checker = AnswerChecker(plan.questions)
        self.bodies = [_body(question.sql) for question in plan.questions]
        self.reads: list[ReadSample] = []
        self.probes: list[ProbeSample] = []
        self.stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send reads when they are due, until `stopping`."""
        started, number = time.time(), 0
        while not self.stopping.is_set():
            due = started + number / self.plan.reads_per_second
            wait_s = due - time.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if len(self._tasks) < IN_FLIGHT_MAX:
                self.spawn(self.read(number, due))
            else:
                self._fail(due, 0, f"{IN_FLIGHT_MAX} reads are in flight")
            number += 1
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2 * TRY_S_MAX)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run concurrently; keeps a reference to the task until it is done."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def read(self, number: int, due: float) -> None:
        """One read, with one retry on the next node."""
        question = self.picker.next()
        notes: list[str] = []
        for attempt in (0, 1):
            node = self.plan.nodes[(number + attempt) % len(self.plan.nodes)]
            try:
                rows, served_by = await self.ask(node, self.bodies[question])
            except ReadFailed as error:
                notes.append(f"{node}: {error}")
                continue
            fault = self.checker.fault(question, rows, served_by)
            self.reads.append(
                ReadSample(
                    due=due,
                    done=time.time(),
                    outcome="wrong" if fault else "ok",
                    question=question,
                    is_retried=attempt > 0,
                    served_by=served_by,
                    note=fault or "; ".join(notes),
                )
            )
            return
        self._fail(due, question, "; ".join(notes))

    def _fail(self, due: float, question: int, note: str) -> None:
        sample = ReadSample(
            due=due,
            done=time.time(),
            outcome="failed",
            question=question,
            is_retried=True,
            note=note,
        )
        self.reads.append(sample)

    async def ask(self, node: str, body: bytes) -> tuple[list[list[Any]], str]:
        """Rows and the node that served them. Raises ReadFailed."""
        try:
            response = await self.http.request(
                node, "/query-stream", timeout_s=TRY_S_MAX, body=body, is_repeatable=False
            )
            if response.status != 200:
                raise ReadFailed(f"HTTP {response.status} {response.body[:300].decode()}")
            lines = [msgspec.json.decode(line) for line in response.body.splitlines()[1:]]
        except (PathFailed, msgspec.MsgspecError) as error:
            raise ReadFailed(f"{type(error).__name__} {error}") from error
        if any(isinstance(line, dict) for line in lines):
            raise ReadFailed(f"an error inside the answer: {lines[-1]}")
        return lines, response.headers.get("standpipe-served-by", "")

    async def probe(self, probe: Probe) -> None:
        """Look the aircraft up until it shows the event."""
        body = _body(aircraft_sql(probe.tailnum))
        entry = probe.count
        while time.time() < probe.acked + PROBE_S_MAX:
            entry += 1
            try:
                rows, _ = await self.ask(self.plan.nodes[entry % len(self.plan.nodes)], body)
            except ReadFailed:
                continue
            if rows and rows[0][1] >= probe.count:
                self.probes.append(ProbeSample(acked=probe.acked, seen=time.time()))
                return
            waited_s = time.time() - probe.acked
            await asyncio.sleep(max(PROBE_EVERY_S, waited_s * PROBE_STEP_SHARE))
        self.probes.append(ProbeSample(acked=probe.acked, seen=0.0))

    def report(self) -> bytes:
        """What happened since the last report, as a line."""
        found = ReaderReport(reads=tuple(self.reads), probes=tuple(self.probes))
        self.reads, self.probes = [], []
        return msgspec.json.encode(found) + b"\n"


def _body(sql: str) -> bytes:
    return msgspec.json.encode({"sql": sql, "properties": {}})


async def _listen(reader: Reader) -> None:
    """Read probes from stdin until it is closed."""
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin)
    decode = msgspec.json.Decoder(Probe).decode
    while line := await stream.readline():
        reader.spawn(reader.probe(decode(line)))
    reader.stopping.set()


async def _say(reader: Reader) -> None:
    """Write reports; a broken pipe ends the process."""
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        _write(reader.report())


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


async def main(plan: ReaderPlan) -> None:
    """Read until stdin is closed, then report the rest."""
    http = PeerClient({"accept": LINES, "content-type": "application/json"})
    reader = Reader(plan, http)
    side = [asyncio.create_task(_listen(reader)), asyncio.create_task(_say(reader))]
    await reader.run()
    for task in side:
        task.cancel()
    _write(reader.report())
    http.close()


if __name__ == "__main__":
    from standpipe.adapters.process import die_with_parent

    die_with_parent()
    plan_bytes = Path(sys.argv[1]).read_bytes()
    asyncio.run(main(msgspec.msgpack.decode(plan_bytes, type=ReaderPlan)))
