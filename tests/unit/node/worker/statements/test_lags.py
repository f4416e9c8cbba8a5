"""SHOW LAG: from the event to the committed batch, and to each replica; why a number is unknown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.data.commit.test_covered_offsets import batch
from tests.unit.node.workers import USERS, Worker, page

from standpipe.adapters.files import published
from standpipe.config.registry import load
from standpipe.data.commit.covered_offsets import CoveredBatches, ToldEnds, TopicOffsets
from standpipe.model import (
    NO_BATCH,
    OF_LOG,
    Assignment,
    BatchId,
    Health,
    LogIndex,
    NodeId,
    Offset,
    Placement,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
)
from standpipe.model_liveness import KnownLag, PeerLiveness, ReplicaLag
from standpipe.node.covered_files import CoveredFiles, covered_path, ends_path
from standpipe.node.liveness.peer_state import PeerState
from standpipe.node.worker.statements.lags import NO_BATCHES, LagScene, TableLag
from standpipe.node.worker.statements.show import AnswerTime, Scene

#: 2026-11-27T03:00:00Z, and what the boot clock says then
UNIX_MS, BOOT_MS = 1_795_748_400_000, 1_000_000
TABLE = msgspec.structs.replace(USERS, partitions=1)
ID = TABLE.replica_id(0)
PLACED = Placement(
    table_id="T1", generation=1, partition=0, replicas=(NodeId("a"), NodeId("b")),
    warmups=(NodeId("c"),),
)  # fmt: skip
COVERED = CoveredBatches(batches=(batch(7, 1, "", E=90),))


def own(**changed: Any) -> ReplicaStatus:
    """A replica that is current: Kafka was heard 100 ms ago, its sources 600 ms ago."""
    known: dict[str, Any] = {
        "confirmed_boot_ms": BOOT_MS - 100,
        "known_boot_ms": BOOT_MS - 100,
        "beat_boot_ms": BOOT_MS - 20,
        "source_boot_ms": BOOT_MS - 600,
        "watermark_ms": 5,
    }
    return msgspec.structs.replace(page(), **{**known, **changed})


def told(node: str, *, ago_ms: int = 0, **changed: Any) -> KnownLag:
    """What a peer reported `ago_ms` ago, which its heartbeats confirm."""
    lag = ReplicaLag(
        table_id="T1",
        generation=1,
        partition=0,
        position=Offset(100),
        committed_end=Offset(100),
        state=ReplicaState.RUNNING,
        batch=BatchId(7),
        replica_lag_ms=40,
        source_lag_ms=900,
    )
    return KnownLag(
        node_id=NodeId(node),
        lag=msgspec.structs.replace(lag, **changed),
        at_boot_ms=BOOT_MS - 10,
        reported_boot_ms=BOOT_MS - ago_ms,
    )


def ends(age_ms: int = 300, end: int = 93) -> ToldEnds:
    return ToldEnds(asked_boot_ms=BOOT_MS - age_ms, topics={"E": TopicOffsets(offsets={0: end})})


def lags(
    status: ReplicaStatus | None = None,
    *reported: KnownLag,
    told_ends: ToldEnds | None = None,
    covered: CoveredBatches = COVERED,
    liveness: tuple[PeerLiveness, ...] = (),
    me: str = "a",
) -> TableLag:
    snapshot = Snapshot(
        stamp=1,
        node_id=NodeId(me),
        service_id="",
        cluster_id="c",
        log_index=LogIndex(1),
        leader=NodeId(""),
        nodes=(),
        sources=(TABLE,),
        queries=(),
        assignment=Assignment(),
    )
    return LagScene(
        scene=Scene(
            snapshot=snapshot,
            settings=load({}),
            instant=AnswerTime(boot_ms=BOOT_MS, unix_ms=UNIX_MS),
            replicas={ID: status} if me in PLACED.holders else {},
        ),
        peers=PeerState(
            liveness={peer.node_id: peer for peer in liveness}, lags={ID: list(reported)}
        ),
        placements={ID: PLACED},
        ends=told_ends,
        covered=covered,
    ).of(TABLE)


def row(found: TableLag, node: str) -> Any:
    return next(each for each in found.replicas if each["node"] == node)


def test_from_the_event_to_each_replica() -> None:
    found = lags(own(), told("b", position=98, batch=6), told("c"), told_ends=ends())
    assert found.table == {
        "table": "USERS", "generation": 1, "queryId": "CTAS_USERS_1", "queryState": "TERMINATED",
        "batch": 7, "sourceBacklogRecords": 3, "sourceLagMs": 600, "watermarkMs": 5, "unknown": {},
    }  # fmt: skip
    assert [(each["node"], each["role"]) for each in found.replicas] == [
        ("a", "ACTIVE"),
        ("b", "STANDBY"),
        ("c", "WARM_UP"),
    ]
    assert row(found, "a") == {
        "table": "USERS", "partition": 0, "node": "a", "role": "ACTIVE", "state": "RUNNING",
        "position": 100, "committedEnd": 100, "offsetLag": 0, "replicaLagMs": 100,
        "sourceLagMs": 600, "batch": 7, "watermarkMs": 5, "ageMs": 20, "unknown": {},
    }  # fmt: skip
    behind = row(found, "b")
    assert (behind["offsetLag"], behind["replicaLagMs"], behind["sourceLagMs"]) == (2, 40, 900)
    assert behind["watermarkMs"] is None, "of a batch that no replica here shows"
    assert list(behind["unknown"]) == ["watermarkMs"]
    assert row(found, "c")["watermarkMs"] == 5, "one batch has one watermark"
    assert [(each["topic"], each["backlogRecords"]) for each in found.topics] == [("E", 3)]


def test_a_peers_lag_in_ms_grows_since_its_report() -> None:
    found = row(lags(None, told("b", ago_ms=2000)), "b")
    assert (found["replicaLagMs"], found["sourceLagMs"], found["ageMs"]) == (2040, 2900, 10)


#: Kafka was heard last 60 s ago
SILENT = own(confirmed_boot_ms=BOOT_MS - 60_000, known_boot_ms=BOOT_MS - 60_000)
DEAD = msgspec.structs.replace(SILENT, beat_boot_ms=BOOT_MS - 60_000)
MINUTE_AGO = "Unknown since 2026-11-27T02:59:00Z: "


@pytest.mark.parametrize(
    ("status", "reported", "lag", "why"),
    [
        (own(), (), 0, ""),
        (own(position=Offset(90)), (), 10, ""),
        (own(), (told("b", committed_end=Offset(130), position=Offset(130)),), 30, ""),
        (SILENT, (), None, MINUTE_AGO + "Kafka has not confirmed"),
        (DEAD, (), None, MINUTE_AGO + "this host's tailer has been silent"),
        (SILENT, (told("b"),), 0, ""),
        (SILENT, (told("b", replica_lag_ms=70_000),), None, MINUTE_AGO),
        (own(committed_end=Offset(-1)), (), None, "Nothing is committed"),
        (own(confirmed_boot_ms=0, known_boot_ms=0), (), None, "No replica has confirmed"),
    ],
    ids=[
        "current", "behind", "a peer knows of more", "Kafka is silent", "the tailer is dead",
        "a peer hears Kafka", "nor does a peer", "no end", "an end that nobody confirmed",
    ],
)  # fmt: skip
def test_lag_in_records(
    status: ReplicaStatus, reported: tuple[KnownLag, ...], lag: int | None, why: str
) -> None:
    found = row(lags(status, *reported), "a")
    assert found["offsetLag"] == lag
    assert found["unknown"].get("offsetLag", "").startswith(why)
    assert (found["committedEnd"] is None) == (lag is None)


def test_lags_in_ms_grow_while_kafka_is_silent() -> None:
    silent = msgspec.structs.replace(SILENT, source_boot_ms=BOOT_MS - 61_000)
    found = lags(silent, told_ends=ends(60_000))
    assert row(found, "a")["replicaLagMs"] == 60_000
    assert row(found, "a")["sourceLagMs"] == found.table["sourceLagMs"] == 61_000
    assert found.table["sourceBacklogRecords"] is None
    why: Any = found.table["unknown"]
    assert why["sourceBacklogRecords"].startswith(MINUTE_AGO + "Kafka has not said")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"me": "d"}, "d holds no replica"),
        ({"told_ends": None}, "Kafka has not said yet"),
        ({"covered": CoveredBatches()}, "Nothing is committed"),
    ],
)
def test_why_the_backlog_is_unknown(given: dict[str, Any], why: str) -> None:
    found = lags(own(), **{"told_ends": ends(), **given}).table
    assert found["sourceBacklogRecords"] is None
    unknown: Any = found["unknown"]
    assert why in unknown["sourceBacklogRecords"]


@pytest.mark.parametrize(
    ("beat_boot_ms", "health", "why"),
    [
        (BOOT_MS - 60_000, Health.DOWN, MINUTE_AGO + "its host sends no heartbeats."),
        (0, Health.DOWN, "Its host is down."),
        (BOOT_MS, Health.ALIVE, "Its host does not know it, or has not reported it."),
    ],
)
def test_a_peer_that_says_nothing_is_unknown(beat_boot_ms: int, health: Health, why: str) -> None:
    peer = PeerLiveness(node_id=NodeId("b"), health=health, beat_boot_ms=beat_boot_ms)
    reported = (told("b"),) if health is Health.DOWN else ()
    found = row(lags(own(), *reported, liveness=(peer,)), "b")
    assert [found[name] for name in ("state", "offsetLag", "replicaLagMs", "batch")] == [None] * 4
    assert found["unknown"]["offsetLag"] == why


def test_a_replica_that_is_not_there_yet_or_shows_no_whole_batch() -> None:
    absent = row(lags(None), "a")
    assert (absent["state"], absent["offsetLag"]) == ("ABSENT", None)
    torn = lags(own(batch=NO_BATCH, source_boot_ms=0, watermark_ms=0))
    assert row(torn, "a")["unknown"].keys() == {"batch", "sourceLagMs", "watermarkMs"}
    assert (torn.table["batch"], torn.table["sourceLagMs"]) == (None, None)


def test_the_statement_reads_the_files_of_the_tailer(tmp_path: Path) -> None:
    worker = Worker(tmp_path, "a", {})
    worker.publish(["a", "b"], {number: ["a", "b"] for number in range(4)})
    worker.hold(1, page())
    worker.hear(("b", 1, 90, 100))
    now_ms = worker.clock.boot_ms()
    told_ends = msgspec.structs.replace(ends(), asked_boot_ms=now_ms)
    published.write(ends_path(worker.paths.status), told_ends)
    view = worker.slow_path.map.view
    covered = CoveredFiles(worker.paths.status)
    covered.way(view.snapshot, USERS)
    way = covered._ways["T1", 1].digest
    published.write(
        covered_path(worker.paths.status, ("T1", 1)),
        msgspec.structs.replace(COVERED, way=way, log_index=view.snapshot.log_index),
    )
    statements = worker.statements()

    async def answered() -> list[Any]:
        body = msgspec.json.encode({"ksql": "SHOW LAG; SHOW LAG users;"})
        entities = [msgspec.json.decode(each) for each in await statements.carry_out(body)]
        await worker.close()
        return entities

    every, one = asyncio.run(answered())
    statements.lanes.close()
    assert (every["@type"], "topics" in every) == ("lag", False)
    assert one["topics"] == [
        {"table": "USERS", "topic": "E", "partition": 0, "end": 93, "covered": 90,
         "backlogRecords": 3}
    ]  # fmt: skip
    assert one["tables"][0]["sourceBacklogRecords"] == 3
    shown = {(each["partition"], each["node"]): each for each in one["replicas"]}
    assert len(shown) == 8, "replicas that nobody reported are there, too"
    assert shown[1, "a"]["offsetLag"] == 0
    assert shown[1, "b"]["offsetLag"] == 10
    assert shown[0, "a"]["state"] == "ABSENT"


def test_a_direct_table_has_no_query_and_no_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    direct = msgspec.structs.replace(TABLE, query_id=None, is_direct=True)
    monkeypatch.setitem(globals(), "TABLE", direct)
    found = lags(own(batch=OF_LOG, committed_end=Offset(103)), covered=CoveredBatches())
    unknown: Any = found.table["unknown"]
    assert (found.table["queryState"], found.table["batch"]) == (None, None)
    assert found.table["sourceLagMs"] == 600
    assert set(unknown) == {"queryState", "batch", "sourceBacklogRecords", "watermarkMs"}
    assert unknown["batch"] == NO_BATCHES
    assert row(found, "a")["offsetLag"] == 3
    assert row(found, "a")["unknown"]["batch"] == NO_BATCHES
