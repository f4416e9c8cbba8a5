"""The SELECTs of a case through a worker's own code: plan, route, stores that the tailer filled."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from tests.conformance import records as formats
from tests.conformance.cases import Outcome
from tests.conformance.schemas import columns_of
from tests.conformance.statements import NOT_SUPPORTED, Session
from tests.conformance.verdict import is_same_multiset, is_within, shown
from tests.conformance.world import NODE, Record, World

from standpipe.adapters.files import published
from standpipe.adapters.http.peer_client import PeerClient
from standpipe.adapters.metrics import Metrics
from standpipe.control.routing.hedge_budget import Budget, ForwardLatency
from standpipe.errors import SqlSyntaxError, StandpipeError
from standpipe.model import Source
from standpipe.node.liveness.peer_state import PeerStateReader
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.hedging import HedgedReads
from standpipe.node.worker.pull.route_cache import RouteCache
from standpipe.node.worker.pull.slow_path import SlowPath
from standpipe.node.worker.pull.stream_pull import StreamPulls
from standpipe.node.worker.request.cluster_view import Map, Replicas
from standpipe.node.worker.request.head import Form


def open_pulls(world: World, session: Session) -> SlowPath:
    """A worker that sees the sources of this case only, over the one node's stores."""
    directory = world.directory / "maps"
    directory.mkdir(exist_ok=True)
    path = directory / session.prefix
    sources = [session.physical(source) for source in session.catalog.sources.values()]
    published.write(path, world.snapshot(sources))
    replicas = Replicas(world.node.paths.state, world.node.paths.status)
    forwarder = Forwarder(PeerClient({}), 1000, 1000)
    peers = PeerStateReader(world.node.paths.liveness, world.node.paths.lags, world.config)
    return SlowPath(
        node_id=NODE,
        map=Map(path, replicas),
        replicas=replicas,
        forwarder=forwarder,
        metrics=Metrics(0, world.directory),
        routes=RouteCache(NODE, world.config, forwarder, peers),
        hedged_reads=HedgedReads(Budget(0), Budget(0), ForwardLatency()),
        forward_timeout_ms=1000,
        routing_timeout_ms=1000,
        scan_timeout_ms=30_000,
        stream_pulls=StreamPulls(world.servers),
    )


async def judge(session: Session, pulls: SlowPath) -> Outcome:
    """Send every SELECT and compare header, rows, final message or refusal."""
    data = session.case.data
    wanted = {answer["statement"]: answer for answer in data["responses"] if "rows" in answer}
    refusal = session.case.refusal
    if others := wanted.keys() - {number for number, _ in session.selects}:
        return Outcome("failed", f"statements {sorted(others)} are no queries")
    for number, text in session.selects:
        try:
            items = await _items(pulls, text, data)
        except StandpipeError as error:
            if refusal is not None and number == len(session.case.statements) - 1:
                return judge_refusal(refusal, error)
            return refused_wrongly(error, text)
        if number in wanted:
            why = _differs(wanted[number], items)
            if why is not None and data.get("storage_order_dependent"):
                all_items = await _items(pulls, _LIMIT.sub("", text), data)
                why = _is_no_part(wanted[number], items, all_items)
            if why is not None:
                return Outcome("failed", f"{text} {why}")
    if refusal is not None:
        return Outcome("failed", f"not refused, expected: {refusal['message_contains']}")
    return Outcome("passed")


_CODES = {"statement_error": 40001, "generic_error": 40000}
_LIMIT = re.compile(r"\s+LIMIT\s+\d+", re.IGNORECASE)


