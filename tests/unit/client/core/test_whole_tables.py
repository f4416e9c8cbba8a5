"""What is asked of which node for a whole table: stories with a clock of numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from standpipe.client.core.answers import RowLines, ServerRefused
from standpipe.client.core.exchange import (
    HttpAnswer,
    HttpRequest,
    NoAnswer,
    Operation,
    Outcome,
    SendAll,
)
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.rows import Columns
from standpipe.client.core.settings import Settings
from standpipe.client.core.tables import TableMap
from standpipe.client.core.whole_tables import WholeTables
from standpipe.session_token import LEVEL_PROPERTY, SNAPSHOT
from standpipe.sql.plans import PARTITION_PROPERTY

HEAD = b'{"queryId":"query_1","columnNames":["ID"],"columnTypes":["STRING"]}\n'
ROWS = HttpAnswer(200, {}, HEAD + b'["a"]\n["b"]\n')
CUT = NoAnswer("closed by the node", was_sent=True)
MEMBERS = {
    "clusterStatus": {
        "a:1": {"standpipe": {"nodeId": "n1"}},
        "b:1": {"standpipe": {"nodeId": "n2"}},
    }
}
DESCRIBED = {
    "sourceDescription": {
        "name": "T",
        "windowType": None,
        "keyFormat": "KAFKA",
        "fields": [{"name": "ID", "schema": {"type": "STRING"}, "type": "KEY"}],
    }
}
ROUTE = {
    "partitions": [
        {"partition": 0, "activeHost": "a:1", "standbyHosts": ["b:1"]},
        {"partition": 1, "activeHost": "b:1", "standbyHosts": ["a:1"]},
    ]
}


def body(value: object) -> HttpAnswer:
    return HttpAnswer(200, {}, json.dumps(value).encode())


def told(operation: Operation[Any], *outcomes: Outcome) -> tuple[Any, list[HttpRequest]]:
    """The result, and what was asked; each request gets the next outcome."""
    sent: list[HttpRequest] = []
    left = iter(outcomes)
    fact: Any = None
    try:
        while True:
            order = operation.send(fact)
            assert isinstance(order, SendAll)
            sent += order.requests
            fact = [next(left) for _ in order.requests]
    except StopIteration as done:
        assert list(left) == []
        return done.value, sent


USUAL = Settings(timeout_s=60)


def tables(settings: Settings = USUAL) -> WholeTables:
    return WholeTables(Nodes(("a:1", "b:1")), lambda: 0.0, settings)


def test_layout() -> None:
    found, sent = told(tables().layout("t"), body(MEMBERS), body([DESCRIBED]), body(ROUTE))
    assert isinstance(found, TableMap)
    assert list(found.shape.columns) == ["ID"]
    assert found.holders == (("a:1", "b:1"), ("b:1", "a:1"))
    assert [each.path for each in sent] == ["/clusterStatus", "/ksql", "/route?table=%54"]
    assert b"DESCRIBE T;" in sent[1].body
    assert sent[1].timeout_s == 0.5, "a node that is silent costs no more than that"


def test_a_table_that_is_unknown() -> None:
    error = {"@type": "statement_error", "error_code": 40001, "message": "there is none"}
    refusal = replace_status(body(error), 400)
    with pytest.raises(Exception, match="there is none"):
        told(tables().layout("t"), body(MEMBERS), refusal)


def replace_status(answer: HttpAnswer, status: int) -> HttpAnswer:
    return HttpAnswer(status, answer.headers, answer.body)


def test_the_rows_of_a_partition_come_from_one_answer() -> None:
    """A node that ends before its answer does is followed by another one, which gives all of it."""
    operation = tables().lines("SELECT ID FROM T;", 1, ("b:1", "a:1"))
    found, sent = told(operation, body(MEMBERS), CUT, ROWS)
    assert found == RowLines(Columns(("ID",), ("STRING",)), [b'["a"]', b'["b"]'])
    assert [each.address for each in sent[1:]] == ["b:1", "a:1"]
    asked = json.loads(sent[2].body)
    assert asked == {"sql": "SELECT ID FROM T;", "properties": {PARTITION_PROPERTY: 1}}
    assert sent[1].timeout_s == 30, "half of the time, so that the second has as much"


def test_all_rows_at_a_level() -> None:
    settings = Settings(timeout_s=60, consistency=SNAPSHOT)
    _, sent = told(tables(settings).lines("SELECT ID FROM T;"), body(MEMBERS), ROWS)
    assert json.loads(sent[1].body)["properties"] == {LEVEL_PROPERTY: SNAPSHOT}


def test_behind_a_load_balancer_no_holder_is_known() -> None:
    settings = Settings(timeout_s=60, finds_members=False)
    found, sent = told(tables(settings).layout("T"), body([DESCRIBED]), body(ROUTE))
    assert found.holders == ((), ())
    assert len(sent) == 2, "and nobody is asked for members"


def test_what_is_wrong_with_the_statement_is_not_tried_again() -> None:
    error = {"@type": "generic_error", "error_code": 40000, "message": "more than 5 bytes"}
    refusal = replace_status(body(error), 400)
    with pytest.raises(ServerRefused, match="more than 5 bytes"):
        told(tables().lines("SELECT ID FROM T;"), body(MEMBERS), refusal)
