"""Bodies of /heartbeat and /lag: ksqlDB's and ours."""

from __future__ import annotations

import msgspec
from tests.e2e.test_serve import USERS, status

from standpipe.control.liveness.lag import Ledger, Reporter, digest_of
from standpipe.model import NodeId, NodeInfo, Record
from standpipe.model_liveness import ReplicaLag
from standpipe.node.liveness.wire import (
    Beat,
    BeatExtra,
    LagReport,
    delta_of,
    lag_of,
    node_named,
    store_lags,
    store_name,
)

NODE = NodeInfo(node_id=NodeId("a"), public="h:1", internal="h:2", peer="h:4", incarnation="x")


def test_a_beat_of_ksqldb() -> None:
    beat = msgspec.json.decode(b'{"hostInfo":"h:1","timestamp":5}', type=Beat)
    assert (beat.hostInfo, beat.timestamp, beat.standpipe) == ("h:1", 5, None)


def test_a_beat_of_ours_is_one_that_ksqldb_would_read() -> None:
    reporter = Reporter(session=1)
    reporter.observe([lag_of(("T1", 1, p), status(), 10**12) for p in range(100)])
    extra = BeatExtra(node_id=NODE.node_id, incarnation="x", lags=reporter.delta(0))
    encoded = msgspec.json.encode(Beat(hostInfo="h:1", timestamp=5, standpipe=extra))
    assert msgspec.json.decode(encoded)["hostInfo"] == "h:1"
    assert len(encoded) < 1200, "within one packet"
    assert msgspec.json.decode(encoded, type=Beat).standpipe == extra


def test_a_lag_report_of_ksqldb() -> None:
    info = {"currentOffsetPosition": 100_000, "endOffsetPosition": 107_000, "offsetLag": 7000}
    stores = {store_name(USERS): {"lagByPartition": {"2": info}}, "gone#x": {"lagByPartition": {}}}
    lags = {"updateTimeMs": 9, "stateStoreLags": stores}
    body = msgspec.json.encode({"ksqlHost": "h:1", "hostStoreLags": lags})
    report = msgspec.json.decode(body, type=LagReport)
    delta = delta_of(report, [USERS])
    ledger = Ledger()
    ledger.members({NODE.node_id: "x"})
    assert ledger.take(NODE.node_id, "x", delta, at_ms=1) == 9
    (known,) = ledger.known()
    assert (known.lag.table_id, known.lag.partition) == ("T1", 2)
    assert (known.lag.position, known.lag.committed_end) == (100_000, 107_000)
    older = msgspec.structs.replace(delta, through=8)
    assert ledger.take(NODE.node_id, "x", older, at_ms=2) == 9, "the newest updateTimeMs wins"


def test_lags_by_store_and_partition() -> None:
    lags = [
        lag_of(("T1", 1, 0), status(position=93, committed_end=100), 0),
        lag_of(("T1", 1, 1), status(committed_end=-1), 0),
        lag_of(("T9", 1, 0), status(), 0),
    ]
    found = msgspec.json.decode(msgspec.json.encode(store_lags(lags, {("T1", 1): USERS})))
    info = {"currentOffsetPosition": 93, "endOffsetPosition": 100, "offsetLag": 7}
    assert found == {store_name(USERS): {"lagByPartition": {"0": info}}}, "unknown is left out"


def test_a_lag_in_ms_counts_from_the_last_confirmed_instant() -> None:
    page = status(confirmed_boot_ms=1000)
    assert lag_of(("T1", 1, 0), page, 1500).replica_lag_ms == 500
    never = status(confirmed_boot_ms=0)
    assert lag_of(("T1", 1, 0), never, 1500).replica_lag_ms is None


def test_a_source_lag_is_reported_if_this_nodes_own_clock_says_it() -> None:
    page = status(source_boot_ms=1000, source_instant_ms=7)
    assert lag_of(("T1", 1, 0), page, 1500).source_lag_ms == 500
    undated = status(source_boot_ms=0, source_instant_ms=7)
    assert lag_of(("T1", 1, 0), undated, 1500).source_lag_ms is None, "the pipeline's clock"


class _OlderLag(Record, frozen=True, kw_only=True, array_like=True):
    """A lag as a release before source lags reads and writes it."""

    table_id: str
    generation: int
    partition: int
    position: int
    committed_end: int
    state: int
    batch: int
    replica_lag_ms: int | None = None
    store_bytes: int = 0


def test_an_older_release_reads_a_lag_and_is_read() -> None:
    lag = lag_of(("T1", 1, 0), status(source_boot_ms=1000), 1500, store_bytes=8)
    older = msgspec.json.decode(msgspec.json.encode(lag), type=_OlderLag)
    assert (older.position, older.store_bytes) == (lag.position, 8)
    back = msgspec.json.decode(msgspec.json.encode(older), type=ReplicaLag)
    assert (back.store_bytes, back.source_lag_ms) == (8, None)
    assert digest_of([back]) == digest_of([lag]), "what both know is the same"


def test_a_member_is_known_by_each_of_its_addresses() -> None:
    for host in ("h:1", "h:2", "h:4"):
        assert node_named(host, [NODE]) is NODE
    assert node_named("h:3", [NODE]) is None
