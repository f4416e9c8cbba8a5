from tests.unit.pipeline.queries_of import wanted_of

from standpipe.config import registry
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.source import metrics_name

(WANTED,) = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
)


def test_options_that_streams_and_batches_share() -> None:
    options = KafkaReads(kafka="b:1", config=registry.load({})).options("s")
    assert options["kafka.fetch.max.wait.ms"] == "5"
    assert options["failOnDataLoss"] == "true"
    assert options["subscribe"] == "s"


def test_metrics_have_a_name_per_input() -> None:
    (source,) = WANTED.query.plan.inputs
    assert metrics_name(source) == f"records:{source.view}"
