"""Which node a request goes to, and what is made of its answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.adapters.http.peer_client import ConnectFailed, PathFailed, Response
from standpipe.client.core.attempts import AnswerLost
from standpipe.errors import SetupError
from standpipe.local.client import rest_client
from standpipe.local.client.rest_client import NodesClient

Answer = Response | PathFailed
INSERT = "INSERT INTO CLICKS (ID) VALUES ('a');"
EMPTY = Response(200, {}, b"[]")


class Cluster:
    """Two nodes, which answer what the test says. `asked`: which, in order."""

    def __init__(self, first: Answer, second: Answer = EMPTY) -> None:
        self.answers = {"http://a:1": first, "http://b:1": second}
        self.asked: list[str] = []

    def request(self, _method: str, origin: str, _target: str, **_: object) -> Response:
        self.asked.append(origin.removeprefix("http://"))
        answer = self.answers[origin]
        if isinstance(answer, PathFailed):
            raise answer
        return answer


@pytest.fixture
def client_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Cluster], NodesClient]:
    def made(cluster: Cluster) -> NodesClient:
        monkeypatch.setattr(rest_client, "SyncClient", lambda **_: cluster)
        return NodesClient(["a:1", "b:1"])

    return made


ClientOf = Callable[[Cluster], NodesClient]


@pytest.mark.parametrize(
    "text", [INSERT, "CREATE TYPE T AS STRING;", f"SHOW TABLES; {INSERT}", "DROP TABLE T"]
)
def test_a_change_that_was_sent_is_not_sent_to_another_node(client_of: ClientOf, text: str) -> None:
    cluster = Cluster(PathFailed("timed out"))
    with pytest.raises(AnswerLost, match=r"a:1 took .* \(timed out\): it may have been"):
        client_of(cluster).execute(text)
    assert cluster.asked == ["a:1"]


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (INSERT, ConnectFailed("refused")),
        ("SHOW TABLES; SHOW QUERIES;", PathFailed("timed out")),
        ("-- what there is\ndescribe `a;b`", PathFailed("timed out")),
    ],
)
def test_what_no_node_has_carried_out_goes_to_another_one(
    client_of: ClientOf, text: str, failure: PathFailed
) -> None:
    cluster = Cluster(failure)
    assert client_of(cluster).execute(text) == []
    assert cluster.asked == ["a:1", "b:1"]


def test_a_query_goes_to_another_node(client_of: ClientOf) -> None:
    rows = b'{"columnNames":["ID"],"columnTypes":["STRING"]}\n["a"]\n'
    cluster = Cluster(PathFailed("reset"), Response(200, {}, rows))
    assert client_of(cluster).pull("SELECT * FROM T;").rows == (("a",),)


def test_decimals_are_exact(client_of: ClientOf) -> None:
    head = b'{"columnNames":["D","F"],"columnTypes":["DECIMAL(38, 2)","DOUBLE"]}\n'
    rows = Response(200, {}, head + b"[1.1,1.10]\n[12345678901234567890.12,1]\n")
    found = client_of(Cluster(rows)).pull("SELECT * FROM T;").rows
    assert [list(map(str, row)) for row in found] == [
        ["1.10", "1.1"],
        ["12345678901234567890.12", "1"],
    ]


def test_no_node_answers(client_of: ClientOf) -> None:
    cluster = Cluster(ConnectFailed("refused"), ConnectFailed("refused"))
    with pytest.raises(SetupError, match=r"a:1: refused; b:1: refused"):
        client_of(cluster).execute(INSERT)
