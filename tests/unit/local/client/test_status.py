"""What `standpipe status` makes of a node's /clusterStatus."""

import msgspec
import pytest
from rich.console import Console

from standpipe.adapters.http.peer_client import Response
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.local.client.status import (
    NodeView,
    ReplicaView,
    StatusReport,
    ask_node,
    render,
    replicas_of,
)

NODE = NodeView(node_id="node-1", public="127.0.0.1:8088", is_up=True)
BODY = {
    "clusterStatus": {
        "127.0.0.1:8088": {
            "activeStandbyPerQuery": {
                "CTAS_T_1": {
                    "activePartitions": [{"topic": "T", "partition": 0}],
                    "standByPartitions": [{"topic": "T", "partition": 1}],
                }
            },
            "hostStoreLags": {
                "stateStoreLags": {
                    "CTAS_T_1#Store": {
                        "lagByPartition": {
                            "0": {
                                "currentOffsetPosition": 7,
                                "endOffsetPosition": 9,
                                "offsetLag": 2,
                            }
                        }
                    }
                }
            },
        },
        "127.0.0.1:8098": {"activeStandbyPerQuery": {"CTAS_T_1": {"activePartitions": [{}]}}},
    }
}


def test_a_node_speaks_for_itself_only_and_unknown_lag_is_not_zero() -> None:
    assert replicas_of(BODY, NODE) == [
        ReplicaView(
            query_id="CTAS_T_1",
            partition=0,
            node="node-1",
            role="active",
            position=7,
            end=9,
            lag=2,
        ),
        ReplicaView(query_id="CTAS_T_1", partition=1, node="node-1", role="standby"),
    ]


def test_a_node_that_is_not_in_the_answer_has_no_replicas() -> None:
    assert replicas_of({"clusterStatus": {}}, NODE) == []


class Node(SyncClient):
    """One that answers as told."""

    def get(self, origin: str, target: str) -> Response:
        return Response(200, {}, ANSWERS[target])


ANSWERS = {
    "/info": b'{"KsqlServerInfo": {"version": "1.2.3"}}',
    "/healthcheck": msgspec.json.encode(
        {
            "isHealthy": False,
            "details": {
                "metastore": {"isHealthy": True},
                "disk": {"isHealthy": False, "message": "nearly full: 5 of 768 MiB are free"},
                "another": {"isHealthy": False},
            },
        }
    ),
}


def test_a_node_that_is_not_healthy_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    node = ask_node(Node(timeout_s=1), "node-1", "127.0.0.1:8088")
    assert node.is_up
    assert node.problems == (
        "disk: nearly full: 5 of 768 MiB are free",
        "another: not healthy",
    ), "an older or newer node may name no reason"
    Console(width=100).print(render(StatusReport(nodes=(node,))))
    shown = capsys.readouterr().out
    assert "not healthy" in shown
    assert "node-1: disk: nearly full" in shown


def test_a_node_that_answers_is_up_whatever_its_health_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ANSWERS, "/healthcheck", b"not JSON")
    node = ask_node(Node(timeout_s=1), "node-1", "127.0.0.1:8088")
    assert (node.is_up, node.problems) == (True, ("healthcheck: no answer",))
