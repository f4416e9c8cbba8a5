"""The quorum with real processes: leaders killed and stopped, voters changed, backups. No Kafka."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import histories
from tests.e2e.control_cluster import NAMES, SECRET, ControlCluster, running, until
from tests.e2e.histories import Load, Operation
from tests.e2e.test_control import STREAM, wipe

FIVE = ("node-1", "node-2", "node-3", "node-4", "node-5")
PORCUPINE = Path(__file__).parents[2] / "tools" / "porcupine"


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ControlCluster]:
    yield from running(tmp_path)


@pytest.fixture
def five(tmp_path: Path) -> Iterator[ControlCluster]:
    yield from running(tmp_path, FIVE)


@pytest.fixture(scope="session")
def porcupine(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The second judge, built from source; None where there is no Go."""
    if shutil.which("go") is None:
        return None
    judge = tmp_path_factory.mktemp("porcupine") / "judge"
    subprocess.run(["go", "build", "-o", judge, "."], cwd=PORCUPINE, check=True)
    return judge


def load_on(cluster: ControlCluster) -> Load:
    return Load([cluster.configs[name].internal for name in cluster.names], SECRET)


def check(history: list[Operation], tmp_path: Path, judge: Path | None) -> None:
    """Both judges. Without Go only the first one."""
    assert histories.violations(history) == []
    if judge is not None:
        path = tmp_path / "history.jsonl"
        histories.save(history, path)
        verdict = subprocess.run([judge, path], capture_output=True, text=True, check=False)
        assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def more(load: Load, count: int) -> None:
    """Wait for so many more acknowledged writes."""
    goal = load.acknowledged() + count
    until(f"{count} more writes", lambda: load.acknowledged() >= goal)


def final_value(cluster: ControlCluster) -> int:
    name = cluster.leader()
    answer = cluster.post(name, "/pipeline/start", {"pipeline_id": "last"})
    return int(answer.json()["lease_epoch"])


def survived(cluster: ControlCluster, history: list[Operation]) -> None:
    """No acknowledged write is lost: the counter is beyond all tickets."""
    tickets = [one.value for one in history if one.kind == "add" and one.value is not None]
    assert final_value(cluster) > max(tickets)


@pytest.mark.parametrize("names", [NAMES, FIVE], ids=["three", "five"])
def test_leaders_are_killed_under_load(
    tmp_path: Path, names: tuple[str, ...], porcupine: Path | None
) -> None:
    for cluster in running(tmp_path, names):
        load = load_on(cluster)
        load.start()
        for _ in range(4):
            more(load, 20)
            leader = cluster.leader()
            cluster.kill(leader)
            more(load, 20)
            cluster.start(leader)
        cluster.until_voters(*names)
        history = load.stop()
        check(history, tmp_path, porcupine)
        survived(cluster, history)


def test_a_stopped_leader_comes_back_as_nobody(
    three: ControlCluster, tmp_path: Path, porcupine: Path | None
) -> None:
    load = load_on(three)
    load.start()
    more(load, 20)
    old = three.leader()
    three.signal(old, signal.SIGSTOP)
    left = [name for name in NAMES if name != old]
    more(load, 20)
    new = three.leader(*left)
    epoch = (three.quorum(new) or {})["epoch"]
    time.sleep(3)
    three.signal(old, signal.SIGCONT)
    more(load, 50)
    until("it follows", lambda: (three.quorum(old) or {}).get("leader") == new)
    assert (three.quorum(new) or {})["epoch"] == epoch, "its return deposed nobody"
    history = load.stop()
    check(history, tmp_path, porcupine)
    survived(three, history)


def test_all_are_killed_at_once(three: ControlCluster, tmp_path: Path) -> None:
    load = load_on(three)
    load.start()
    more(load, 30)
    for name in NAMES:
        three.kill(name)
    three.start(*NAMES)
    more(load, 20)
    history = load.stop()
    assert histories.violations(history) == []
    survived(three, history)


