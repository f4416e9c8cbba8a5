"""What a client's operations ask of which node: stories over a scripted cluster, whose clock is a
number."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from standpipe.client.core.exchange import HttpAnswer, HttpRequest, NoAnswer, Outcome, SendAll
from standpipe.client.core.literals import UnfitParameter
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.operations import Operations
from standpipe.client.core.settings import Settings
from standpipe.errors import StatementError

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


def refused() -> HttpAnswer:
    error = {"@type": "statement_error", "error_code": 40001, "message": "no such column"}
    return HttpAnswer(400, {}, json.dumps(error).encode())


def test_an_insert_has_columns_that_were_added_since() -> None:
    """A description was kept for as long as the process ran."""
    cluster = Cluster()
    cluster.run(cluster.client.insert("S", {"k": "a"}))
    cluster.columns.append("W")
    rows = [{"k": "b"}, {"k": "c", "w": "x"}]
    assert cluster.run(cluster.client.insert("s", (row for row in rows))) == 2
    assert [what for _, what in cluster.log if "INSERT" in what] == [
        "INSERT INTO S (K) VALUES ('a');",
        "INSERT INTO S (K) VALUES ('b');\nINSERT INTO S (K, W) VALUES ('c', 'x');",
    ]
    assert len(cluster.asked("DESCRIBE")) == 2


@pytest.mark.parametrize("row", [{"k": "a", "nope": "x"}, {"k": float("nan")}])
def test_a_row_that_does_not_fit_is_refused_by_what_the_source_is_now(
    row: dict[str, object],
) -> None:
    cluster = Cluster()
    for count in (1, 2, 3):  # the first reads it, and each other one reads it again
        with pytest.raises(UnfitParameter):
            cluster.run(cluster.client.insert("S", row))
        assert len(cluster.asked("DESCRIBE")) == count
    assert cluster.asked("INSERT") == []


def test_rows_that_a_node_refused_are_not_sent_again() -> None:
    """It may have written some of them. The next insert reads the columns again."""
    cluster = Cluster()
    cluster.run(cluster.client.insert("S", {"k": "a"}))
    cluster.refusals = [refused()]
    with pytest.raises(StatementError, match="no such column"):
        cluster.run(cluster.client.insert("S", [{"k": "b"}, {"k": "c"}]))
    assert len(cluster.asked("INSERT")) == 2
    cluster.run(cluster.client.insert("S", {"k": "b"}))
    assert len(cluster.asked("DESCRIBE")) == 2


def test_get_many_of_a_table_that_was_created_again() -> None:
    """With another key column, by which a node refuses the statement."""
    cluster = Cluster(rows=[["a", "x"]])
    assert cluster.run(cluster.client.get_many("S", ["a"]))[0]["V"] == "x"
    cluster.columns, cluster.refusals = ["ID", "V"], [refused()]
    found = cluster.run(cluster.client.get_many("S", (key for key in ("b", "a"))))
    assert [row and row["V"] for row in found] == [None, "x"]
    assert [what.partition("WHERE ")[2] for _, what in cluster.log if "SELECT" in what] == [
        "K = 'a';",
        "K IN ('b', 'a');",
        "ID IN ('b', 'a');",
    ]
    cluster.refusals = [refused(), refused()]
    with pytest.raises(StatementError):
        cluster.run(cluster.client.get_many("S", ["a"]))


def test_get_many_of_a_table_that_nobody_knew() -> None:
    cluster = Cluster(refusals=[refused()])
    with pytest.raises(StatementError):
        cluster.run(cluster.client.get_many("S", ["a"]))
    assert len(cluster.asked("SELECT")) == 1, "what it says of it is new"


def test_a_lookup_after_an_insert_reads_a_description_again() -> None:
    """It knew the shape, though not yet where the rows are."""
    cluster = Cluster(rows=[["a", "x"]])
    cluster.run(cluster.client.insert("S", {"k": "a"}))
    cluster.columns = ["ID", "V"]
    assert cluster.run(cluster.client.get("S", {"id": "a"}))["V"] == "x"
