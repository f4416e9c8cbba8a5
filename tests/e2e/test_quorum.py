"""The quorum with real processes: leaders killed and stopped, voters changed, backups. No Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.control_cluster import (
    ELECTED_S_MAX,
    NAMES,
    PATIENT_QUORUM,
    ControlCluster,
    running,
    until,
)
from tests.e2e.quorum_faults import (
    check,
    homes,
    kill_leaders,
    load_on,
    lost,
    more,
    pause_leader,
)
from tests.e2e.test_control import STREAM, wipe

FIVE = ("node-1", "node-2", "node-3", "node-4", "node-5")


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ControlCluster]:
    yield from running(tmp_path)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[ControlCluster]:
    """Three whose leader no busy machine deposes."""
    yield from running(tmp_path, settings=PATIENT_QUORUM)


@pytest.fixture
def five(tmp_path: Path) -> Iterator[ControlCluster]:
    yield from running(tmp_path, FIVE)


@pytest.mark.parametrize("names", [NAMES, FIVE], ids=["three", "five"])
def test_leaders_are_killed_under_load(tmp_path: Path, names: tuple[str, ...]) -> None:
    """`make quorum-kills KILLS=50` does the same more often and keeps the figures."""
    for cluster in running(tmp_path, names):
        load = load_on(cluster, homes(cluster), pause_s=0.01)
        load.start()
        found = kill_leaders(cluster, load, kills=4)
        cluster.until_voters(*names)
        history = load.stop()
        print(f"resumed, ms: {found}")
        assert len(found.writes) == 4 * (len(names) - 1)
        assert len(found.reads) == 4 * (len(names) - 2)
        check(history, tmp_path)
        assert lost(cluster, history) == 0


def test_a_stopped_leader_comes_back_as_nobody(patient: ControlCluster, tmp_path: Path) -> None:
    """Ten seconds are more than every time-out; what had reached its socket waits for it."""
    load = load_on(patient)
    load.start()
    more(load, 20)
    pause = pause_leader(patient, load, stopped_s=10, watch_s=ELECTED_S_MAX)
    print(pause)
    history = load.stop()
    assert pause.epoch_after_return == pause.epoch_before_return, "its return deposed nobody"
    assert pause.late_write is None or pause.late_write > pause.writes_before_return
    # By the first fact that it is told, whatever that is: no time-out has to pass (KIP-595).
    check(history, tmp_path)
    assert lost(patient, history) == 0


def test_all_are_killed_at_once(three: ControlCluster, tmp_path: Path) -> None:
    load = load_on(three)
    load.start()
    more(load, 30)
    for name in NAMES:
        three.kill(name)
    three.start(*NAMES)
    more(load, 20)
    history = load.stop()
    check(history, tmp_path)
    assert lost(three, history) == 0


def test_five_do_without_two(five: ControlCluster) -> None:
    gone = [five.leader()]
    gone.append(next(name for name in FIVE if name not in gone))
    for name in gone:
        five.kill(name)
    left = [name for name in FIVE if name not in gone]
    assert five.execute(left[0], STREAM.format("S", "s"), "r1").status_code == 200
    five.kill(left[2])
    assert five.execute_once(left[0], STREAM.format("S2", "s2"), "r2").status_code == 503
    answer = five.client.get(five._url(left[0], "/catalog?consistency=linearizable"))
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50307)
    assert five.client.get(five._url(left[0], "/catalog?consistency=local")).status_code == 200


# -- the command line ---------------------------------------------------------------------------


#: what a node says while nobody leads: of reads that its leader answers (two), of writes, and of
#: linearizable reads
NOBODY_LEADS = (
    "knows no leader of the quorum",
    "does not answer: it lost the lead",
    "no leader of the metadata quorum accepted it",
    "a linearizable read needs a leader with a majority",
)


def quorum(cluster: ControlCluster, *arguments: str, node: str = "node-2") -> Any:
    """`standpipe quorum … --json` against one node: its JSON, or its error's text. Asked again
    while nobody leads: an election takes longer on a busy machine."""

    def said() -> tuple[Any] | None:
        answer = _asked_once(cluster, *arguments, node=node)
        told = " ".join(answer.split()) if isinstance(answer, str) else ""
        return None if any(text in told for text in NOBODY_LEADS) else (answer,)

    return until(f"a leader for {arguments}", said)[0]


def _asked_once(cluster: ControlCluster, *arguments: str, node: str) -> Any:
    command = [sys.executable, "-m", "standpipe", "quorum", *arguments, "--json"]
    if arguments[0] != "restore":
        command += ["--node", cluster.configs[node].internal]
        command += ["--secret-file", str(cluster.directory / "secret")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def voters_after(cluster: ControlCluster, *arguments: str, expected: list[str]) -> None:
    """Change the voters. A change that is not committed in time is waited for, as its error says: a
    loaded machine has such. A leader that removes itself may end before its answer: then another
    one is asked again, and says that nothing is left to do."""
    answer = quorum(cluster, *arguments)
    if isinstance(answer, str):
        is_done = f"voters are {', '.join(expected)}" in answer
        assert is_done or "it may still be committed" in answer, answer
        cluster.until_voters(*expected)
    else:
        assert answer["voters"] == expected


def test_voters_come_and_go(tmp_path: Path) -> None:
    names = FIVE[:4]
    cluster = ControlCluster(tmp_path, names=names, voters=NAMES, settings={**PATIENT_QUORUM})
    try:
        cluster.start(*names)
        cluster.until_voters(*NAMES)
        cluster.until_members(4, *names)
        observer = {one["node_id"]: one for one in quorum(cluster, "describe")["replicas"]}
        assert not observer["node-4"]["votes"]
        voters_after(cluster, "add-voter", "node-4", expected=list(names))
        voters_after(cluster, "remove-voter", "node-1", expected=list(names[1:]))
        cluster.until_voters(*names[1:])
        cluster.kill("node-1")
        cluster.start("node-1")
        until("it is back", lambda: cluster.quorum("node-1"))
        time.sleep(1)
        voters = until("the voters", lambda: cluster.voters_at("node-1"))
        assert voters == list(names[1:]), "removed stays removed"
        voters_after(cluster, "transfer", "node-4", expected=list(names[1:]))
        until("node 4 leads", lambda: quorum(cluster, "describe")["leader"] == "node-4")
        assert "not a node of this cluster" in quorum(cluster, "add-voter", "node-9")
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
    first = three.execute("node-1", STREAM.format("S", "s"), "r1").json()
    file = str(tmp_path / "metadata.backup")
    told = quorum(three, "backup", file)
    for name in NAMES:
        three.kill(name)
        wipe(three, name)
    one = ["--data-dir", three.configs["node-1"].data_dir, "--node-id", "node-1"]
    restored = quorum(three, "restore", file, *one)
    assert restored["log_index"] == told["log_index"]
    assert "already holds a log of the quorum" in quorum(three, "restore", file, *one)
    three.start(*NAMES)
    three.until_voters(*NAMES)
    again = three.execute("node-3", STREAM.format("S", "s"), "r1").json()
    assert again["entities"] == first["entities"], "the same request as before the backup"
    assert [source.name for source in three.snapshot("node-3").sources] == ["S"]
    data = bytearray(Path(file).read_bytes())
    data[len(data) // 2] ^= 1
    Path(file).write_bytes(data)
    other = ["--data-dir", str(tmp_path / "other"), "--node-id", "node-1"]
    assert "is damaged at byte" in quorum(three, "restore", file, *other)