def test_five_do_without_two(five: ControlCluster) -> None:
    gone = [five.leader()]
    gone.append(next(name for name in FIVE if name not in gone))
    for name in gone:
        five.kill(name)
    left = [name for name in FIVE if name not in gone]
    assert five.execute(left[0], STREAM.format("S", "s"), "r1").status_code == 200
    five.kill(left[2])
    assert five.execute(left[0], STREAM.format("S2", "s2"), "r2").status_code == 503
    answer = five.client.get(five._url(left[0], "/catalog?consistency=linearizable"))
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50307)
    assert five.client.get(five._url(left[0], "/catalog?consistency=local")).status_code == 200


# -- the command line ---------------------------------------------------------------------------


def quorum(cluster: ControlCluster, *arguments: str, node: str = "node-2") -> Any:
    """`standpipe quorum … --json` against one node: its JSON, or its error's text."""
    command = [sys.executable, "-m", "standpipe", "quorum", *arguments, "--json"]
    if arguments[0] != "restore":
        command += ["--node", cluster.configs[node].internal]
        command += ["--secret-file", str(cluster.directory / "secret")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def test_voters_come_and_go(tmp_path: Path) -> None:
    names = FIVE[:4]
    cluster = ControlCluster(tmp_path, names=names, voters=NAMES)
    try:
        cluster.start(*names)
        cluster.until_voters(*NAMES)
        cluster.until_members(4, *names)
        observer = {one["node_id"]: one for one in quorum(cluster, "describe")["replicas"]}
        assert not observer["node-4"]["votes"]
        assert quorum(cluster, "add-voter", "node-4")["voters"] == list(names)
        assert quorum(cluster, "remove-voter", "node-1")["voters"] == list(names[1:])
        cluster.until_voters(*names[1:])
        cluster.kill("node-1")
        cluster.start("node-1")
        until("it is back", lambda: cluster.quorum("node-1"))
        time.sleep(1)
        assert cluster.voters_at("node-1") == list(names[1:]), "removed stays removed"
        assert quorum(cluster, "transfer", "node-4")["voters"] == list(names[1:])
        until("node 4", lambda: quorum(cluster, "describe")["leader"] == "node-4")
        assert "no node of this cluster" in quorum(cluster, "add-voter", "node-9")
        assert "node-1 does not vote" in quorum(cluster, "remove-voter", "node-1")
        assert cluster.execute("node-1", STREAM.format("S", "s"), "r1").status_code == 200
    finally:
        cluster.close()


def test_a_voter_whose_disk_was_replaced(three: ControlCluster) -> None:
    three.kill("node-3")
    wipe(three, "node-3")
    three.start("node-3")
    until("it follows", lambda: (three.quorum("node-3") or {}).get("leader"))
    assert "another disk" in quorum(three, "add-voter", "node-3")
    assert quorum(three, "remove-voter", "node-3")["voters"] == ["node-1", "node-2"]
    three.until_voters(*NAMES)  # it joins by itself: it is a first voter that never voted
    lines = quorum(three, "describe")["replicas"]
    assert sum(line["node_id"] == "node-3" and line["votes"] for line in lines) == 1
    three.kill("node-1")
    assert three.execute("node-3", STREAM.format("S", "s"), "r1").status_code == 200


def test_backup_and_restore(three: ControlCluster, tmp_path: Path) -> None:
    three.execute("node-1", STREAM.format("S", "s"), "r1")
    file = str(tmp_path / "metadata.backup")
    told = quorum(three, "backup", file)
    for name in NAMES:
        three.kill(name)
        wipe(three, name)
    one = ["--data-dir", three.configs["node-1"].data_dir, "--node-id", "node-1"]
    restored = quorum(three, "restore", file, *one)
    assert restored["log_index"] == told["log_index"]
    assert "holds a log of the quorum already" in quorum(three, "restore", file, *one)
    three.start(*NAMES)
    three.until_voters(*NAMES)
    again = three.execute("node-3", STREAM.format("S", "s"), "r1")
    assert again.json()["log_index"] <= told["log_index"], "the same request as before the backup"
    assert [source.name for source in three.snapshot("node-3").sources] == ["S"]
    data = bytearray(Path(file).read_bytes())
    data[len(data) // 2] ^= 1
    Path(file).write_bytes(data)
    other = ["--data-dir", str(tmp_path / "other"), "--node-id", "node-1"]
    assert "is damaged at byte" in quorum(three, "restore", file, *other)
