"""A node's processes as its parent starts them: forked from one that has imported everything.

An import of all of a node takes a second of processor, and these tests start hundreds of processes.
What is forked is real and dies alone; a cold start is what clusters of `supervisor.py` show.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

_MODULES = ("standpipe.node.controller.main", "standpipe.node.worker.main")
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload([*_MODULES, __name__])


class ForkedProcess:
    """What these tests need of a `subprocess.Popen`: the same names, the same meaning."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


#: A process of a node, cold or forked.
NodeProcess = subprocess.Popen[bytes] | ForkedProcess


def fork(module: str, arguments: Sequence[str], log: Path) -> ForkedProcess:
    """Run `module`'s main with these arguments; what it writes is added to `log`."""
    process = _server.Process(target=_live, args=(module, list(arguments), str(log)), name=module)
    process.start()
    return ForkedProcess(process)


def _live(module: str, arguments: list[str], log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(output, standard)
    os._exit(importlib.import_module(module).main(arguments))
