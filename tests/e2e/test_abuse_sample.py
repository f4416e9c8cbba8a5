"""A sample of `make abuse`: costly requests take no worker down, and lookups get their rows.

How late the lookups come is for the whole program to measure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.abuse.__main__ import by_kind, fill, lookups, meaning
from tests.abuse.attack import Watch, send_all
from tests.abuse.corpus import SHAPES, corpus
from tests.e2e.cluster import start

ROWS = 2_000
#: every third of these has shapes of each kind, near their limits
PER_KIND = 14
NODES = 2
SETTINGS = {"standpipe.query.pull.scan.timeout.ms": "3000"}


def is_late(sample: list[Any]) -> bool:
    """A busy machine may be later than its client waits."""
    return "TimeoutError" in sample[2]


def test_costly_requests_take_no_worker_down(tmp_path: Path) -> None:
    requests = corpus(per_kind=PER_KIND)[::3]
    assert {asked.kind for asked in requests} == {*SHAPES, "requests"}
    cluster = start(tmp_path / "cluster", nodes=NODES, config=SETTINGS)
    try:
        fill(cluster, ROWS)
        nodes = [address for _, address in cluster.addresses]
        directory = cluster.local.options.directory
        with Watch(directory) as watch, lookups(nodes, ROWS) as samples:
            outcomes = send_all(nodes, requests)
    finally:
        cluster.close()
    print(by_kind(outcomes))
    assert len(outcomes) == len(requests)
    assert [o for o in outcomes if meaning(o) in ("lost", "failed")] == []
    assert watch.ended == set()
    assert len(samples) > len(requests), "lookups went on beside"
    assert [sample for sample in samples if sample[2] and not is_late(sample)] == []
