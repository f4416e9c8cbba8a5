"""Which of its replicas a node reports to pipelines that wait for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.control.metadata.catalog import EMPTY
from standpipe.model import (
    NO_BATCH,
    Assignment,
    LeaseEpoch,
    NodeId,
    Offset,
    Placement,
    ReplicaState,
    ReplicaStatus,
)
from standpipe.node.configuration import NodePaths
from standpipe.node.liveness.local_state import LocalReplicas
from standpipe.node.liveness.replica_routes import own_lags

ME, OTHER = NodeId("a"), NodeId("b")
STATUS = ReplicaStatus(
    state=ReplicaState.RUNNING,
    position=Offset(7),
    committed_end=Offset(9),
    log_end=Offset(9),
    batch=NO_BATCH,
    lease_epoch=LeaseEpoch(1),
    confirmed_boot_ms=0,
    source_instant_ms=0,
    foreign_records=0,
    rows=0,
    watermark_ms=0,
)


@pytest.mark.parametrize(
    ("replicas", "warmups", "state", "expected", "why"),
    [
        ((OTHER, ME), (), ReplicaState.RUNNING, [7], "a standby"),
        ((ME,), (), ReplicaState.CATCHING_UP, [7], "it answers reads, so it counts"),
        ((OTHER,), (ME,), ReplicaState.CATCHING_UP, [], "a warm-up is a copy in the making"),
        ((OTHER, ME), (), ReplicaState.BOOTSTRAP, [], "it answers nothing yet"),
        ((OTHER,), (), ReplicaState.RUNNING, [], "it is not placed here"),
    ],
)
def test_what_counts(
    tmp_path: Path,
    replicas: tuple[NodeId, ...],
    warmups: tuple[NodeId, ...],
    state: ReplicaState,
    expected: list[int],
    why: str,
) -> None:
    paths = NodePaths(tmp_path)
    paths.make()
    placed = Placement(table_id="T", generation=1, partition=0, replicas=replicas, warmups=warmups)
    page = StatusWriter(page_path(paths.run, placed.replica_id))
    page.write(replace(STATUS, state=state))
    catalog = replace(EMPTY, assignment=Assignment(placements=(placed,)))
    said = own_lags(LocalReplicas(ME, paths), catalog, 1)
    page.close(unlink=True)
    assert said.node_id == ME
    assert [lag.position for lag in said.lags] == expected, why
