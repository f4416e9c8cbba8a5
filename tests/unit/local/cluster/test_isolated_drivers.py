"""Drivers of isolated queries start and stop as the nodes' snapshots say."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from tests.unit.control.metadata.test_catalog import after, stream, table_as

from standpipe.adapters.files import published
from standpipe.control.metadata.catalog import Catalog, to_snapshot
from standpipe.control.metadata.commands import CreateSource, DropSource, IsolateQuery
from standpipe.local.cluster.isolated_drivers import IsolatedDrivers
from standpipe.local.cluster.process_group import ManagedProcess
from standpipe.model import LogIndex, NodeId, Snapshot

BASE = after(CreateSource(source=stream("R")), table_as("T", "R", 4), table_as("a-b", "R", 23))


def snapshot(catalog: Catalog) -> Snapshot:
    return to_snapshot(
        catalog,
        node_id=NodeId("a"),
        leader=NodeId("a"),
        service_id="s",
        query_statuses=(),
        published_boot_ms=0,
        quorum_sync_ms=0,
    )


class Local:
    """Two nodes' snapshots, and the drivers that follow from them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = [folder / "one", folder / "two"]
        self.drivers = IsolatedDrivers(self.paths, self.make)

    def make(self, name: str, isolate: str) -> ManagedProcess:
        command = [sys.executable, "-c", "import time; time.sleep(600)", isolate]
        return ManagedProcess(name, command, self.folder / f"{name}.log")

    def publish(self, node: int, catalog: Catalog) -> list[str]:
        published.write(self.paths[node], snapshot(catalog))
        return self.drivers.tend()

    def running(self) -> list[str]:
        return sorted(name for name, each in self.drivers.drivers.items() if each.wanted)

    def close(self) -> None:
        self.drivers.want([])
        assert all(each.wait(10) for each in self.drivers.drivers.values())


@pytest.mark.timeout(60)
def test_a_driver_for_each_name_that_is_in_use(tmp_path: Path) -> None:
    local = Local(tmp_path)
    assert local.drivers.tend() == [], "no node has published anything"
    assert local.publish(0, BASE) == []
    isolated = after(IsolateQuery(name="T"), IsolateQuery(name="X"), start=BASE)
    (said,) = local.publish(0, isolated)
    assert said.startswith("pipeline-isolated-T starts: T is isolated (log: ")
    assert local.running() == ["T"], "X has no query"
    assert local.drivers.drivers["T"].command[-1] == "T"
    first = local.drivers.drivers["T"].pid
    assert local.drivers.tend() == [], "nothing new"
    assert local.publish(1, BASE) == [], "an older snapshot, of a node that has just started"
    odd = after(IsolateQuery(name="a-b"), start=isolated)
    (said,) = local.publish(1, odd)
    assert said.startswith("pipeline-isolated-2 starts: a-b is isolated")
    assert (local.running(), local.drivers.drivers["T"].pid) == (["T", "a-b"], first)
    local.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "ends", [IsolateQuery(name="T", is_isolated=False), DropSource(name="T")], ids=["undo", "drop"]
)
def test_it_ends_with_its_reason_and_can_start_again(
    tmp_path: Path, ends: IsolateQuery | DropSource
) -> None:
    local = Local(tmp_path)
    isolated = after(IsolateQuery(name="T"), start=BASE)
    local.publish(0, isolated)
    driver = local.drivers.drivers["T"]
    (said,) = local.publish(0, after(ends, start=isolated))
    assert said == "pipeline-isolated-T stops: T is isolated no longer, or has no query"
    assert not driver.wanted, "the supervisor does not restart it"
    assert driver.wait(10)
    again = msgspec.structs.replace(isolated, index=LogIndex(isolated.index + 9))
    assert len(local.publish(0, again)) == 1
    assert local.drivers.drivers["T"] is driver
    assert (driver.wanted, driver.pid is not None) == (True, True)
    local.close()


@pytest.mark.timeout(60)
def test_one_that_still_ends_is_not_started_beside_itself(tmp_path: Path) -> None:
    local = Local(tmp_path)
    local.drivers.want(["T"])
    driver = local.drivers.drivers["T"]
    driver.wanted = False  # told to stop, and it takes its time
    pid = driver.pid
    assert local.drivers.want(["T"]) == []
    assert (driver.pid, driver.wanted) == (pid, False)
    driver.wanted = True
    local.close()
