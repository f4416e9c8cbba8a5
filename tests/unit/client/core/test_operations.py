"""What a client's operations ask of which node: stories over a scripted cluster, whose clock is a
number."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from standpipe.client.core.exchange import HttpAnswer, HttpRequest, NoAnswer, Outcome, SendAll
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.operations import Operations
from standpipe.client.core.settings import Settings

MEMBERS = ("a:1", "b:1", "c:1")


def body(value: object) -> HttpAnswer:
    return HttpAnswer(200, {}, json.dumps(value).encode())


@dataclass
class Cluster:
    """Three nodes with a source of text columns, and a client. `columns`: the first is the key.

    `silent` nodes take a request and give no answer; to those in `unreachable` there is no
    connection. Either takes all the time that it may.
    """

    columns: list[str] = field(default_factory=lambda: ["K", "V"])
    rows: list[list[str]] = field(default_factory=list[list[str]])
    silent: set[str] = field(default_factory=set[str])
    unreachable: set[str] = field(default_factory=set[str])
    #: of the answers to statements that are not DESCRIBE, before they are well
    refusals: list[HttpAnswer] = field(default_factory=list[HttpAnswer])
    now_s: float = 100.0
    #: node, and statement or path
    log: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def __post_init__(self) -> None:
        self.client = Operations(Nodes(MEMBERS), lambda: self.now_s, Settings())

    def run(self, operation: Generator[Any, Any, Any]) -> Any:
        fact: Any = None
        while True:
            try:
                order = operation.send(fact)
            except StopIteration as done:
                return done.value
            if isinstance(order, SendAll):
                fact = [self._outcome(request) for request in order.requests]
            else:
                self.now_s += order.seconds
                fact = None

    def asked(self, word: str) -> list[str]:
        """The nodes that got what has this word in it, in order."""
        return [address for address, what in self.log if word in what]

    def _outcome(self, request: HttpRequest) -> Outcome:
        sent = json.loads(request.body) if request.body else {}
        text = sent.get("ksql") or sent.get("sql") or request.path
        self.log.append((request.address, text))
        if request.address in self.unreachable:
            self.now_s += request.connect_s
            return NoAnswer("timed out", was_sent=False)
        if request.address in self.silent:
            self.now_s += request.timeout_s
            return NoAnswer("timed out", was_sent=True)
        return self._answer(text)

    def _answer(self, text: str) -> HttpAnswer:
        if text == "/clusterStatus":
            return body({"clusterStatus": {a: {"standpipe": {"nodeId": a}} for a in MEMBERS}})
        if text.startswith("/route"):
            part = {"partition": 0, "activeHost": "a:1", "standbyHosts": ["b:1"]}
            return body({"partitions": [part]})
        if text.startswith("DESCRIBE"):
            return body([{"sourceDescription": self._described()}])
        if self.refusals:
            return self.refusals.pop(0)
        if text.startswith("SELECT"):
            head = {"columnNames": self.columns, "columnTypes": ["STRING"] * len(self.columns)}
            lines = [json.dumps(each) for each in (head, *self.rows)]
            return HttpAnswer(200, {}, "\n".join([*lines, ""]).encode())
        return body([])

    def _described(self) -> dict[str, object]:
        fields = [{"name": name, "schema": {"type": "STRING"}} for name in self.columns]
        return {
            "name": "S",
            "fields": [{**fields[0], "type": "KEY"}, *fields[1:]],
            "windowType": None,
            "keyFormat": "KAFKA",
        }


def knowing_its_members() -> Cluster:
    """The next request without an owner goes to a:1."""
    cluster = Cluster(rows=[["ada", "x"]])
    cluster.run(cluster.client.query("SELECT * FROM S;"))
    cluster.client.nodes._turn = len(MEMBERS) - 1
    cluster.log.clear()
    return cluster


@pytest.mark.parametrize("call", ["get", "get_many", "insert"])
def test_a_silent_node_is_not_waited_for_with_a_description(call: str) -> None:
    """It had the whole time of the call: no other node was asked."""
    cluster = knowing_its_members()
    cluster.silent = {"a:1"}
    calls = {
        "get": cluster.client.get("S", {"k": "ada"}),
        "get_many": cluster.client.get_many("S", ["ada"]),
        "insert": cluster.client.insert("S", {"k": "ada"}),
    }
    begin_s = cluster.now_s
    cluster.run(calls[call])
    assert cluster.asked("DESCRIBE") == ["a:1", "b:1"]
    assert cluster.now_s - begin_s <= 2 * cluster.client.settings.patience_s


def test_a_statement_that_changes_nothing_leaves_time_for_another_node() -> None:
    cluster = knowing_its_members()
    cluster.silent = {"a:1"}
    begin_s = cluster.now_s
    assert cluster.run(cluster.client.execute("SHOW TABLES;")) == []
    assert cluster.asked("SHOW") == ["a:1", "b:1"]
    assert cluster.now_s - begin_s == cluster.client.settings.timeout_s / 2


@pytest.mark.parametrize(
    "statement", ["INSERT INTO S VALUES ('a');", "CREATE STREAM S (K STRING) WITH (PARTITIONS=1);"]
)
def test_a_statement_goes_to_another_node_if_one_does_not_connect(statement: str) -> None:
    """No node has read it. The connection had the whole time of the call."""
    cluster = knowing_its_members()
    cluster.unreachable = {"a:1", "b:1"}
    begin_s = cluster.now_s
    cluster.run(cluster.client.execute(statement))
    assert cluster.asked(statement) == ["a:1", "b:1", "c:1"]
    assert cluster.now_s - begin_s == 2 * cluster.client.settings.patience_s
