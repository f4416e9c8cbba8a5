"""When a node says that it is not well because of its workers."""

from __future__ import annotations

import pytest

from standpipe.node.worker_report import WHY, WorkerEnded, WorkersReport

ENDED = WorkerEnded(worker=2, reason="memory", count=1, at_boot_ms=1_000)
LATER = WorkerEnded(worker=1, reason="wedged", count=4, at_boot_ms=3_000)


@pytest.mark.parametrize(
    ("report", "now_ms", "complaint"),
    [
        (WorkersReport(), 0, None),
        (WorkersReport(silent=(0, 3)), 0, "worker-0, worker-3: no turn of the event loop"),
        (
            WorkersReport(ended=(ENDED,)),
            10_999,
            f"worker-2 was ended 10 s ago: {WHY['memory']}",
        ),
        (WorkersReport(ended=(ENDED,)), 11_000, None),
        (
            WorkersReport(ended=(LATER, ENDED)),
            4_000,
            f"worker-1 was ended 1 s ago: {WHY['wedged']}",
        ),
        (
            WorkersReport(ended=(ENDED,), silent=(), heavy=(2, 3)),
            2_000,
            f"heavy-2 was ended 1 s ago: {WHY['memory']}",
        ),
        (
            WorkersReport(silent=(1, 2), heavy=(2,)),
            0,
            "worker-1, heavy-2: no turn of the event loop",
        ),
    ],
    ids=[
        "well",
        "silent now",
        "a moment ago",
        "ten seconds ago",
        "the newest counts",
        "a heavy one",
        "a heavy one, too",
    ],
)
def test_complaint(report: WorkersReport, now_ms: int, complaint: str | None) -> None:
    assert report.complaint(now_ms) == complaint
