"""What a program may give as `nodes`, and which nodes are asked."""

from __future__ import annotations

import json
from typing import Any, Self

import pytest

from standpipe.adapters.http.peer_client import ConnectFailed, Response
from standpipe.spark import cluster
from standpipe.spark.cluster import ClusterNodes, addresses
from standpipe.spark.errors import ServeRefused


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("n1:8088", ("n1:8088",)),
        ("n1:8088, n2:8088,", ("n1:8088", "n2:8088")),
        (["n1:8088", "n2:8088"], ("n1:8088", "n2:8088")),
        ("http://n1:8088/", ("http://n1:8088",)),
    ],
)
def test_nodes_as_a_text_or_a_list(nodes: Any, found: tuple[str, ...]) -> None:
    assert addresses(nodes) == found


@pytest.mark.parametrize(
    ("nodes", "words"),
    [("", "name at least one node"), (" , ", "at least one"), ("n1", "'n1' is not host:port")],
)
def test_what_is_no_address(nodes: str, words: str) -> None:
    """Else it is a traceback of a socket, or `no node answers` without a reason."""
    with pytest.raises(ServeRefused, match=words):
        addresses(nodes)


class Members:
    """Nodes behind one public name. `there`: their internal addresses."""

    def __init__(self, *there: str) -> None:
        self.there = there
        self.asked: list[str] = []

    def __call__(self, **_: object) -> Members:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def request(self, _method: str, node: str, target: str, **_: object) -> Response:
        self.asked.append(node)
        if node == "public:1":
            members = {each: {"standpipe": {"internal": each}} for each in self.there}
            return Response(200, {}, json.dumps({"clusterStatus": members}).encode())
        if node not in self.there:
            raise ConnectFailed("refused")
        return Response(200, {}, b'{"service_id":"s"}')


def test_nodes_that_were_replaced_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may live longer than all the nodes that it began with."""
    members = Members("a:2", "b:2")
    monkeypatch.setattr(cluster, "SyncClient", members)
    nodes = ClusterNodes(("public:1",), "secret")
    assert nodes.describe().service_id == "s"
    members.there, members.asked = ("c:2",), []
    assert nodes.describe().service_id == "s"
    assert members.asked == ["a:2", "b:2", "public:1", "c:2"]
    members.asked = []
    assert nodes.describe().service_id == "s"
    assert members.asked == ["c:2"]


def test_nodes_that_are_away_are_not_asked_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    members = Members()
    monkeypatch.setattr(cluster, "SyncClient", members)
    nodes = ClusterNodes(("public:1",), "secret", ("a:2",))
    with pytest.raises(ServeRefused, match="no node answers /describe"):
        nodes.describe()
    assert members.asked == ["a:2", "public:1"]
