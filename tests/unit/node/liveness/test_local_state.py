"""What a node reports of its workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from standpipe.adapters.files import published
from standpipe.model import NodeId
from standpipe.node.configuration import NodePaths
from standpipe.node.liveness.local_state import LocalReplicas
from standpipe.node.worker_report import WorkerEnded, WorkersReport

ENDED = WorkerEnded(worker=0, reason="wedged", count=1, at_boot_ms=1)


@pytest.mark.parametrize(
    ("pids", "report", "is_ok", "why"),
    [
        ([os.getpid()], None, True, "it runs, and the parent has no complaint"),
        ([os.getpid(), 0], None, True, "the other one is dead: this one has the port"),
        ([0], None, False, "nobody is there"),
        ([], None, False, "nor was"),
        ([os.getpid()], WorkersReport(silent=(0,)), False, "it makes no turns"),
        ([os.getpid(), os.getpid()], WorkersReport(silent=(1,)), False, "one of them does not"),
        ([os.getpid()], WorkersReport(ended=(ENDED,)), True, "it was replaced, and turns"),
    ],
)
def test_workers_ok(
    tmp_path: Path, pids: list[int], report: WorkersReport | None, is_ok: bool, why: str
) -> None:
    paths = NodePaths(tmp_path)
    paths.make()
    for number, pid in enumerate(pids):
        (paths.run / f"worker-{number}.pid").write_text(f"{pid}\n")
    if report is not None:
        published.write(paths.workers, report)
    assert LocalReplicas(NodeId("n"), paths).workers_ok is is_ok, why
