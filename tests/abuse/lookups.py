"""Lookups at a steady pace, whatever becomes of them: `python -m tests.abuse.lookups NODE…`.

Open loop: read number k is due at start + k / rate, and its latency counts from then. Nothing is
tried twice. Ends at SIGTERM, or after --seconds, and prints a JSON list of [due, latency_ms, why],
`why` empty for a row that is right.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import time

from standpipe.adapters.process import die_with_parent

READ_S_MAX = 5.0
Sample = tuple[float, float, str]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Lookups:
    """Reads of all keys in turn, from all nodes in turn; `samples` grows."""

    def __init__(self, nodes: list[str], keys: int, rate: float) -> None:
        self.samples: list[Sample] = []
        self._nodes, self._keys, self._rate = nodes, keys, rate
        self._idle: dict[str, list[Streams]] = {node: [] for node in nodes}
        self.is_over = False

    async def run(self) -> None:
        """Reads until `is_over`; then those that are under way end."""
        start_s, number = time.monotonic(), 0
        async with asyncio.TaskGroup() as reads:
            while not self.is_over:
                due_s = start_s + number / self._rate
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                reads.create_task(self._read(number, due_s))
                number += 1

    async def _read(self, number: int, due_s: float) -> None:
        node, key = self._nodes[number % len(self._nodes)], f"k{number * 7 % self._keys}"
        streams: Streams | None = None
        try:
            async with asyncio.timeout(READ_S_MAX):
                streams = self._kept(node) or await _connect(node)
                why = await _ask(*streams, key)
            self._idle[node].append(streams)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            why = f"{node}: {error!r}"
            if streams is not None:
                streams[1].close()
        self.samples.append((due_s, 1000 * (time.monotonic() - due_s), why))

    def _kept(self, node: str) -> Streams | None:
        """A connection that the node has not closed: it closes those that were idle for long."""
        while self._idle[node]:
            streams = self._idle[node].pop()
            if not streams[0].at_eof():
                return streams
            streams[1].close()
        return None


async def _connect(node: str) -> Streams:
    host, _, port = node.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> str:
    """Why the answer is wrong; empty if it is the key's row."""
    body = json.dumps({"ksql": f"SELECT ID, N FROM ABUSED WHERE ID = '{key}';"}).encode()
    head = (
        "POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/vnd.ksql.v1+json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    status = int(answer.split(b" ", 2)[1])
    fields = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:] if line)
    found = await reader.readexactly(int(fields[b"content-length"]))
    if status != 200:
        return f"{status} {found[:200].decode(errors='replace')}"
    rows = [item["row"]["columns"] for item in json.loads(found) if "row" in item]
    return "" if rows == [[key, int(key[1:])]] else f"wrong row of {key}: {rows}"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", nargs="+")
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--rate", type=float, default=90.0)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    lookups = Lookups(given.nodes, given.keys, given.rate)
    running = asyncio.create_task(lookups.run())
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), given.seconds)
    lookups.is_over = True
    await running
    print(json.dumps(lookups.samples))


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main())
