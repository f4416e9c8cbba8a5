"""The short way of a lookup against the general one: the same requests, pauses, rows and errors.

Both get the same client and the same scripted nodes, and each step is written down. The general way
is the second, simple implementation; it is told nothing of the short one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.client.core.test_tables import WINDOW, shape_of

from standpipe.client.core.exchange import (
    HttpAnswer,
    HttpRequest,
    NoAnswer,
    Operation,
    Outcome,
    Pause,
    SendAll,
    plain_answer,
)
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.operations import MEMBERS_AGE_S_MAX, Operations
from standpipe.client.core.rows import Row
from standpipe.client.core.settings import Settings
from standpipe.client.core.short_way import UNUSUAL, ShortWay
from standpipe.client.core.tables import SourceShape, TableMap
from standpipe.errors import NodeLeaving, NotReady, StandpipeError

MEMBERS = {"node-a": "a:1", "node-b": "b:1", "node-c": "c:1"}
HOLDERS = (("a:1", "b:1"), ("b:1", "c:1"), ("c:1", "a:1"))
HEAD = (
    '{"queryId":"query_17","columnNames":["K0","n","M"],"columnTypes":["STRING","BIGINT","DATE"]}\n'
)
ROW = '["k",5,"2020-02-29"]\n'
STEP_S = 0.01


def answered(body: str, served_by: str = "*", status: int = 200, **headers: str) -> HttpAnswer:
    """`served_by` "*": whoever is asked."""
    lines = {"standpipe-served-by": served_by, "standpipe-batch": "7", **headers}
    return HttpAnswer(status, {n: v for n, v in lines.items() if v}, body.encode())


def refused(status: int, code: int, again: str = "") -> HttpAnswer:
    body = {"@type": "generic_error", "error_code": code, "message": "no"}
    headers = {"retry-after": again} if again else {}
    return answered(json.dumps(body), "", status, **headers)


STATEMENT_ERROR = '{"@type":"statement_error","error_code":40001,"message":"what?"}'
OUTCOMES: dict[str, Outcome] = {
    "a row": answered(HEAD + ROW),
    "no row": answered(HEAD),
    "a row of another node": answered(HEAD + ROW, "node-b"),
    "a row of a stranger": answered(HEAD + ROW, "node-z"),
    "a row of nobody": answered(HEAD + ROW, ""),
    "gathered": answered(HEAD + ROW, "node-a, node-b"),
    "several rows": answered(HEAD + ROW + ROW),
    "an error after the head": answered(HEAD + '{"error_code":50305,"message":"late"}\n'),
    "an error after a row": answered(HEAD + ROW + '{"error_code":50305,"message":"late"}\n'),
    "a statement's error after the head": answered(HEAD + STATEMENT_ERROR + "\n"),
    "a token nobody asked for": answered(HEAD + '{"consistencyToken":"x"}\n'),
    "a row without its end": answered(HEAD + ROW[:-1]),
    "half a row": answered(HEAD + '["k",5\n'),
    "two rows in a line": answered(HEAD + '["k",5,"2020-02-29"],["k",5,"2020-02-29"]\n'),
    "too few cells": answered(HEAD + '["k"]\n'),
    "no date": answered(HEAD + '["k",5,"x"]\n'),
    "null": answered(HEAD + "[null,null,null]\n"),
    "no head": answered("fine"),
    "nothing": answered(""),
    "a blank line": answered(HEAD + "\n"),
    "a statement's error": answered(STATEMENT_ERROR, "", 400),
    "not found": answered("Not Found", "", 404),
    "broken": refused(500, 50000),
    "another 2xx": answered(HEAD + ROW, status=206),
    "leaving": refused(503, NodeLeaving.code, "1"),
    "not ready": refused(503, NotReady.code, "1"),
    "not ready for long": refused(503, NotReady.code, "60"),
    "too many": refused(429, 42900, "2"),
    "refused": NoAnswer("connection refused", was_sent=False),
    "silent": NoAnswer("no answer within 500 ms", was_sent=True),
}


@dataclass
class Told:
    """One client and its scripted nodes. `log`: each step, and how it ended."""

    outcomes: list[Outcome]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    shape: SourceShape = field(default_factory=lambda: shape_of("STRING", key_format="KAFKA"))
    now_s: float = 100.0
    log: list[object] = field(default_factory=list[object])

    def __post_init__(self) -> None:
        self.nodes = Nodes(("a:1",))
        made = Operations(self.nodes, lambda: self.now_s, Settings(**self.options))
        self.operations = made
        self.short = ShortWay(made)
        if made.settings.finds_members:
            self.nodes.learn(MEMBERS)
            made._members_s = self.now_s
        holders = HOLDERS if made.settings.finds_members else ()
        self.table = made._tables["T"] = TableMap(self.shape, holders, self.now_s - 50)
        made._shapes["T"] = self.shape

    def general(self, key: dict[str, object], timeout_s: float | None = None) -> list[object]:
        self._end(lambda: self._run(self.operations.get("T", key, timeout_s)))
        return self.log

    def short_first(self, key: dict[str, object], timeout_s: float | None = None) -> list[object]:
        """As both clients go: the short way, then the general one from where it got to."""

        def go() -> Row | None:
            first = self.short.begin("T", key, timeout_s)
            if first is None:
                return self._run(self.operations.get("T", key, timeout_s))
            outcome = self._send(first.request)
            row = self.short.row_of(first, outcome)
            if row is not UNUSUAL:
                self.log.append("short")
                return row
            return self._run(self.operations.get("T", key, timeout_s, (first, outcome)))

        self._end(go)
        return self.log

    def _run(self, operation: Operation[Row | None]) -> Row | None:
        fact: Any = None
        while True:
            try:
                order = operation.send(fact)
            except StopIteration as ended:
                return ended.value
            if isinstance(order, SendAll):
                fact = [self._send(request) for request in order.requests]
            else:
                assert isinstance(order, Pause)
                self.log.append(("pause", round(order.seconds, 6)))
                self.now_s += order.seconds
                fact = None

    def _send(self, request: HttpRequest) -> Outcome:
        shown = (request.address, request.path, request.body, request.accept)
        self.log.append((*shown, round(request.timeout_s, 6), request.is_repeatable))
        self.now_s += STEP_S
        if request.path == "/ksql":
            return answered(json.dumps([{"sourceDescription": {}}]))  # an error, of both ways
        outcome = self.outcomes.pop(0) if self.outcomes else OUTCOMES["a row"]
        if isinstance(outcome, HttpAnswer) and outcome.headers.get("standpipe-served-by") == "*":
            node_id = {address: each for each, address in MEMBERS.items()}[request.address]
            headers = {**outcome.headers, "standpipe-served-by": node_id}
            return HttpAnswer(outcome.status, headers, outcome.body)
        return outcome

    def _end(self, go: Any) -> None:
        try:
            row = go()
            self.log.append(row and (row.columns, row.as_tuple, row.freshness, row.is_deleted))
        except StandpipeError as error:
            self.log.append((type(error), str(error), vars(error)))
        self.log.append(vars(self.nodes) | {"seeds": 0})
        made = self.operations
        self.log.append((self.table.is_old, made._has_strangers, sorted(made._tables)))


@given(
    names=st.lists(st.sampled_from(sorted(OUTCOMES)), min_size=1, max_size=6),
    key=st.sampled_from(["k", "näme", "", "x" * 600, "o'Hara", 'a"b', "\0"]),
    timeout_s=st.sampled_from([None, 0.0, 0.3, 3.0]),
)
@settings(max_examples=examples(150), deadline=None)
def test_it_ends_as_the_general_way_does(
    names: list[str], key: str, timeout_s: float | None
) -> None:
    outcomes = [OUTCOMES[name] for name in names]
    wanted = Told([*outcomes]).general({"k0": key}, timeout_s)
    found = Told([*outcomes]).short_first({"k0": key}, timeout_s)
    assert [each for each in found if each != "short"] == wanted


@pytest.mark.parametrize("name", sorted(OUTCOMES))
def test_each_outcome(name: str) -> None:
    wanted = Told([OUTCOMES[name]]).general({"k0": "k"})
    found = Told([OUTCOMES[name]]).short_first({"k0": "k"})
    is_short = "short" in found
    assert [each for each in found if each != "short"] == wanted
    assert is_short == (name in {"a row", "no row", "a row of nobody", "null"})


@given(
    key=st.text(max_size=40) | st.integers() | st.booleans() | st.floats() | st.none(),
    key_type=st.sampled_from(["STRING", "BIGINT", "INTEGER", "DOUBLE", "DECIMAL(9, 2)"]),
    key_format=st.sampled_from(["KAFKA", "JSON"]),
)
@settings(max_examples=examples(300), deadline=None)
def test_the_first_request_of_any_key(key: object, key_type: str, key_format: str) -> None:
    shape = shape_of(key_type, key_format=key_format)
    first = Told([], shape=shape).short.begin("T", {"k0": key}, None)
    if first is not None:
        wanted = Told([], shape=shape).general({"k0": key})
        request = first.request
        shown = (request.address, request.path, request.body, request.accept)
        assert (*shown, request.timeout_s, request.is_repeatable) == wanted[0]


@pytest.mark.parametrize(
    ("key_type", "key"),
    [("STRING", "k1"), ("STRING", ""), ("STRING", "näme ?"), ("BIGINT", -(2**63)), ("INTEGER", 5)],
)
@pytest.mark.parametrize("spelling", ["K0", "k0", "`K0`"])
def test_usual_keys_take_it(key_type: str, key: object, spelling: str) -> None:
    told = Told([], shape=shape_of(key_type, key_format="KAFKA"))
    assert told.short.begin("t", {spelling: key}, None) is not None


def test_bounds_and_patience_are_in_the_request() -> None:
    options = {"lag_records_max": 5, "source_lag_ms_max": 7, "patience_s": 0.25}
    wanted = Told([], options).general({"k0": "k"})
    found = Told([], options).short_first({"k0": "k"})
    assert found[1] == "short"
    assert found[0] == wanted[0]
    assert b'"properties":{"ksql.query.pull.max.allowed.offset.lag":5,' in found[0][2]  # pyright: ignore[reportIndexIssue]


def test_a_key_at_level_snapshot_takes_it() -> None:
    """A key is of one batch as it is, so no node waits for others."""
    options = {"consistency": "snapshot"}
    found = Told([], options).short_first({"k0": "k"})
    assert found[1] == "short"
    assert found[0] == Told([], options).general({"k0": "k"})[0]
    assert b'"properties":{"standpipe.read.consistency":"snapshot"}' in found[0][2]  # pyright: ignore[reportIndexIssue]


def suspected(told: Told) -> None:
    told.nodes.failed("c:1", told.now_s)


def busy(told: Told) -> None:
    told.nodes.hold("c:1", told.now_s + 1)


def outdated(told: Told) -> None:
    told.table.is_old = True


def unknown(told: Told) -> None:
    told.operations._tables.clear()


def members_due(told: Told) -> None:
    told.now_s += MEMBERS_AGE_S_MAX + 1


def nothing(told: Told) -> None:
    pass


@pytest.mark.parametrize(
    ("prepare", "options", "shape", "key", "why"),
    [
        (suspected, {}, ("STRING",), {"k0": "k"}, "the order of nodes is to be decided"),
        (busy, {}, ("STRING",), {"k0": "k"}, "a node asked to be left alone"),
        (outdated, {}, ("STRING",), {"k0": "k"}, "the map is to be read again"),
        (unknown, {}, ("STRING",), {"k0": "k"}, "the map is to be read"),
        (members_due, {}, ("STRING",), {"k0": "k"}, "the members are to be read"),
        (nothing, {"session": ""}, ("STRING",), {"k0": "k"}, "a session sends and takes tokens"),
        (nothing, {"consistency": "linearizable"}, ("STRING",), {"k0": "k"}, "a node may wait"),
        (nothing, {"finds_members": False}, ("STRING",), {"k0": "k"}, "there are no owners"),
        (nothing, {}, ("STRING", "INTEGER"), {"k0": "k", "k1": 1}, "several columns"),
        (nothing, {}, ("STRING", "INTEGER"), {"k0": "k"}, "the key is not whole"),
        (nothing, {}, ("STRING",), {"n": "k"}, "not a column of the key"),
        (nothing, {}, ("STRING",), {"nope": "k"}, "no column"),
        (nothing, {}, ("STRING",), {"k0": "o'Hara"}, "SQL escapes it"),
        (nothing, {}, ("STRING",), {"k0": 'a"b'}, "JSON escapes it"),
        (nothing, {}, ("STRING",), {"k0": "a\\b"}, "JSON escapes it"),
        (nothing, {}, ("STRING",), {"k0": "a\nb"}, "JSON escapes it"),
        (nothing, {}, ("STRING",), {"k0": "\ud800"}, "no UTF-8"),
        (nothing, {}, ("STRING",), {"k0": 5}, "another type"),
        (nothing, {}, ("BIGINT",), {"k0": True}, "another type"),
        (nothing, {}, ("BIGINT",), {"k0": 2**63}, "no value of the column"),
        (nothing, {}, ("DOUBLE",), {"k0": 1.5}, "its literal is not its digits"),
    ],
)  # fmt: skip
def test_what_takes_the_general_way(
    prepare: Any, options: dict[str, Any], shape: tuple[str, ...], key: dict[str, object], why: str
) -> None:
    told = Told([], options, shape_of(*shape, key_format="KAFKA"))
    prepare(told)
    assert told.short.begin("T", key, None) is None, why


def test_a_window_takes_the_general_way() -> None:
    told = Told([], shape=shape_of("STRING", key_format="KAFKA", window=WINDOW))
    assert told.short.begin("T", {"k0": "k"}, None) is None, "a key has many rows"


def test_a_table_that_was_made_anew_has_other_requests() -> None:
    told = Told([])
    before = told.short.begin("T", {"k0": "5"}, None)
    told.operations._tables["T"] = TableMap(shape_of("BIGINT", key_format="KAFKA"), HOLDERS, 99.0)
    assert told.short.begin("T", {"k0": "5"}, None) is None
    after = told.short.begin("T", {"k0": 5}, None)
    assert before is not None
    assert after is not None
    assert (b"= '5';" in before.request.body, b"= 5;" in after.request.body) == (True, True)


def test_an_answer_ends_a_suspicion_that_another_call_had_meanwhile() -> None:
    told = Told([])
    first = told.short.begin("T", {"k0": "k"}, None)
    assert first is not None
    told.nodes.failed(first.request.address, told.now_s)
    node_id = {address: each for each, address in MEMBERS.items()}[first.request.address]
    assert isinstance(told.short.row_of(first, answered(HEAD + ROW, node_id)), Row)
    assert told.nodes.are_well


def test_an_answer_as_it_comes_from_a_connection() -> None:
    told = Told([])
    first = told.short.begin("T", {"k0": "k"}, None)
    assert first is not None
    node_id = {address: each for each, address in MEMBERS.items()}[first.request.address]
    lines = f"standpipe-served-by: {node_id}\r\nstandpipe-batch: 7\r\n"
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(HEAD + ROW)}\r\n{lines}\r\n"
    found = plain_answer((head + HEAD + ROW).encode())
    assert found is not None
    row = told.short.row_of(first, found[0])
    assert isinstance(row, Row)
    assert row["n"] == 5
    assert row.freshness is not None
    assert (row.freshness.served_by, row.freshness.batch) == (node_id, 7)
