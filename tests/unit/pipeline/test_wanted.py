import msgspec
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.pipeline.wanted import plan_digest


def test_plan_digest_depends_on_what_is_said_and_not_on_what_is_unset() -> None:
    (wanted,) = wanted_of(
        "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
        "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
    )
    plan = wanted.query.plan
    assert plan_digest(plan) == plan_digest(msgspec.structs.replace(plan))
    assert plan_digest(plan) != plan_digest(msgspec.structs.replace(plan, sql=plan.sql + " "))
    stamped = msgspec.structs.replace(plan.inputs[0], timestamp_column="N")
    assert plan_digest(plan) != plan_digest(msgspec.structs.replace(plan, inputs=(stamped,)))
