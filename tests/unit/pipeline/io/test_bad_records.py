import gc
import json
import weakref
from typing import Any, cast

from standpipe.pipeline.io.bad_records import BadRecords, to_log_records


class Query:
    """`pyspark.sql.streaming.StreamingQuery`, as far as it is asked for without a batch."""

    id = "5b0c"


def test_bad_records_let_a_query_go_that_has_ended() -> None:
    """The JVM kept it, and some MB of plans: a driver that had ended 300 ran out of memory."""
    nothing: Any = None
    counted = BadRecords(nothing, ("Q",), (), nothing, nothing)
    query = Query()
    counted.set_query(cast("Any", query))
    kept = weakref.ref(query)
    del query
    gc.collect()
    assert kept() is None


def test_to_log_records() -> None:
    sample = {"topic": "s", "partition": 1, "offset": 5, "reason": "VALUE", "value_base64": "e30="}
    (line,) = to_log_records("Q", [sample])
    said = json.loads(line)
    assert said.pop("at_ms") > 0
    assert said == {"query_id": "Q", **sample}
