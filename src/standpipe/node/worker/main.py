"""An HTTP worker: `python -m standpipe.node.worker.main --node-file DATA/node.json --worker K`.

    public listener ─┬─► LookupFastPath ─► StoreReader
    peer listener  ──┴─► SlowPath ─┬─► StoreReader
                                   └─► Forwarder ─► peers
    public listener ───► Statements ─► own controller
    snapshot, every 20 ms ─► Map ─► all of them

All workers of a node listen on the same ports (SO_REUSEPORT), share nothing and lock nothing; a
lookup in this node's own store asks no other process. What takes long is passed on to a *heavy*
worker (`--heavy`), which has no port and a lower priority. SIGTERM: no new connections, requests in
flight are finished within 2 s, exit status 0.

Not here: what it consists of (`node.worker.wiring`), what it binds (`node.worker.listeners`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import structlog
import uvloop

from standpipe.adapters import crash_only, process
from standpipe.adapters.clock import steadily
from standpipe.adapters.files import published
from standpipe.adapters.http.server import Listener, serve
from standpipe.errors import SetupError
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig
from standpipe.node.worker import garbage
from standpipe.node.worker.listeners import heavy_listener, listeners_of
from standpipe.node.worker.request.in_hand import TURN_MS
from standpipe.node.worker.request.own_memory import WEIGH_MS
from standpipe.node.worker.wiring import Worker
from standpipe.sql.syntax import parser

REFRESH_MS = 20
SAVE_METRICS_MS = 1000
RENEW_MS = 1000
#: The parent kills what has not ended 2 s after SIGTERM.
GRACE_S = 1.6
#: Added to the priority of a heavy worker: with others that want the processor, it has a tenth.
HEAVY_NICE = 10
#: How long a thread (a large text, statements) may hold the interpreter while the loop wants it;
#: several take turns, and Python's 5 ms each would be felt by every lookup.
SWITCH_S = 0.000_5

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def _reload_if_changed(worker: Worker, publics: Sequence[Listener]) -> None:
    """Tell listeners whether clients should leave. Peers learn it from control, and stay."""
    for public in publics:
        public.is_leaving = worker.leaving.is_set
    if worker.leaving.is_set:
        worker.live.leave()
    worker.live.reload_if_changed()


async def run(worker: Worker) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop.set)
    if worker.is_heavy:
        listeners = [heavy_listener(worker, worker.sockets)]
    else:
        listeners = listeners_of(worker)
    async with asyncio.TaskGroup() as group:  # what ends one of them ends the process
        chores: list[asyncio.Task[Any]] = [
            group.create_task(steadily(every_ms, work, what))
            for every_ms, work, what in _background_work(worker, listeners)
        ]
        chores.append(group.create_task(_leave(worker)))
        chores.append(group.create_task(worker.pushes.transients.keep_renewed()))
        _log.info("worker serves", worker=worker.number, public=worker.node.public)
        await serve(listeners, worker.stop, GRACE_S)
        for chore in chores:
            chore.cancel()
    await worker.pushes.transients.close()
    worker.live.close()
    worker.hedged_reads.close()
    worker.large_texts.close()
    worker.row_thread.close()
    worker.slow_path.stream_pulls.close()
    worker.lanes.close()
    await worker.forwarder.close()
    worker.control.close()
    await asyncio.to_thread(worker.producer.close)
    worker.replicas.close()


def _background_work(
    worker: Worker, listeners: Sequence[Listener]
) -> Iterator[tuple[int, Callable[[], object], str]]:
    """(period in ms, work, its name in the log)"""
    yield REFRESH_MS, worker.map.refresh, "cluster map"
    yield REFRESH_MS, worker.peers.refresh, "state of the peers"
    yield REFRESH_MS, lambda: _reload_if_changed(worker, listeners[1:]), "leaving"
    yield TURN_MS, worker.in_hand.turn, "turns"
    yield WEIGH_MS, worker.memory.weigh, "memory"
    collected = garbage.Garbage(lambda: worker.in_hand.computing.is_taken)
    yield garbage.TURN_MS, collected.turn, "garbage"
    yield SAVE_METRICS_MS, worker.metrics.save, "metrics"
    for listener in listeners:
        if listener.certificate:
            yield RENEW_MS, listener.certificate.reload_if_changed, "certificate"


async def _leave(worker: Worker) -> None:
    """End endless answers together with the listeners, within their grace period."""
    await worker.stop.wait()
    worker.live.leave()


def warm_up(node: NodeConfig) -> None:
    """Load what takes long and is the same in all workers: the grammar's tables."""
    path = node.paths.data / "grammar.json"
    saved = path.read_bytes() if path.exists() else b""
    tables = parser.warm_up(saved)
    if tables != saved:
        with contextlib.suppress(OSError):  # a full disk: the next start builds them again
            published.replace(path, tables)


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--node-file", type=Path, required=True)
    options.add_argument("--worker", type=int, required=True)
    options.add_argument("--heavy", action="store_true", help="answer what others pass on")
    given = options.parse_args(arguments)
    name = f"{'heavy' if given.heavy else 'worker'}-{given.worker}"
    process.die_with_parent()
    configuration.log_json(name)
    crash_only.end_with_threads()
    try:
        node = configuration.load(given.node_file)
        worker = Worker(node, node.settings(), given.worker, given.heavy)
        process.write_pid(node.paths.run / f"{name}.pid")
        if given.heavy:
            process.make_way(HEAVY_NICE)
        process.raise_file_limit()
        process.keep_little_freed_memory()
        sys.setswitchinterval(SWITCH_S)
        gc.disable()
        warm_up(node)
        gc.freeze()  # existing objects stay: collections need not scan them again
        gc.enable()
        crash_only.run_to_the_end(run(worker), uvloop.new_event_loop)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
