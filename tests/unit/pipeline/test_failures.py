import pytest

from standpipe.pipeline.failures import reason_of


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] …", "DATA_LOSS"),
        ("Some data may have been lost because they are not available in Kafka", "DATA_LOSS"),
        ("[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema", "PLAN_CHANGED"),
        (
            "UnknownTopicOrPartitionException: This server does not host this topic-partition.",
            None,  # a broker that has just started, or has not heard of the topic yet, says so too
        ),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] … Caused by: EOFException", "STATE_DAMAGED"),
        (
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] … Caused by: java.net.ConnectException: Call",
            None,  # HDFS is away
        ),
        (
            "[CANNOT_LOAD_STATE_STORE] org.apache.hadoop.hdfs.server.namenode.SafeModeException",
            None,  # it has just come back
        ),
        ("Connection to node -1 could not be established", None),
        ("", None),
    ],
)
def test_reason_of(message: str, reason: str | None) -> None:
    assert reason_of(message) == reason
