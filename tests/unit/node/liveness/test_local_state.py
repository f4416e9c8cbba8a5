"""What a node reports of its workers, and of its copies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.node.liveness.test_replica_routes import STATUS

from standpipe.adapters.files import published
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.control.metadata.catalog import EMPTY
from standpipe.model import Assignment, NodeId, Placement
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
        ([os.getpid()], WorkersReport(silent=(1,), heavy=(1,)), True, "no lookup waits for it"),
        ([os.getpid()], WorkersReport(silent=(0, 1), heavy=(1,)), False, "one has lookups"),
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


def test_no_lags_before_workers_serve(tmp_path: Path) -> None:
    """A copy that has caught up would get reads, and nobody would answer them."""
    me, paths = NodeId("n"), NodePaths(tmp_path)
    paths.make()
    placed = Placement(table_id="T", generation=1, partition=0, replicas=(), warmups=(me,))
    page = StatusWriter(page_path(paths.run, placed.replica_id))
    page.write(STATUS)
    catalog = replace(EMPTY, assignment=Assignment(placements=(placed,)))
    serve = False
    own = LocalReplicas(me, paths, lambda: serve)
    assert own.lags(catalog, 1) == []
    serve = True
    (lag,) = own.lags(catalog, 2)
    assert lag.position == STATUS.position
    page.close(unlink=True)
