"""What must be in the topics afterwards: the suite whose cases name final rows and records."""

from __future__ import annotations

import struct
from typing import Any

from tests.conformance import records as formats
from tests.conformance.cases import Outcome
from tests.conformance.schemas import columns_of
from tests.conformance.statements import Session
from tests.conformance.verdict import shown
from tests.conformance.world import Record

from standpipe.model import Source
from standpipe.sql.declarations import formats as sql_formats


def judge(session: Session, topics: dict[str, list[Record]]) -> Outcome:
    """Compare every topic that the case names. `topics`: their records, names without prefix."""
    data = session.case.data
    for topic, expected in data["expected_final"].items():
        source = session.by_topic.get(topic)
        if source is None:
            return Outcome("failed", f"no stream or table writes topic {topic}")
        rows = [_row(source, record) for record in topics.get(topic, [])]
        if data["sink_kind"][topic] == "TABLE":
            rows = _final(rows)
            expected = sorted(expected, key=_order)
        elif "join_output_order" in (data.get("order_notes") or ()):
            # within a batch a join has no order of its own
            expected, rows = sorted(expected, key=_loosely), sorted(rows, key=_loosely)
        if (why := _differs(source, expected, rows)) is not None:
            return Outcome("failed", f"{topic}: {why}")
    for wanted in data.get("expected_sources") or ():
        if (why := _source_differs(session, wanted)) is not None:
            return Outcome("failed", why)
    return Outcome("passed")


def _row(source: Source, record: Record) -> dict[str, Any]:
    raw, window = record.key, None
    if source.window is not None and raw is not None:
        if source.window.kind == "SESSION":
            end, start = struct.unpack(">qq", raw[-16:])
            raw, window = raw[:-16], {"start": start, "end": end}
        else:
            (start,) = struct.unpack(">q", raw[-8:])
            raw, window = raw[:-8], {"start": start, "end": start + source.window.size_ms}
    return {
        "key": formats.decode(raw, source.key_format, source.key_columns),
        "value": formats.decode(record.value, source.value_format, source.value_columns),
        "window": window,
        "timestamp": formats.rowtime_ms(record),
    }


def _final(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    newest = {_order(row): row for row in rows}
    return [newest[key] for key in sorted(newest) if newest[key]["value"] is not None]


def _order(row: dict[str, Any]) -> str:
    window = row.get("window")
    return shown([row["key"], [window["start"], window["end"]] if window else None])


def _loosely(row: dict[str, Any]) -> str:
    value = row["value"]
    folded = {n.upper(): v for n, v in value.items()} if isinstance(value, dict) else value
    return shown([row["key"], folded])


def _differs(
    source: Source, expected: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> str | None:
    for number, (wanted, row) in enumerate(zip(expected, rows, strict=False)):
        asked = {**wanted, "window": _bounds(wanted.get("window"))}
        same = {
            "key": "key" not in asked or formats.is_same_key(source, asked["key"], row["key"]),
            "value": formats.is_same_value(source, asked.get("value"), row["value"]),
            "timestamp": asked.get("timestamp", row["timestamp"]) == row["timestamp"],
            "window": asked["window"] == row["window"],
        }
        for name in (name for name, is_same in same.items() if not is_same):
            return f"row {number}: {name} {shown(row[name])}, expected {shown(asked.get(name))}"
    if len(expected) != len(rows):
        listed = shown([[row["key"], row["value"]] for row in rows])
        return f"{len(rows)} rows, expected {len(expected)}: {listed}"
    return None


def _bounds(window: dict[str, Any] | None) -> dict[str, int] | None:
    return window and {"start": window["start"], "end": window["end"]}


def _source_differs(session: Session, wanted: dict[str, Any]) -> str | None:
    source = session.catalog.sources.get(wanted["name"])
    if source is None:
        return f"source {wanted['name']} does not exist"
    if source.kind.lower() != str(wanted.get("type", source.kind)).lower():
        return f"{source.name} is a {source.kind}"
    if wanted.get("isSource", source.is_read_only) != source.is_read_only:
        return f"{source.name}: isSource is not {wanted['isSource']}"
    schema, own = wanted.get("schema"), sql_formats.schema_text(source.columns)
    if schema is not None and columns_of(schema) != columns_of(own):
        return f"{source.name} has schema {own}, expected {schema}"
    return None
