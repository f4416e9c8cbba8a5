import pytest

from standpipe.pipeline.failures import REASONS, reason_of, registry_failure


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SchemaRegistryUnavailable: Schema registry: http://r does not answer: timed out",
         "Schema registry: http://r does not answer: timed out"),
        (
            "… Python Proxy …\nstandpipe.sql.x.SchemaRegistryUnavailable: refused (401)\n\tat",
            "refused (401)",
        ),
        ("KafkaUnavailable: Kafka: no", None),
    ],
)  # fmt: skip
def test_registry_failure(text: str, message: str | None) -> None:
    found = registry_failure(text)
    assert (found and found[1]) == message
    assert found is None or found[0] in REASONS
