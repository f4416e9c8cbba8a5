"""SHOW LAG as a person reads it."""

from __future__ import annotations

import pytest
from tests.unit.local.cli.test_sql_output import shown

from standpipe.local.cli.sql_output import print_entity

TABLE = {
    "table": "VISITS", "queryState": "RUNNING", "batch": 41, "sourceBacklogRecords": 1200,
    "sourceLagMs": 640, "watermarkMs": 1_795_748_400_000, "unknown": {},
}  # fmt: skip
REPLICA = {
    "table": "VISITS", "partition": 0, "node": "node-1", "role": "ACTIVE", "state": "RUNNING",
    "offsetLag": 0, "replicaLagMs": 12, "sourceLagMs": 640, "batch": 41, "unknown": {},
}  # fmt: skip
WHY = "Unknown since 2026-11-27T02:59:00Z: its host sends no heartbeats."


def lag(*replicas: dict[str, object], **more: object) -> dict[str, object]:
    return {"@type": "lag", "tables": [TABLE], "replicas": [REPLICA, *replicas], **more}


@pytest.mark.parametrize(
    ("unix_ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_765_588_800_000_000, "57919-04-14T13:20:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (253_402_300_800_000, "10000-01-01T00:00:00Z"),
        (None, "unknown"),
    ],
)
def test_a_watermark_beyond_the_calendar_of_python(unix_ms: int | None, text: str) -> None:
    """A producer stamped a record in microseconds."""
    entity = {**lag(), "tables": [{**TABLE, "watermarkMs": unix_ms}]}
    assert text in shown(print_entity, entity, as_json=False)


def test_tables_and_replicas() -> None:
    lines = shown(print_entity, lag(), as_json=False).splitlines()
    table = next(line for line in lines if "VISITS " in line)
    for words in ("RUNNING", "batch 41", "1,200 records", "640 ms", "2026-11-27T03:00:00Z"):
        assert words in table
    replica = next(line for line in lines if "VISITS/0" in line)
    for words in ("node-1", "active", "batch 41", "0 records", "12 ms"):
        assert words in replica


def test_what_is_unknown_says_why_once() -> None:
    fields = ("offsetLag", "replicaLagMs")
    silent = [
        {
            **REPLICA,
            "partition": number,
            "node": "node-2",
            "state": None,
            **dict.fromkeys(fields),
            "unknown": dict.fromkeys(fields, WHY),
        }
        for number in range(6)
    ]
    text = shown(print_entity, lag(*silent), as_json=False)
    assert text.count(WHY) == 1
    assert "VISITS/0 on node-2 (offsetLag, replicaLagMs), VISITS/1 on node-2" in text
    assert "and 2 more: " + WHY in text
    assert "unknown" in next(line for line in text.splitlines() if "VISITS/5" in line)


def test_topics_and_no_tables() -> None:
    topic = {"topic": "clicks", "partition": 3, "end": 1007, "covered": 1000, "backlogRecords": 7}
    lines = shown(print_entity, lag(topics=[topic]), as_json=False).splitlines()
    line = next(each for each in lines if "clicks" in each)
    assert line.split() == ["clicks", "3", "1,007", "1,000", "7"]
    empty = {"@type": "lag", "tables": [], "replicas": []}
    assert shown(print_entity, empty, as_json=False) == "no tables\n"