async def _items(pulls: SlowPath, text: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    body = {"ksql": text, "streamsProperties": data["properties"]}
    answer = await pulls.answer(RequestFormat(Form.ARRAY), json.dumps(body).encode())
    return list(json.loads(answer.body, parse_float=Decimal))


def _is_no_part(
    wanted: dict[str, Any], items: list[dict[str, Any]], all_items: list[dict[str, Any]]
) -> str | None:
    """Which rows a LIMIT leaves depends on the store: as many, out of what there is without it."""
    types = [column.type for column in columns_of(wanted["schema"])]
    rows, all_rows = _rows(items), _rows(all_items)
    if items[0]["header"]["schema"] != wanted["schema"]:
        return f"schema {items[0]['header']['schema']}, expected {wanted['schema']}"
    if len(rows) != len(wanted["rows"]):
        return f"{len(rows)} rows, expected {len(wanted['rows'])}"
    for some in (rows, wanted["rows"]):
        if not is_within(some, all_rows, types):
            return f"rows {shown(some)} are not among {shown(all_rows)}"
    return None


def _rows(items: list[dict[str, Any]]) -> list[list[Any]]:
    return [item["row"]["columns"] for item in items if "row" in item]


def judge_refusal(refusal: dict[str, Any], error: StandpipeError) -> Outcome:
    """Whether an error says what the case wants, under the status that it wants."""
    contained = refusal.get("message_contains") or []
    texts = [contained] if isinstance(contained, str) else list(contained)
    missing = [text for text in texts if text not in error.message]
    if error.message.endswith(NOT_SUPPORTED) and (missing or not texts):
        return Outcome("skipped", error.message)
    if missing:
        return Outcome("failed", f"says {error.message!r}, expected {missing[0]!r}")
    if not texts and not isinstance(error, SqlSyntaxError):
        return Outcome("failed", f"says {error.message!r}, expected that it cannot be parsed")
    code = _CODES.get(str(refusal.get("@type")), error.code)
    if code != error.code:
        return Outcome("failed", f"error code {error.code}, expected {code}")
    status = refusal.get("http_status", refusal.get("status", error.status))
    if status != error.status:
        return Outcome("failed", f"status {error.status}, expected {status}")
    return Outcome("passed")


def refused_wrongly(error: StandpipeError, text: str) -> Outcome:
    if error.message.endswith(NOT_SUPPORTED):
        return Outcome("skipped", error.message)
    return Outcome("failed", f"refused: {error.message} [{text[:200]}]")


def _differs(wanted: dict[str, Any], items: list[dict[str, Any]]) -> str | None:
    schema, rows = items[0]["header"]["schema"], _rows(items)
    if schema != wanted["schema"]:
        return f"schema {schema}, expected {wanted['schema']}"
    final = next((item["finalMessage"] for item in items if "finalMessage" in item), None)
    types = [column.type for column in columns_of(schema)]
    if not is_same_multiset(wanted["rows"], rows, types):
        return f"rows {shown(rows)}, expected {shown(wanted['rows'])}"
    if final != wanted.get("final_message"):
        return f"final message {final}, expected {wanted.get('final_message')}"
    return None


def judge_records(session: Session, topics: dict[str, list[Record]]) -> Outcome:
    """Records that INSERT must have written, in order; of a table that a query of ours writes, the
    last of each key: it puts out what a batch changed, not each step on the way."""
    wanted: dict[str, list[dict[str, Any]]] = {}
    for each in session.case.data.get("expected_records") or ():
        wanted.setdefault(each["topic"], []).append(each)
    for topic, expected in wanted.items():
        source = session.by_topic[topic]
        found = [_said(source, record) for record in topics.get(topic, [])]
        if source.kind == "TABLE" and source.query_id is not None:
            expected, found = _last(expected), _last(found)
        if len(found) != len(expected):
            return Outcome("failed", f"{topic} has {len(found)} records")
        for one, said in zip(expected, found, strict=False):
            same = {
                "key": formats.is_same_key(source, one.get("key"), said["key"]),
                "value": formats.is_same_value(source, one.get("value"), said["value"]),
                "timestamp": one.get("timestamp", said["timestamp"]) == said["timestamp"],
            }
            for name in (name for name, is_same in same.items() if not is_same):
                asked = shown(one.get(name))
                return Outcome("failed", f"{topic} {name} {shown(said[name])}, expected {asked}")
    return Outcome("passed")


def _said(source: Source, record: Record) -> dict[str, Any]:
    key = formats.decode(record.key, source.key_format, source.key_columns)
    value = formats.decode(record.value, source.value_format, source.value_columns)
    return {"key": key, "value": value, "timestamp": formats.rowtime_ms(record)}


def _last(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    newest = {shown(row.get("key")): row for row in rows}
    return [newest[key] for key in sorted(newest)]
