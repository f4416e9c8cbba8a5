"""Two versions in one cluster of real processes: a rolling upgrade, and the way back that is shut.

The older release is this one, told to admit to feature level 1 only; that it then writes and reads
what the first release did, to the letter, is `tests/unit/control/metadata/test_feature_levels.py`.
No Kafka.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.control_cluster import NAMES, PATIENT_QUORUM, ControlCluster, until
from tests.e2e.test_control import STREAM

from standpipe.control.metadata.feature_levels import NEWEST
from standpipe.node import configuration

LIMIT = "standpipe.feature.level.max"


def run_as(cluster: ControlCluster, name: str, level: int) -> None:
    """From its next start on the node runs a release that knows levels up to this one."""
    config = msgspec.structs.replace(cluster.configs[name], config={**PATIENT_QUORUM, LIMIT: level})
    configuration.save(cluster.directory / name / "node.json", config)


def standpipe(cluster: ControlCluster, *arguments: str) -> tuple[int, str]:
    """Status and everything that `standpipe quorum …` says, asked through all nodes."""
    asked = [word for name in NAMES for word in ("--node", cluster.configs[name].internal)]
    secret = ["--secret-file", str(cluster.directory / "secret")]
    ran = subprocess.run(
        [sys.executable, "-m", "standpipe", "quorum", *arguments, *asked, *secret],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def features(cluster: ControlCluster) -> dict[str, Any]:
    status, said = standpipe(cluster, "features", "--json")
    assert status == 0, said
    return json.loads(said)


def logged(cluster: ControlCluster, name: str) -> list[tuple[str, int, bool]]:
    """(command, version, whether it says feature levels) of all that a node has in its log."""
    commands = [
        msgspec.msgpack.decode(bytes(entry.command)) for entry in cluster.page(name, 1).entries
    ]
    return [
        (one["type"], one["version"], "feature_levels" in one.get("node", {})) for one in commands
    ]


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[ControlCluster]:
    """node-1, which founds the cluster, is of the older release; the others are newer."""
    # what an upgrade says depends on who leads: no busy machine may change that
    cluster = ControlCluster(tmp_path, settings={**PATIENT_QUORUM})
    try:
        run_as(cluster, "node-1", 1)
        cluster.start(*NAMES)
        cluster.until_voters(*NAMES)
        cluster.until_members(3, *NAMES)
        yield cluster
    finally:
        cluster.close()


def newer_leads(cluster: ControlCluster) -> bool:
    """Whether a newer node leads; else one is asked to. On a busy machine leaders change."""
    if (cluster.describe("node-2") or {}).get("leader") in ("node-2", "node-3"):
        return True
    cluster.post("node-2", "/quorum/transfer", {"node_id": "node-2"})
    return False


def test_a_rolling_upgrade(mixed: ControlCluster, tmp_path: Path) -> None:
    until("a newer leader", lambda: newer_leads(mixed))
    assert mixed.execute("node-1", STREAM.format("S", "s"), "r1").status_code == 200
    for name in NAMES:
        forms = logged(mixed, name)
        assert {version for _, version, _ in forms} == {1}, "a newer leader writes the older form"
        assert not any(says for _, _, says in forms)
    assert features(mixed)["feature_level"] == 1
    until("an answer of each node", lambda: features(mixed)["newest_of_all"] == 1)
    until("a newer leader", lambda: newer_leads(mixed))
    status, said = standpipe(mixed, "upgrade")
    assert (status, "node-1 knows feature level 1: start the newer" in " ".join(said.split())) == (
        1,
        True,
    ), said
    assert features(mixed)["feature_level"] == 1

    mixed.kill("node-1")
    status, said = standpipe(mixed, "upgrade")
    assert (status, "node-1 does not answer" in " ".join(said.split())) == (1, True), said
    run_as(mixed, "node-1", NEWEST)
    mixed.start("node-1")
    until("all newer", lambda: features(mixed)["newest_of_all"] == NEWEST)
    status, said = standpipe(mixed, "upgrade")
    assert (status, said.strip()) == (0, f"feature level: {NEWEST}"), said
    for name in NAMES:
        until_newest(mixed, name)
    newest = [("set_feature_level", 1, False), *[("register_node", 2, True)] * 3]
    until("the records behind the level", lambda: logged(mixed, "node-3")[-4:] == newest)
    assert mixed.execute("node-3", STREAM.format("S2", "s2"), "r2").is_success

    backup = tmp_path / "metadata.backup"
    assert standpipe(mixed, "backup", str(backup))[0] == 0
    the_way_back_is_shut(mixed)
    restored(backup, tmp_path / "restored")


def until_newest(cluster: ControlCluster, name: str) -> None:
    until(
        "the newest level",
        lambda: (cluster.describe(name) or {}).get("feature_level") == NEWEST,
    )


def the_way_back_is_shut(cluster: ControlCluster) -> None:
    """The older release ends by name on a data directory of a newer level; all else goes on."""
    cluster.kill("node-3")
    run_as(cluster, "node-3", 1)
    cluster.start("node-3")
    assert until("its end", lambda: cluster.processes["node-3"].poll()) == 1
    assert f"E-FEATURE-001 the cluster is at feature level {NEWEST}" in cluster.errors("node-3")
    assert "Next: start a release of Standpipe that knows it" in cluster.errors("node-3")
    run_as(cluster, "node-3", NEWEST)
    cluster.start("node-3")
    cluster.until_voters(*NAMES)


def restored(backup: Path, directory: Path) -> None:
    """A backup keeps the level."""
    command = ["quorum", "restore", str(backup), "--data-dir", str(directory / "one")]
    made = subprocess.run(
        [sys.executable, "-m", "standpipe", *command, "--node-id", "one", "--json"], check=False
    )
    assert made.returncode == 0
    cluster = ControlCluster(directory, names=("one",))
    try:
        cluster.start("one")
        until_newest(cluster, "one")
    finally:
        cluster.close()
