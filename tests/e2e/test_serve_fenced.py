"""One program at a time writes a served table: who was paused is fenced, and another goes on.

Also a program that lost its checkpoint, and one whose table is dropped. `make stories`.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster, wait_until
from tests.e2e.user_programs import Purchases, holder, programs, verify, wait_for_holder


@pytest.mark.timeout(1500)
def test_one_program_writes_at_a_time(nodes_alone: TestCluster, tmp_path: Path) -> None:
    nodes_alone.topic("purchases")
    purchases = Purchases(nodes_alone)
    with programs(nodes_alone, tmp_path) as started:
        paused, standby = started(), started()
        purchases.send()
        wait_until(lambda: holder(nodes_alone) or None, "one of them has the lease")
        if holder(nodes_alone) == standby.process.pid:
            paused, standby = standby, paused
        standby.wait_for("standing by: SCORES is written by")
        purchases.check()

        paused.signal(signal.SIGSTOP)
        standby.wait_for("SCORES is served")
        purchases.send()
        purchases.check()
        paused.signal(signal.SIGCONT)
        assert paused.wait_for_end() == 1
        assert "FENCED: this application lost the lease of SCORES" in paused.said()
        purchases.send()
        purchases.check()
        wait_for_holder(nodes_alone, standby)

        standby.signal(signal.SIGKILL)
        lost = started(CHECKPOINT=str(tmp_path / "another"))
        assert lost.wait_for_end() == 1
        assert "CHECKPOINT_LOST: readers have seen batch" in lost.said()
        purchases.check()

        last = started()
        last.wait_for("SCORES is served")
        purchases.send()
        purchases.check()
        verify(nodes_alone)
        nodes_alone.sql("DROP TABLE SCORES;")
        assert last.wait_for_end() == 1
        assert "DROPPED: SCORES was dropped" in last.said()
