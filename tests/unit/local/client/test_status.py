"""What `standpipe status` makes of a node's /clusterStatus."""

from standpipe.local.client.status import NodeView, ReplicaView, replicas_of

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
