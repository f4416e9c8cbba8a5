"""The metadata log with real processes on loopback, under SIGKILL. No Kafka, no Spark.

Three control processes, all voters. What kills the quorum itself is in test_quorum.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.e2e.control_cluster import (
    NAMES,
    SECRET,
    UNTOLD,
    WAIT_S_MAX,
    ControlCluster,
    running,
    until,
    until_led,
)
from tests.sealed_http import sealed_client

from standpipe.adapters.raft import disk
from standpipe.control.metadata.requests import REQUEST_BYTES_MAX
from standpipe.errors import OutcomeUnknown
from standpipe.model import BatchId, LeaseEpoch, QueryStatus

STREAM = (
    "CREATE STREAM {} (ID STRING KEY, V INTEGER) "
    "WITH (KAFKA_TOPIC='{}', PARTITIONS=2, VALUE_FORMAT='JSON');"
)
#: within the default of standpipe.statement.bytes.max
STATEMENT_BYTES = 16_000
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID EMIT CHANGES;"


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlCluster]:
    """A cluster for tests that kill."""
    yield from running(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlCluster]:
    """A cluster for tests that leave all its processes running."""
    yield from running(tmp_path_factory.mktemp("control"))


def test_a_statement_at_a_follower_is_everywhere(shared: ControlCluster) -> None:
    answer = shared.execute("node-2", STREAM.format("S", "s"), "r1")
    assert answer.status_code == 200
    index = answer.json()["log_index"]
    assert shared.snapshot("node-2").log_index >= index, "answered when node 2 shows it"
    for name in ("node-1", "node-3"):  # one of them leads
        until(name, lambda name=name: shared.snapshot(name).log_index >= index)
    made = shared.execute("node-3", TABLE, "r2").json()
    assert made["entities"][0]["commandStatus"]["status"] == "SUCCESS"
    placements = shared.snapshot("node-3").assignment.placements
    assert [len(placement.replicas) for placement in placements] == [2, 2], "one standby each"
    entries = shared.page("node-3", 1).entries
    until("node-1", lambda: shared.snapshot("node-1").log_index >= entries[-1].index)
    assert shared.page("node-1", 1).entries[: len(entries)] == entries


def test_the_same_request_through_two_nodes_is_applied_once(shared: ControlCluster) -> None:
    once = STREAM.format("ONCE", "once")
    first = shared.execute("node-2", once, "same")
    again = shared.execute("node-3", once, "same")
    assert first.json()["entities"] == again.json()["entities"]
    assert shared.execute("node-3", once, "other").status_code == 400


def others(leader: str) -> list[str]:
    return [name for name in NAMES if name != leader]


def test_the_leader_is_killed_and_comes_back(control: ControlCluster) -> None:
    first = control.leader()
    control.execute(first, STREAM.format("S", "s"), "r1")
    left = others(first)
    control.kill(first)
    made = control.execute(left[0], TABLE, "r2")
    assert made.status_code == 200, "the others elect a leader meanwhile"
    again = control.execute(left[1], TABLE, "r2")
    assert again.json()["entities"] == made.json()["entities"], "the same request, once"
    control.start(first)
    until("its copy", lambda: len(control.snapshot(first).sources) == 2)
    assert control.execute(first, STREAM.format("S2", "s2"), "r3").status_code == 200
    ids = {str((control.describe(name) or {})["cluster_id"]) for name in NAMES}
    assert len(ids) == 1


def test_a_copy_that_arrives_after_its_outcome_was_forgotten_is_refused(
    control: ControlCluster,
) -> None:
    """Executed again, it would bring back a stream that was dropped since."""
    known = control.snapshot("node-2").log_index
    body = {"ksql": STREAM.format("LATE", "late"), "request_id": "late", "known_index": known}
    made = until_led(lambda: control.post("node-2", "/execute", body))
    assert made.json()["entities"][0]["commandStatus"]["status"] == "SUCCESS"
    assert control.execute("node-2", "DROP STREAM LATE;", "drop").status_code == 200
    again = until_led(lambda: control.post("node-3", "/execute", body))
    assert again.json()["entities"] == made.json()["entities"], "its outcome is remembered"
    # by their bytes: REQUESTS_MAX of them are a minute of computing in three processes
    text = STREAM.format(f"LONG /*{' ' * STATEMENT_BYTES}*/", "long")
    text = text.replace("CREATE", "CREATE OR REPLACE")
    for number in range(REQUEST_BYTES_MAX // STATEMENT_BYTES + 1):
        made = control.execute("node-1", text, f"long {number}")
        assert made.status_code == 200, made.text[:300]
    for name in NAMES:
        late = until_led(lambda name=name: control.post(name, "/execute", body))
        assert (late.status_code, late.json()["error_code"]) == (503, OutcomeUnknown.code)
        assert "Look whether it was" in late.json()["message"]
        assert "LATE" not in {source.name for source in control.snapshot(name).sources}


def test_without_a_majority_reads_go_on_and_statements_say_why(control: ControlCluster) -> None:
    leader = control.leader()
    control.execute(leader, STREAM.format("S", "s"), "r1")
    last = others(leader)[0]
    until("its copy", lambda: len(control.snapshot(last).sources) == 1)
    before = control.snapshot(last)
    for name in NAMES:
        if name != last:
            control.kill(name)
    refused = control.execute_once(last, TABLE, "r2")
    assert refused.status_code == 503
    if UNTOLD not in refused.text:  # unless it noticed late that its connection to the leader broke
        assert refused.json()["error_code"] == 50307
        assert refused.headers["retry-after"] == "1"
    assert control.page(last, 1).last_index == before.log_index, "served from its own copy"
    until("a fresh snapshot", lambda: control.snapshot(last).stamp > before.stamp)
    control.start(*(name for name in NAMES if name != last))
    control.until_voters(*NAMES)
    assert control.execute(last, TABLE, "r2").status_code == 200


def test_a_node_restarts_without_a_majority_and_shows_what_it_knew(
    control: ControlCluster,
) -> None:
    control.execute("node-3", STREAM.format("S", "s"), "r1")
    before = control.snapshot("node-3")
    log = control.configs["node-3"].paths.log
    # its hint of what is committed follows within a quarter of a second, or later on a busy machine
    until("the hint", lambda: disk._read_committed(log) > before.log_index)
    for name in NAMES:
        control.kill(name)
    control.configs["node-3"].paths.snapshot.unlink()
    control.start("node-3")
    until("its snapshot", control.configs["node-3"].paths.snapshot.exists)
    after = control.snapshot("node-3")
    assert (after.log_index, after.sources) == (before.log_index, before.sources)
    assert after.stamp > before.stamp
    control.start("node-1", "node-2")
    assert until("a write", lambda: control.execute("node-3", TABLE, "r2").status_code == 200)


def wipe(control: ControlCluster, name: str) -> None:
    """The disk was replaced: only what its operator wrote is there."""
    data = control.configs[name].paths
    for path in [*data.log.iterdir(), data.meta, data.snapshot]:
        path.unlink(missing_ok=True)


def test_a_wiped_node_shows_nothing_before_it_has_all(control: ControlCluster) -> None:
    control.execute("node-1", STREAM.format("S", "s"), "r1")
    for name in NAMES:
        control.kill(name)
    data = control.configs["node-3"].paths
    wipe(control, "node-3")
    control.start("node-3")
    until("node 3", lambda: control.describe("node-3"))
    time.sleep(0.5)
    assert not data.snapshot.exists(), "half a catalog would deny tables that exist"
    control.start("node-1", "node-2")
    until("its snapshot", data.snapshot.exists)
    assert [source.name for source in control.snapshot("node-3").sources] == ["S"]


def test_a_wiped_founder_founds_no_second_cluster(control: ControlCluster) -> None:
    control.execute("node-1", STREAM.format("S", "s"), "r1")
    before = control.describe("node-2")
    control.kill("node-1")
    wipe(control, "node-1")
    control.start("node-1")
    until("its snapshot", control.configs["node-1"].paths.snapshot.exists)
    assert control.snapshot("node-1").cluster_id == (before or {})["cluster_id"]
    assert [source.name for source in control.snapshot("node-1").sources] == ["S"]

    def votes() -> list[bool]:
        lines = (control.quorum("node-1") or {"replicas": []})["replicas"]
        return sorted(line["votes"] for line in lines if line["node_id"] == "node-1")

    # a new leader knows an observer once it has fetched
    why = "the old disk is still named, the new one does not vote"
    until(why, lambda: votes() == [False, True])


def test_a_torn_log_loses_nothing_that_was_acknowledged(control: ControlCluster) -> None:
    index = control.execute("node-1", STREAM.format("S", "s"), "r1").json()["log_index"]
    control.kill("node-1")
    log = control.configs["node-1"].paths.log / "quorum.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[16:40])
    control.start("node-1")
    until("its copy", lambda: (control.describe("node-1") or {}).get("last_index", 0) >= index)
    assert '"torn_bytes_cut": 24' in control.errors("node-1")
    assert control.execute("node-1", TABLE, "r2").status_code == 200


def test_a_flipped_bit_is_refused_by_name(control: ControlCluster) -> None:
    control.execute("node-1", STREAM.format("S", "s"), "r1")
    control.kill("node-1")
    log = control.configs["node-1"].paths.log / "quorum.log"
    data = bytearray(log.read_bytes())
    data[50] ^= 1
    log.write_bytes(data)
    control.start("node-1")
    assert control.processes["node-1"].wait(WAIT_S_MAX) == 1
    assert f"E-DATA-001 {log} is damaged at byte 16" in control.errors("node-1")
    assert control.execute("node-2", TABLE, "r2").status_code == 200


def test_pipelines_register_at_any_node_and_share_the_queries(shared: ControlCluster) -> None:
    def start(name: str, pipeline_id: str, request_id: str = "") -> int:
        body = {"pipeline_id": pipeline_id, "request_id": request_id}
        return int(shared.post(name, "/pipeline/start", body).json()["lease_epoch"])

    def renew(name: str, pipeline_id: str) -> bool:
        answer = shared.post(name, "/pipeline/renew", {"pipeline_id": pipeline_id}).json()
        return bool(answer["is_registered"])

    def holders() -> set[str]:
        leases = (shared.describe("node-1") or {})["leases"]
        return {lease["pipeline_id"] for lease in leases.values()}

    def both_renew() -> bool:
        return renew("node-1", "p") and renew("node-3", "q")

    shared.execute("node-1", STREAM.format("SHARED", "shared"), "shared-1")
    for number in (1, 2):
        table = TABLE.replace(" T ", f" SHARED_{number} ").replace("FROM S ", "FROM SHARED ")
        assert shared.execute("node-1", table, f"shared-t{number}").is_success
    first, second = start("node-1", "p"), start("node-2", "q", "x")
    assert second > first
    assert start("node-3", "q", "x") == second, "a retry is told the same"
    until("each has its share", lambda: both_renew() and holders() == {"p", "q"})
    until("q is silent for too long", lambda: renew("node-2", "p") and holders() == {"p"})
    assert not renew("node-3", "q"), "it finds out when it comes back"
    start("node-3", "q")
    until("a share again", lambda: both_renew() and holders() == {"p", "q"})
    shared.post("node-2", "/pipeline/leave", {"pipeline_id": "p"})
    until("at once", lambda: holders() == {"q"})
    page = shared.page("node-2", 1, wait_ms=0)
    assert [one.index for one in page.entries][-1] == page.last_index


def queries_of(cluster: ControlCluster, name: str) -> list[str]:
    return [query.query_id for query in cluster.snapshot(name).queries]


def test_what_a_pipeline_says_is_in_the_snapshot(shared: ControlCluster) -> None:
    shared.execute("node-1", STREAM.format("SAID", "said"), "said-1")
    table = TABLE.replace("TABLE T", "TABLE SAYS").replace("FROM S", "FROM SAID")
    made = shared.execute("node-1", table, "said-2").json()
    query_id = made["entities"][0]["commandStatus"]["queryId"]
    status = QueryStatus(
        query_id=query_id, state="RUNNING", lease_epoch=LeaseEpoch(1), batch=BatchId(3)
    )
    until("the table", lambda: query_id in queries_of(shared, "node-2"))
    answer = shared.client.post(
        shared._url("node-2", "/query-status"), content=msgspec.msgpack.encode([status])
    )
    assert answer.json() == {"ok": True}
    assert shared.snapshot("node-2").query_statuses == (status,)

    def shown() -> str:
        return shared.snapshot("node-2").query_statuses[0].state

    until("its pipeline to be silent for too long", lambda: shown() == "UNRESPONSIVE")


def test_sigterm_ends_each_process(control: ControlCluster) -> None:
    for process in control.processes.values():
        process.terminate()
    ended = [process.wait(WAIT_S_MAX) for process in control.processes.values()]
    assert ended == [0, 0, 0]


def test_internal_routes_want_the_secret(shared: ControlCluster) -> None:
    url = shared._url("node-1", "/describe")
    for headers in ({}, {"standpipe-secret": "wrong"}, {"standpipe-secret": SECRET}):
        reply = httpx2.get(url, headers=headers)
        assert (reply.status_code, reply.json()["error_code"]) == (401, 40100)
        assert ("older release" in reply.text) is bool(headers), "whoever upgrades is told so"
    with sealed_client("wrong") as http, pytest.raises(httpx2.ConnectError, match="secret"):
        http.get(url)
    with sealed_client(SECRET) as http:
        assert http.get(url).status_code == 200


def test_children_die_with_whoever_started_them(tmp_path: Path) -> None:
    cluster = ControlCluster(tmp_path, names=["node-1"])
    node_file = str(tmp_path / "node-1" / "node.json")
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'standpipe.node.controller.main', "
        f"'--node-file', {node_file!r}])\n"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        until("control", lambda: cluster.describe("node-1"))
        starter.kill()
    until("its end", lambda: not _lives(pid))
    cluster.close()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
