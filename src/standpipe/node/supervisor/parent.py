"""A node's parent process: starts controller, tailer and HTTP workers, and restarts those that die.

    run_node ─► workers (as soon as there is a run/snapshot) ─► tailer ─► controller

The node is its own process group: SIGKILL to the group ends all of it, since every child also dies
with this process (PDEATHSIG). Heavy workers have a session of their own
(`adapters.process.make_way`), so no other signal to the group reaches them.

Modules are imported here, each just before the children that need it: after a restart the workers
answer from the stores while the others still import.

On SIGTERM reads are handed over first (`node.leaving`): heartbeats say that this node leaves, its
peers read elsewhere, and every client's connection ends with its next answer. Then the workers end,
so that no more requests come, then the tailer, then the controller.

Workers are watched (`node.supervisor.worker_watch`): one that makes no turn of its event loop, or
takes too much memory, is killed, and started again as if it had died. A disk or descriptors that
are nearly used up are logged (`node.supervisor.room_watch`).

A node that is started on a full disk comes up: what its processes cannot write is written once
there is room. Only a new data directory needs room first; the parent waits for it, and says so.

A child that keeps dying does not end the others: a node with a dead tailer still answers from its
stores, and each answer says how old they are.

Not here: what the children do; how a child is started and watched (`node.supervisor.child`).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from standpipe.adapters.clock import Clock
from standpipe.adapters.files.private import keep_private
from standpipe.adapters.process import StopSignal
from standpipe.adapters.raft.reserve import NO_ROOM
from standpipe.config.keys import TLS_LISTENER
from standpipe.errors import DataDirectoryRefused, SetupError
from standpipe.node import configuration, push_registry
from standpipe.node.configuration import NodeConfig, NodePaths
from standpipe.node.leaving import Leaving
from standpipe.node.room import NodeRoom
from standpipe.node.supervisor.child import Child, end, wait
from standpipe.node.supervisor.room_watch import RoomWatch
from standpipe.node.supervisor.worker_watch import WorkersWatch

#: From SIGTERM to SIGKILL: workers, tailer, controller. Together they stay below 5 s.
GRACES_S: Final = (1.8, 1.4, 1.2)
#: Before that: time for a heartbeat, for peers' workers to read it, and for requests in flight.
HANDOVER_S: Final = 0.4
TICK_S: Final = 0.1  # how late SIGTERM or a start that is due may be noticed
SNAPSHOT_POLL_S: Final = 0.02
ROOM_POLL_S: Final = 1.0

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True)
class Family:
    """The children of a node, in the order in which they end. `workers`: the heavy ones last."""

    workers: Sequence[Child]
    tailer: Child
    control: Child
    watch: WorkersWatch
    room: RoomWatch

    @classmethod
    def of(cls, config: NodeConfig, node_file: Path) -> Family:
        """The children that `node.json` configures."""
        heavy = config.heavy_numbers()

        def child(name: str, module: str, *more: str) -> Child:
            run = _main_of(module, ["--node-file", str(node_file), *more])
            return Child(name, run, config.paths)

        return cls(
            workers=(
                workers := [
                    *(
                        child(f"worker-{number}", "worker.main", "--worker", str(number))
                        for number in range(config.worker_count)
                    ),
                    *(
                        child(f"heavy-{number}", "worker.main", "--worker", str(number), "--heavy")
                        for number in heavy
                    ),
                ]
            ),
            watch=WorkersWatch(workers, config.paths, config.settings(), tuple(heavy)),
            room=RoomWatch(NodeRoom(config.paths, os.getpid()), Clock()),
            tailer=child("tailer", "tailer.main"),
            control=child("control", "controller.main"),
        )

    def live(
        self,
        snapshot: Path,
        must_end: Callable[[], bool],
        prepare: Prepare,
        hand_over: Callable[[], None],
    ) -> None:
        """Start all children, run them until `must_end`, hand reads over, end them in order."""
        running: list[Child] = []
        if snapshot.exists():
            prepare("worker.main")
            running += self.workers
        for module, child in (("tailer.main", self.tailer), ("controller.main", self.control)):
            _tend(running)
            prepare(module)
            running.append(child)
        while not must_end():
            _tend(running)
            if self.workers[0] in running:
                self.watch.look()
                self.room.look()
                wait(running, TICK_S)
            elif snapshot.exists():
                prepare("worker.main")
                running += self.workers
            else:
                wait(running, SNAPSHOT_POLL_S)
        hand_over()
        handed_over_s = time.monotonic() + HANDOVER_S
        while time.monotonic() < handed_over_s:
            _tend(running)
            wait(running, SNAPSHOT_POLL_S)
        groups = (self.workers, (self.tailer,), (self.control,))
        for group, grace_s in zip(groups, GRACES_S, strict=True):
            end(group, grace_s)


#: Imports a module of `standpipe.node` and does the work that its processes share.
Prepare = Callable[[str], None]


def _tend(children: Sequence[Child]) -> None:
    for child in children:
        child.tend()


def _main_of(module: str, arguments: list[str]) -> Callable[[], int]:
    def run() -> int:
        status: int = importlib.import_module(f"standpipe.node.{module}").main(arguments)
        return status

    return run


def _preparing(config: NodeConfig) -> Prepare:
    def prepare(module: str) -> None:
        imported = importlib.import_module(f"standpipe.node.{module}")
        if module == "worker.main":
            imported.warm_up(config)
        # A collection in a child then neither visits these objects nor copies their pages.
        gc.collect()
        gc.freeze()

    return prepare


def run_node(node_file: Path) -> int:
    """Run a node until SIGTERM or SIGINT; returns the exit status.

    Raises ConfigError or DataDirectoryRefused before anything is started.
    """
    keep_private()
    config = configuration.load(node_file)
    settings = config.settings()
    if settings[TLS_LISTENER]:
        from standpipe.adapters.http.tls import certificate_of  # most nodes need no OpenSSL here

        certificate_of(settings)
    config.kafka()
    config.schema_registry()
    config.secret()
    configuration.log_json("parent")
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    stop = StopSignal()

    def claim() -> None:
        configuration.claim(config)
        held.enter_context(_locked(config.paths.data / "lock"))

    with contextlib.ExitStack() as held:
        if not with_room(claim, config.paths.data, lambda: stop.is_set, time.sleep):
            return 0
        family = Family.of(config, node_file)
        leaving = Leaving(config.paths.leaving)
        leaving.end()  # a start ends a drain
        push_registry.clear(config.paths.push)
        drop_previous_run(config.paths)
        family.live(config.paths.snapshot, lambda: stop.is_set, _preparing(config), leaving.begin)
    return 0


def with_room(
    work: Callable[[], None],
    folder: Path,
    must_end: Callable[[], bool],
    sleep: Callable[[float], None],
) -> bool:
    """Do what needs room in `folder`, again each second while there is none. False: `must_end`."""
    is_told = False
    while True:
        try:
            work()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if not is_told:
                is_told = True
                _log.error(
                    "the node cannot start: its disk is full",
                    folder=str(folder),
                    error=str(error),
                    next_step="remove files there, or enlarge the disk: it goes on by itself",
                )
        else:
            return True
        if must_end():
            return False
        sleep(ROOM_POLL_S)


def drop_previous_run(paths: NodePaths) -> None:
    """Drop the files in which this node's processes exchanged their state before it ended.

    From an old status page, workers would conclude that a replica is RUNNING without lag until the
    tailer is back. And a node with fewer workers than before would show what the others had.
    """
    shutil.rmtree(paths.run / "status", ignore_errors=True)
    counted = paths.run.glob("metrics-*")
    for page in (paths.liveness, paths.lags, paths.workers, paths.digests, *counted):
        page.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Lock the data directory for this node alone. Raises DataDirectoryRefused."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataDirectoryRefused(
                f"{path.parent} is in use by another node process",
                next_step="stop it, or give another directory",
            ) from error
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `python -m standpipe.node`; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="standpipe.node", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--node-file", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        return run_node(options.node_file)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
