"""Which partitions a query reads, and which it may name."""

from __future__ import annotations

import pytest
from tests.samples import sample_table

from standpipe.errors import BadRequest
from standpipe.node.worker.pull.pull_query import check_partition
from standpipe.sql.lookup.plan_cache import PlanCache
from standpipe.sql.plans import PARTITION_PROPERTY

PLANS = PlanCache({"T": sample_table(partitions=4, is_materialized=True)})
SCAN, LOOKUP = "SELECT * FROM T;", "SELECT * FROM T WHERE K = 'a';"


@pytest.mark.parametrize(
    ("text", "partition", "refusal"),
    [
        (SCAN, None, ""),
        (SCAN, 0, ""),
        (SCAN, 3, ""),
        (SCAN, 4, "T has 4 partitions, from 0 on"),
        (LOOKUP, None, ""),
        (LOOKUP, 0, "is for scans, and this query names keys"),
    ],
)
def test_partitions_that_a_query_may_name(text: str, partition: int | None, refusal: str) -> None:
    plan = PLANS.plan(text, {})
    if not refusal:
        check_partition(partition, plan)
        return
    with pytest.raises(BadRequest, match=refusal) as refused:
        check_partition(partition, plan)
    assert PARTITION_PROPERTY in refused.value.message
